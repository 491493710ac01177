//go:build unix

package proc_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/suite"
)

// staff returns workers of a role. When the test ends, they are closed, and nothing of them may be left.
func staff(t testing.TB, role string, cfg proc.WorkersConfig) *proc.Workers {
	cfg.Spec.Args = []string{os.Args[0]}
	cfg.Spec.Env = append(os.Environ(), roleVariable+"="+role)
	return staffOf(t, cfg)
}

func staffOf(t testing.TB, cfg proc.WorkersConfig) *proc.Workers {
	mark := "PROC_TEST_MARK=" + rand.Text()
	cfg.Spec.Env = append(cfg.Spec.Env, mark, "GORACE=atexit_sleep_ms=0") // or each worker takes a second to end
	if cfg.Spec.Grace == 0 {
		cfg.Spec.Grace = time.Second
	}
	cfg.Run = command.Run
	t.Cleanup(func() { checkGone(t, mark) })
	return newStaff(t, cfg)
}

// newStaff returns workers that are closed when the test ends.
func newStaff(t testing.TB, cfg proc.WorkersConfig) *proc.Workers {
	ws := proc.NewWorkers(cfg)
	t.Cleanup(func() {
		_ = ws.Close()
		if n := ws.Alive(); n > 0 {
			t.Errorf("%d workers live after the end", n)
		}
	})
	return ws
}

// checkGone checks that no process of a mark is left. One that was just killed may take a moment.
func checkGone(t testing.TB, mark string) {
	var left []string
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		left = nil
		environs, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, name := range environs {
			if b, err := os.ReadFile(name); err == nil && bytes.Contains(b, []byte(mark)) {
				left = append(left, name)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Errorf("left behind: %q", left)
			return
		}
	}
}

// crew plays workers, in virtual time too: none of them waits in a read, and an item must fit into a pipe.
func crew(each func(ctx context.Context, o order, say func(format string, args ...any))) func(context.Context, command.Spec) (command.Result, error) {
	return func(ctx context.Context, s command.Spec) (command.Result, error) {
		raw, err := s.Stdin.(*os.File).SyscallConn()
		if err != nil {
			return command.Result{}, err
		}
		say := func(format string, args ...any) { fmt.Fprintf(s.Stdout, format+"\n", args...) }
		var in []byte
		for buf := make([]byte, 4<<10); ctx.Err() == nil; {
			n := -1
			_ = raw.Read(func(fd uintptr) bool {
				n, _ = syscall.Read(int(fd), buf)
				return true
			})
			if n == 0 {
				return command.Result{}, nil
			}
			in = append(in, buf[:max(0, n)]...)
			if line, more, whole := bytes.Cut(in, []byte("\n")); whole {
				var o order
				if err := json.Unmarshal(line, &o); err != nil {
					return command.Result{}, err
				}
				in = more
				each(ctx, o, say)
				continue
			}
			rest(ctx, 100*time.Millisecond)
		}
		return command.Result{ExitCode: -1, Signal: "SIGTERM", Asked: true}, context.Cause(ctx)
	}
}

// rest waits for a time, or for the end of a context.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func item(id string) proc.Request { return proc.Request{ID: id, Attempt: 1, Item: []byte(`{"n":1}`)} }

// want fails unless the call ended with an error of this type, itself and not as the cause of another one, that has this text.
func want[E error](t *testing.T, err error, text string) (e E) {
	t.Helper()
	e, ok := err.(E)
	if !ok || !strings.Contains(err.Error(), text) {
		t.Fatalf("error %v (%[1]T), want %T with %q", err, e, text)
	}
	return e
}

