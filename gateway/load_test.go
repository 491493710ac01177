package gateway_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// offered is a call of a load: whose it is, and when it comes.
type offered struct {
	at              time.Duration
	tenant, session string
	body            []byte
}

// openLoad are calls that come to a gateway by the clock, whatever becomes of those before them.
type openLoad struct {
	api, path string
	sim       sim.Config
	told      sluice.Limits
	body      func(r *rand.Rand, tenant, i int) []byte
	tenants   []gateway.Tenant
	rate      float64       // calls a second, in all
	long      time.Duration // for which they come
}

// calls are those of the load, by when they come.
func (l *openLoad) calls() []offered {
	r := rand.New(rand.NewPCG(3, 5))
	all := make([]offered, 0, int(l.rate*l.long.Seconds()))
	for i := range cap(all) {
		who := i % len(l.tenants)
		session := ""
		if who%2 == 1 { // every other tenant has many agents
			session = fmt.Sprint("agent-", r.IntN(20))
		}
		all = append(all, offered{
			at:     time.Duration(float64(i) / l.rate * float64(time.Second)),
			tenant: l.tenants[who].Name, session: session, body: l.body(r, who, i),
		})
	}
	return all
}

// came is what became of a load.
type came struct {
	calls, answered int
	refused         map[string]int // by what the client got
	throttled       int            // by the provider
	used            float64        // of what the provider could give while calls came: what its buckets hold, and refill
	optimum         float64        // the time in which one could have had all answered who knows the provider's state, of the time it took
	shares          map[string]float64
}

func (c came) String() string {
	return fmt.Sprintf("%d calls, %d answered, refused %v, %d of the provider's 429, %.4f of the quota, %.4f of the optimum, shares %v",
		c.calls, c.answered, c.refused, c.throttled, c.used, c.optimum, c.shares)
}

// run makes the calls of a load.
func (l *openLoad) run(t *testing.T) (c came) {
	p, _ := provider.Lookup(cmp.Or(l.api, "openai"))
	if p.Charge == limits.ChargeActual {
		l.sim.Charge = limits.ChargeActual
	}
	r := newTenantRig(t, rigConfig{api: l.api, sim: l.sim, limits: l.told, tenants: l.tenants,
		gateway: gateway.Config{Deadlines: gateway.Deadlines{Queue: time.Hour}}})
	all := l.calls()
	work := l.sim.Workload(l.path, bodiesOf(all)...)
	if len(work) != len(all) {
		t.Fatalf("%d of %d calls are bad", len(all)-len(work), len(all))
	}
	c.calls, c.refused = len(all), make(map[string]int)
	begun := time.Now()
	var calls sync.WaitGroup
	var mu sync.Mutex
	for i, one := range all {
		calls.Go(func() {
			time.Sleep(one.at)
			w := r.send(one, i, l.path)
			mu.Lock()
			defer mu.Unlock()
			if w.Code == http.StatusOK {
				c.answered++
			} else {
				c.refused[fmt.Sprint(w.Code, " ", w.Header().Get("X-Sluice-Error"))]++
			}
		})
	}
	time.Sleep(l.long / 4)
	early := len(r.upstream.accepted()) // while buckets were full, nobody waited
	time.Sleep(l.long - l.long/4)
	c.used, c.shares = l.usage(r, all, work, early)
	calls.Wait()
	c.throttled = r.server.Stats().Throttled
	c.optimum = l.sim.Optimum(work).Seconds() / time.Since(begun).Seconds()
	return c
}

func bodiesOf(all []offered) (bodies [][]byte) {
	for _, one := range all {
		bodies = append(bodies, one.body)
	}
	return bodies
}

// usage is how much of what the provider could give was used so far, of the limit that binds, and each tenant's share in it once
// so many calls were sent. A limit that is told holds in every minute, whatever the buckets hold, and for tokens that are used.
func (l *openLoad) usage(r *tenantRig, all []offered, work sim.Workload, early int) (most float64, shares map[string]float64) {
	there := cmp.Or(l.sim.Burst, time.Minute) + l.long
	if rest := l.long % time.Minute; l.told != (sluice.Limits{}) {
		if there = l.long - rest; rest > 0 {
			there += min(time.Minute, l.sim.Burst+rest)
		}
	}
	for name, d := range map[string]struct {
		limit int
		cost  func(sim.Request) int
	}{
		"requests": {l.sim.RPM, func(sim.Request) int { return 1 }},
		"tokens":   {l.sim.TPM, func(w sim.Request) int { return max(w.Input, w.MaxTokens) }},
		"input":    {l.sim.ITPM, func(w sim.Request) int { return w.Input }},
		"output":   {l.sim.OTPM, func(w sim.Request) int { return w.Output }},
	} {
		if d.limit == 0 {
			continue
		}
		sum, late, by := 0.0, 0.0, make(map[string]float64)
		for at, i := range r.upstream.accepted() {
			n := float64(d.cost(work[i]))
			counted := n
			if name == "tokens" && l.told.TPM > 0 {
				counted = float64(max(work[i].MaxTokens, work[i].Input+work[i].Output))
			}
			if sum += counted; at >= early {
				late += n
				by[all[i].tenant] += n
			}
		}
		for tenant := range by {
			by[tenant] = math.Round(by[tenant]/late*1e4) / 1e4
		}
		part := sum / (float64(d.limit) / 60 * there.Seconds())
		r.t.Logf("%s: %.4f of what there was", name, part)
		if part > most {
			most, shares = part, by
		}
	}
	return most, shares
}

