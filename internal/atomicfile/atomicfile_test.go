package atomicfile_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/atomicfile"
)

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func text(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAFileIsReplacedAsAWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	errDisk := errors.New("disk")
	for _, draft := range []string{"", path + ".tmp"} {
		for _, o := range []atomicfile.Options{{Draft: draft}, {Draft: draft, NoSync: true}} {
			if err := atomicfile.Write(path, o, []byte("old"), []byte(" one")); err != nil {
				t.Fatal(err)
			}
			err := atomicfile.Fill(path, o, func(f *os.File) error {
				f.WriteString("half")
				if text(t, path) != "old one" {
					t.Error("a file is changed before the new one is whole")
				}
				return errDisk
			})
			if !errors.Is(err, errDisk) || text(t, path) != "old one" {
				t.Errorf("%v, and the file is %q", err, text(t, path))
			}
			if all := names(t, dir); !slices.Equal(all, []string{"f"}) {
				t.Errorf("left: %q", all)
			}
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
		t.Errorf("others may read it: %v, %v", info.Mode(), err)
	}
	err := atomicfile.Write(filepath.Join(dir, "none", "f"), atomicfile.Options{}, nil)
	if !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), ".tmp") {
		t.Errorf("in a directory that is missing: %v", err)
	}
}

func TestADraftThatAKilledProcessLeftIsReplaced(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "f"), filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("of somebody else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, path+".tmp"); err != nil {
		t.Skip(err)
	}
	if err := atomicfile.Write(path, atomicfile.Options{Draft: path + ".tmp"}, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if text(t, path) != "new" || text(t, other) != "of somebody else" {
		t.Errorf("got %q and %q", text(t, path), text(t, other))
	}
}

func TestTheFileBeforeIsKeptIfItIsGood(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	good := true
	o := atomicfile.Options{Backup: func() bool { return good }}
	for i, want := range []string{"", "0", "1", "1", "1"} { // from 3 on, the file is damaged
		good = i < 3
		if err := atomicfile.Write(path, o, []byte{byte('0' + i)}); err != nil {
			t.Fatal(err)
		}
		if b, _ := os.ReadFile(path + ".bak"); string(b) != want {
			t.Errorf("after write %d the backup is %q, want %q", i, b, want)
		}
	}
	if all := names(t, filepath.Dir(path)); !slices.Equal(all, []string{"f", "f.bak"}) {
		t.Errorf("left: %q", all)
	}
}

func TestProcessesThatReplaceAFileAtOnceLeaveOneOfTheirs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			whole := bytes.Repeat([]byte{byte('a' + i)}, 10_000)
			for range 20 {
				if err := atomicfile.Write(path, atomicfile.Options{NoSync: true}, whole); err != nil && os.PathSeparator == '/' {
					t.Error(err)
				}
				if b, err := os.ReadFile(path); err == nil && !bytes.Equal(b, bytes.Repeat(b[:1], 10_000)) {
					t.Error("a reader sees a mixture")
				}
			}
		})
	}
	wg.Wait()
}

func TestALockHasOneHolderAndNoWaitIsForEver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	synctest.Test(t, func(t *testing.T) {
		inside, most := 0, 0
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				err := atomicfile.Locked(t.Context(), path, func() error {
					inside++
					most = max(most, inside)
					time.Sleep(100 * time.Millisecond)
					inside--
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most != 1 {
			t.Errorf("%d held the lock at once", most)
		}
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		never := func() error { t.Error("a lock has two holders"); return nil }
		err := atomicfile.Locked(t.Context(), path, func() error {
			for _, ctx := range []context.Context{brief, t.Context()} { // the second waits as long as may be
				if err := atomicfile.Locked(ctx, path, never); !errors.Is(err, atomicfile.ErrLocked) {
					t.Errorf("got %v", err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
