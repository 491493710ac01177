package batch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// ferry carries tasks from a Batch to Workers, and answers back, as bytes. It is both ends of what a store would be between them.
type ferry struct {
	t     testing.TB
	terms batch.Terms
	tasks chan []byte
	news  chan struct{} // there is a task; has room for one

	mu       sync.Mutex
	waits    map[int]chan []byte
	most     int // that were outstanding at once
	recorded []int
	told     func(number int) // of each line that is safe; nil is nobody
	taken    map[int]bool     // lines that are taken away from the worker that asks next, once
	fail     error            // what calls end with that are outstanding
	ended    chan struct{}    // closed when they do
}

func newFerry(t testing.TB, terms batch.Terms) *ferry {
	if terms.Attempts == 0 {
		terms.Attempts = 6
	}
	if terms.Timeout == 0 {
		terms.Timeout = time.Minute
	}
	return &ferry{t: t, terms: terms, tasks: make(chan []byte, 100_000), news: make(chan struct{}, 1), waits: make(map[int]chan []byte), ended: make(chan struct{})}
}

func (f *ferry) Do(ctx context.Context, t *batch.Task) (*batch.Answer, error) {
	wait := make(chan []byte, 1)
	f.mu.Lock()
	f.waits[t.Number] = wait
	f.most = max(f.most, len(f.waits))
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.waits, t.Number)
		f.mu.Unlock()
	}()
	f.tasks <- batch.AppendTask(nil, t)
	f.poke()
	select {
	case b := <-wait:
		return batch.ParseAnswer(b)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-f.ended:
		if f.fail == nil {
			<-t.Withdrawn
			return nil, fmt.Errorf("line %d: %w", t.Number, batch.ErrWithdrawn)
		}
		return nil, f.fail
	}
}

// withdraw takes back what is outstanding once the run makes no more calls, and breaks has it fail.
func (f *ferry) withdraw()        { f.breaks(nil) }
func (f *ferry) breaks(err error) { f.fail = err; close(f.ended) }

func (f *ferry) Recorded(numbers []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recorded = append(f.recorded, numbers...)
	for _, n := range numbers {
		if f.told != nil {
			f.told(n)
		}
	}
}

func (f *ferry) All(ctx context.Context) iter.Seq2[*batch.Task, error] {
	return func(yield func(*batch.Task, error) bool) {
		terms, err := batch.ParseTerms(f.terms.Append(nil))
		if err != nil {
			f.t.Error(err)
			return
		}
		for {
			select {
			case b := <-f.tasks:
				f.poke() // another worker, if there are more
				t, err := batch.ParseTask(b)
				if err != nil {
					f.t.Error(err)
					return
				}
				t.Terms = terms
				if !yield(t, nil) {
					return
				}
			default:
				if work.Await(ctx, f.news) != nil {
					return
				}
			}
		}
	}
}

func (f *ferry) poke() {
	if len(f.tasks) == 0 {
		return
	}
	select {
	case f.news <- struct{}{}:
	default:
	}
}

func (f *ferry) Holds(t *batch.Task) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.taken[t.Number]
}

func (f *ferry) Done(t *batch.Task, a *batch.Answer) {
	if a == nil { // it goes to another
		f.mu.Lock()
		if !f.taken[t.Number] {
			f.t.Errorf("line %d is dropped", t.Number)
		}
		delete(f.taken, t.Number)
		f.mu.Unlock()
		f.tasks <- batch.AppendTask(nil, t)
		f.poke()
		return
	}
	f.mu.Lock()
	wait := f.waits[t.Number]
	f.mu.Unlock()
	if a.Input != t.Hash.String() {
		f.t.Errorf("line %d is answered for another request", t.Number)
	}
	if wait != nil {
		wait <- batch.AppendAnswer(nil, a)
	}
}

// work runs workers until the returned function is called, which says what each ended with.
func (f *ferry) work(n int, cfg batch.Config) (stop func() []error) {
	var (
		workers []*batch.Worker
		errs    = make([]error, n)
		wg      sync.WaitGroup
	)
	for i := range n {
		w, err := batch.NewWorker(cfg, f)
		if err != nil {
			f.t.Fatal(err)
		}
		workers = append(workers, w)
		wg.Go(func() { _, errs[i] = w.Run(context.Background()) })
	}
	return func() []error {
		for _, w := range workers {
			w.Drain()
		}
		wg.Wait()
		return errs
	}
}

