package pool_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/pool"
)

// stores are those that there are, each empty.
func stores(t *testing.T) map[string]pool.Store {
	t.Helper()
	file, err := pool.NewFileStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return map[string]pool.Store{"memory": pool.NewMemoryStore(), "file": file}
}

func TestAStoreKeepsWhatWasSavedLast(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			if _, err := s.Load("m"); !errors.Is(err, pool.ErrNoCheckpoint) || !errors.Is(err, os.ErrNotExist) {
				t.Errorf("nothing was saved: %v", err)
			}
			before := time.Now()
			for _, data := range []string{"first", "", "last\nof\nseveral lines"} {
				if err := s.Save("m", []byte(data)); err != nil {
					t.Fatal(err)
				}
				c, err := s.Load("m")
				if err != nil || string(c.Data) != data || c.Damage != nil || c.SavedAt.Before(before.Add(-time.Second)) {
					t.Errorf("%q: %+v, %v", data, c, err)
				}
			}
			if _, err := s.Load("other"); !errors.Is(err, pool.ErrNoCheckpoint) {
				t.Errorf("another: %v", err)
			}
			for range 2 {
				if err := s.Delete("m"); err != nil {
					t.Error(err)
				}
			}
			if _, err := s.Load("m"); !errors.Is(err, pool.ErrNoCheckpoint) {
				t.Errorf("deleted: %v", err)
			}
		})
	}
}

func TestAStoreKeepsNothingOfTheSlices(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			data := []byte("mine")
			s.Save("m", data)
			copy(data, "your")
			c, _ := s.Load("m")
			copy(c.Data, "your")
			if c, _ := s.Load("m"); string(c.Data) != "mine" {
				t.Errorf("it is %q", c.Data)
			}
		})
	}
}

func TestAStoreRefusesWhatItCannotKeep(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			if err := s.Save("m", []byte("small")); err != nil {
				t.Fatal(err)
			}
			err := s.Save("m", make([]byte, 16<<20+1))
			if e, ok := errors.AsType[*pool.CheckpointSizeError](err); !ok || e.Member != "m" || e.Size != 16<<20+1 || e.Limit != 16<<20 {
				t.Errorf("too large: %v", err)
			}
			if c, err := s.Load("m"); err != nil || string(c.Data) != "small" {
				t.Errorf("what was there before is %q, %v", c.Data, err)
			}
			if err := s.Save("m", make([]byte, 16<<20)); err != nil {
				t.Errorf("as large as may be: %v", err)
			}
			if c, err := s.Load("m"); err != nil || len(c.Data) != 16<<20 {
				t.Errorf("as large as may be: %d, %v", len(c.Data), err)
			}
			if err := s.Save("", nil); err == nil {
				t.Error("it has no id")
			}
		})
	}
}

