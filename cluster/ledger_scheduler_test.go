package cluster_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/cluster"
)

// strict is a provider's bucket and slots, which counts what it refuses.
type strict struct {
	mu         sync.Mutex
	rate, cap  float64
	slots      int
	level      float64
	at         time.Time
	open, most int
	served     map[string]int
	refused    int
}

func newStrict(limits sluice.Limits, burst float64) *strict {
	return &strict{rate: float64(limits.RPM) / 60, cap: burst, level: burst, slots: limits.Concurrent, at: time.Now(), served: make(map[string]int)}
}

func (p *strict) call(ctx context.Context, member string, takes time.Duration) sluice.Outcome {
	p.mu.Lock()
	now := time.Now()
	p.level = min(p.cap, p.level+p.rate*now.Sub(p.at).Seconds())
	p.at = now
	if p.rate > 0 && p.level < 1-1e-9 || p.slots > 0 && p.open >= p.slots {
		p.refused++
		p.mu.Unlock()
		return sluice.Outcome{Kind: sluice.RateLimit}
	}
	p.level--
	p.open++
	p.most = max(p.most, p.open)
	p.served[member]++
	p.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.open--
	p.mu.Unlock()
	return sluice.Outcome{}
}

func (p *strict) total() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.served {
		n += c
	}
	return n
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
func load(t *testing.T, at *cluster.Site, limits sluice.Limits, p *strict, takes, long time.Duration, demand ...int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	account := t.Name() + rand.Text()
	var wg sync.WaitGroup
	for i, n := range demand {
		name := fmt.Sprint("member ", i)
		l := open(t, at).Ledger(account, cluster.LedgerConfig{})
		s, err := sluice.New(sluice.Config{Limits: limits, Ledger: l})
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
					s.Do(ctx, sluice.Call{}, func(ctx context.Context, _ *sluice.Permit) sluice.Outcome { return p.call(ctx, name, takes) })
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
		{"requests", sluice.Limits{RPM: 6000}, 100, 100 * time.Millisecond, []int{60, 60, 60, 60}},
		{"slots", sluice.Limits{Concurrent: 5}, 0, 50 * time.Millisecond, []int{10, 10, 10, 10}},
		{"requests and slots, one wants most", sluice.Limits{RPM: 6000, Concurrent: 20}, 100, 100 * time.Millisecond, []int{64, 2, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEngines(t, func(t *testing.T, at *cluster.Site) {
				p := newStrict(c.limits, c.burst)
				const long = 4 * time.Second
				load(t, at, c.limits, p, c.takes, long, c.demand...)
				most := c.burst + p.rate*long.Seconds()
				if c.limits.RPM == 0 {
					most = float64(c.limits.Concurrent) * long.Seconds() / c.takes.Seconds()
				}
				var shares []float64
				for i := range c.demand {
					shares = append(shares, float64(p.served[fmt.Sprint("member ", i)]))
				}
				used := float64(p.total()) / most
				t.Logf("used %.2f, most open %d, refused %d, Jain %.3f, %v", used, p.most, p.refused, jain(shares), shares)
				if p.refused > 0 {
					t.Errorf("the provider refused %d calls", p.refused)
				}
				if used == 0 || at.Memory != nil && used < 0.7 { // in real time it says more of the machine
					t.Errorf("%.2f of the limit is used", used)
				}
			})
		})
	}
}
