package batchjob_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// lander uses a Table as a run does: it adds the requests of its items in rounds, and records their results.
type lander struct {
	*batchjob.Table
	changed chan struct{}
	placed  map[string]int32 // parts that items are in
	done    map[string]int   // statuses of recorded items
	parts   int              // recorded
}

// run runs rounds until items 0 to n have results, or nothing more comes.
func (l *lander) run(ctx context.Context, n int) error {
	if err := l.match(); err != nil {
		return err
	}
	l.Start(ctx)
	for ctx.Err() == nil {
		for i := range n {
			it := request(i)
			if l.placed[it.Item.ID] != 0 || l.done[it.Item.ID] != 0 {
				continue
			}
			p, err := l.Add(it)
			if err != nil {
				return err
			}
			l.placed[it.Item.ID] = p.Number
		}
		if err := l.Flush(); err != nil {
			return err
		}
		missing, err := l.land(ctx)
		if err != nil || missing == 0 {
			return err
		}
	}
	return ctx.Err()
}

// match finds the items of open parts.
func (l *lander) match() error {
	l.placed = make(map[string]int32)
	for _, p := range l.Parts() {
		for it, err := range p.Items() {
			if err != nil {
				return err
			}
			if l.placed[it.ID] != 0 {
				return fmt.Errorf("item %s is in two parts", it.ID)
			}
			l.placed[it.ID] = p.Number
		}
	}
	return nil
}

// land records the results of parts until none is pending, and returns the number of items without a result.
func (l *lander) land(ctx context.Context) (missing int, err error) {
	for {
		for p := l.Ended(); p != nil; p = l.Ended() {
			once := make(map[string]bool)
			for r, err := range p.Results() {
				if err != nil {
					return 0, err
				}
				id := r.Item.ID
				if once[id] || r.Hash != work.HashOf([]byte(id)).String() {
					return 0, fmt.Errorf("item %s has two results, or the hash %s", id, r.Hash)
				}
				once[id] = true
				if l.placed[id] = 0; r.Fate == batchjob.Answered {
					l.done[id] = r.Status
				} else {
					missing++
				}
			}
			if err := l.Recorded(p); err != nil {
				return 0, err
			}
			l.parts++
		}
		if l.Pending() == 0 || l.Err() != nil {
			return missing, l.Err()
		}
		select {
		case <-l.changed:
		case <-ctx.Done():
			return missing, ctx.Err()
		case <-time.After(100 * 24 * time.Hour):
			return missing, fmt.Errorf("nothing comes: %+v", l.Rows())
		}
	}
}

// bench has a provider, and a directory.
type bench struct {
	t    *testing.T
	api  *double
	dir  string
	cfg  batchjob.Config
	done map[string]int
}

func newBench(t *testing.T) *bench {
	return &bench{t: t, api: &double{takes: time.Hour, runs: map[string]int{}}, dir: filepath.Join(t.TempDir(), "parts"), done: map[string]int{}}
}

func (b *bench) tryOpen() (*lander, error) {
	l := &lander{done: b.done, changed: make(chan struct{}, 1)}
	cfg := b.cfg
	cfg.APIs = map[string]batchjob.API{"acme": b.api}
	cfg.Dir, cfg.Changed = b.dir, l.changed
	t, err := batchjob.Open(cfg)
	l.Table = t
	return l, err
}

