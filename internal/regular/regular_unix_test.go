//go:build unix

package regular_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sluice-llm/sluice/internal/regular"
)

func TestOnlyARegularFileIsOpened(t *testing.T) {
	dir := t.TempDir()
	file, pipe, link := filepath.Join(dir, "file"), filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("x"), 0o644), syscall.Mkfifo(pipe, 0o644), os.Symlink(pipe, link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, pipe, link, os.DevNull} {
		f, err := regular.Open(path)
		if wrong, ok := errors.AsType[*regular.Error](err); !ok || wrong.Path != path {
			t.Errorf("%s: %v, %v", path, f, err)
		}
	}
	if _, err := regular.Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	f, err := regular.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
