package gateway_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/sim"
)

// Each tenant's calls are of another size, declared and used: shares are of what binds.
func TestSharesOfWhatBindsAreByWeight(t *testing.T) {
	t.Parallel()
	sizes := func(r *rand.Rand, who, i int) []byte {
		return like(i, []int{400, 60, 150}[who], []int{400, 900, 150}[who]+r.IntN(50), who == 1)
	}
	const s = time.Second
	chat, messages := "/v1/chat/completions", "/v1/messages"
	claude := sim.Config{RPM: 4000, ITPM: 400_000, OTPM: 60_000, Burst: 10 * s, OutputTokens: 200, OutputSigma: 0.5, PerToken: 2 * time.Millisecond}
	limits := map[string]openLoad{
		"requests":          {path: chat, sim: sim.Config{RPM: 300, TPM: 500_000, Burst: s}, told: sluice.Limits{RPM: 300, TPM: 500_000}, rate: 20},
		"tokens":            {path: chat, sim: sim.Config{TPM: 100_000, Burst: s}, told: sluice.Limits{TPM: 100_000}, rate: 20},
		"tokens in headers": {path: chat, sim: sim.Config{RPM: 3000, TPM: 100_000, Burst: s}, rate: 20},
		"output":            {api: "anthropic", path: messages, sim: claude, told: sluice.Limits{RPM: 4000, ITPM: 400_000, OTPM: 60_000}, rate: 24},
		"input": {api: "anthropic", path: messages, sim: sim.Config{RPM: 4000, ITPM: 40_000, OTPM: 600_000, Burst: s},
			told: sluice.Limits{RPM: 4000, ITPM: 40_000, OTPM: 600_000}, rate: 24},
	}
	for name, l := range limits {
		for _, weights := range [][]float64{{1, 2, 4}, {1, 1, 1}} {
			t.Run(fmt.Sprint(name, weights), func(t *testing.T) {
				if name != "requests" || weights[0] == weights[2] {
					suite.FullOnly(t)
				}
				synctest.Test(t, func(t *testing.T) {
					l.body, l.long = sizes, 80*s
					l.tenants = equals(3)
					sum := 0.0
					for i, w := range weights {
						l.tenants[i].Weight = w
						sum += w
					}
					c := l.run(t)
					for i, w := range weights {
						if got, want := c.shares[l.tenants[i].Name], w/sum; math.Abs(got-want) > 0.08*want {
							t.Errorf("a weight of %v of %v has a share of %.4f: want %.4f", w, sum, got, want)
						}
					}
					if c.used < 0.94 || c.answered != c.calls { // a guarantee counts the larger one of the estimated and the used input
						t.Errorf("%v", c)
					}
					t.Logf("%v, Jain's index %.4f", c, jain(c.shares))
				})
			})
		}
	}
}

// clients are calls of a tenant, one after the other at each of them, until stop is closed.
func (r *tenantRig) clients(n int, tenant string, stop <-chan struct{}) (wait func()) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r.call(tenant, fmt.Sprint("session-", i%5))
			}
		})
	}
	return all.Wait
}

// since counts whose calls were sent after the first n.
func (r *recorder) since(n int) (sent map[string]int, all int) {
	sent = make(map[string]int)
	for _, whose := range r.sent()[n:] {
		sent[whose]++
		all++
	}
	return sent, all
}

func TestATenantThatComesAndGoesHasItsShareWhileItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{sim: sim.Config{RPM: 600, Burst: time.Second}, limits: sluice.Limits{RPM: 600},
			tenants: []gateway.Tenant{{Name: "stays"}, {Name: "comes"}}})
		end := make(chan struct{})
		stayed := r.clients(40, "stays", end)
		for range suite.Size(1, 5) {
			time.Sleep(30 * time.Second)
			before, stop := len(r.upstream.sent()), make(chan struct{})
			gone := r.clients(40, "comes", stop)
			time.Sleep(4 * time.Second)
			// It has no claim to what it did not ask for.
			if sent, all := r.upstream.since(before); math.Abs(float64(sent["comes"])/float64(all)-0.5) > 0.1 {
				t.Errorf("in its first seconds it had %d of %d", sent["comes"], all)
			}
			time.Sleep(26 * time.Second)
			if sent, all := r.upstream.since(before); math.Abs(float64(sent["comes"])/float64(all)-0.5) > 0.02 {
				t.Errorf("in half a minute it had %d of %d", sent["comes"], all)
			}
			close(stop)
			gone()
			before = len(r.upstream.sent())
			time.Sleep(10 * time.Second)
			if _, all := r.upstream.since(before); all < 95 {
				t.Errorf("without it, %d calls were sent in 10 s: want 100", all)
			}
		}
		close(end)
		stayed()
	})
}