// elsewhere is what a config says of who makes calls, and here of who hands them over.
func elsewhere(cfg batch.Config, f *ferry) (there, here batch.Config) {
	there = batch.Config{
		Provider: cfg.Provider, Transport: cfg.Transport, BaseURL: cfg.BaseURL, Key: cfg.Key, Upstreams: cfg.Upstreams, Price: cfg.Price,
		Scheduler: func(provider.Provider) (*sluice.Scheduler, error) {
			s, err := sluice.New(sluice.Config{})
			if err == nil {
				f.t.Cleanup(func() { s.Close() })
			}
			return s, err
		},
	}
	here = cfg
	here.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
		f.t.Error("the run sent something itself")
		return nil, errors.New("sent here")
	})
	here.Scheduler, here.Key, here.Upstreams, here.Remote = nil, nil, nil, f
	return there, here
}

// moody answers each prompt as its number says, and the same way each time it is asked as often.
type moody struct {
	mu    sync.Mutex
	asked map[string]int
}

var promptNumber = regexp.MustCompile(`What is (\d+)\?`)

func (m *moody) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	var n int
	fmt.Sscan(promptNumber.FindStringSubmatch(string(body))[1], &n)
	m.mu.Lock()
	m.asked[fmt.Sprint(n)]++
	again := m.asked[fmt.Sprint(n)]
	m.mu.Unlock()
	select {
	case <-time.After(time.Duration(100+n) * time.Millisecond):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	status, answer, header := 200, strings.Replace(chatAnswer, `"yes"`, fmt.Sprintf(`"{\"n\":%d}"`, n), 1), http.Header{}
	switch {
	case n%7 == 1 && again <= 2:
		status, answer = 500, `{"error":{"message":"try again"}}`
	case n%7 == 2:
		status, answer = 502, `{"error":{"message":"never"}}`
	case n%7 == 3:
		status, answer = 400, `{"error":{"message":"no such thing","type":"invalid_request_error"}}`
	case n%7 == 4 && !strings.Contains(string(body), "was not accepted"):
		answer = strings.Replace(chatAnswer, `"yes"`, `"no JSON <>\u2028"`, 1)
	case n%7 == 5:
		answer = strings.Replace(chatAnswer, `"stop"`, `"length"`, 1)
	case n%7 == 6 && again == 1:
		status, answer = 429, `{"error":{"message":"too many"}}`
		header.Set("Retry-After", "1")
	}
	header.Set("Content-Type", "application/json")
	header.Set("X-Request-Id", fmt.Sprintf("req-%d-%d", n, again))
	return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: header,
		Body: io.NopCloser(strings.NewReader(answer)), ContentLength: int64(len(answer))}, nil
}

// timeless are an output's lines, in order of their ids, without what depends on whose turn it was and on luck.
func timeless(t *testing.T, f files) []string {
	t.Helper()
	b, err := os.ReadFile(f.out)
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`"(wait|queued|cooldown|backoff)_ms":\d+`).ReplaceAllString(string(b), `"$1_ms":x`)
	text = regexp.MustCompile(`"req-7-[12]"`).ReplaceAllString(text, `"req-7-x"`) // that prompt is two lines': either may be first
	text = regexp.MustCompile(` \(this request is the cause, because other requests succeeded: \d+\)`).ReplaceAllString(text, "")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return lines
}