func (b *bench) open() *lander {
	b.t.Helper()
	l, err := b.tryOpen()
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// run runs n items to their end.
func (b *bench) run(n int) error {
	b.t.Helper()
	l := b.open()
	return errors.Join(l.run(b.t.Context(), n), l.Close())
}

// begin runs n items for a time, and leaves their parts.
func (b *bench) begin(n int, d time.Duration) {
	b.t.Helper()
	l := b.open()
	ctx, cancel := context.WithTimeout(b.t.Context(), d)
	defer cancel()
	if err := l.run(ctx, n); !errors.Is(err, context.DeadlineExceeded) {
		b.t.Fatalf("it ended: %v", err)
	}
	if err := l.Close(); err != nil {
		b.t.Fatal(err)
	}
}

func request(i int) *batchjob.Request {
	id := fmt.Sprintf("m%d", i)
	return &batchjob.Request{Account: "acme", Model: "model", Endpoint: provider.ChatCompletions, Cost: limits.Cost{Input: 10},
		Item: batchjob.Item{ID: id, Hash: work.HashOf([]byte(id)).String(), Body: fmt.Appendf(nil, "{\"n\": %d,\n \"text\": [1, 2]}", i)}}
}

// table returns the name of the saved table.
func (b *bench) table() string { return filepath.Join(b.dir, "table.json") }

// want fails unless items 0 to n ran once and have results, and only the table is left.
func (b *bench) want(n int) {
	b.t.Helper()
	b.api.runAll()
	for i := range n {
		if id := fmt.Sprintf("m%d", i); b.done[id] != 200 || b.api.runs[id] != 1 {
			b.t.Fatalf("item %s has status %d and ran %d times", id, b.done[id], b.api.runs[id])
		}
	}
	if len(b.done) != n {
		b.t.Fatalf("there are results of %d items, want %d", len(b.done), n)
	}
	if left, err := os.ReadDir(b.dir); err != nil || len(left) != 1 || left[0].Name() != filepath.Base(b.table()) {
		b.t.Fatalf("the directory has %v, err %v", left, err)
	}
}

// bubble runs a test in a bubble of time, with a bench.
func bubble(t *testing.T, name string, test func(t *testing.T, b *bench)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newBench(t)) })
	})
}

func TestPartsRunToTheirEnd(t *testing.T) {
	room := func(tokens, told int) func(*bench) {
		return func(b *bench) { b.api.bounds.Requests, b.api.enqueued, b.api.tells = 10, tokens, told }
	}
	refusing := func(p *batchjob.Problem, fits func(n int, f *batchjob.File) bool) func(*bench) {
		return func(b *bench) {
			b.api.refuse = func(n int, f *batchjob.File, _ *doubled) *batchjob.Problem {
				if fits(n, f) {
					return nil
				}
				return p
			}
		}
	}
	for _, c := range []struct {
		name    string
		set     func(*bench)
		creates int // at most
	}{
		{"with names", func(b *bench) { b.api.bounds.Requests, b.api.carries = 10, 40*time.Minute }, 6},
		{"without names", func(b *bench) { b.api.bounds.Requests, b.api.nameless = 10, true }, 6},
		{"responses to creates are lost", func(b *bench) { b.lose(10) }, 6},
		{"responses to creates are lost, without names", func(b *bench) { b.api.nameless = true; b.lose(10) }, 6},
		{"newest first", func(b *bench) { b.api.nameless, b.api.reversed = true, true; b.lose(10) }, 6},
		{"little room", room(120, 0), 25},
		{"little room, which is told", room(120, 120), 20},
		{"less room than a part has, which is told", room(60, 60), 20},
		{"pending requests are limited", func(b *bench) { b.api.bounds.Requests, b.api.bounds.Pending = 10, 30 }, 6},
		{"batches are limited per hour", func(b *bench) { b.api.bounds.Requests, b.api.bounds.PerHour = 10, 1 }, 6},
		{"parts are too large", refusing(&batchjob.Problem{Kind: batchjob.TooLarge}, func(_ int, f *batchjob.File) bool { return f.Requests <= 3 }), 60},
		{"batches break twice", refusing(&batchjob.Problem{Kind: batchjob.Broken}, func(n int, _ *batchjob.File) bool { return n > 1 }), 3},
		{"results are cut", func(b *bench) { b.api.cut = 4 }, 1},
		{"counts are impossible", func(b *bench) { b.api.uncounted, b.api.cut = 4, 2 }, 1},
		{"results are late", func(b *bench) { b.cfg.Resubmit, b.api.goneFor = true, 2 }, 1},
		{"the provider's clock is behind", func(b *bench) {
			b.api.skew = -5 * time.Hour
			b.failFor("get", 15*time.Second, batchjob.ErrUnknown)
		}, 1},
		{"a status of the provider's own", func(b *bench) { b.api.word = "pausing" }, 1},
		{"a status that is a state of ours", func(b *bench) { b.api.word = "recorded" }, 1},
		{"an upload fails for hours", func(b *bench) { b.failFor("upload", 9*time.Hour, saying(sluice.ServerError, "503")) }, 1},
		{"a status cannot be read for hours", func(b *bench) { b.failFor("get", 9*time.Hour, saying(sluice.ServerError, "503")) }, 1},
		{"results cannot be read for hours", func(b *bench) { b.failFor("fetch", 9*time.Hour, saying(sluice.ServerError, "503")) }, 1},
	} {
		bubble(t, c.name, func(t *testing.T, b *bench) {
			c.set(b)
			began := time.Now()
			if err := b.run(55); err != nil {
				t.Fatal(err)
			}
			if b.want(55); b.api.creates > c.creates || b.api.gets > 100*c.creates+2000 {
				t.Errorf("%d batches in %v, looked at %d times; want %d at most", b.api.creates, time.Since(began), b.api.gets, c.creates)
			}
			if b.api.bounds.Pending > 0 && b.api.mostOpen > 3 || b.api.bounds.PerHour > 0 && b.api.mostOpen > 2 {
				t.Errorf("%d batches were open at once", b.api.mostOpen)
			}
		})
	}
}

