package sluice

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// store keeps what is known of the lanes in files, one a lane, so that the next process goes on from there. Of several
// processes on a lane, the first writes what it learns; the others say so by an EventShared. Day counters are counted
// by all of them together. The state is written every gate.SaveEvery, so a crash forgets no more than that, and at once when a pause
// begins that is longer.
type store struct {
	s     *Scheduler
	dir   string
	stop  chan struct{}
	pause chan struct{} // is sent to when such a pause begins
	wg    sync.WaitGroup

	known sync.Map // names of lanes whose state was read

	err error // the first that saving met; of who saves

	mu     sync.Mutex
	lanes  map[string]*laneFile
	closed bool
}

// laneFile is a lane's file, and what of it this process has accounted for.
type laneFile struct {
	lane string
	path string
	lock *os.File // nil: another process has it, which writes what is learned; this one only counts the day
	last gate.Memory
}

func newStore(s *Scheduler, dir string) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("config: StateDir: %w", err)
	}
	st := &store{s: s, dir: dir, stop: make(chan struct{}), pause: make(chan struct{}, 1), lanes: make(map[string]*laneFile)}
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
	f := &laneFile{lane: lane, path: filepath.Join(st.dir, hex.EncodeToString(sum[:12])+".json")}
	st.lanes[lane] = f
	shared := f.take()
	m, err := readMemory(f.path) // what is missing or damaged is learned again
	st.s.mu.Lock()
	now := time.Now()
	if err != nil || m.Lane != lane {
		m = gate.Memory{Lane: lane}
	}
	if st.s.cfg.IgnorePauses {
		m.Limits, m.Until = nil, time.Time{}
	}
	st.s.gate.Recall(now, m)
	f.last, _ = st.s.gate.Memory(now, lane)
	if shared && st.s.cfg.Observer != nil {
		st.s.events = append(st.s.events, Event{Type: limits.EventShared, At: now, Lane: lane})
	}
	st.known.Store(lane, true)
	st.mu.Unlock()
	st.s.unlockAndFlush()
}

// take takes the file's lock, which ends with the process, and reports whether another process has it. Where there is no locking, nobody
// writes.
func (f *laneFile) take() (shared bool) {
	lock, err := os.OpenFile(f.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false
	}
	if err := atomicfile.TryLock(lock); err != nil {
		lock.Close()
		return errors.Is(err, atomicfile.ErrLocked)
	}
	f.lock = lock
	return false
}

// unlock gives the file's lock back.
func (f *laneFile) unlock() {
	if f.lock != nil {
		f.lock.Close()
	}
}

func readMemory(path string) (m gate.Memory, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(b, &m)
}

// saveSoon has the state written now. It does not block.
func (st *store) saveSoon() {
	select {
	case st.pause <- struct{}{}:
	default: // that is due anyway
	}
}

// keep writes the state from time to time.
func (st *store) keep() {
	tick := time.NewTicker(gate.SaveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			st.save()
		case <-st.pause:
			st.save()
		case <-st.stop:
			return
		}
	}
}

// save writes the state of every lane. It is not called twice at once.
func (st *store) save() {
	st.mu.Lock()
	files := slices.Collect(maps.Values(st.lanes))
	st.mu.Unlock()
	for _, f := range files {
		err := atomicfile.Locked(context.Background(), f.path+".write", func() error { return st.saveLane(f) })
		if err != nil && st.err == nil {
			st.err = fmt.Errorf("state of lane %q: %w", f.lane, err)
		}
	}
}

// saveLane writes a lane's state, after it has added its part of the day's counters to what other processes counted.
func (st *store) saveLane(f *laneFile) error {
	others, err := readMemory(f.path)
	found := err == nil && others.Lane == f.lane

	st.s.mu.Lock()
	now := time.Now()
	m, ok := st.s.gate.Memory(now, f.lane)
	if !ok {
		st.s.mu.Unlock()
		st.forget(f)
		return nil
	}
	select {
	case <-st.stop:
		m.Close()
	default:
	}
	if found {
		st.s.gate.Share(now, &m, &f.last, &others)
	}
	f.last = m
	st.s.unlockAndFlush()

	if f.lock == nil {
		if !found || len(m.Budgets) == 0 {
			return nil
		}
		others.Budgets, others.SavedAt = m.Budgets, m.SavedAt
		m = others
	}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return atomicfile.Write(f.path, atomicfile.Options{Draft: f.path + ".tmp"}, append(b, '\n'))
}

// forget lets go of a lane that the gate has forgotten. If a call uses the lane meanwhile, the next one opens it here again.
func (st *store) forget(f *laneFile) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.lanes, f.lane)
	st.known.Delete(f.lane)
	f.unlock()
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
		f.unlock()
	}
	return st.err
}
