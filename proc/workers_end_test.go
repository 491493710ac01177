//go:build unix

package proc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/proc"
)

func TestCancellationEndsTheWorkerWithItsItem(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"silent", "stubborn"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			ws := staff(t, role, proc.WorkersConfig{Spec: command.Spec{Grace: 100 * time.Millisecond}})
			for range 4 { // more than would bring it into quarantine
				ctx, cancel := context.WithTimeoutCause(t.Context(), 150*time.Millisecond, errors.New("out of time"))
				_, err := ws.Call(ctx, item("hang"))
				cancel()
				if err == nil || err.Error() != "out of time" || ws.Alive() != 0 {
					t.Errorf("error %v, %d workers live", err, ws.Alive())
				}
			}
		})
	}
}

func TestNothingIsLeftOfAWorkerThatForks(t *testing.T) {
	t.Parallel()
	ws := staff(t, "forks", proc.WorkersConfig{Spec: command.Spec{Grace: 100 * time.Millisecond}})
	want[*proc.WorkerDiedError](t, callErr(t, ws, item("1")), "exit code 3")
	ws = staff(t, "forks well", proc.WorkersConfig{Spec: command.Spec{Grace: 100 * time.Millisecond}})
	for i := range 4 {
		if _, err := ws.Call(t.Context(), item(fmt.Sprint(i))); err != nil {
			t.Error(err)
		}
	}
}

func TestCloseEndsWorkersThatDoNotEndByThemselves(t *testing.T) {
	t.Parallel()
	ws := staff(t, "stubborn", proc.WorkersConfig{Spec: command.Spec{Grace: 100 * time.Millisecond}})
	if _, err := ws.Call(t.Context(), item("1")); err != nil {
		t.Fatal(err)
	}
	hung := make(chan error, 1)
	go func() {
		_, err := ws.Call(t.Context(), item("2"))
		if err == nil {
			_, err = ws.Call(t.Context(), item("hang"))
		}
		hung <- err
	}()
	time.Sleep(50 * time.Millisecond)
	if err := ws.Close(); err == nil || err.Error() != "1 worker did not end at the end of the input, and had to be stopped" {
		t.Errorf("error %v", err)
	}
	if err := <-hung; !errors.Is(err, proc.ErrWorkersClosed) {
		t.Errorf("the call: %v", err)
	}
	if err := ws.Close(); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := callErr(t, ws, item("3")); !errors.Is(err, proc.ErrWorkersClosed) {
		t.Errorf("after the end: %v", err)
	}
}

func TestAHonestWorkerEndsWithItsInput(t *testing.T) {
	t.Parallel()
	ws := staff(t, "honest", proc.WorkersConfig{Spec: command.Spec{Grace: time.Minute}})
	if _, err := ws.Call(t.Context(), item("1")); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := ws.Close(); err != nil || time.Since(start) > 50*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

func TestWorkersThatEndAsTheyStartEndTheRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ role, want string }{
		{"ends", "the worker ends as soon as it starts: 5 workers in a row answered nothing, the last: " +
			"worker ended without an answer: exit code 1: ModuleNotFoundError: No module named 'torch'"},
		{"banner", `no JSON object: "Welcome!"`},
		{"/no/such/worker", "no such file or directory"},
	} {
		t.Run(c.role, func(t *testing.T) {
			t.Parallel()
			cfg := proc.WorkersConfig{Pause: 20 * time.Millisecond}
			if cfg.Spec.Args = []string{os.Args[0]}; c.role[0] == '/' {
				cfg.Spec.Args[0] = c.role
			}
			cfg.Spec.Env = append(os.Environ(), roleVariable+"="+c.role)
			ws := staffOf(t, cfg)
			start := time.Now()
			var wg sync.WaitGroup
			for i := range 8 { // at once, of which each meets its own
				wg.Go(func() {
					for { // a worker may read its item before it is killed for what it says
						_, err := ws.Call(t.Context(), item(fmt.Sprint(i)))
						if _, ok := errors.AsType[*proc.FutileError](err); ok {
							if !strings.Contains(err.Error(), c.want) {
								t.Errorf("%v, want %q", err, c.want)
							}
							return
						}
						if _, ok := errors.AsType[*proc.ProtocolError](err); !ok {
							t.Errorf("%v", err)
							return
						}
					}
				})
			}
			wg.Wait()
			if took := time.Since(start); took < 15*cfg.Pause {
				t.Errorf("took %v, want no less than the pauses between five starts", took)
			}
		})
	}
}

func TestItemsThatEndWorkersDoNotEndTheRun(t *testing.T) {
	t.Parallel()
	ws := staff(t, "poisoned", proc.WorkersConfig{Pause: time.Millisecond})
	for i := range 2 { // six workers end before there is an answer, by two items
		for range 3 {
			err := callErr(t, ws, item(fmt.Sprint("poison ", i)))
			if _, ok := errors.AsType[*proc.FutileError](err); ok {
				t.Error(err)
			}
		}
	}
	if _, err := ws.Call(t.Context(), item("good")); err != nil {
		t.Error(err)
	}
	for i := range 5 { // the first ends the worker that answered: four are in a row
		callErr(t, ws, item(fmt.Sprint("poison after ", i)))
	}
	want[*proc.FutileError](t, callErr(t, ws, item("poison at last")), "5 workers in a row")
}

func TestWhatIsSaidAsideGoesToTheItemAndIsBounded(t *testing.T) {
	t.Parallel()
	var said syncBuffer
	ws := staff(t, "floods", proc.WorkersConfig{})
	if _, err := ws.Call(t.Context(), proc.Request{ID: "1", Item: []byte("1"), Stderr: &said}); err != nil {
		t.Error(err)
	}
	if n := proc.AsideHolds(10 << 20); n > 200<<10 {
		t.Errorf("of 10 MiB it holds %d bytes", n)
	}
	if n := len(said.String()); n < 900_000 {
		t.Errorf("%d bytes came aside", n)
	}
	died := want[*proc.WorkerDiedError](t, callErr(t, staff(t, "floods and ends", proc.WorkersConfig{}), item("1")), ": out of luck")
	if n := len(died.Stderr); n > 64<<10 || n < 60<<10 || !strings.HasPrefix(died.Stderr, "0123456789 flood\n") {
		t.Errorf("%d bytes are kept: %.40q", n, died.Stderr)
	}
}