func TestOneWorkerAnswersOneItemAfterAnother(t *testing.T) {
	t.Parallel()
	rows := []string{`"a line"`, `{"a": [1, 2],` + "\n" + ` "ü": "\"\u20ac"}`, `null`, `"` + strings.Repeat("long ", 100_000) + `"`, `"a word"`}
	for _, role := range []string{"honest", "ready"} {
		ws := staff(t, role, proc.WorkersConfig{})
		var answers []proc.Answer
		for i, row := range rows {
			a, err := ws.Call(t.Context(), proc.Request{ID: fmt.Sprintf("id %d \"ö\"", i), Attempt: 1, Item: []byte(row)})
			if err != nil || !a.OK {
				t.Errorf("%s: %+.300v, %v", role, a, err)
			}
			answers = append(answers, a)
		}
		for i, row := range rows { // each has its own memory
			if got, wanted := compact(t, answers[i].Result), compact(t, []byte(row)); got != wanted {
				t.Errorf("%s: %.100s, want %.100s", role, got, wanted)
			}
		}
		if n := ws.Alive(); n != 1 {
			t.Errorf("%s: %d workers, want 1", role, n)
		}
	}
}

func compact(t *testing.T, b []byte) string {
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		t.Error(err)
	}
	return out.String()
}

func TestARefusalSaysWhatToDo(t *testing.T) {
	t.Parallel()
	a, err := staff(t, "refuses", proc.WorkersConfig{}).Call(t.Context(), item("1"))
	if err != nil || a.OK || a.Kind != sluice.RateLimit || a.Wait != 1500*time.Millisecond ||
		!a.Until.Equal(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)) || !strings.HasPrefix(a.Text, "slow down") {
		t.Errorf("%+v, %v", a, err)
	}
	if strings.Contains(a.Text, "abc123") {
		t.Errorf("the message shows a key: %s", a.Text)
	}
	if a.Usage != (sluice.Usage{Input: 12, Output: 3}) || !a.HasUsage || a.Cost != 0.25 || !a.HasCost {
		t.Errorf("usage %+v", a)
	}
}

