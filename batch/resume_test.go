package batch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

func TestRunningAgainDoesWhatIsLeft(t *testing.T) {
	f, rt := newFiles(t, chats(5)), &stub{}
	cfg := f.config(t, rt)
	cfg.Limit = 3
	check := func(what string, total, already, done, sent int) {
		t.Helper()
		rep, err := run(t, cfg)
		if err != nil || rep.Total != total || rep.Already != already || rep.Done != done || rep.Left() != 0 || rt.count() != sent {
			t.Fatalf("%s: total %d, already %d, done %d, left %d, sent %d, error %v; want %d, %d, %d, 0, %d",
				what, rep.Total, rep.Already, rep.Done, rep.Left(), rt.count(), err, total, already, done, sent)
		}
	}
	check("the first three lines", 3, 0, 3, 3)
	cfg.Limit = 0
	check("the others", 5, 3, 2, 5)
	check("nothing left", 5, 5, 0, 5)
	f.input(t, chats(8))
	check("new lines are added work", 8, 5, 3, 8)
	f.input(t, strings.ReplaceAll(chats(8), `"method":"POST",`, ` "method" : "POST" , `))
	check("other spaces are no change", 8, 8, 0, 8)
	f.input(t, strings.ReplaceAll(chats(8), `{"role":"user",`, `{ "role" : "user", `))
	check("nor are those inside of the request", 8, 8, 0, 8)
	f.input(t, chats(2))
	check("fewer lines", 2, 2, 0, 8)
	if n := len(f.results(t)); n != 8 {
		t.Errorf("%d results, want 8", n)
	}
}

func TestLinesWhoseRequestChanged(t *testing.T) {
	f, rt := newFiles(t, chats(12)), &stub{}
	cfg := f.config(t, rt)
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	f.input(t, strings.Replace(chats(12), "What is 4?", "What is four?", 1))
	_, err := run(t, cfg)
	changed, ok := errors.AsType[*batch.ChangedError](err)
	if !ok || changed.Number != 4 || changed.More != 0 || !strings.Contains(err.Error(), `line 4: `) || changed.Hint() == "" {
		t.Fatalf("error %v, want a *ChangedError of line 4", err)
	}
	if rt.count() != 12 {
		t.Fatal("something was sent")
	}
	cfg.Changed = batch.ChangedKeep
	if rep, err := run(t, cfg); err != nil || rep.Already != 12 || rt.count() != 12 {
		t.Errorf("keep: already %d, sent %d, error %v", rep.Already, rt.count()-12, err)
	}
	cfg.Changed = batch.ChangedRedo
	if rep, err := run(t, cfg); err != nil || rep.Already != 11 || rep.Done != 1 || rt.count() != 13 {
		t.Errorf("redo: already %d, done %d, error %v", rep.Already, rep.Done, err)
	}
	if !strings.Contains(rt.sent[12].body, "four") || len(f.results(t)) != 12 {
		t.Errorf("sent %s, %d results", rt.sent[12].body, len(f.results(t)))
	}
	cfg.Changed = batch.ChangedRefused
	if rep, err := run(t, cfg); err != nil || rep.Already != 12 {
		t.Errorf("after redo: already %d, error %v", rep.Already, err)
	}
	f.input(t, strings.ReplaceAll(chats(12), "What", "Who"))
	if _, err = run(t, cfg); !strings.HasSuffix(err.Error(), "(and 11 more)") {
		t.Errorf("error %q", err)
	}
}

func TestFillingFlagsArePartOfTheRequest(t *testing.T) {
	f := newFiles(t, "one\ntwo\n")
	cfg := f.config(t, &stub{})
	cfg.Model = "m"
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*batch.Config){
		"model":  func(c *batch.Config) { c.Model = "n" },
		"system": func(c *batch.Config) { c.System = "s" },
		"tokens": func(c *batch.Config) { c.MaxTokens = 5 },
	} {
		other := cfg
		change(&other)
		if _, err := run(t, other); !isChanged(err) {
			t.Errorf("another %s: error %v", name, err)
		}
	}
}