// send makes a call, as item i of a load.
func (r *tenantRig) send(one offered, i int, path string) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://localhost"+path, bytes.NewReader(one.body))
	req.Header.Set("X-Whose", one.tenant)
	req.Header.Set("X-Client-Request-Id", strconv.Itoa(i))
	if path == "/v1/messages" {
		req.Header.Set("Anthropic-Version", "2023-06-01")
	}
	if key := r.keys[one.tenant]; key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if one.session != "" {
		req.Header.Set("X-Sluice-Session", one.session)
	}
	return r.do(req)
}

// accepted are the items that the provider took, in their order.
func (r *recorder) accepted() (items []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(items, r.items...)
}

// like is a prompt of so many words, and an answer of at most so many tokens.
func like(i, words, output int, stream bool) []byte {
	return fmt.Appendf(nil, `{"model":"m","max_tokens":%d,"stream":%t,"messages":[{"role":"user","content":"item %d%s"}]}`,
		output, stream, i, bytes.Repeat([]byte(" word"), words))
}

// mixed are sizes of a median of 250 tokens of output, and a sigma of 0.7.
func mixed(stream bool) func(*rand.Rand, int, int) []byte {
	return func(r *rand.Rand, _, i int) []byte {
		return like(i, 20+r.IntN(200), int(250*math.Exp(0.7*r.NormFloat64()))+1, stream)
	}
}

// equals are tenants of the same weight.
func equals(n int) (all []gateway.Tenant) {
	for i := range n {
		all = append(all, gateway.Tenant{Name: fmt.Sprint("tenant-", i)})
	}
	return all
}

// overloads are loads of four times what the provider allows. What binds is the name's first word.
func overloads() map[string]openLoad {
	const s = time.Second
	short := func(stream bool) func(*rand.Rand, int, int) []byte {
		return func(_ *rand.Rand, _, i int) []byte { return like(i, 3, 16, stream) }
	}
	chat, messages := openLoad{api: "openai", path: "/v1/chat/completions"}, openLoad{api: "anthropic", path: "/v1/messages"}
	of := func(l openLoad, provider sim.Config, told bool, body func(*rand.Rand, int, int) []byte, rate float64) openLoad {
		l.sim, l.body, l.rate = provider, body, rate
		if told {
			l.told = sluice.Limits{RPM: provider.RPM, TPM: provider.TPM, ITPM: provider.ITPM, OTPM: provider.OTPM}
		}
		return l
	}
	requests := sim.Config{RPM: 300, Burst: 10 * s, Jitter: 0.3, PerToken: 2 * time.Millisecond}
	full := requests
	full.Burst = 0
	tokens := sim.Config{TPM: 100_000, Burst: 10 * s, Latency: 500 * time.Millisecond, Jitter: 0.3}
	output := sim.Config{RPM: 4000, ITPM: 120_000, OTPM: 60_000, Burst: 10 * s, Latency: 500 * time.Millisecond,
		PerToken: 2 * time.Millisecond, OutputTokens: 200, OutputSigma: 0.5}
	input := output
	input.ITPM, input.OTPM = 30_000, 400_000
	return map[string]openLoad{
		"requests, told":       of(chat, requests, true, short(false), 20),
		"requests, in headers": of(chat, full, false, short(false), 20),
		"requests, streams":    of(chat, requests, true, short(true), 20),
		"tokens, told":         of(chat, tokens, true, mixed(false), 21),
		"tokens, streams":      of(chat, tokens, false, mixed(true), 21),
		"output, told":         of(messages, output, true, mixed(false), 20),
		"output, streams":      of(messages, output, false, mixed(true), 20),
		"input, told":          of(messages, input, true, mixed(false), 14),
		"input, streams":       of(messages, input, true, mixed(true), 14),
	}
}

func TestFourTimesTheLoadIsHeldBackAndTheQuotaUsed(t *testing.T) {
	t.Parallel()
	for name, l := range overloads() {
		t.Run(name, func(t *testing.T) {
			if name != "requests, in headers" { // the cheapest
				suite.FullOnly(t)
			}
			synctest.Test(t, func(t *testing.T) {
				l.tenants, l.long = equals(4), 90*time.Second
				if l.sim.OTPM > 0 {
					l.long *= 2 // a call is large beside what a minute gives
				}
				c := l.run(t)
				// Who may leave a debt of output at the end gains by it: no client that goes on can.
				optimum := 0.97
				if l.told != (sluice.Limits{}) { // which knows nothing of minutes, nor that tokens are counted that are used
					optimum = 0.93
				}
				if c.answered != c.calls || c.used < 0.97 || c.throttled > c.calls/100 || l.sim.OTPM == 0 && c.optimum < optimum {
					t.Errorf("%v", c)
				}
				t.Log(c)
			})
		})
	}
}
