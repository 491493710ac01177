package signals

// How often files are read cannot be seen from outside: this test is in the package.

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestFilesAreReadWhenTheyStandStill(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sluice.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		write("a")
		files := make(Files)
		files.Note(path)
		ctx, end := context.WithCancel(t.Context())
		again := make(chan struct{}, 1)
		var reads atomic.Int64
		var wrong atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			files.follow(ctx, again, func() Files {
				reads.Add(1)
				if wrong.Load() {
					return nil
				}
				next := make(Files)
				next.Note(path)
				return next
			})
		})
		expect := func(what string, want int64) {
			t.Helper()
			synctest.Wait()
			if got := reads.Load(); got != want {
				t.Errorf("%s: read %d times, want %d", what, got, want)
			}
		}
		time.Sleep(10*time.Second + time.Millisecond)
		expect("nothing changed", 0)
		for i := range 5 {
			write("longer and longer"[:i+2])
			time.Sleep(time.Second)
		}
		expect("it is being written", 0)
		time.Sleep(time.Second)
		expect("it stands still", 1)
		time.Sleep(10 * time.Second)
		expect("it was read", 1)

		put := filepath.Join(dir, "other") // the same size
		if err := os.WriteFile(put, []byte("longer"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(put, path); err != nil {
			t.Fatal(err)
		}
		wrong.Store(true)
		time.Sleep(10 * time.Second)
		expect("another file took its place, and is wrong", 2)
		again <- struct{}{}
		expect("asked for", 3)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		expect("it is missing", 4)
		wrong.Store(false)
		write("back")
		time.Sleep(10 * time.Second)
		expect("it is back", 5)
		end()
		wg.Wait()
	})
}
