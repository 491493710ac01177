package work_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/work"
)

// mortalDisk is the system's disk with a memory of what would outlast a power cut: what was synced, and of the rest any
// beginning. Files are known by what they are, not by their names.
type mortalDisk struct {
	work.Disk
	dir  string
	luck *rand.Rand

	mu    sync.Mutex
	nodes []*node
	names map[string]*node // now
	lasts map[string]*node // after a cut
	steps []func()         // to lasts, since the directory was synced

	syncs  int
	budget int // of operations, before the power is cut; -1: none
	dead   bool
	died   time.Time
}

// node is a file: what is on the disk, and what was done to it since it was synced.
type node struct {
	info  fs.FileInfo
	disk  []byte
	steps []step
}

// step is an append, or a truncation to a size.
type step struct {
	data []byte
	size int64
}

var errCut = errors.New("the power is off")

func newMortalDisk(dir string, luck *rand.Rand) *mortalDisk {
	return &mortalDisk{Disk: work.SystemDisk(), dir: dir, luck: luck, names: map[string]*node{}, lasts: map[string]*node{}, budget: -1}
}

// aliveLocked counts an operation, and says whether the power is still on.
func (d *mortalDisk) aliveLocked() bool {
	if d.budget == 0 {
		d.dead, d.died = true, time.Now()
	}
	d.budget--
	return !d.dead
}

func (d *mortalDisk) Open(name string, flag int, perm fs.FileMode) (work.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.aliveLocked() {
		return nil, errCut
	}
	f, err := d.Disk.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	n := d.names[name]
	if n == nil || !os.SameFile(n.info, info) {
		n = &node{info: info}
		d.nodes = append(d.nodes, n)
		d.names[name] = n
		d.steps = append(d.steps, func() { d.lasts[name] = n })
	}
	if flag&os.O_TRUNC != 0 {
		n.steps = append(n.steps, step{size: 0})
	}
	return &mortalFile{f, d, n}, nil
}

func (d *mortalDisk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.aliveLocked() {
		return errCut
	}
	if err := d.Disk.Rename(from, to); err != nil {
		return err
	}
	n := d.names[from]
	delete(d.names, from)
	d.names[to] = n
	d.steps = append(d.steps, func() { delete(d.lasts, from); d.lasts[to] = n })
	return nil
}

func (d *mortalDisk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.aliveLocked() {
		return errCut
	}
	delete(d.names, name)
	d.steps = append(d.steps, func() { delete(d.lasts, name) })
	return d.Disk.Remove(name)
}

func (d *mortalDisk) SyncDir(string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.aliveLocked() {
		return
	}
	for _, s := range d.steps {
		s()
	}
	d.steps = nil
}

type mortalFile struct {
	work.File
	d *mortalDisk
	n *node
}

func (f *mortalFile) Write(b []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if !f.d.aliveLocked() {
		return 0, errCut
	}
	f.n.steps = append(f.n.steps, step{data: slices.Clone(b)})
	return f.File.Write(b)
}

func (f *mortalFile) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if !f.d.aliveLocked() {
		return errCut
	}
	f.n.steps = append(f.n.steps, step{size: size})
	return f.File.Truncate(size)
}

func (f *mortalFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if !f.d.aliveLocked() {
		return errCut
	}
	f.d.syncs++
	for _, s := range f.n.steps {
		f.n.do(s)
	}
	f.n.steps = nil
	return nil
}

func (n *node) do(s step) {
	if s.data == nil {
		n.disk = n.disk[:min(int64(len(n.disk)), s.size)]
		return
	}
	n.disk = append(n.disk, s.data...)
}