// lose loses the responses to the first creates.
func (b *bench) lose(n int) {
	b.api.bounds.Requests, b.api.lag, b.api.slower = 10, 10*time.Second, time.Hour
	b.api.fault = func(op string) fault {
		if op != "create" || n == 0 {
			return none
		}
		n--
		return lostAfter
	}
}

// failFor fails requests of a kind for a time.
func (b *bench) failFor(op string, d time.Duration, err error) {
	began := time.Now()
	b.api.fails = func(at string) error {
		if at == op && time.Since(began) < d {
			return err
		}
		return nil
	}
}

func TestRejectedRequestsHaveResultsAndTheOthersRun(t *testing.T) {
	for _, at := range []string{"create", "batch"} {
		bubble(t, at, func(t *testing.T, b *bench) {
			p := batchjob.Problem{Kind: batchjob.Invalid, Message: "see lines", Lines: map[int]string{2: "no such model", 4: "", 99: "not ours"}}
			if at == "batch" {
				b.api.refuse = func(n int, _ *batchjob.File, _ *doubled) *batchjob.Problem {
					if n > 0 {
						return nil
					}
					return &p
				}
			} else {
				b.api.fails = func(op string) error {
					if op != "create" {
						return nil
					}
					b.api.fails = nil
					return &batchjob.ProblemError{Problem: p, Rejection: saying(sluice.BadRequest, p.Message)}
				}
			}
			if err := b.run(6); err != nil {
				t.Fatal(err)
			}
			b.api.runAll()
			for i := range 6 {
				id, status, runs := fmt.Sprintf("m%d", i), 200, 1
				if i == 2 || i == 4 {
					status, runs = 400, 0
				}
				if b.done[id] != status || b.api.runs[id] != runs {
					t.Errorf("%s has status %d and ran %d times", id, b.done[id], b.api.runs[id])
				}
			}
		})
	}
}

func TestAPartThatTheProviderRejectsEndsWithoutResults(t *testing.T) {
	for _, c := range []struct {
		problem batchjob.Problem
		creates int
	}{
		{batchjob.Problem{Kind: batchjob.Invalid, Message: "wrong endpoint"}, 1},
		{batchjob.Problem{Kind: batchjob.Broken, Message: "internal error"}, 3},
	} {
		bubble(t, string(c.problem.Kind), func(t *testing.T, b *bench) {
			b.api.refuse = func(int, *batchjob.File, *doubled) *batchjob.Problem { return &c.problem }
			l := b.open()
			defer l.Close()
			l.Start(t.Context())
			if _, err := l.Add(request(0)); err != nil {
				t.Fatal(err)
			}
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			p := l.Ended()
			if p == nil {
				t.Fatalf("no part has ended: %+v", l.Rows())
			}
			if r := p.Row(); !r.Refused() || r.Problem.Message != c.problem.Message || b.api.creates != c.creates {
				t.Errorf("%+v with problem %+v after %d batches", r, r.Problem, b.api.creates)
			}
			if l.Ended() != nil {
				t.Error("it ends twice")
			}
		})
	}
}

func TestCancelKeepsResults(t *testing.T) {
	bubble(t, "", func(t *testing.T, b *bench) {
		b.api.bounds.Requests, b.api.bounds.Pending = 10, 10
		b.begin(30, 10*time.Minute)
		l := b.open()
		defer l.Close()
		if err := errors.Join(l.match(), l.Cancel()); err != nil {
			t.Fatal(err)
		}
		l.Start(t.Context())
		began := time.Now()
		if missing, err := l.land(t.Context()); err != nil || missing != 20 || len(b.done) != 10 || b.api.creates != 1 || b.api.cancels != 1 {
			t.Errorf("%v, %d missing, %d done, %d batches, %d cancelled", err, missing, len(b.done), b.api.creates, b.api.cancels)
		}
		if time.Since(began) > 5*time.Minute {
			t.Errorf("it took %v", time.Since(began))
		}
	})
}

