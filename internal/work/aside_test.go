package work_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
)

// byNumber places the lines "id N" by their numbers.
func byNumber(line work.Line) (n int, ok bool) {
	_, err := fmt.Sscanf(string(line.Bytes), "id %d", &n)
	return n, err == nil
}

func TestJournalsAsideAreArranged(t *testing.T) {
	path := journalPath(t)
	if err := os.WriteFile(path, []byte("id 3\nother\nid 1\nid 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := work.JournalConfig{Aside: true}
	j := openJournal(t, path, cfg)
	if j.Aside() {
		t.Error("the journal is aside before it has a line")
	}
	for _, line := range []string{"id 2\n", "id 0\n"} {
		if err := j.Append([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if b, _ := os.ReadFile(path); string(b) != "id 3\nother\nid 1\nid 3\n" || !j.Aside() || j.Path() != work.AsidePath(path) {
		t.Errorf("the file is %q, and the journal %s", b, j.Path())
	}
	f, err := work.SystemDisk().Open(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if f.Lock() == nil {
		t.Error("the file is not locked while the journal is aside")
	}
	f.Close()
	if err := j.Arrange(5, byNumber); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "id 0\nid 1\nid 2\nid 3\nother\nid 3\n" || j.Aside() {
		t.Errorf("the file is %q, and the journal %s", b, j.Path())
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its rights are %v, error %v", info.Mode(), err)
	}
	if got := linesOf(t, j); len(got) != 6 {
		t.Errorf("lines %q", got)
	}
	if _, err := os.Stat(work.AsidePath(path)); err == nil {
		t.Error("the journal is left")
	}
	if _, err := work.OpenJournal(path, work.JournalConfig{}); err == nil {
		t.Error("the file is not locked until Close")
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

func TestAJournalWithoutLinesIsNone(t *testing.T) {
	for _, aside := range []bool{true, false} { // such as a kill leaves
		path := journalPath(t)
		for name, text := range map[string]string{path: "id 0\n", work.AsidePath(path): ""} {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		j := openJournal(t, path, work.JournalConfig{Aside: aside})
		if got := linesOf(t, j); !slices.Equal(got, []string{"id 0"}) {
			t.Errorf("lines %q", got)
		}
		if err := j.Append([]byte("id 1\n")); err != nil {
			t.Error(err)
		}
		if got := linesOf(t, j); !slices.Equal(got, []string{"id 0", "id 1"}) {
			t.Errorf("lines %q", got)
		}
	}
}

// fullDisk has no room for a file whose name ends so.
type fullDisk struct {
	work.Disk
	suffix string
}

func (d *fullDisk) Open(name string, flag int, perm fs.FileMode) (work.File, error) {
	f, err := d.Disk.Open(name, flag, perm)
	if err == nil && strings.HasSuffix(name, d.suffix) {
		f = fullFile{f}
	}
	return f, err
}

type fullFile struct{ work.File }

func (fullFile) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestAFullDiskLeavesTheJournalAside(t *testing.T) {
	path, cfg := journalPath(t), work.JournalConfig{Aside: true}
	j := openJournal(t, path, cfg.On(&fullDisk{work.SystemDisk(), ".order.tmp"}))
	for _, line := range []string{"id 1\n", "id 0\n"} {
		if err := j.Append([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	err := j.Arrange(2, byNumber)
	if wrong, ok := errors.AsType[*work.JournalError](err); !ok || wrong.Path != path || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is there")
	}
	j.Close()
	j = openJournal(t, path, cfg)
	if err := j.Arrange(2, byNumber); err != nil {
		t.Fatal(err)
	}
	j.Close()
	if b, _ := os.ReadFile(path); string(b) != "id 0\nid 1\n" {
		t.Errorf("the file is %q", b)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// lateDisk calls a function before the first time that a file of that name is opened.
type lateDisk struct {
	work.Disk
	name   string
	before func()
}

func (d *lateDisk) Open(name string, flag int, perm fs.FileMode) (work.File, error) {
	if before := d.before; name == d.name && before != nil {
		d.before = nil
		before()
	}
	return d.Disk.Open(name, flag, perm)
}

func TestAJournalThatComesMeanwhileCounts(t *testing.T) {
	path := journalPath(t)
	if err := os.WriteFile(path, []byte("id 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := work.JournalConfig{Aside: true}
	d := &lateDisk{Disk: work.SystemDisk(), name: path, before: func() {
		j, err := work.OpenJournal(path, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(j.Append([]byte("id 1\n")), j.Close()); err != nil {
			t.Fatal(err)
		}
	}}
	j := openJournal(t, path, cfg.On(d))
	if err := j.Append([]byte("id 2\n")); err != nil {
		t.Fatal(err)
	}
	if got := linesOf(t, j); !slices.Equal(got, []string{"id 0", "id 1", "id 2"}) {
		t.Errorf("lines %q", got)
	}
}

// betweenDisk has another run come and go while a file is opened and looked at.
type betweenDisk struct {
	work.Disk
	path  string
	comes func()
	goes  func()
}

func (d *betweenDisk) Open(name string, flag int, perm fs.FileMode) (work.File, error) {
	if comes := d.comes; name == d.path && comes != nil {
		d.comes = nil
		comes()
	}
	return d.Disk.Open(name, flag, perm)
}

func (d *betweenDisk) Stat(name string) (fs.FileInfo, error) {
	if goes := d.goes; name == work.AsidePath(d.path) && d.comes == nil && goes != nil {
		d.goes = nil
		goes()
	}
	return d.Disk.Stat(name)
}

func TestAFileThatIsReplacedMeanwhileIsOpenedAgain(t *testing.T) {
	path := journalPath(t)
	var other *work.Journal
	d := &betweenDisk{Disk: work.SystemDisk(), path: path, comes: func() {
		other = openJournal(t, path, work.JournalConfig{Aside: true})
	}, goes: func() {
		if err := errors.Join(other.Append([]byte("id 0\n")), other.Arrange(1, byNumber), other.Close()); err != nil {
			t.Error(err)
		}
	}}
	j := openJournal(t, path, work.JournalConfig{}.On(d))
	if err := j.Append([]byte("id 1\n")); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "id 0\nid 1\n" {
		t.Errorf("the file is %q", b)
	}
}

// stepDisk calls a function before the journal aside is made, and another before the file itself is looked for then.
type stepDisk struct {
	work.Disk
	path        string
	makes, made func()
}

func (d *stepDisk) Open(name string, flag int, perm fs.FileMode) (work.File, error) {
	if makes := d.makes; name == work.AsidePath(d.path) && flag&os.O_CREATE != 0 && makes != nil {
		d.makes = nil
		makes()
	}
	return d.Disk.Open(name, flag, perm)
}

func (d *stepDisk) Stat(name string) (fs.FileInfo, error) {
	if made := d.made; name == d.path && d.makes == nil && made != nil {
		d.made = nil
		made()
	}
	return d.Disk.Stat(name)
}

// The file is there before the one who comes has made its journal aside, and another run takes that over just then.
func TestAJournalThatWasTakenOverIsNotRemoved(t *testing.T) {
	path, cfg := journalPath(t), work.JournalConfig{Aside: true}
	var other *work.Journal
	d := &stepDisk{Disk: work.SystemDisk(), path: path, makes: func() {
		if err := os.WriteFile(path, []byte("id 0\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		other = openJournal(t, path, cfg)
	}, made: func() {
		if err := other.Append([]byte("id 1\n")); err != nil {
			t.Error(err)
		}
	}}
	_, err := work.OpenJournal(path, cfg.On(d))
	if _, locked := errors.AsType[*work.LockedError](err); !locked {
		t.Errorf("error %v", err)
	}
	if err := errors.Join(other.Append([]byte("id 2\n")), other.Arrange(3, byNumber), other.Close()); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "id 0\nid 1\nid 2\n" {
		t.Errorf("the file is %q", b)
	}
}

// TestOneJournalIsOpenAtOnce has many open the same journal at once, in place and aside, write a line, and leave it in
// different ways. Never are two in, and no line is lost.
func TestOneJournalIsOpenAtOnce(t *testing.T) {
	for seed := range suite.Size(uint64(20), 50) {
		path := journalPath(t)
		var (
			wg       sync.WaitGroup
			in, next atomic.Int32
			mu       sync.Mutex
			written  []string
		)
		for worker := range uint64(6) {
			luck := rand.New(rand.NewPCG(seed, worker))
			wg.Go(func() {
				for range 6 {
					j, err := work.OpenJournal(path, work.JournalConfig{Aside: luck.IntN(2) == 0, Sync: work.SyncNone})
					if err != nil {
						_, locked := errors.AsType[*work.LockedError](err)
						_, aside := errors.AsType[*work.AsideError](err)
						if !locked && !aside && !strings.Contains(err.Error(), "state file") {
							t.Error(err)
						}
						continue
					}
					if in.Add(1) > 1 {
						t.Error("two have it open")
					}
					if luck.IntN(3) > 0 {
						n := int(next.Add(1))
						line := fmt.Sprintf("id %d", n)
						if err := j.Append([]byte(line + "\n")); err != nil {
							t.Error(err)
						}
						mu.Lock()
						written = append(written, line)
						mu.Unlock()
						if luck.IntN(2) == 0 {
							if err := j.Arrange(n+1, byNumber); err != nil {
								t.Error(err)
							}
						}
					}
					in.Add(-1)
					if err := j.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		j := openJournal(t, path, work.JournalConfig{Aside: true})
		got := linesOf(t, j)
		slices.Sort(got)
		slices.Sort(written)
		if !slices.Equal(got, written) {
			t.Fatalf("seed %d: the journal has %q, written were %q", seed, got, written)
		}
		j.Close()
		if left, _ := filepath.Glob(path + "*tmp"); len(left) > 0 {
			t.Errorf("left %q", left)
		}
	}
}