func TestEveryItemIsAnsweredThoughOneTryInFiveKillsItsWorker(t *testing.T) {
	t.Parallel()
	const atOnce, attempts = 4, 6
	items := suite.Size[int64](60, 300)
	ws := staff(t, "unlucky", proc.WorkersConfig{})
	var (
		wg            sync.WaitGroup
		next, tries   atomic.Int64
		answered, bad atomic.Int64
	)
	for range atOnce {
		wg.Go(func() {
			for {
				n := next.Add(1)
				if n > items {
					return
				}
				for attempt := 1; attempt <= attempts; attempt++ {
					tries.Add(1)
					o := order{ID: fmt.Sprint("item ", n), Attempt: attempt}
					a, err := ws.Call(t.Context(), proc.Request{ID: o.ID, Attempt: attempt, Item: fmt.Append(nil, n)})
					if died, ok := errors.AsType[*proc.WorkerDiedError](err); (err != nil) != unlucky(o) || ok && died.Signal != "SIGKILL" {
						t.Errorf("%s, attempt %d: %v", o.ID, attempt, err)
					}
					if err == nil {
						answered.Add(1)
						if string(a.Result) != fmt.Sprint(n) {
							bad.Add(1)
						}
						break
					}
					if _, ok := errors.AsType[*proc.QuarantinedError](err); ok {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	if answered.Load() != items || bad.Load() != 0 {
		t.Errorf("%d of %d items were answered, %d wrongly", answered.Load(), items, bad.Load())
	}
	if n := tries.Load(); n < items*21/20 || n > items*16/10 {
		t.Errorf("%d tries", n)
	}
	if n := ws.Alive(); n > atOnce {
		t.Errorf("%d workers for %d calls at once", n, atOnce)
	}
}

func TestAnItemThatEndsThreeWorkersIsQuarantined(t *testing.T) {
	t.Parallel()
	ws := staff(t, "poisoned", proc.WorkersConfig{Pause: time.Millisecond})
	for try := 1; try <= 2; try++ {
		died := want[*proc.WorkerDiedError](t, callErr(t, ws, item("poison")), "exit code 7: MemoryError")
		if died.ExitCode != 7 || !strings.HasPrefix(died.Stderr, "Traceback\n") || strings.Contains(died.Stderr+died.Error(), "abc123") {
			t.Errorf("%+v", died)
		}
		if _, err := ws.Call(t.Context(), item("good")); err != nil {
			t.Error(err)
		}
	}
	for range 2 { // and it stays there
		q := want[*proc.QuarantinedError](t, callErr(t, ws, item("poison")), `item "poison" is quarantined after the failure of 3 workers; 1: the worker exited`)
		if _, ok := errors.AsType[*proc.WorkerDiedError](error(q)); !ok || len(q.Causes) != 3 {
			t.Errorf("causes %v", q.Causes)
		}
	}
	if _, err := ws.Call(t.Context(), item("good")); err != nil {
		t.Error(err)
	}
}

func TestAnAnswerClearsWhatAnItemDidBefore(t *testing.T) {
	t.Parallel()
	ws := staff(t, "third time", proc.WorkersConfig{Pause: time.Millisecond})
	for attempt := 1; attempt <= 9; attempt++ {
		_, err := ws.Call(t.Context(), proc.Request{ID: "1", Attempt: attempt, Item: []byte("1")})
		if attempt%3 != 0 {
			if _, ok := err.(*proc.WorkerDiedError); ok {
				continue
			}
		}
		if err != nil {
			t.Errorf("attempt %d: %v", attempt, err)
		}
	}
}

func callErr(t *testing.T, ws *proc.Workers, req proc.Request) error {
	t.Helper()
	a, err := ws.Call(t.Context(), req)
	if err == nil {
		t.Fatalf("answer %+v, want an error", a)
	}
	return err
}

func TestWhatBreaksTheProtocolEndsTheWorker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		role, id, want string
	}{
		{"junk", "1", `a line that is not a JSON object: "Loading model... `},
		{"other", "1", `a result for an item other than its current item "1": "{\"id\":\"not 1\"`},
		{"long", "1", `a line of more than 1,000,000 bytes: "{\"id\":\"1\",\"ok\":true,\"result\":\"xxx`},
	} {
		t.Run(c.role, func(t *testing.T) {
			t.Parallel()
			ws := staff(t, c.role, proc.WorkersConfig{MaxLine: 1_000_000, Pause: time.Millisecond})
			req := item(c.id)
			if c.role == "long" {
				req.Item = []byte(`2000000`)
			}
			for range 2 {
				err := want[*proc.ProtocolError](t, callErr(t, ws, req), c.want)
				if len(err.Error()) > 600 || strings.Contains(err.Error(), "abc123") {
					t.Errorf("%v", err)
				}
			}
			q := want[*proc.QuarantinedError](t, callErr(t, ws, req), "3: the worker violated the protocol")
			if len(q.Error()) > 2000 {
				t.Errorf("%d bytes: %v", len(q.Error()), q)
			}
			if n := ws.Alive(); n != 0 {
				t.Errorf("%d workers live", n)
			}
		})
	}
}

func TestAnAnswerOfTheUsualLimitComes(t *testing.T) {
	suite.FullOnly(t) // it writes 16 MB
	t.Parallel()
	a, err := staff(t, "long", proc.WorkersConfig{}).Call(t.Context(), proc.Request{ID: "1", Item: []byte("16000000")})
	if err != nil || len(a.Result) != 16_000_002 {
		t.Errorf("%d bytes, %v", len(a.Result), err)
	}
}

func TestAWorkerThatEndsInTheMiddleOfALineIsQuoted(t *testing.T) {
	t.Parallel()
	err := want[*proc.WorkerDiedError](t, callErr(t, staff(t, "half", proc.WorkersConfig{}), item("7")), `in the middle of a line: "{\"id\":\"7\"`)
	if err.ExitCode != 0 {
		t.Errorf("%+v", err)
	}
}

func TestAWholeAnswerCountsWhateverComesAfterIt(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"twice", "then junk", "once", "unended"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			ws := staff(t, role, proc.WorkersConfig{})
			for i := range suite.Size(4, 20) { // of each of which another one is the worker
				if a, err := ws.Call(t.Context(), item(fmt.Sprint(i))); err != nil || !a.OK {
					t.Fatalf("item %d: %+v, %v", i, a, err)
				}
			}
		})
	}
}

func TestASecondAnswerIsNotTheNextItemsFault(t *testing.T) {
	t.Parallel()
	ws := staff(t, "twice later", proc.WorkersConfig{})
	for i := range 4 {
		if _, err := ws.Call(t.Context(), item(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		err := want[*proc.ProtocolError](t, callErr(t, ws, item("next")), "a second result for the same item")
		if !err.Late {
			t.Errorf("%+v", err)
		}
	}
}

func TestAWorkerThatEndsWhileIdleIsReplaced(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	ws := staff(t, "idle junk", proc.WorkersConfig{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range 2 {
		if _, err := ws.Call(t.Context(), item(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		awaitNone(t, ws)
	}
	_ = ws.Close() // which waits for what is told of them
	if n := strings.Count(log.String(), "a result although the worker had no item") + strings.Count(log.String(), "not a JSON object"); n != 2 {
		t.Errorf("log %s", log.String())
	}
}

func awaitNone(t *testing.T, ws *proc.Workers) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ws.Alive() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the worker does not end")
		}
	}
}

// idle is a worker's part that does not answer, for a minute.
func idle(ctx context.Context, _ order, _ func(string, ...any)) { rest(ctx, time.Minute) }

func TestASilentWorkerIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := newStaff(t, proc.WorkersConfig{Silence: 20 * time.Second, Run: crew(idle)})
		for range 2 {
			start := time.Now()
			want[*proc.SilentError](t, callErr(t, ws, item("1")), "neither a result nor a heartbeat for 20 s")
			if took := time.Since(start); took != 20*time.Second {
				t.Errorf("took %v", took)
			}
		}
		want[*proc.QuarantinedError](t, callErr(t, ws, item("1")), "neither a result nor a heartbeat for 20 s")
	})
	if suite.Full {
		ws := staff(t, "deaf", proc.WorkersConfig{Silence: 100 * time.Millisecond}) // which does not read the item
		long := proc.Request{ID: "1", Item: []byte(`"` + strings.Repeat("x", 1<<20) + `"`)}
		want[*proc.SilentError](t, callErr(t, ws, long), "neither a result nor a heartbeat for 100 ms")
		ws = staff(t, "silent", proc.WorkersConfig{Silence: 4 * time.Second}) // by when it has started
		want[*proc.SilentError](t, callErr(t, ws, item("1")), "killed: thinking")
	}
}

func TestHeartbeatsKeepAWorkerThatTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := newStaff(t, proc.WorkersConfig{Silence: 20 * time.Second, Run: crew(func(ctx context.Context, o order, say func(string, ...any)) {
			for range 100 {
				rest(ctx, 15*time.Second)
				say(`{"heartbeat":true,"id":%q}`, o.ID)
			}
			say(`{"id":%q,"ok":true}`, o.ID)
		})})
		for range 2 { // an idle worker may be silent
			if a, err := ws.Call(t.Context(), item("1")); err != nil || !a.OK || ws.Alive() != 1 {
				t.Errorf("%+v, %v", a, err)
			}
			time.Sleep(time.Hour)
		}
	})
}

func TestAnAnswerBeforeTheItemWasReadCounts(t *testing.T) {
	t.Parallel()
	long := proc.Request{ID: "1", Item: []byte(`"` + strings.Repeat("x", 1<<20) + `"`)}
	ws := staff(t, "early and ends", proc.WorkersConfig{})
	for range suite.Size(3, 20) {
		if a, err := ws.Call(t.Context(), long); err != nil || !a.OK {
			t.Errorf("%+v, %v", a, err)
		}
	}
	// It never reads the rest, which is waited for until it is silent for too long.
	ws = newStaff(t, proc.WorkersConfig{Silence: suite.Size(time.Second, 8*time.Second), Run: func(ctx context.Context, s command.Spec) (command.Result, error) {
		_, _ = s.Stdin.Read(make([]byte, 100))
		fmt.Fprintln(s.Stdout, `{"id":"1","ok":true}`)
		<-ctx.Done()
		return command.Result{ExitCode: -1, Asked: true}, context.Cause(ctx)
	}})
	if a, err := ws.Call(t.Context(), long); err != nil || !a.OK {
		t.Errorf("%+v, %v", a, err)
	}
}

// syncBuffer is a bytes.Buffer for many writers.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
