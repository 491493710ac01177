package sluice

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// saveEvery is how often the lanes' state is written while a Scheduler works. What a crash forgets is no older.
const saveEvery = 5 * time.Second

// store keeps what is known of the lanes in files, one a lane, so that the next process goes on from there. Of several
// processes on a lane, the first writes; the others only read, and say so by an EventShared.
type store struct {
	s    *Scheduler
	dir  string
	stop chan struct{}
	wg   sync.WaitGroup

	known sync.Map // names of lanes whose state was read

	err error // the first that saving met; of who saves

	mu     sync.Mutex
	lanes  map[string]*laneFile
	closed bool
}

type laneFile struct {
	path string
	lock *os.File // nil: another process has it
}

func newStore(s *Scheduler, dir string) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("config: StateDir: %w", err)
	}
	st := &store{s: s, dir: dir, stop: make(chan struct{}), lanes: make(map[string]*laneFile)}
	st.wg.Go(st.keep)
	return st, nil
}

// open reads a lane's state at its first call.
func (st *store) open(lane string) {
	if _, ok := st.known.Load(lane); ok {
		return
	}
	st.mu.Lock() // held until the gate knows what is read: who comes second waits for that
	if st.lanes[lane] != nil || st.closed {
		st.mu.Unlock()
		return
	}
	sum := sha256.Sum256([]byte(st.s.cfg.Name + "\x00" + lane))
	f := &laneFile{path: filepath.Join(st.dir, hex.EncodeToString(sum[:12])+".json")}
	st.lanes[lane] = f
	var shared bool
	f.lock, shared = lockFile(f.path + ".lock")
	m, err := readMemory(f.path) // what is missing or damaged is learned again
	st.s.mu.Lock()
	if err == nil && m.Lane == lane {
		st.s.gate.Recall(time.Now(), m)
	}
	if shared && st.s.cfg.Observer != nil {
		st.s.events = append(st.s.events, Event{Type: EventShared, At: time.Now(), Lane: lane})
	}
	st.known.Store(lane, true)
	st.mu.Unlock()
	st.s.unlockAndFlush()
}

func readMemory(path string) (m gate.Memory, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(b, &m)
}

// keep writes the state from time to time.
func (st *store) keep() {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			st.save()
		case <-st.stop:
			return
		}
	}
}

// save writes the state of every lane that is ours to write. It is not called twice at once.
func (st *store) save() {
	st.s.mu.Lock()
	memories := st.s.gate.Memories(time.Now())
	st.s.mu.Unlock()
	for _, m := range memories {
		st.mu.Lock()
		f := st.lanes[m.Lane]
		st.mu.Unlock()
		if f == nil || f.lock == nil {
			continue
		}
		if err := writeMemory(f.path, m); err != nil && st.err == nil {
			st.err = fmt.Errorf("state of lane %q: %w", m.Lane, err)
		}
	}
}

// writeMemory replaces a file by a temporary one that is on disk before it takes the name.
func writeMemory(path string, m gate.Memory) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	tmp, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600) // the lock makes the name ours
	if err != nil {
		return err
	}
	_, err = tmp.Write(append(b, '\n'))
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

// close writes the state once more and lets go of the lanes.
func (st *store) close() error {
	close(st.stop)
	st.wg.Wait()
	st.save()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	for _, f := range st.lanes {
		if f.lock != nil {
			f.lock.Close()
		}
	}
	return st.err
}
