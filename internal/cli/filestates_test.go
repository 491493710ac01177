package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
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
		files := make(fileStates)
		files.note(path)
		ctx, end := context.WithCancel(t.Context())
		again := make(chan struct{}, 1)
		var reads atomic.Int64
		var wrong atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			files.follow(ctx, again, func() (fileStates, error) {
				reads.Add(1)
				if wrong.Load() {
					return nil, errors.New("wrong")
				}
				next := make(fileStates)
				next.note(path)
				return next, nil
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
		expect("it is gone", 4)
		wrong.Store(false)
		write("back")
		time.Sleep(10 * time.Second)
		expect("it is back", 5)
		end()
		wg.Wait()
	})
}

func TestSchedulersLiveAsLongAsSomebodyHasThem(t *testing.T) {
	p := &schedulerPool{}
	take := func(name string, rpm int) *pooledScheduler {
		one, err := p.take(&sluice.Config{Name: name, Limits: sluice.Limits{RPM: rpm}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	open := func(one *pooledScheduler) bool { return !errors.Is(one.scheduler.Resume(), sluice.ErrClosed) }
	a, b := take("a", 5), take("b", 5)
	again := take("a", 7)
	if again != a || a == b || a.scheduler.Snapshot().Limits.RPM != 5 {
		t.Error("an account has two, or other limits before they are set")
	}
	if err := p.give([]*pooledScheduler{a, b}); err != nil || !open(a) || open(b) {
		t.Errorf("%v; open: %t, %t", err, open(a), open(b))
	}
	if err := p.give([]*pooledScheduler{again}); err != nil || open(a) || len(p.all) != 0 {
		t.Errorf("%v; %d are left", err, len(p.all))
	}
	if fresh := take("a", 5); fresh == a || !open(fresh) {
		t.Error("a closed one is given out")
	} else if err := p.give([]*pooledScheduler{fresh}); err != nil {
		t.Error(err)
	}
	if _, err := p.take(&sluice.Config{Name: "a", Limits: sluice.Limits{RPM: -1}}, nil); err == nil {
		t.Error("wrong limits are taken")
	}
}