// TestACallMadeElsewhereIsRecordedAsOneMadeHere runs the same input here and by two workers, and compares the outputs.
func TestACallMadeElsewhereIsRecordedAsOneMadeHere(t *testing.T) {
	rules := batch.Rules{Schema: schema(t, `{"type":"object","required":["n"]}`), FailOn: batch.FailOnLength}
	price := func(provider.Provider, string) *provider.Price { return provider.FlatPrice(1.5, 7) }
	for name, c := range map[string]struct {
		here, there func(*batch.Config)
	}{
		"prices here":  {here: func(c *batch.Config) { c.Price = price }},
		"prices there": {there: func(c *batch.Config) { c.Price = price }},
		"no prices":    {},
		"in a budget":  {here: func(c *batch.Config) { c.Price, c.Budget = price, batch.Budget{Cost: 1e6, Tokens: 1e9, Attempts: 3} }},
		"equal":        {here: func(c *batch.Config) { c.Cache = t.TempDir() }},
	} {
		t.Run(name, func(t *testing.T) {
			var outputs [2][]string
			var reports [2]work.Report
			for i := range outputs {
				synctest.Test(t, func(t *testing.T) {
					f := newFiles(t, chats(60)+strings.Replace(chat(7), `"7"`, `"again"`, 1)+"\n")
					cfg := f.config(t, &moody{asked: make(map[string]int)})
					cfg.Check, cfg.Feedback = rules.Check, true
					cfg.Scheduler = func(provider.Provider) (*sluice.Scheduler, error) {
						s, err := sluice.New(sluice.Config{Attempts: 3})
						if err == nil {
							t.Cleanup(func() { s.Close() })
						}
						return s, err
					}
					if c.here != nil {
						c.here(&cfg)
					}
					if i == 0 {
						if c.there != nil {
							c.there(&cfg)
						}
						rep, err := run(t, cfg)
						if err != nil {
							t.Fatal(err)
						}
						reports[i] = rep.Report
					} else {
						ferry := newFerry(t, batch.Terms{Attempts: 3, Throttles: 20, Schema: `{"type":"object","required":["n"]}`, FailOn: "length", Feedback: true})
						there, here := elsewhere(cfg, ferry)
						there.Price = nil
						ferry.taken = map[int]bool{1: true, 20: true, 33: true}
						if c.there != nil {
							c.there(&there)
						}
						stop := ferry.work(2, there)
						rep, err := run(t, here)
						if err != nil {
							t.Fatal(err)
						}
						reports[i] = rep.Report
						for _, err := range stop() {
							if !errors.Is(err, work.ErrDrained) {
								t.Errorf("a worker ended with %v", err)
							}
						}
					}
					outputs[i] = timeless(t, f)
				})
			}
			if diff := cmp.Diff(outputs[0], outputs[1]); diff != "" {
				t.Errorf("the outputs differ, - here and + elsewhere:\n%s", diff)
			}
			untimed := cmpopts.IgnoreFields(work.Report{}, "Wall", "Queued", "Cooldown", "Backoff", "Latency")
			if diff := cmp.Diff(reports[0], reports[1], untimed); diff != "" {
				t.Errorf("the reports differ, - here and + elsewhere:\n%s", diff)
			}
			kinds := make(map[string]bool)
			for _, line := range outputs[1] {
				var r result
				json.Unmarshal([]byte(strings.ReplaceAll(line, ":x", ":0")), &r)
				kinds[r.Sluice.Kind] = true
			}
			for _, want := range []string{"ok", "server_error", "bad_request", "invalid_output"} {
				if !kinds[want] {
					t.Errorf("no result is %s", want)
				}
			}
		})
	}
}

// TestWhatIsKeptElsewhereGoesOnlyOnceItIsOnTheDisk looks at the output each time that results are said to be safe.
func TestWhatIsKeptElsewhereGoesOnlyOnceItIsOnTheDisk(t *testing.T) {
	for name, mode := range map[string]work.SyncMode{"interval": work.SyncInterval, "each": work.SyncEach} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 30
				f := newFiles(t, chats(n))
				cfg := f.config(t, &moody{asked: make(map[string]int)})
				cfg.Sync = mode
				ferry := newFerry(t, batch.Terms{Attempts: 2, Throttles: 20})
				there, here := elsewhere(cfg, ferry)
				written := make(map[int]time.Time)
				var mu sync.Mutex
				here.OnResult = func(r *work.Result) {
					mu.Lock()
					defer mu.Unlock()
					written[int(r.Seq)] = time.Now()
				}
				stop := ferry.work(1, there)
				atOnce := 0
				ferry.told = func(number int) {
					mu.Lock()
					defer mu.Unlock()
					if time.Since(written[number]) == 0 {
						atOnce++
					}
					at, ok := written[number]
					if late := time.Since(at); !ok || mode == work.SyncInterval && late > 200*time.Millisecond || mode != work.SyncInterval && late != 0 {
						t.Errorf("line %d is safe %v after it was written: %v", number, late, ok)
					}
				}
				if _, err := run(t, here); err != nil {
					t.Fatal(err)
				}
				stop()
				if mode == work.SyncInterval && atOnce > n/2 {
					t.Errorf("%d of %d lines are said to be safe at the instant at which they are written", atOnce, n)
				}
				if slices.Sort(ferry.recorded); len(ferry.recorded) != n || len(slices.Compact(ferry.recorded)) != n {
					t.Errorf("%d lines are said to be safe, want each of %d once", len(ferry.recorded), n)
				}
			})
		})
	}
}