// cut turns the power off, and leaves the directory as the next start finds it: of what was not synced, any beginning
// is there, its last write in part, or as so many zeros.
func (d *mortalDisk) cut(t *testing.T) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.dead {
		d.dead, d.died = true, time.Now()
	}
	for _, s := range d.steps[:d.luck.IntN(len(d.steps)+1)] {
		s()
	}
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.Contains(e.Name(), ".state.json") { // which nothing depends on
			os.Remove(filepath.Join(d.dir, e.Name()))
		}
	}
	for _, n := range d.nodes {
		whole := d.luck.IntN(len(n.steps) + 1)
		for _, s := range n.steps[:whole] {
			n.do(s)
		}
		if whole < len(n.steps) && n.steps[whole].data != nil {
			part := n.steps[whole].data
			at := d.luck.IntN(len(part))
			n.disk = append(n.disk, part[:at]...)
			if d.luck.IntN(3) == 0 {
				n.disk = append(n.disk, make([]byte, d.luck.IntN(len(part)-at))...)
			}
		}
	}
	for name, n := range d.lasts {
		if err := os.WriteFile(name, n.disk, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// recordedIn returns the ids of the lines of the journal that the next start finds, each at most once.
func recordedIn(t *testing.T, path string, cfg work.JournalConfig) map[string]bool {
	t.Helper()
	j, err := work.OpenJournal(path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, line := range linesOf(t, j) {
		id := strings.TrimPrefix(line, "id ")
		if ids[id] || id == line {
			t.Errorf("line %q is there twice, or is none", line)
		}
		ids[id] = true
	}
	if _, err := j.Append([]byte("id last\n")); err != nil {
		t.Errorf("after the cut: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Errorf("after the cut: %v", err)
	}
	return ids
}

// TestAPowerCutLosesNothingThatWasSynced cuts the power at any operation of the disk, and starts again.
func TestAPowerCutLosesNothingThatWasSynced(t *testing.T) {
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) { cutPower(t, seed) })
	}
}

func cutPower(t *testing.T, seed uint64) {
	luck := rand.New(rand.NewPCG(seed, 7))
	dir := t.TempDir()
	path := filepath.Join(dir, "out.jsonl")
	cfg := work.JournalConfig{Sync: work.SyncEach, Prefix: "id "}
	if luck.IntN(3) == 0 {
		cfg.Sync = work.SyncInterval
	}
	safe := map[string]time.Time{} // lines whose Append returned nil, and when
	due := func(at, now time.Time) bool {
		return cfg.Sync == work.SyncEach || now.Sub(at) > 100*time.Millisecond
	}
	next := 0
	for round := range 3 {
		d := newMortalDisk(dir, luck)
		d.adopt(t)
		d.budget = luck.IntN(60)
		kept := map[string]bool{}
		session(t, d, path, cfg, luck, &next, safe, kept, round > 0 && luck.IntN(2) == 0)
		d.cut(t)
		now := d.died
		found := recordedIn(t, path, cfg)
		for id, at := range safe {
			if !found[id] && (due(at, now) || kept[id]) {
				t.Errorf("seed %d, round %d: line %s, recorded %s before the cut, is lost", seed, round, id, now.Sub(at))
			}
		}
		for id := range safe {
			if !found[id] {
				delete(safe, id)
			}
		}
		for id := range found { // what was found is synced by the clean start
			safe[id] = time.Time{}
		}
		delete(safe, "last")
		drop(t, path)
	}
}

// drop takes the line away by which the journal was seen to go on.
func drop(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.ReplaceAll(string(b), "id last\n", "")), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// adopt takes what is in the directory for synced.
func (d *mortalDisk) adopt(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := filepath.Join(d.dir, e.Name())
		info, err := os.Stat(name)
		b, readErr := os.ReadFile(name)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(name, ".state.json") {
			continue
		}
		n := &node{info: info, disk: b}
		d.nodes = append(d.nodes, n)
		d.names[name], d.lasts[name] = n, n
	}
}

// session writes lines until the power is off, or to the end.
func session(t *testing.T, d *mortalDisk, path string, cfg work.JournalConfig, luck *rand.Rand, next *int, safe map[string]time.Time,
	kept map[string]bool, rewrite bool) {
	j, err := work.OpenJournal(path, cfg.On(d))
	if err != nil {
		if !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		return
	}
	defer j.Close()
	if rewrite { // drops nothing, but copies all
		j.Rewrite(func(work.Line) bool { return true })
	}
	for range luck.IntN(12) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 1 + luck.IntN(3) {
			id := fmt.Sprint(*next)
			*next++
			wg.Go(func() {
				if _, err := j.Append([]byte("id " + id + "\n")); err == nil {
					mu.Lock()
					safe[id] = time.Now()
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Duration(luck.IntN(60)) * time.Millisecond)
	}
	if luck.IntN(2) == 0 {
		down := func(line []byte) uint32 {
			n, _ := strconv.Atoi(strings.TrimPrefix(string(line), "id "))
			return math.MaxUint32 - uint32(n)
		}
		if err := j.Sort(down); err != nil && !errors.Is(err, errCut) {
			t.Error(err)
		}
	}
	if luck.IntN(2) == 0 {
		return
	}
	err = j.Close()
	for id := range safe {
		kept[id] = err == nil && !d.dead
	}
}
