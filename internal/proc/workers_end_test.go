//go:build unix

package proc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/proc"
)

func TestCancellationEndsTheWorkerWithItsItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := newStaff(t, proc.WorkersConfig{Run: crew(idle)})
		for range 4 { // more than would bring it into quarantine
			ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errors.New("out of time"))
			_, err := ws.Call(ctx, item("hang"))
			cancel()
			if err == nil || err.Error() != "out of time" || ws.Alive() != 0 {
				t.Errorf("error %v, %d workers live", err, ws.Alive())
			}
		}
	})
	ws := staff(t, "stubborn", proc.WorkersConfig{Spec: command.Spec{Grace: 100 * time.Millisecond}})
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	if _, err := ws.Call(ctx, item("hang")); !errors.Is(err, context.DeadlineExceeded) || ws.Alive() != 0 {
		t.Errorf("error %v, %d workers live", err, ws.Alive())
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
	if err := ws.Close(); err == nil || err.Error() != "1 worker did not exit at the end of the input and had to be stopped" {
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
	ws := staff(t, "honest", proc.WorkersConfig{Spec: command.Spec{Grace: 5 * time.Minute}})
	if _, err := ws.Call(t.Context(), item("1")); err != nil {
		t.Fatal(err)
	}
	if err := ws.Close(); err != nil {
		t.Error(err)
	}
}

func TestWorkersThatEndAsTheyStartEndTheRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ role, want string }{
		{"ends", "5 workers in a row failed before the first result, the last with: " +
			"the worker exited without a result: exit code 1: ModuleNotFoundError: No module named 'torch'"},
		{"banner", `not a JSON object: "Welcome!"`},
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
		})
	}
}

// Each start of a worker that answers nothing waits for twice as long as the one before.
func TestStartsThatAreFutileArePutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts []time.Duration
		began := time.Now()
		ws := newStaff(t, proc.WorkersConfig{Pause: time.Second, Run: func(context.Context, command.Spec) (command.Result, error) {
			starts = append(starts, time.Since(began))
			return command.Result{ExitCode: 1}, nil
		}})
		want[*proc.FutileError](t, callErr(t, ws, item("1")), "5 workers in a row")
		want[*proc.FutileError](t, callErr(t, ws, item("2")), "5 workers in a row")
		if s := time.Second; !slices.Equal(starts, []time.Duration{0, s, 3 * s, 7 * s, 15 * s}) {
			t.Errorf("workers started after %v", starts)
		}
	})
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