// TestARunThatEndsIsNotMistakenForFailures ends runs in each way there is while calls are elsewhere.
func TestARunThatEndsIsNotMistakenForFailures(t *testing.T) {
	broken := errors.New("the store is gone for good")
	for name, c := range map[string]struct {
		end  func(b *batch.Batch, f *ferry, cancel func())
		want error
	}{
		"drained":   {func(b *batch.Batch, f *ferry, _ func()) { f.withdraw(); b.Drain() }, work.ErrDrained},
		"cancelled": {func(_ *batch.Batch, _ *ferry, cancel func()) { cancel() }, context.Canceled},
		"broken":    {func(_ *batch.Batch, f *ferry, _ func()) { f.breaks(broken) }, broken},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFiles(t, chats(2500)+strings.NewReplacer(`"model":"m"`, `"model":"n"`, `"custom_id":"`, `"custom_id":"n`).Replace(chats(2500)))
				ferry := newFerry(t, batch.Terms{})
				_, here := elsewhere(f.config(t, nil), ferry)
				b, err := batch.Open(here)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				done := make(chan error)
				go func() {
					_, err := b.Run(ctx)
					done <- err
				}()
				synctest.Wait() // nobody works: the window is full
				if ferry.most != batch.Window {
					t.Errorf("%d calls were outstanding, want the window", ferry.most)
				}
				c.end(b, ferry, cancel)
				if err := <-done; !errors.Is(err, c.want) {
					t.Errorf("the run ended with %v, want %v", err, c.want)
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(f.out); err == nil {
					t.Errorf("recorded: %v", f.results(t))
				}
			})
		})
	}
}

// TestABudgetHoldsForCallsMadeElsewhere spends it by workers that need more than one try.
func TestABudgetHoldsForCallsMadeElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 2000
		f := newFiles(t, strings.ReplaceAll(chats(200), `"model":"m"`, `"model":"m","max_tokens":2`))
		rules := batch.Rules{Schema: schema(t, `{"type":"integer"}`)} // no answer fits
		cfg := f.config(t, &moody{asked: make(map[string]int)})
		cfg.Check, cfg.Budget = rules.Check, batch.Budget{Tokens: most, Attempts: 3}
		ferry := newFerry(t, batch.Terms{Attempts: 3, Throttles: 20, Schema: `{"type":"integer"}`})
		there, here := elsewhere(cfg, ferry)
		stop := ferry.work(2, there)
		rep, err := run(t, here)
		stop()
		spent, ok := errors.AsType[*batch.BudgetError](err)
		if !ok {
			t.Fatalf("the run ended with %v", err)
		}
		used := 0
		for _, r := range f.results(t) {
			used += r.Sluice.InputTokens + r.Sluice.OutputTokens
		}
		// The estimates of these short prompts are low by a fifth, which the first answers teach.
		if used > most*6/5 || used < most/4 || spent.Used.Used > most*6/5 {
			t.Errorf("%d tokens were used by %d items, %v counted; of %d", used, rep.Done+rep.Failed, spent.Used.Used, most)
		}
	})
}