func TestCheckpointsOfMembers(t *testing.T) {
	type state struct{ Step int }
	dir := t.TempDir()
	var events []limits.EventType
	observer := sluice.ObserverFunc(func(e sluice.Event) {
		if strings.HasPrefix(string(e.Type), "checkpoint") {
			events = append(events, e.Type)
		}
	})
	open := func() *pool.Member {
		s, err := pool.NewFileStore(dir)
		if err != nil {
			t.Fatal(err)
		}
		return register(t, newPool(t, 1, pool.Config{Store: s, Observer: observer}), "m")
	}
	m := open()
	var got state
	if _, err := m.LoadCheckpoint(&got); !errors.Is(err, pool.ErrNoCheckpoint) || !strings.Contains(err.Error(), `member "m"`) {
		t.Errorf("where there is none: %v", err)
	}
	if err := m.SaveCheckpoint(state{7}); err != nil {
		t.Fatal(err)
	}
	m.Close()
	m = open() // as another process would
	if c, err := m.LoadCheckpoint(&got); err != nil || got.Step != 7 || c.Damage != nil {
		t.Errorf("%+v, %+v, %v", got, c, err)
	}
	if err := m.SaveCheckpoint(make(chan int)); err == nil || !strings.Contains(err.Error(), `member "m"`) {
		t.Errorf("what is no JSON: %v", err)
	}
	var other []string
	if _, err := m.LoadCheckpoint(&other); err == nil || !strings.Contains(err.Error(), `member "m"`) {
		t.Errorf("into another type: %v", err)
	}
	if err := m.SaveCheckpoint(state{8}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(only(t, dir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := m.LoadCheckpoint(&got); err != nil || got.Step != 7 || c.Damage == nil {
		t.Errorf("%+v, %+v, %v", got, c, err)
	}
	want := []limits.EventType{
		limits.EventCheckpointSaved, limits.EventCheckpointLoaded, limits.EventCheckpointSaved, limits.EventCheckpointDamaged, limits.EventCheckpointLoaded,
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if err := m.DeleteCheckpoint(); err != nil {
		t.Error(err)
	}
	if _, err := m.LoadCheckpoint(&got); !errors.Is(err, pool.ErrNoCheckpoint) {
		t.Error(err)
	}
	m.Close()
}

// only is the one checkpoint file in a directory.
func only(t *testing.T, dir string) string {
	t.Helper()
	names, _ := filepath.Glob(filepath.Join(dir, "*.checkpoint"))
	if len(names) != 1 {
		t.Fatalf("there are %q", names)
	}
	return names[0]
}

func TestEveryDamagedByteIsReportedAndTheBackupUsed(t *testing.T) {
	dir := t.TempDir()
	s, _ := pool.NewFileStore(dir)
	s.Save("m", []byte("old"))
	s.Save("m", []byte(`{"step":2}`))
	name := only(t, dir)
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	damaged := func(what string, b []byte) {
		t.Helper()
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := s.Load("m")
		if err != nil || string(c.Data) != "old" || c.Damage == nil || !strings.Contains(c.Damage.Error(), name) {
			t.Errorf("%s: %+v, %v", what, c, err)
		}
	}
	for i := range whole {
		for _, flip := range []byte{1, 0x20, 0x80} {
			b := bytes.Clone(whole)
			b[i] ^= flip
			damaged(fmt.Sprintf("byte %d of %q by %#x", i, whole, flip), b)
		}
		damaged(fmt.Sprintf("cut to %d bytes", i), whole[:i])
	}
	damaged("longer", append(bytes.Clone(whole), 0))
	damaged("of a newer version", bytes.Replace(whole, []byte(`"sluice_checkpoint":1`), []byte(`"sluice_checkpoint":2`), 1))
	os.Remove(name)
	if c, err := s.Load("m"); err != nil || string(c.Data) != "old" || !errors.Is(c.Damage, os.ErrNotExist) {
		t.Errorf("missing: %+v, %v", c, err)
	}
	damaged("of zeros", make([]byte, len(whole)))
	s.Save("m", []byte("new")) // the damaged one does not become the backup
	if c, err := s.Load("m"); err != nil || string(c.Data) != "new" || c.Damage != nil {
		t.Errorf("saved again: %+v, %v", c, err)
	}
	os.WriteFile(name, []byte("rubbish"), 0o600)
	if c, err := s.Load("m"); err != nil || string(c.Data) != "old" {
		t.Errorf("saved again and damaged: %+v, %v", c, err)
	}
	os.WriteFile(name+".bak", []byte("rubbish"), 0o600)
	if _, err := s.Load("m"); err == nil || errors.Is(err, pool.ErrNoCheckpoint) || !strings.Contains(err.Error(), name) ||
		!strings.Contains(err.Error(), name+".bak") || !strings.Contains(err.Error(), `member "m"`) {
		t.Errorf("both are damaged: %v", err)
	}
}

func TestHostileIdsStayInsideAndApart(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "store")
	s, err := pool.NewFileStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{
		"../../x", "..", ".", "/etc/passwd", `C:\x`, `..\x`, "a/b", "a\x00b", "\x00", strings.Repeat("x", 10_000),
		strings.Repeat("\x01", 10_000), "prüfer", "pru\u0308fer", "評価", "🦉", "CON", "con", "NUL.txt", "Reviewer", "reviewer",
		"REVIEWER", "a\xff", "a\xfe", "a\xff\xff", "a\ufffd", " ", "a ", "a", "a.bak", "a.checkpoint", "-rf", "*", "~", "$HOME", "\n", "a\nb",
		`<b>&"`,
	}
	for _, id := range ids {
		for _, data := range []string{"before", "data of " + id} {
			if err := s.Save(id, []byte(data)); err != nil {
				t.Errorf("%.20q: %v", id, err)
			}
		}
	}
	for _, id := range ids {
		if c, err := s.Load(id); err != nil || string(c.Data) != "data of "+id || c.Damage != nil {
			t.Errorf("%.20q: %.40q, %v, %v", id, c.Data, c.Damage, err)
		}
	}
	entries, _ := os.ReadDir(dir)
	lower := map[string]bool{}
	for _, e := range entries {
		if n := e.Name(); len(n) > 100 || strings.Trim(n, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			t.Errorf("there is %q", n)
		}
		lower[strings.ToLower(e.Name())] = true
	}
	if outside, _ := os.ReadDir(base); len(outside) != 1 || len(lower) != 2*len(ids) {
		t.Errorf("%d files of %d ids, and %v outside", len(lower), len(ids), outside)
	}
	for _, id := range ids[:20] {
		if err := s.Delete(id); err != nil {
			t.Error(err)
		}
	}
	if c, err := s.Load("REVIEWER"); err != nil || string(c.Data) != "data of REVIEWER" {
		t.Errorf("a twin was deleted with another: %v, %v", c, err)
	}
	if err := s.Save(strings.Repeat("\x01", 20_000), nil); err == nil || len(err.Error()) > 1000 {
		t.Errorf("an id that no header holds: %v", err)
	}
}

func TestOnlyPlainFilesAreRead(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	s, _ := pool.NewFileStore(dir)
	s.Save("m", []byte("mine"))
	name := only(t, dir)
	if err := os.Rename(name, outside); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(outside)
	if err := os.Symlink(outside, name); err != nil {
		t.Skip(err)
	}
	if _, err := s.Load("m"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a link was followed: %v", err)
	}
	if err := s.Save("m", []byte("new")); err != nil {
		t.Errorf("over a link: %v", err)
	}
	if c, err := s.Load("m"); err != nil || string(c.Data) != "new" || c.Damage != nil {
		t.Errorf("%+v, %v", c, err)
	}
	if after, _ := os.ReadFile(outside); !bytes.Equal(before, after) {
		t.Error("it wrote through the link")
	}
	os.Remove(name)
	if err := os.Mkdir(name, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Save("m", nil); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("over a directory: %v", err)
	}
	if _, err := s.Load("m"); err == nil {
		t.Error("a directory was read")
	}
	if rest, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(rest) != 0 {
		t.Errorf("left: %q", rest)
	}
}

func TestDirectoriesThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	os.WriteFile(file, nil, 0o600)
	for _, name := range []string{"", file, filepath.Join(file, "below"), "/proc/nothing/there", "a\x00b"} {
		if _, err := pool.NewFileStore(name); err == nil || !strings.HasPrefix(err.Error(), "checkpoints: ") {
			t.Errorf("%q: %v", name, err)
		}
	}
	shut := filepath.Join(dir, "shut")
	os.Mkdir(shut, 0o500)
	if os.Getuid() == 0 {
		shut = "/proc/self" // where root cannot write either
	}
	if _, err := os.Stat(shut); err == nil {
		if _, err := pool.NewFileStore(shut); err == nil || !strings.Contains(err.Error(), "cannot be written") || !strings.Contains(err.Error(), shut) {
			t.Errorf("not writable: %v", err)
		}
	}
	gone := filepath.Join(dir, "gone")
	s, _ := pool.NewFileStore(gone)
	os.RemoveAll(gone)
	if err := s.Save("m", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is gone: %v", err)
	}
	if _, err := s.Load("m"); !errors.Is(err, pool.ErrNoCheckpoint) {
		t.Errorf("a directory that is gone: %v", err)
	}
}

func TestFilesAreTheirOwnersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s, err := pool.NewFileStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Save("m", nil)
	s.Save("m", nil)
	for name, want := range map[string]os.FileMode{dir: 0o700, filepath.Dir(dir): 0o700, only(t, dir): 0o600, only(t, dir) + ".bak": 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestOldTemporaryFilesAreRemovedAndNoOthers(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-2 * time.Hour)
	for name, stays := range map[string]bool{
		"m-00.checkpoint.ABC.tmp": false, "m-00.checkpoint": true, "m-00.checkpoint.bak": true, "notes.tmp": true, "probe.checkpoint.1.tmp": false,
	} {
		path := filepath.Join(dir, name)
		os.WriteFile(path, nil, 0o600)
		os.Chtimes(path, old, old)
		if _, err := pool.NewFileStore(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
	young := filepath.Join(dir, "m-01.checkpoint.ABC.tmp") // which another process writes
	os.WriteFile(young, nil, 0o600)
	pool.NewFileStore(dir)
	if _, err := os.Stat(young); err != nil {
		t.Error(err)
	}
}

func TestAStoreIsSafeForConcurrentUse(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					if err := hammer(s, uint64(i), 60); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		})
	}
}
