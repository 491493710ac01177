package budget_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
)

func tokens(n float64) budget.Amount { return budget.Amount{budget.Tokens: n} }

// TestACapIsExceededByTheOpenRequestsAtMost has requests that use up to a hundred times their estimates, open in random numbers.
func TestACapIsExceededByTheOpenRequestsAtMost(t *testing.T) {
	for seed := range uint64(200) {
		luck := rand.New(rand.NewPCG(seed, 1))
		limit, factor, most := 50_000+float64(luck.IntN(100_000)), 1+luck.Float64()*99, 1+luck.IntN(8)
		c := budget.Cap{Limit: tokens(limit)}
		m := budget.NewModel(4096)
		var open []budget.Estimate
		largest := 0.0
		for range 10_000 {
			cost := limits.Cost{Input: 1 + luck.IntN(300), MaxOutput: luck.IntN(2) * luck.IntN(500)}
			e := budget.Estimate{Model: m, Input: tokens(float64(cost.Input)), Declared: tokens(float64(cost.MaxOutput))}
			if cost.MaxOutput == 0 {
				e.Unstated = tokens(1)
			}
			if len(open) < most && c.Fits(e.Amount()) {
				c.Open(&e)
				open = append(open, e)
				continue
			}
			if len(open) == 0 {
				break
			}
			used := factor * (open[0].Input[budget.Tokens] + 100)
			largest = max(largest, used)
			m.Learn(limits.Cost{Input: int(open[0].Input[budget.Tokens])}, used-100, 100)
			c.Close(&open[0], tokens(used))
			open = open[1:]
		}
		if over := c.Used[budget.Tokens] - limit; over > float64(most)*largest {
			t.Errorf("seed %d: exceeded by %v, with %d open requests of %v at most", seed, over, most, largest)
		}
		if len(open) == 0 && c.Held() != (budget.Amount{}) {
			t.Errorf("seed %d: %v is held by nothing", seed, c.Held())
		}
	}
}

func TestOpenRequestsAreCorrectedByResponses(t *testing.T) {
	m := budget.NewModel(8000)
	c := budget.Cap{Limit: tokens(100_000)}
	e := budget.Estimate{Model: m, Input: tokens(10), Unstated: tokens(1)}
	if got := e.Amount(); got != tokens(8010) {
		t.Errorf("before any response: %v", got)
	}
	c.Open(&e)
	c.Open(&e)
	for range 95 {
		m.Learn(limits.Cost{Input: 10}, 250, 100)
	}
	m.Learn(limits.Cost{Input: 10}, 250, 9000) // beyond the 95th percentile of the last 64
	if got := c.Held(); got != tokens(2*350) {
		t.Errorf("two open requests hold %v", got)
	}
	m.Learn(limits.Cost{Input: 10, MaxOutput: 10}, 10, 40)
	declared := budget.Estimate{Model: m, Declared: tokens(10)}
	if got := declared.Amount(); got != tokens(40) {
		t.Errorf("a model that exceeds the declared maximum four times: %v", got)
	}
}

func TestLimitsOfBothUnitsHold(t *testing.T) {
	c := budget.Cap{Limit: budget.Amount{budget.USD: budget.Dollar, budget.Tokens: 100}, Used: budget.Amount{budget.USD: 0.5 * budget.Dollar, budget.Tokens: 90}}
	for unit, more := range map[int]budget.Amount{-1: tokens(10), budget.Tokens: tokens(11), budget.USD: {budget.USD: 0.51 * budget.Dollar}} {
		if got := c.Exceeded(more); got != unit {
			t.Errorf("%v exceeds the limit of unit %d, want %d", more, got, unit)
		}
	}
}

