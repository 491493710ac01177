package batch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
)

// asks is a line with that custom_id that asks that question.
func asks(id string, question int) string {
	return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":"What is %d?"}]}}`+"\n", id, question)
}

// asking is the lines of a file that ask these questions, with custom_ids from a prefix and the place.
func asking(prefix string, questions ...int) string {
	var b strings.Builder
	for i, q := range questions {
		b.WriteString(asks(fmt.Sprintf("%s%d", prefix, i), q))
	}
	return b.String()
}

func TestEqualRequestsAreCalledOnce(t *testing.T) {
	for _, input := range []string{"file", "standard input"} {
		t.Run(input, func(t *testing.T) {
			text := asking("a", 1, 2, 1, 1, 3, 2)
			f, rt := newFiles(t, text), &stub{}
			cfg := f.config(t, rt)
			cfg.Dedupe = true
			if input != "file" {
				cfg.Input, cfg.Stdin = "-", strings.NewReader(text)
			}
			var mu sync.Mutex
			told := map[string]string{}
			cfg.OnResult = func(r *work.Result) {
				mu.Lock()
				defer mu.Unlock()
				told[r.ID] = r.DuplicateOf
			}
			rep, err := run(t, cfg)
			if err != nil || rep.Total != 6 || rep.Done != 6 || rep.Twins != 3 || rep.Left() != 0 || rt.count() != 3 || rep.Items != 6 {
				t.Fatalf("%+v, %d calls, error %v; want 6 done, 3 of them twins, 3 calls", rep, rt.count(), err)
			}
			want := map[string]string{"a0": "", "a1": "", "a2": "a0", "a3": "a0", "a4": "", "a5": "a1"}
			for id, r := range f.results(t) {
				s := r.Sluice
				if s.Twin != want[id] || told[id] != want[id] || string(r.Response.Body) != chatAnswer || r.Response.RequestID != "req-1" || s.Kind != "ok" {
					t.Errorf("%s: %+v", id, r)
				}
				if s.Twin != "" && (s.Attempts != 0 || s.InputTokens != 0 || s.OutputTokens != 0 || s.CostUSD == nil || *s.CostUSD != 0) {
					t.Errorf("%s is a twin and took %+v", id, s)
				}
			}
			if len(told) != 6 || rep.Finish["stop"] != 6 || rep.Usage.Input != 15 {
				t.Errorf("told %v, report %+v", told, rep)
			}
		})
	}
}

func TestASetIsCompletedFromItsRecordedTwin(t *testing.T) {
	f, rt := newFiles(t, asking("a", 1, 2)), &stub{}
	cfg := f.config(t, rt)
	if _, err := run(t, cfg); err != nil { // without the flag: turning it on later is harmless
		t.Fatal(err)
	}
	check := func(what string, already, done, twins, sent int) {
		t.Helper()
		rep, err := run(t, cfg)
		if err != nil || rep.Already != already || rep.Done != done || rep.Twins != twins || rep.Left() != 0 || rt.count() != sent {
			t.Fatalf("%s: already %d, done %d, twins %d, left %d, sent %d, error %v; want %d, %d, %d, 0, %d",
				what, rep.Already, rep.Done, rep.Twins, rep.Left(), rt.count(), err, already, done, twins, sent)
		}
		for id, r := range f.results(t) {
			if string(r.Response.Body) != chatAnswer || r.Sluice.Kind != "ok" || r.Sluice.Twin == id {
				t.Errorf("%s: %s: %+v", what, id, r)
			}
		}
	}
	cfg.Dedupe = true
	f.input(t, asking("a", 1, 2, 2, 1, 3))
	check("appended lines", 2, 3, 2, 3)
	f.input(t, asking("b", 3, 1, 4, 4))
	check("an id that is no longer in the input", 0, 4, 3, 4)
	cfg.Dedupe = false
	f.input(t, asking("b", 3, 1, 4, 4, 4))
	check("without it every line is called", 4, 1, 0, 5)
	cfg.Dedupe = true
	cfg.Input, cfg.Stdin = "-", strings.NewReader(asking("c", 3, 1, 5, 4, 5))
	check("lines of standard input", 0, 5, 4, 6)
	cfg.Stdin = strings.NewReader(asking("c", 3, 1, 5, 4, 5, 5))
	check("and again", 5, 1, 1, 6)
	if n := len(f.results(t)); n != 16 {
		t.Errorf("%d results, want 16", n)
	}
}