// TestABatchThatIsUnknownIsLost has the provider not know a batch, and know it again.
func TestABatchThatIsUnknownIsLost(t *testing.T) {
	bubble(t, "", func(t *testing.T, b *bench) {
		b.begin(5, time.Minute)
		known := b.api.batches
		b.api.have(nil) // another key's, for example
		for range 2 {
			lost, ok := errors.AsType[*batchjob.LostError](b.run(5))
			if !ok || len(lost.Batches) != 1 || lost.Batches[0] != "batch-1" || lost.Lines != 5 || b.api.creates != 1 {
				t.Fatalf("%+v, %d batches", lost, b.api.creates)
			}
		}
		b.cfg.Resubmit = true
		b.api.have(known)
		b.begin(5, time.Minute)
		if b.api.creates != 1 {
			t.Error("a part whose batch is known again was submitted again")
		}
		b.api.have(nil)
		if err := b.run(5); err != nil {
			t.Fatal(err)
		}
		if b.want(5); b.api.creates != 2 {
			t.Errorf("%d batches, want 2", b.api.creates)
		}
	})
	bubble(t, "dropped by cancel", func(t *testing.T, b *bench) {
		b.begin(5, time.Minute)
		b.api.have(nil)
		b.cfg.Resubmit = true
		l := b.open()
		defer l.Close()
		if err := errors.Join(l.match(), l.Cancel()); err != nil {
			t.Fatal(err)
		}
		l.Start(t.Context())
		if missing, err := l.land(t.Context()); err != nil || missing != 5 || b.api.creates != 1 || l.Rows()[0].State != batchjob.Recorded {
			t.Errorf("%v, %d missing, %d batches, %+v", err, missing, b.api.creates, l.Rows())
		}
	})
	for _, skew := range []time.Duration{0, 5 * time.Hour, -5 * time.Hour} { // of the provider's clock
		bubble(t, fmt.Sprint("after the time of grace, skew ", skew), func(t *testing.T, b *bench) {
			b.api.skew = skew
			b.begin(5, time.Second)
			b.api.have(nil)
			began := time.Now()
			if _, lost := errors.AsType[*batchjob.LostError](b.run(5)); !lost || time.Since(began) < 25*time.Second || time.Since(began) > 75*time.Second {
				t.Errorf("lost %v after %v", lost, time.Since(began))
			}
		})
	}
}

// TestAGuessThatIsWrongIsReplaced has a part guess the batch of another run, which disappears.
func TestAGuessThatIsWrongIsReplaced(t *testing.T) {
	bubble(t, "", func(t *testing.T, b *bench) {
		b.api.nameless, b.cfg.Resubmit = true, true
		b.lose(1)
		b.begin(5, time.Minute)
		text, err := os.ReadFile(b.table())
		text = bytes.Replace(text, []byte(b.api.batches[0].ID), []byte("batch-of-another"), 1)
		if err := errors.Join(err, os.WriteFile(b.table(), text, 0o600), b.run(5)); err != nil {
			t.Fatal(err)
		}
		if b.want(5); len(b.api.batches) != 1 {
			t.Errorf("%d batches, want 1", len(b.api.batches))
		}
	})
}

func TestPartsGuessDifferentBatches(t *testing.T) {
	bubble(t, "", func(t *testing.T, b *bench) {
		const count = 24
		b.api.nameless = true
		b.lose(count)
		b.api.bounds.Requests = 1
		b.begin(count, 10*time.Minute)
		rows, err := batchjob.Read(b.dir)
		taken := make(map[string]string)
		for _, r := range rows {
			if other := taken[r.Batch]; r.Batch == "" || other != "" {
				t.Errorf("part %s has batch %q, as has %q", r.Tag, r.Batch, other)
			}
			taken[r.Batch] = r.Tag
		}
		if err := errors.Join(err, b.run(count)); err != nil {
			t.Fatal(err)
		}
		if b.want(count); len(b.api.batches) != count {
			t.Errorf("%d batches, want %d", len(b.api.batches), count)
		}
	})
}