// TestWhatIsSpentAndHeldStaysWithinTheCap has items enter, try several times, fail, panic or be cut off, in random interleavings. Requests
// use at most their estimates, so that nothing may exceed the cap at any time; and in the end nothing is held.
func TestWhatIsSpentAndHeldStaysWithinTheCap(t *testing.T) {
	for seed := range uint64(suite.Size(40, 1000)) {
		synctest.Test(t, func(t *testing.T) {
			luck := rand.New(rand.NewPCG(seed, 3))
			var mu sync.Mutex
			random := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return luck.IntN(n)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var stops, spent atomic.Int64
			m := budget.NewModel(100)
			limit := 500 + random(3000)
			g := budget.New(budget.Config{
				Budget: budget.Budget{Tokens: limit}, Stop: func(error) { stops.Add(1); cancel() },
				Estimate: func(item *work.Item) budget.Estimate {
					return budget.Estimate{Model: m, Declared: tokens(float64(item.Size))}
				},
				Used: func(item *work.Item, r *work.Result) budget.Amount { return tokens(float64(r.Status)) },
			})
			check := func() {
				s := g.Status()
				if s.Used[budget.Tokens]+s.Held[budget.Tokens] > float64(limit) {
					t.Errorf("seed %d: %v used and %v held of %d", seed, s.Used, s.Held, limit)
				}
			}
			if random(4) == 0 {
				time.AfterFunc(time.Duration(random(2000))*time.Millisecond, cancel)
			}
			var wg sync.WaitGroup
			for n := range 60 {
				item := &work.Item{ID: fmt.Sprint(n), Size: 1 + random(200)}
				pause := func() {
					time.Sleep(time.Duration(1+random(300))*time.Millisecond + time.Duration(n)*time.Microsecond) // never two at once
					check()
				}
				wg.Go(func() {
					pause()
					turn := g.Turn(item)
					for again := true; again; {
						attempts, err := turn.Enter(ctx)
						if err != nil {
							return
						}
						for tries := random(3); tries >= 0 && attempts.Err() == nil; tries-- {
							pause()
							if !turn.Send() {
								break
							}
							pause()
							used := random(item.Size + 1)
							if random(20) == 0 { // it panicked
								spent.Add(int64(item.Size))
								break
							}
							spent.Add(int64(used))
							turn.Sent(&work.Result{Response: work.Response{Status: used}}, &sluice.Outcome{})
						}
						again = turn.Leave()
						check()
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Second)
			if s := g.Status(); s.Held != (budget.Amount{}) || s.Open+s.Waiting != 0 || stops.Load() > 1 || s.Used != tokens(float64(spent.Load())) {
				t.Errorf("seed %d: %+v is left of %d, %d stops", seed, s, spent.Load(), stops.Load())
			}
		})
	}
}

// entrant is an item of the runs below: its attempts reserve size tokens, take a time and use tokens. All but the last fail.
type entrant struct {
	size        int
	comes, each time.Duration
	uses        []int
}

// enter makes the attempts of an item, and returns when they were sent.
func (e *entrant) enter(ctx context.Context, g *budget.Guard, item *work.Item) (sent []time.Duration) {
	began := time.Now()
	time.Sleep(e.comes)
	turn := g.Turn(item)
	for again := true; again; again = turn.Leave() {
		if _, err := turn.Enter(ctx); err != nil {
			break
		}
		for o := (sluice.Outcome{}); len(sent) < len(e.uses) && !o.Final && turn.Send(); {
			used := e.uses[len(sent)]
			sent = append(sent, time.Since(began))
			time.Sleep(e.each)
			if o = (sluice.Outcome{}); len(sent) < len(e.uses) {
				o.Kind = sluice.InvalidOutput
			}
			turn.Sent(&work.Result{Response: work.Response{Status: used}}, &o)
		}
	}
	return sent
}

func TestItemsWaitForRoom(t *testing.T) {
	const minute = time.Minute
	for name, c := range map[string]struct {
		tokens, attempts int
		items            []entrant
		sent             [][]time.Duration
		stopped          string
	}{
		"in order": {
			tokens: 300, items: []entrant{{110, 0, minute, []int{7}}, {260, 1, minute, []int{7}}, {20, 2, minute, []int{7}}},
			sent: [][]time.Duration{{0}, {minute}, {minute}},
		},
		"and pass one that never fits": {
			tokens: 500, items: []entrant{{100, 0, minute, []int{7}}, {1000, 1, minute, []int{7}}, {10, 2, minute, []int{7}}},
			sent: [][]time.Duration{{0}, nil, {2}}, stopped: "1",
		},
		"before another attempt": {
			tokens: 226, items: []entrant{{103, 0, 1, []int{63, 63}}, {103, 0, minute, []int{7}}},
			sent: [][]time.Duration{{0, minute}, {0}},
		},
		"with a number of attempts": {
			tokens: 510, attempts: 3, items: []entrant{{103, 0, 1, []int{63, 63, 63, 63}}, {400, 0, minute, []int{7}}},
			sent: [][]time.Duration{{0, minute, minute + 1}, {0}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stopped := ""
				g := budget.New(budget.Config{
					Budget: budget.Budget{Tokens: c.tokens, Attempts: c.attempts},
					Estimate: func(item *work.Item) budget.Estimate {
						return budget.Estimate{Model: budget.NewModel(100), Declared: tokens(float64(item.Size))}
					},
					Used: func(_ *work.Item, r *work.Result) budget.Amount { return tokens(float64(r.Status)) },
					Stop: func(err error) {
						if spent, ok := errors.AsType[*budget.Error](err); ok && spent.Alone() {
							stopped = spent.ID
						}
						cancel()
					},
				})
				sent := make([][]time.Duration, len(c.items))
				var wg sync.WaitGroup
				for i, e := range c.items {
					wg.Go(func() { sent[i] = e.enter(ctx, g, &work.Item{ID: fmt.Sprint(i), Size: e.size}) })
				}
				wg.Wait()
				if stopped != c.stopped || !reflect.DeepEqual(sent, c.sent) {
					t.Errorf("sent at %v, want %v; stopped by %q", sent, c.sent, stopped)
				}
			})
		})
	}
}

func TestFailuresStopARun(t *testing.T) {
	for name, c := range map[string]struct {
		budget      budget.Budget
		good, fails int // items that succeed, and then fail before the run stops
	}{
		"at a number":            {budget.Budget{Failures: 5}, 30, 5},
		"at a share, from 20 on": {budget.Budget{FailedShare: 0.1}, 0, 20},
		"at a share":             {budget.Budget{FailedShare: 0.5}, 30, 31},
	} {
		var stopped error
		g := budget.New(budget.Config{Budget: c.budget, Stop: func(err error) { stopped = err }})
		for range c.good {
			g.Finished(false)
		}
		fails := 0
		for ; stopped == nil && fails < 100; fails++ {
			g.Finished(true)
		}
		if spent, ok := errors.AsType[*budget.Error](stopped); !ok || spent.What != budget.Failures || fails != c.fails {
			t.Errorf("%s: %d failures, %v", name, fails, stopped)
		}
	}
}