func TestARecordedFailureIsNotCopied(t *testing.T) {
	f := newFiles(t, asking("a", 1, 1))
	bad, good := &stub{status: 400, answer: `{"error":{"message":"no","type":"invalid_request_error"}}`}, &stub{}
	cfg := f.config(t, bad)
	cfg.Dedupe = true
	rep, err := run(t, cfg)
	if err != nil || rep.Failed != 2 || rep.Twins != 1 || bad.count() != 1 {
		t.Fatalf("%+v, %d calls, %v: want both lines to fail by one call", rep, bad.count(), err)
	}
	cfg.Transport = good
	f.input(t, asking("a", 1, 1, 1, 1))
	rep, err = run(t, cfg)
	if err != nil || rep.Done != 2 || rep.AlreadyFailed != 2 || good.count() != 1 {
		t.Fatalf("%+v, %d calls, %v: want the two new lines to be done by one call", rep, good.count(), err)
	}
	cfg.RetryFailed = true
	rep, err = run(t, cfg)
	if err != nil || rep.Done != 2 || rep.Twins != 2 || good.count() != 1 {
		t.Fatalf("%+v, %d calls, %v: want the failed lines to have the answer that is there", rep, good.count(), err)
	}
	for id, r := range f.results(t) {
		if r.Error != nil || string(r.Response.Body) != chatAnswer {
			t.Errorf("%s: %+v", id, r)
		}
	}
}

func TestAFailureBehindAnAnswerDoesNotHideIt(t *testing.T) {
	f := newFiles(t, asking("a", 1))
	cfg := f.config(t, &stub{})
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	f.input(t, asking("a", 1, 1))
	cfg.Transport = &stub{status: 400, answer: `{"error":{"message":"no","type":"invalid_request_error"}}`}
	if rep, err := run(t, cfg); err != nil || rep.Failed != 1 { // without the flag each line is called
		t.Fatalf("%+v, %v", rep, err)
	}
	cfg.Dedupe = true
	for _, input := range []string{"file", "-"} {
		more := asking(input, 1)
		f.input(t, asking("a", 1, 1)+more)
		if input == "-" {
			cfg.Input, cfg.Stdin = "-", strings.NewReader(more)
		}
		if rep, err := run(t, cfg); err != nil || rep.Done != 1 || rep.Twins != 1 {
			t.Errorf("%s: %+v, %v: want the good answer", input, rep, err)
		}
	}
}

func TestALineThatChangedMayHaveARecordedAnswer(t *testing.T) {
	f, rt := newFiles(t, asking("a", 1, 2, 3)), &stub{}
	cfg := f.config(t, rt)
	cfg.Dedupe = true
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	// What a0 had is dropped by the rewrite, so that a3 cannot have it; what a1 had stays, behind where that was.
	f.input(t, asking("a", 2, 2, 3, 1))
	cfg.Changed = batch.ChangedRedo
	rep, err := run(t, cfg)
	if err != nil || rep.Done != 2 || rep.Twins != 1 || rt.count() != 4 {
		t.Fatalf("%+v, %d calls, %v", rep, rt.count(), err)
	}
	if r := f.results(t); len(r) != 4 || r["a0"].Sluice.Twin != "a1" || r["a3"].Sluice.Twin != "" {
		t.Errorf("results %+v", r)
	}
}

func TestTwinsOfALineThatChangedMeanwhile(t *testing.T) {
	f := newFiles(t, asking("a", 1, 1, 1))
	cfg := f.config(t, roundTripper(func(r *http.Request) (*http.Response, error) {
		b, err := os.ReadFile(f.in)
		if err == nil {
			err = os.WriteFile(f.in, bytes.ReplaceAll(b, []byte("is 1?"), []byte("is 7?")), 0o644)
		}
		if err != nil {
			t.Error(err)
		}
		return (&stub{}).RoundTrip(r)
	}))
	cfg.Dedupe = true
	rep, err := run(t, cfg)
	if bad, ok := errors.AsType[*batch.InputError](err); !ok || bad.Line != 2 || rep.Done != 1 || len(f.results(t)) != 1 {
		t.Errorf("%+v, %v: want only the first line to be recorded, and line 2 to be named", rep, err)
	}
}

func TestStandardInputWaitsWhenTooManyLinesDo(t *testing.T) {
	suite.FullOnly(t)
	synctest.Test(t, func(t *testing.T) {
		const n = 1<<16 + 3000
		text := asking("a", make([]int, n)...)
		f := newFiles(t, "")
		var calls atomic.Int32
		in := &readAt{r: strings.NewReader(text)}
		cfg := f.config(t, roundTripper(func(r *http.Request) (*http.Response, error) {
			calls.Add(1)
			time.Sleep(time.Minute)
			if left := len(text) - int(in.n.Load()); left < 100*1000 {
				t.Errorf("only %d bytes were left to read while 65,536 lines waited", left)
			}
			return (&stub{}).RoundTrip(r)
		}))
		cfg.Dedupe, cfg.Input, cfg.Stdin = true, "-", in
		if rep, err := run(t, cfg); err != nil || rep.Done != n || rep.Twins != n-1 || calls.Load() != 1 {
			t.Errorf("%+v, %d calls, %v", rep, calls.Load(), err)
		}
	})
}

// readAt counts what is read.
type readAt struct {
	r io.Reader
	n atomic.Int64
}

func (r *readAt) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.n.Add(int64(n))
	return n, err
}