func TestARejectedKeyEndsTheTableAndPartsStay(t *testing.T) {
	bubble(t, "", func(t *testing.T, b *bench) {
		b.failFor("get", time.Hour, badKey.err())
		if failed, ok := errors.AsType[*sluice.CallError](b.run(5)); !ok || failed.Kind != sluice.Auth {
			t.Fatalf("error %v", failed)
		}
		b.api.fails = nil
		if err := b.run(5); err != nil {
			t.Fatal(err)
		}
		b.want(5)
	})
}

func TestNothingIsSubmittedThatCannotBeSaved(t *testing.T) {
	full := errors.New("no space left on device")
	for fails := range 6 {
		bubble(t, fmt.Sprint(fails), func(t *testing.T, b *bench) {
			saves := 0
			b.cfg.SaveBy(func(save func() error) error {
				if saves++; saves > fails {
					return full
				}
				return save()
			})
			if err := b.run(5); !errors.Is(err, full) {
				t.Errorf("error %v", err)
			}
			if made := len(b.api.batches); made > 0 && fails < 4 || len(b.api.files) > 0 && fails < 2 {
				t.Errorf("%d batches and %d files are at the provider", made, len(b.api.files))
			}
			b.cfg = batchjob.Config{}
			if err := b.run(5); err != nil {
				t.Error(err)
			}
			b.want(5)
		})
	}
}