// TestACallMadeElsewhereWithoutUsageCostsItsEstimate has answers whose usage is unknown, and prices that only one side knows.
func TestACallMadeElsewhereWithoutUsageCostsItsEstimate(t *testing.T) {
	price := func(provider.Provider, string) *provider.Price { return provider.FlatPrice(1, 10) }
	for name, here := range map[string]bool{"prices here": true, "prices there": false} {
		t.Run(name, func(t *testing.T) {
			f := newFiles(t, strings.ReplaceAll(chats(3), `"model":"m"`, `"model":"m","max_tokens":100`))
			cfg := f.config(t, &stub{answer: usageStated.ReplaceAllString(chatAnswer, "")})
			ferry := newFerry(t, batch.Terms{Attempts: 2})
			there, cfg := elsewhere(cfg, ferry)
			if there.Price = price; here {
				there.Price, cfg.Price, cfg.Budget.Cost = nil, price, 1
			}
			stop := ferry.work(1, there)
			rep, err := run(t, cfg)
			stop()
			if least := 3 * 100 * 10 / 1e6; err != nil || rep.Costed != 3 || rep.Estimated < least || rep.Estimated > 2*least || rep.Estimated != rep.Cost {
				t.Errorf("%d costed, cost %v, estimated %v, error %v", rep.Costed, rep.Cost, rep.Estimated, err)
			}
			if here && math.Abs(rep.Budgets[0].Used-rep.Cost) > 1e-9 {
				t.Errorf("cost %v, of the cap %v", rep.Cost, rep.Budgets)
			}
		})
	}
}

// TestACallMadeElsewhereHoldsOneAttempt has a cap with room for four estimates, and calls that may be tried six times.
func TestACallMadeElsewhereHoldsOneAttempt(t *testing.T) {
	f := newFiles(t, strings.ReplaceAll(chats(40), `"model":"m"`, `"model":"m","max_tokens":200`))
	cfg := f.config(t, &stub{answer: chatAnswer})
	cfg.Budget.Tokens = 900
	ferry := newFerry(t, batch.Terms{Attempts: 6})
	there, here := elsewhere(cfg, ferry)
	stop := ferry.work(1, there)
	rep, err := run(t, here)
	stop()
	if err != nil || rep.Done != 40 || rep.Budgets[0].Used != 40*7 || ferry.most > 4 {
		t.Errorf("%d of 40 done, %v, at most %d at once; error %v", rep.Done, rep.Budgets, ferry.most, err)
	}
}

// TestALineThatIsTooLongForWorkersIsRefused names it before anything is handed over.
func TestALineThatIsTooLongForWorkersIsRefused(t *testing.T) {
	long := strings.Replace(chat(2), "What is 2?", "What is 2?"+strings.Repeat(" ", batch.MaxTaskBytes), 1)
	f := newFiles(t, chat(1)+"\n"+long+"\n")
	ferry := newFerry(t, batch.Terms{})
	_, here := elsewhere(f.config(t, &moody{asked: make(map[string]int)}), ferry)
	_, err := run(t, here)
	if wrong, ok := errors.AsType[*batch.InputErrors](err); !ok || !strings.Contains(wrong.Error(), "8.0 MB") {
		t.Fatalf("the input is taken: %v", err)
	}
}

// damaged answers each task with the same answer.
type damaged struct{ answer batch.Answer }

func (d *damaged) Do(_ context.Context, t *batch.Task) (*batch.Answer, error) {
	answer := d.answer
	answer.Input = t.Hash.String()
	return batch.ParseAnswer(batch.AppendAnswer(nil, &answer))
}

func (d *damaged) Recorded([]int) {}

func TestADamagedAnswerLeavesAReadableOutput(t *testing.T) {
	for name, tally := range map[string]sluice.Tally{
		"tokens": {Attempts: 1, HasUsage: true, Usage: sluice.Usage{Input: -5}}, "latency": {Attempts: 1, Latency: -1e9}, "queued": {Attempts: 1, Queued: -1e9},
	} {
		f := newFiles(t, chats(2))
		cfg := f.config(t, nil)
		cfg.Remote = &damaged{batch.Answer{Tally: tally, Response: work.Response{Status: 200, Payload: []byte(chatAnswer)}}}
		if rep, err := run(t, cfg); err == nil || rep.Done != 0 {
			t.Errorf("%s: %+v, error %v", name, rep, err)
		}
		if b, err := batch.Open(cfg); err != nil {
			t.Errorf("%s: then: %v", name, err)
		} else {
			b.Close()
		}
	}
}
