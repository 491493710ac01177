package find_test

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

const (
	lasting  = 10 * time.Minute // is for how long a search's answer is put to the proof
	settling = 2 * time.Minute  // until what is empty at first has had its time to fill, and all workers have begun
)

// step is what a worker does next.
type step struct {
	at     time.Duration
	worker int
	ends   bool // a call of so many tokens; else it sends one
	output int
}

type steps []step

func (s steps) Len() int { return len(s) }
func (s steps) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(s[i].at, s[j].at), cmp.Compare(s[i].worker, s[j].worker)) < 0
}
func (s steps) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *steps) Push(x any)   { *s = append(*s, x.(step)) }
func (s *steps) Pop() any     { last := len(*s) - 1; x := (*s)[last]; *s = (*s)[:last]; return x }

// refusals are shares of calls that were refused.
type refusals struct {
	all  float64
	then float64 // once all has settled
}

// unpaced tells what becomes of so many workers who send real calls back to back, and wait a second, or what they are
// told to, after a refusal.
func (r row) unpaced(t *testing.T, workers int, seed uint64) refusals {
	c := r.later(seed)
	if c.Contention > 0 && len(r.rates()) == 0 && c.Concurrency == 0 {
		return refusals{} // nothing ever is, and a Limiter cannot imitate it
	}
	limiter, err := sim.NewLimiter(c)
	if err != nil {
		t.Fatal(err)
	}
	var todo steps
	for w := range workers {
		heap.Push(&todo, step{worker: w})
	}
	var all, then tally
	for len(todo) > 0 {
		s := heap.Pop(&todo).(step)
		if s.at > lasting {
			break
		}
		if s.ends {
			limiter.Produced(s.at, s.output)
			limiter.Leave(true)
		}
		call := sim.Request{Input: realInput(), MaxTokens: realTokens}
		course, no, ok := limiter.Admit(s.at, time.Hour, all.sent, &call, 0)
		all.add(!ok)
		if s.at > settling {
			then.add(!ok)
		}
		if ok {
			heap.Push(&todo, step{at: course.End, worker: s.worker, ends: true, output: course.Output})
			continue
		}
		wait := time.Second
		if no.Hint && c.RetryAfter == sim.RetryAfterSeconds {
			wait = (no.Wait + time.Second - 1).Truncate(time.Second)
		}
		heap.Push(&todo, step{at: s.at + limiter.Config().RefusalLatency + wait, worker: s.worker})
	}
	return refusals{all.share(), then.share()}
}

// tally counts calls.
type tally struct{ sent, refused int }

func (n *tally) add(refused bool) {
	n.sent++
	if refused {
		n.refused++
	}
}

func (n tally) share() float64 { return float64(n.refused) / float64(max(1, n.sent)) }

// perfect is what a search should find.
func (r row) perfect() *find.Result {
	f := &find.Result{Workers: r.whole(), Findings: find.Findings{Limits: map[limits.Dimension]find.Finding{}, ChargeFrom: limits.SourceMeasured}}
	if r.sim.Charge == limits.ChargeActual {
		f.Findings.Charge = limits.ChargeActual
	}
	known := find.Finding{Source: limits.SourceMeasured}
	if r.stated {
		known.Source = limits.SourceHeader
	}
	for _, one := range r.rates() {
		known.Value = one.limit
		f.Findings.Limits[one.dimension] = known
	}
	if known.Value = float64(max(r.sim.Concurrency, r.sim.Queue)); known.Value > 0 {
		f.Findings.Limits[limits.Concurrency] = known
	}
	return f
}

// scheduler is how a client begins that reads what a search has found: a limit that was told is a ceiling, others are
// corrected by answers. So much as was merely used is no limit, but for calls that were open at once.
func scheduler(p provider.Provider, found *find.Result) sluice.Config {
	c := sluice.Config{Charge: p.Charge, CountsCached: p.CountsCached}
	if found.Findings.ChargeFrom != find.SourceUnknown && found.Findings.ChargeFrom != "" {
		c.Charge = found.Findings.Charge
	}
	set := func(d limits.Dimension, f find.Finding) {
		bounds := &c.Start
		if f.Source == limits.SourceConfigured {
			bounds = &c.Limits
		}
		if f.Known() && (f.Source != limits.SourceAtLeast || d == limits.Concurrency) {
			*bounds.At(d) = int(f.Value)
		}
	}
	for d, f := range found.Findings.Limits {
		set(d, f)
	}
	return c
}

// paced tells what becomes of a Scheduler with what a search has found, and how many calls a minute are answered. It has
// always more to do than it may. It runs in a bubble.
func (r row) paced(t *testing.T, found *find.Result, seed uint64) (refused refusals, perMinute float64) {
	server, err := sim.New(r.later(seed))
	if err != nil {
		t.Fatal(err)
	}
	p, target := r.provider()
	target.Endpoint = p.PromptEndpoint(target.Model)
	s, err := sluice.New(scheduler(p, found))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), lasting)
	defer cancel()
	var serial atomic.Int64
	one := func() {
		body := realBody(target.Model, serial.Add(1))
		call := sluice.Call{Cost: sluice.Cost{Input: realInput(), MaxOutput: realTokens}}
		_, _ = s.Do(ctx, call, func(ctx context.Context, permit *sluice.Permit) sluice.Outcome { // the server counts
			req, err := p.NewRequest(ctx, target, body)
			if err != nil {
				return sluice.Outcome{Kind: sluice.Internal, Err: err}
			}
			_, o := provider.Exchange(ctx, server.Transport(), permit, req,
				provider.ExchangeConfig{Provider: p, Endpoint: target.Endpoint, Key: target.Key, Cost: call.Cost})
			return o
		})
	}
	var wg sync.WaitGroup
	for range 4 * max(1, found.Workers) {
		wg.Go(func() {
			for ctx.Err() == nil {
				one()
			}
		})
	}
	time.Sleep(settling)
	before := counted(server)
	wg.Wait()
	all := counted(server)
	then := tally{all.sent - before.sent, all.refused - before.refused}
	return refusals{all.share(), then.share()}, float64(server.Stats().Answered) / lasting.Minutes()
}

// counted is how many calls a server has seen.
func counted(server *sim.Server) tally {
	stats := server.Stats()
	return tally{stats.Requests, stats.Throttled}
}

// realBody is a call like the real ones of a search.
func realBody(model string, serial int64) []byte {
	return fmt.Appendf(nil, `{"model":%q,"max_tokens":%d,"messages":[{"role":"user","content":"%0*d%s"}]}`,
		model, realTokens, nonceChars, serial, manuscript)
}