func TestIncompleteResultsAreNotTaken(t *testing.T) {
	bubble(t, "", func(t *testing.T, b *bench) {
		b.api.cut = 6
		if err := b.run(5); err == nil || !strings.Contains(err.Error(), "incomplete") || len(b.done) != 0 {
			t.Fatalf("error %v, %d results", err, len(b.done))
		}
		if err := b.run(5); err != nil {
			t.Fatal(err)
		}
		b.want(5)
	})
	for _, missing := range []int{0, 1} { // the counts are behind at first
		bubble(t, fmt.Sprint(missing), func(t *testing.T, b *bench) {
			fetches := 0
			b.api.skip = func(id string) bool { return id == "m1" && (fetches < 3 || missing > 0) }
			b.api.fault = func(op string) fault {
				if op == "fetch" {
					fetches++
				}
				return none
			}
			l := b.open()
			defer l.Close()
			l.Start(t.Context())
			l.placed = make(map[string]int32)
			for i := range 5 {
				if _, err := l.Add(request(i)); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			if n, err := l.land(t.Context()); err != nil || n != missing || len(b.done) != 5-missing || fetches < 3 || fetches > 10 {
				t.Errorf("%v: %d missing and %d results after %d fetches", err, n, len(b.done), fetches)
			}
		})
	}
}

// TestMissingResultsHaveAFate has half of the requests not in the results, and the process end before they are recorded.
func TestMissingResultsHaveAFate(t *testing.T) {
	for status, want := range map[batchjob.Status]batchjob.Fate{
		batchjob.Expired: batchjob.CalledOff, batchjob.Cancelled: batchjob.CalledOff, batchjob.Completed: batchjob.Missing,
	} {
		bubble(t, string(status), func(t *testing.T, b *bench) {
			b.api.state = status
			b.api.skip = func(id string) bool { return id >= "m5" }
			for range 2 {
				l := b.open()
				l.Start(t.Context())
				if len(l.Rows()) == 0 {
					for i := range 10 {
						if _, err := l.Add(request(i)); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(24 * time.Hour)
				p := l.Ended()
				if p == nil {
					t.Fatalf("no part has ended: %+v", l.Rows())
				}
				fates := make(map[batchjob.Fate]int)
				for r, err := range p.Results() {
					if err != nil {
						t.Fatal(err)
					}
					if fates[r.Fate]++; r.Item.ID >= "m5" != (r.Fate == want) {
						t.Errorf("item %s: %q", r.Item.ID, r.Fate)
					}
				}
				if fates[batchjob.Answered] != 5 || fates[want] != 5 {
					t.Errorf("fates %v", fates)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestARequestThatNoPartCanHoldIsRefused(t *testing.T) {
	b := newBench(t)
	b.api.bounds.Bytes = 100
	l := b.open()
	defer l.Close()
	r := request(1)
	r.Item.Body = fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("a", 100))
	_, err := l.Add(r)
	if large, ok := errors.AsType[*batchjob.TooLargeError](err); !ok || large.Max != 100 || l.Pending() != 0 || exists(b.dir) {
		t.Errorf("%v; %d parts are pending, and there are files: %v", err, l.Pending(), exists(b.dir))
	}
	b.api.endpoints = []provider.Endpoint{provider.Messages}
	if l.Supports("acme", provider.ChatCompletions) || l.Supports("other", provider.Messages) || !l.Supports("acme", provider.Messages) {
		t.Error("Supports is wrong")
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// file returns the only file with a suffix.
func (b *bench) file(suffix string) string {
	b.t.Helper()
	names, err := filepath.Glob(filepath.Join(b.dir, "*"+suffix))
	if err != nil || len(names) != 1 {
		b.t.Fatalf("files %s are %q, err %v", suffix, names, err)
	}
	return names[0]
}

// TestAPartWithoutItsItems has the file of a part removed.
func TestAPartWithoutItsItems(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		bubble(t, fmt.Sprint("dropped by Resubmit: ", dropped), func(t *testing.T, b *bench) {
			b.api.bounds.Requests = 5
			b.begin(10, time.Minute)
			rows, err := batchjob.Read(b.dir)
			name := filepath.Join(b.dir, rows[0].Tag+".items.jsonl")
			text, readErr := os.ReadFile(name)
			if err := errors.Join(err, readErr, os.Remove(name)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				_, err := b.tryOpen()
				missing, ok := errors.AsType[*batchjob.FileError](err)
				if !ok || missing.Path != name || !strings.Contains(err.Error(), rows[0].Batch) || !strings.Contains(missing.Hint(), "--cancel --redo lost") {
					t.Fatalf("error %v", err)
				}
			}
			want := 2
			if dropped {
				b.cfg.Resubmit, want = true, 3
				err = b.open().Close()
				b.cfg.Resubmit = false
			} else {
				err = os.WriteFile(name, text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := b.run(10); err != nil || len(b.done) != 10 || b.api.creates != want {
				t.Errorf("%v, %d results, %d batches, want %d", err, len(b.done), b.api.creates, want)
			}
		})
	}
	bubble(t, "its results are missing", func(t *testing.T, b *bench) {
		l := b.open()
		ctx, cancel := context.WithCancel(t.Context())
		l.Start(ctx)
		for i := range 5 {
			if _, err := l.Add(request(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		cancel()
		if err := errors.Join(l.Close(), os.Remove(b.file(".results.jsonl"))); err != nil {
			t.Fatal(err)
		}
		if err := b.run(5); err != nil {
			t.Fatal(err)
		}
		b.want(5)
	})
}

func TestDamagedFilesAreNamed(t *testing.T) {
	for name, damage := range map[string]func(name string, size int64) error{
		"cut in a line": func(name string, size int64) error { return os.Truncate(name, size-3) },
		"empty":         func(name string, _ int64) error { return os.Truncate(name, 0) },
		"another text":  func(name string, _ int64) error { return os.WriteFile(name, []byte("[]\n"), 0o600) },
	} {
		bubble(t, name, func(t *testing.T, b *bench) {
			b.begin(5, time.Minute)
			file := b.file(".items.jsonl")
			info, err := os.Stat(file)
			if err := errors.Join(err, damage(file, info.Size())); err != nil {
				t.Fatal(err)
			}
			if err := b.run(5); err == nil || !strings.Contains(err.Error(), file+" is damaged") || len(b.done) > 0 || len(b.api.batches) > 1 {
				t.Errorf("error %v, %d results", err, len(b.done))
			}
		})
	}
}

func TestFilesOfNoRowAreRemoved(t *testing.T) {
	bubble(t, "", func(t *testing.T, b *bench) {
		b.begin(5, time.Minute)
		stray, draft, users := filepath.Join(b.dir, "0123456789ab.items.jsonl"), filepath.Join(b.dir, "0123456789ab.draft"), filepath.Join(b.dir, "notes.txt")
		for _, name := range []string{stray, draft, users} {
			if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.open().Close(); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{stray: false, draft: false, users: true} {
			if _, err := os.Stat(name); (err == nil) != want {
				t.Errorf("%s: %v", name, err)
			}
		}
		if info, err := os.Stat(b.file(".items.jsonl")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	})
}

func TestATextThatNoTableSavedIsRefused(t *testing.T) {
	good := `{"account":"acme","model":"m","tag":"0123456789ab","endpoint":"/v1/chat/completions","state":"new","requests":1}`
	for name, c := range map[string]struct{ saved, want string }{
		"no object":        {`[]`, "damaged"},
		"empty":            {"", "damaged"},
		"cut":              {`{"version":2,"parts":[` + good, "damaged"},
		"more":             {`{"version":2,"parts":[]} {}`, "damaged"},
		"another version":  {`{"version":1,"parts":[{"shape":"round"}]}`, "another version"},
		"a path":           {`{"version":2,"parts":[` + strings.Replace(good, "0123456789ab", "../../../etc", 1) + `]}`, "hexadecimal"},
		"twice":            {`{"version":2,"parts":[` + good + "," + good + `]}`, "twice"},
		"unknown state":    {`{"version":2,"parts":[` + strings.Replace(good, `"new"`, `"dreaming"`, 1) + `]}`, "dreaming"},
		"no requests":      {`{"version":2,"parts":[` + strings.Replace(good, `:1}`, `:-1}`, 1) + `]}`, "number"},
		"unknown endpoint": {`{"version":2,"parts":[` + strings.Replace(good, `/v1/chat`, `/v9/chat`, 1) + `]}`, "unknown"},
		"unknown account":  {`{"version":2,"parts":[` + strings.Replace(good, `acme`, `other`, 1) + `]}`, "other"},
	} {
		b := newBench(t)
		if err := errors.Join(os.Mkdir(b.dir, 0o700), os.WriteFile(b.table(), []byte(c.saved), 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.tryOpen(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, c.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"version":2,"parts":[{"account":"a","tag":"0123456789ab","endpoint":"/v1/messages","state":"new","requests":1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		rows, err := batchjob.ParseRows(text)
		for _, r := range rows {
			if err != nil || len(r.Tag) != 12 || strings.ContainsAny(r.Tag, `./\`) || r.Requests <= 0 {
				t.Errorf("%q gives %+v, err %v", text, r, err)
			}
		}
	})
}

// TestAProblemIsShownUntilItPasses looks at the saved rows while a status cannot be read, and after.
func TestAProblemIsShownUntilItPasses(t *testing.T) {
	bubble(t, "", func(t *testing.T, b *bench) {
		var log strings.Builder
		b.cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		b.failFor("get", 10*time.Minute, saying(sluice.ServerError, "503: overloaded by moon rays"))
		for _, shown := range []bool{true, false} {
			b.begin(5, 8*time.Minute)
			rows, err := batchjob.Read(b.dir)
			if err != nil || (rows[0].Problem != nil) != shown || shown && !strings.Contains(rows[0].Problem.Message, "moon rays") {
				t.Errorf("%v: problem %+v", err, rows[0].Problem)
			}
		}
		if n := strings.Count(log.String(), "moon rays"); n == 0 || n > 3 {
			t.Errorf("%d warnings", n)
		}
	})
}

// TestALargePartTakesLittleMemory fills a part of 100,000 items, and reads its results.
func TestALargePartTakesLittleMemory(t *testing.T) {
	bubble(t, "", func(t *testing.T, b *bench) {
		items := suite.Size(20_000, 100_000)
		l := b.open()
		defer l.Close()
		l.Start(t.Context())
		before := heap()
		for i := range items {
			r := request(i)
			r.Item.ID = fmt.Sprintf("a-rather-long-name-of-an-item-%d", i)
			if _, err := l.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		if grown := heap() - before; grown > 1<<20 {
			t.Errorf("a part that is filled takes %d bytes", grown)
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		p := l.Ended()
		if p == nil {
			t.Fatalf("no part has ended: %+v, %v", l.Rows(), l.Err())
		}
		before = heap()
		n, most := 0, int64(0)
		for _, err := range p.Results() {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n%(items/4) == 0 {
				most = max(most, heap()-before)
			}
		}
		if n != items || most > int64(items)*32+1<<20 {
			t.Errorf("%d results were read in %d bytes", n, most)
		}
	})
}

func TestReadGivesTheRows(t *testing.T) {
	bubble(t, "", func(t *testing.T, b *bench) {
		b.begin(5, time.Minute)
		l := b.open()
		defer l.Close()
		read, err := batchjob.Read(b.dir)
		want, _ := json.Marshal(l.Rows())
		if got, _ := json.Marshal(read); err != nil || string(got) != string(want) || !slices.ContainsFunc(read, func(r batchjob.Row) bool { return r.Open() }) {
			t.Errorf("%v: Read gives %s, Rows %s", err, got, want)
		}
	})
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