func TestChangedLinesAreNamedInTheirOrder(t *testing.T) {
	f := newFiles(t, chats(30))
	cfg := f.config(t, &stub{})
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.out)
	if err != nil {
		t.Fatal(err)
	}
	results := strings.SplitAfter(strings.TrimSuffix(string(b), "\n"), "\n")
	results[len(results)-1] += "\n"
	slices.Reverse(results) // they come as the calls end, which is in any order
	if err := os.WriteFile(f.out, []byte(strings.Join(results, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	f.input(t, strings.ReplaceAll(chats(30), "What is", "How much is"))
	_, err = run(t, cfg)
	changed, ok := errors.AsType[*batch.ChangedError](err)
	if !ok || changed.Number != 1 || changed.ID != "1" || changed.More != 29 {
		t.Errorf("error %v, %+v", err, changed)
	}
}

func isChanged(err error) bool {
	_, ok := errors.AsType[*batch.ChangedError](err)
	return ok
}

func TestOutputOfAnotherInput(t *testing.T) {
	f := newFiles(t, chats(3))
	cfg := f.config(t, &stub{})
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	f.input(t, strings.ReplaceAll(chats(3), `"custom_id":"`, `"custom_id":"x`))
	_, err := run(t, cfg)
	if other, ok := errors.AsType[*batch.OtherInputError](err); !ok || other.Lines != 3 || other.Hint() == "" {
		t.Errorf("error %v, want an *OtherInputError", err)
	}
	for text, want := range map[string]string{"{\"a\":1}\n": "line 1", "{\"id\":\"batch_req_1\"}\n\n": "line 1", "garbage": "output of an earlier run"} {
		if err := os.WriteFile(f.out, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err = run(t, cfg)
		if j, ok := errors.AsType[*work.JournalError](err); !ok || !strings.Contains(j.Error(), want) {
			t.Errorf("output %q: error %v, want one that says %q", text, err, want)
		}
		if b, _ := os.ReadFile(f.out); string(b) != text {
			t.Errorf("output %q became %q", text, b)
		}
	}
}

func TestEarlierFailuresAreCountedByKind(t *testing.T) {
	f := newFiles(t, chats(6))
	cfg := f.config(t, &odd{})
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	for _, input := range []string{f.in, "-"} {
		cfg.Input, cfg.Stdin = input, strings.NewReader(chats(6))
		if rep, err := run(t, cfg); err != nil || rep.AlreadyFailed != 3 || rep.AlreadyKinds[sluice.BadRequest] != 3 || rep.Retryable() {
			t.Errorf("%s: %d failed, by kind %v, error %v", input, rep.AlreadyFailed, rep.AlreadyKinds, err)
		}
	}
	text, err := os.ReadFile(f.out)
	if err != nil {
		t.Fatal(err)
	}
	later := bytes.Replace(text, []byte(`"bad_request"`), []byte(`"of_a_later_version"`), 1)
	if err := os.WriteFile(f.out, later, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, input := range []string{f.in, "-"} {
		cfg.Input, cfg.Stdin = input, strings.NewReader(chats(6))
		if rep, err := run(t, cfg); err != nil || rep.AlreadyFailed != 3 || rep.AlreadyKinds[sluice.BadRequest] != 2 || !rep.Retryable() {
			t.Errorf("%s, by another version: %d failed, by kind %v, error %v", input, rep.AlreadyFailed, rep.AlreadyKinds, err)
		}
	}
}

func TestRetryFailed(t *testing.T) {
	f, rt := newFiles(t, chats(6)), &odd{}
	cfg := f.config(t, rt)
	rep, err := run(t, cfg)
	if err != nil || rep.Done != 3 || rep.Report.Failed != 3 || rep.Kinds[sluice.BadRequest] != 3 {
		t.Fatalf("done %d, failed %d, error %v", rep.Done, rep.Report.Failed, err)
	}
	failed := f.results(t)["3"]
	if failed.Error == nil || failed.Error.Code != "bad_request" || failed.Response == nil || failed.Response.Status != 400 {
		t.Errorf("failed line %+v", failed)
	}
	if rep, err = run(t, cfg); err != nil || rep.Already != 6 || rep.AlreadyFailed != 3 || rep.AlreadyKinds[sluice.BadRequest] != 3 || len(rep.AlreadyKinds) != 1 {
		t.Errorf("failed lines are done: already %d, failed %d %v, error %v", rep.Already, rep.AlreadyFailed, rep.AlreadyKinds, err)
	}
	rt.good = true
	cfg.RetryFailed = true
	before, _ := os.ReadFile(f.out)
	b, err := batch.Open(cfg)
	if err != nil || b.Progress().Left() != 3 || b.Close() != nil {
		t.Fatalf("error %v", err)
	}
	if after, _ := os.ReadFile(f.out); !bytes.Equal(before, after) {
		t.Error("Open alone dropped results")
	}
	if rep, err = run(t, cfg); err != nil || rep.Already != 3 || rep.AlreadyFailed != 0 || rep.Done != 3 {
		t.Errorf("retried: already %d, done %d, error %v", rep.Already, rep.Done, err)
	}
	for id, r := range f.results(t) {
		if r.Error != nil {
			t.Errorf("%s: %+v", id, r.Error)
		}
	}
}

func TestResultsSurviveARunThatReachedNobody(t *testing.T) {
	for name, again := range map[string]func(f files, cfg *batch.Config){
		"lines that changed": func(f files, cfg *batch.Config) {
			f.input(t, strings.ReplaceAll(chats(6), "What is", "How much is"))
			cfg.Changed = batch.ChangedRedo
		},
		"lines that failed": func(_ files, cfg *batch.Config) { cfg.RetryFailed = true },
		"lines that failed, from standard input": func(_ files, cfg *batch.Config) {
			cfg.RetryFailed, cfg.Input, cfg.Stdin = true, "-", strings.NewReader(chats(6))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFiles(t, chats(6))
				if _, err := run(t, f.config(t, &odd{})); err != nil {
					t.Fatal(err)
				}
				before, _ := os.ReadFile(f.out)
				state, _ := work.LoadState(work.StatePath(f.out))
				cfg := f.config(t, &stub{err: errors.New("dial tcp: connection refused")})
				again(f, &cfg)
				_, err := run(t, cfg)
				if _, ok := errors.AsType[*batch.UnreachableError](err); !ok {
					t.Fatalf("error %v, want an *UnreachableError", err)
				}
				if after, _ := os.ReadFile(f.out); !bytes.Equal(before, after) {
					t.Errorf("%d results of 6 are left", bytes.Count(after, []byte("\n")))
				}
				if now, _ := work.LoadState(work.StatePath(f.out)); now.Status != work.Completed || now.Done != state.Done {
					t.Errorf("state %+v, before it was %+v", now, state)
				}
				cfg = f.config(t, &stub{})
				again(f, &cfg)
				if rep, err := run(t, cfg); err != nil || rep.Left() != 0 || len(f.results(t)) != 6 {
					t.Errorf("reached again: left %d, %d results, error %v", rep.Left(), len(f.results(t)), err)
				}
			})
		})
	}
}

func TestAFailureOfAnotherInputsLineIsNoneOfThisOne(t *testing.T) {
	f := newFiles(t, strings.ReplaceAll(chats(3), `"custom_id":"`, `"custom_id":"other `))
	cfg := f.config(t, &stub{})
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	f.input(t, chats(5))
	_, err := run(t, f.config(t, &stub{}))
	if _, other := errors.AsType[*batch.OtherInputError](err); !other || len(f.results(t)) != 3 {
		t.Errorf("%d results, error %v", len(f.results(t)), err)
	}
}

// odd refuses requests about odd numbers.
type odd struct{ good bool }

func (o *odd) RoundTrip(r *http.Request) (*http.Response, error) {
	s := &stub{}
	resp, err := s.RoundTrip(r)
	if i := strings.Index(s.sent[0].body, "?"); !o.good && (s.sent[0].body[i-1]-'0')%2 == 1 {
		return (&stub{status: 400, answer: `{"error":{"message":"odd","type":"invalid_request_error"}}`}).RoundTrip(r)
	}
	return resp, err
}

func TestATornLastLineIsRunAgainWhereverItIsTorn(t *testing.T) {
	f, rt := newFiles(t, chats(2)), &stub{}
	cfg := f.config(t, rt)
	cfg.Workers = 1
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(f.out)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) + 1 {
		if atEnd := bytes.Contains(whole[max(0, n-2):min(n+2, len(whole))], []byte("\n")); !atEnd && n%suite.Size(41, 1) != 0 {
			continue
		}
		if err := os.WriteFile(f.out, whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		kept := bytes.Count(whole[:n], []byte("\n"))
		if n < len(whole) && whole[n] == '\n' {
			kept++ // only the newline is missing
		}
		before := rt.count()
		rep, err := run(t, cfg)
		if err != nil || rep.Already != kept || rep.Done != 2-kept || rt.count()-before != 2-kept {
			t.Fatalf("torn at %d of %d: already %d, done %d, sent %d, error %v; want %d kept", n, len(whole), rep.Already, rep.Done, rt.count()-before, err, kept)
		}
		if got := slices.Sorted(maps.Keys(f.results(t))); !slices.Equal(got, []string{"1", "2"}) {
			t.Fatalf("torn at %d: results %v", n, got)
		}
	}
}

// TestEveryLineIsRecordedOnce runs a batch against an imitation with faults and limits, in runs that are drained or
// cancelled at random instants and outputs that are torn at random places, until all is done.
func TestEveryLineIsRecordedOnce(t *testing.T) {
	eachSeed(t, suite.Size(15, 100), func(t *testing.T, luck *rand.Rand) error {
		h := history{
			seed: luck.Uint64(), n: 1 + luck.IntN(60), models: 1 + luck.IntN(3), concurrent: luck.IntN(7),
			rpm: []int{0, 600, 3000}[luck.IntN(3)], stdin: luck.IntN(2) == 0, tear: luck.IntN(2) == 0,
		}
		return h.check(t)
	})
}

type history struct {
	seed                       uint64
	n, models, concurrent, rpm int
	stdin, tear                bool
}

func (h *history) check(t *testing.T) error {
	var text strings.Builder
	for i := range h.n {
		fmt.Fprintln(&text, strings.Replace(chat(i+1), `"model":"m"`, fmt.Sprintf(`"model":"m%d"`, i%h.models), 1))
	}
	f := newFiles(t, text.String())
	server := newSim(t, sim.Config{
		Seed: h.seed, Concurrency: h.concurrent, RPM: h.rpm, Latency: time.Second, Jitter: 0.5,
		Faults: sim.Faults{ServerError: 0.05, Reset: 0.05, Cut: 0.03, Overloaded: 0.02, BadRequest: 0.1},
	})
	luck := rand.New(rand.NewPCG(h.seed, 3))
	again := 0 // answers whose record was torn, and those that a cancel may have abandoned after they were paid
	for try := 0; ; try++ {
		if try == 60 {
			return errors.New("60 runs were not enough")
		}
		end := time.Duration(luck.IntN(20_000)) * time.Millisecond
		if try > 40 {
			end = time.Hour
		}
		all, abandoned, err := h.oneRun(t, f, server, end, luck.IntN(2) == 0)
		if err != nil {
			return fmt.Errorf("run %d: %w", try, err)
		}
		again += abandoned
		if all {
			break
		}
		if b, err := os.ReadFile(f.out); err == nil && h.tear && len(b) > 0 && luck.IntN(2) == 0 {
			last := bytes.LastIndexByte(b[:len(b)-1], '\n') + 1
			if err := os.Truncate(f.out, int64(last+luck.IntN(len(b)-last-1))); err != nil {
				return err
			}
			again++
		}
	}
	results := f.results(t)
	if len(results) != h.n {
		return fmt.Errorf("%d results for %d lines", len(results), h.n)
	}
	for id, r := range results {
		if (r.Error == nil) != (r.Sluice.Kind == "ok") || r.Error == nil && r.Response.Status != 200 {
			return fmt.Errorf("result %s: %+v", id, r)
		}
	}
	twice := 0
	for _, paid := range server.Stats().Paid {
		twice += paid - 1
	}
	if twice > again {
		return fmt.Errorf("%d answers were paid twice, and only %d may have been", twice, again)
	}
	return nil
}

// oneRun runs what is left until end, and says whether that was all, and how many paid answers it may have dropped.
func (h *history) oneRun(t *testing.T, f files, server *sim.Server, end time.Duration, drain bool) (all bool, abandoned int, err error) {
	cfg := f.config(t, server.Transport())
	scheduler, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 8}})
	if err != nil {
		return false, 0, err
	}
	defer scheduler.Close()
	cfg.Scheduler = func(provider.Provider) (*sluice.Scheduler, error) { return scheduler, nil }
	if h.stdin {
		text, err := os.ReadFile(f.in)
		if err != nil {
			return false, 0, err
		}
		cfg.Input, cfg.Stdin = "-", bytes.NewReader(text)
	}
	b, err := batch.Open(cfg)
	if err != nil {
		return false, 0, err
	}
	defer b.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := b.Drain
	if !drain {
		stop = cancel
	}
	timer := time.AfterFunc(end, stop)
	defer timer.Stop()
	_, err = b.Run(ctx)
	switch {
	case err == nil:
		return true, 0, nil
	case errors.Is(err, work.ErrDrained):
		return false, 0, nil
	case errors.Is(err, context.Canceled):
		return false, 8, nil
	}
	return false, 0, err
}

