package cluster_test

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/cluster"
)

// strict is a provider that enforces its limits by a bucket and slots. It records the calls that it serves.
type strict struct {
	limits sluice.Limits
	burst  float64
	takes  time.Duration // of a call

	mu         sync.Mutex
	level      float64
	at         time.Time
	open, most int
	refused    int
	served     []served
}

type served struct {
	at     time.Time
	member int
}

// call reports whether a call is served, at its end.
func (p *strict) call(ctx context.Context, member int) bool {
	if !p.enter(member) {
		return false
	}
	select {
	case <-time.After(p.takes):
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	return true
}

func (p *strict) enter(member int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.at.IsZero() {
		p.at, p.level = now, p.burst
	}
	p.level = min(p.burst, p.level+float64(p.limits.RPM)/60*now.Sub(p.at).Seconds())
	p.at = now
	if p.limits.RPM > 0 && p.level < 1-1e-9 || p.limits.Concurrency > 0 && p.open >= p.limits.Concurrency {
		p.refused++
		return false
	}
	p.level--
	p.open++
	p.most = max(p.most, p.open)
	p.served = append(p.served, served{now, member})
	return true
}

// shares counts the calls of each member.
func (p *strict) shares(members int) []float64 {
	each := make([]float64, members)
	for _, s := range p.served {
		each[s.member]++
	}
	return each
}

// jain is Jain's index of fairness.
func jain(shares []float64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += s
		squares += s * s
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// load has Schedulers of several members call a provider by one ledger, each with so many calls waiting at any time.
func load(t *testing.T, at *cluster.Site, p *strict, long time.Duration, demand ...int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	account := t.Name() + rand.Text()
	var wg sync.WaitGroup
	for i, n := range demand {
		l := open(t, at).Ledger(account, cluster.LedgerConfig{})
		s, err := sluice.New(sluice.Config{Limits: p.limits, Ledger: l})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			s.Close()
			l.Close()
		})
		for range n {
			wg.Go(func() {
				for ctx.Err() == nil {
					s.Do(ctx, sluice.Call{}, func(ctx context.Context, _ *sluice.Permit) (o sluice.Outcome) {
						if !p.call(ctx, i) {
							o.Kind = sluice.RateLimit
						}
						return o
					})
				}
			})
		}
	}
	wg.Wait()
}

func TestSchedulersOfOneEngineKeepToOneLimit(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits sluice.Limits
		burst  float64
		takes  time.Duration
		demand []int
	}{
		{"requests", sluice.Limits{RPM: 6000, Burst: time.Second}, 100, 100 * time.Millisecond, []int{60, 60, 60, 60}},
		{"slots", sluice.Limits{Concurrency: 5}, 0, 50 * time.Millisecond, []int{10, 10, 10, 10}},
		{"requests and slots, one wants most", sluice.Limits{RPM: 6000, Concurrency: 20, Burst: time.Second}, 100, 100 * time.Millisecond, []int{64, 2, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEngines(t, func(t *testing.T, at *cluster.Site) {
				p := &strict{limits: c.limits, burst: c.burst, takes: c.takes}
				const long = 4 * time.Second
				load(t, at, p, long, c.demand...)
				most := c.burst + float64(c.limits.RPM)/60*long.Seconds()
				if c.limits.RPM == 0 {
					most = float64(c.limits.Concurrency) * long.Seconds() / c.takes.Seconds()
				}
				used, shares := float64(len(p.served))/most, p.shares(len(c.demand))
				t.Logf("used %.2f, most open %d, refused %d, Jain %.3f, %v", used, p.most, p.refused, jain(shares), shares)
				if p.refused > 0 && (at.Memory != nil || p.refused > len(p.served)/100) { // a busy machine sends granted requests late, and together
					t.Errorf("the provider refused %d calls", p.refused)
				}
				if used == 0 || at.Memory != nil && used < 0.7 { // in real time it says more of the machine
					t.Errorf("%.2f of the limit is used", used)
				}
			})
		})
	}
}