func TestHalfOfAHashIsNotEnough(t *testing.T) {
	f, rt := newFiles(t, asking("a", 1, 1, 2, 1, 1)), &stub{}
	cfg := f.config(t, rt)
	cfg.Dedupe = true
	b, err := batch.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.SpoilTwin(1)
	rep, err := b.Run(context.Background())
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if r := f.results(t); err != nil || rep.Done != 5 || rep.Twins != 2 || rt.count() != 3 || r["a3"].Sluice.Twin != "" || r["a4"].Sluice.Twin != "a0" {
		t.Errorf("%+v, %d calls, %v: want a3 to be called on its own", rep, rt.count(), err)
	}

	f.input(t, asking("b", 1, 2)) // of other ids: both have a recorded answer
	if b, err = batch.Open(cfg); err != nil {
		t.Fatal(err)
	}
	b.SpoilAnswers(0)
	rep, err = b.Run(context.Background())
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err != nil || rep.Done != 2 || rep.Twins != 1 || rt.count() != 4 {
		t.Errorf("%+v, %d calls, %v: want b1 not to have another's answer", rep, rt.count(), err)
	}
}

// TestTheLinesOfOneCallAreOneWrite looks at the output whenever it grew: no set may be there in part.
func TestTheLinesOfOneCallAreOneWrite(t *testing.T) {
	f := newFiles(t, asking("a", slices.Repeat([]int{1, 2, 3}, 50)...))
	cfg := f.config(t, &stub{})
	cfg.Dedupe = true
	var sizes []int64
	cfg.OnResult = func(*work.Result) {
		if info, err := os.Stat(f.out); err == nil {
			sizes = append(sizes, info.Size())
		}
	}
	cfg.Workers = 1
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	slices.Sort(sizes)
	if got := len(slices.Compact(sizes)); got != 3 {
		t.Errorf("the output grew %d times, want once for each of 3 calls", got)
	}
}

// TestEverySetIsCalledOnce runs inputs with equal lines at random, in runs that are drained or cancelled, or whose
// output is cut at a random byte, with the flag on or off, from a file or standard input.
func TestEverySetIsCalledOnce(t *testing.T) {
	eachSeed(t, suite.Size(15, 100), sets)
}

func sets(t *testing.T, luck *rand.Rand) error {
	questions := make([]int, luck.IntN(80)+1)
	for i := range questions {
		questions[i] = luck.IntN(12)
	}
	text := asking("a", questions...)
	f := newFiles(t, text)
	var mu sync.Mutex
	for round := 0; ; round++ {
		recorded, err := goodAnswers(f.out)
		if err != nil {
			return err
		}
		called := map[string]int{}
		cfg := f.config(t, roundTripper(func(r *http.Request) (*http.Response, error) {
			call := &stub{}
			resp, err := call.RoundTrip(r)
			mu.Lock()
			called[call.sent[0].body]++
			wait := time.Duration(luck.IntN(1000)) * time.Millisecond
			mu.Unlock()
			select {
			case <-time.After(wait):
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
			return resp, err
		}))
		cfg.Dedupe = true
		if luck.IntN(2) == 0 {
			r, w := io.Pipe()
			cfg.Input, cfg.Stdin = "-", r
			var dripping sync.WaitGroup
			dripping.Go(func() { drip(w, text) })
			defer dripping.Wait() // time stands still when the bubble's first goroutine has ended
			defer r.Close()
		}
		b, err := batch.Open(cfg)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(context.Background())
		if round < 4 {
			end := b.Drain
			if luck.IntN(2) == 0 {
				end = cancel
			}
			defer time.AfterFunc(time.Duration(luck.IntN(2000))*time.Millisecond, end).Stop()
		}
		rep, err := b.Run(ctx)
		cancel()
		if closeErr := b.Close(); closeErr != nil {
			return closeErr
		}
		for body, n := range called {
			if n > 1 || recorded[body] {
				return fmt.Errorf("round %d: %s was called %d times; recorded before: %t", round, body, n, recorded[body])
			}
		}
		if err == nil {
			if rep.Left() != 0 {
				return fmt.Errorf("round %d: no error, and %d left", round, rep.Left())
			}
			if got := len(f.results(t)); got != len(questions) {
				return fmt.Errorf("%d results for %d lines", got, len(questions))
			}
			return nil
		}
		if !errors.Is(err, work.ErrDrained) && !errors.Is(err, context.Canceled) {
			return err
		}
		if info, err := os.Stat(f.out); err == nil && luck.IntN(2) == 0 && info.Size() > 0 { // as a kill may leave it
			if err := os.Truncate(f.out, info.Size()-luck.Int64N(min(info.Size(), 1500))); err != nil {
				return err
			}
		}
	}
}

// goodAnswers returns the bodies of requests that whole lines of an output have good answers to.
func goodAnswers(path string) (map[string]bool, error) {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	bodies := map[string]bool{}
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			continue
		}
		for q := range 12 {
			parsed, err := batch.ParseLine([]byte(asks("x", q)), 1)
			if err != nil {
				return nil, err
			}
			if bytes.Contains(line, []byte(parsed.Hash.String())) {
				bodies[string(parsed.Body)] = true
			}
		}
	}
	return bodies, nil
}

// drip writes a text line by line, with time between.
func drip(w *io.PipeWriter, text string) {
	for line := range strings.Lines(text) {
		time.Sleep(20 * time.Millisecond)
		if _, err := io.WriteString(w, line); err != nil {
			return
		}
	}
	w.Close()
}