func TestAnOutputThatAnEditorSavedIsResumed(t *testing.T) {
	for name, save := range map[string]func(string) string{
		"a mark":                        func(s string) string { return "\ufeff" + s },
		"a blank line at the end":       func(s string) string { return s + "\n" },
		"spaces at the end":             func(s string) string { return s + "  " },
		"blank lines between":           func(s string) string { return strings.ReplaceAll(s, "\n", "\n\n") },
		"line ends of another system":   func(s string) string { return "\ufeff" + strings.ReplaceAll(s, "\n", "\r\n") + "\r\n" },
		"no end of the last line":       func(s string) string { return strings.TrimSuffix(s, "\n") },
		"a mark and a torn second line": func(s string) string { return "\ufeff" + strings.SplitAfter(s, "\n")[0] + s[:20] },
	} {
		t.Run(name, func(t *testing.T) {
			f, rt := newFiles(t, chats(3)), &stub{}
			cfg := f.config(t, rt)
			cfg.Limit = 2
			if _, err := run(t, cfg); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(f.out)
			if err == nil {
				err = os.WriteFile(f.out, []byte(save(string(b))), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			cfg.Limit = 0
			want := 2
			if strings.Contains(name, "torn") {
				want = 1
			}
			if rep, err := run(t, cfg); err != nil || rep.Already != want || rep.Left() != 0 || rt.count() != 5-want {
				t.Fatalf("already %d, left %d, sent %d, error %v", rep.Already, rep.Left(), rt.count(), err)
			}
			if rep, err := run(t, cfg); err != nil || rep.Already != 3 {
				t.Errorf("once more: already %d, error %v", rep.Already, err)
			}
		})
	}
}

// TestTheOutputEndsInTheOrderOfTheInput has a first run stop, and then the output reversed by somebody else. A line that is not of
// the input is last.
func TestTheOutputEndsInTheOrderOfTheInput(t *testing.T) {
	var sorted []string
	for i := range 60 {
		sorted = append(sorted, fmt.Sprint(i+1))
	}
	want := append(slices.Clone(sorted), "gone")
	for _, stdin := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFiles(t, chats(60))
			cfg := f.config(t, newSim(t, sim.Config{Latency: time.Second, Jitter: 0.5}).Transport())
			start := func(change func(output []byte) []byte) (rep batch.Report, ids []string, err error) {
				if stdin {
					cfg.Input, cfg.Stdin = "-", strings.NewReader(chats(60))
				}
				if change != nil {
					b, _ := os.ReadFile(f.out)
					if err := os.WriteFile(f.out, change(b), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				rep, err = run(t, cfg)
				b, _ := os.ReadFile(f.out)
				for line := range bytes.Lines(b) {
					_, id, _ := strings.Cut(string(line), `"custom_id":"`)
					id, _, _ = strings.Cut(id, `"`)
					ids = append(ids, id)
				}
				return rep, ids, err
			}
			cfg.Budget.Deadline = time.Now().Add(3 * time.Second)
			if _, ids, err := start(nil); err == nil || len(ids) == 0 || slices.Equal(ids, sorted[:len(ids)]) {
				t.Fatalf("%v, %v", err, ids)
			}
			cfg.Budget.Deadline = time.Time{}
			_, ids, err := start(func(output []byte) []byte {
				first, _, _ := bytes.Cut(output, []byte("\n"))
				_, rest, _ := bytes.Cut(first, []byte(`"custom_id":`))
				_, rest, _ = bytes.Cut(rest, []byte(","))
				return slices.Concat([]byte(`{"id":"batch_req_0","custom_id":"gone",`), rest, []byte("\n"), output)
			})
			if err != nil || !slices.Equal(ids, want) {
				t.Fatalf("%v, %v", err, ids)
			}
			rep, ids, err := start(func(output []byte) []byte {
				lines := bytes.SplitAfter(output, []byte("\n"))
				slices.Reverse(lines)
				return bytes.Join(lines, nil)
			})
			if err != nil || rep.Done > 0 || !slices.Equal(ids, want) {
				t.Errorf("%+v, %v, %v", rep.Report, err, ids)
			}
		})
	}
}
