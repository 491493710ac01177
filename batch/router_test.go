package batch_test

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// farm is several upstreams, each with a server of its own at a host of its name.
type farm struct {
	t     testing.TB
	cfg   provider.UpstreamsConfig
	hosts map[string]http.RoundTripper

	mu   sync.Mutex
	left []provider.Exclusion
}

func newFarm(t testing.TB) *farm {
	f := &farm{t: t, hosts: make(map[string]http.RoundTripper)}
	f.cfg.Excluded = func(l provider.Exclusion) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.left = append(f.left, l)
	}
	return f
}

// add adds an upstream that serves the model m.
func (f *farm) add(name string, rt http.RoundTripper, change ...func(*provider.Upstream)) {
	f.t.Helper()
	p, _ := provider.Lookup("openai-compatible")
	up := provider.Upstream{Name: name, Provider: p, BaseURL: "http://" + name + ".test/v1", Models: map[string]string{"m": "m"}}
	for _, c := range change {
		c(&up)
	}
	if up.Scheduler == nil {
		up.Scheduler = f.scheduler(sluice.Config{Name: name})
	}
	f.hosts[name+".test"] = rt
	f.cfg.Upstreams = append(f.cfg.Upstreams, up)
}

func (f *farm) scheduler(cfg sluice.Config) *sluice.Scheduler {
	f.t.Helper()
	s, err := sluice.New(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Close() })
	return s
}

func (f *farm) RoundTrip(r *http.Request) (*http.Response, error) {
	return f.hosts[r.URL.Host].RoundTrip(r)
}

// run runs a batch by the upstreams. No permit may be left.
func (f *farm) run(files files, change ...func(*batch.Config)) (batch.Report, error) {
	f.t.Helper()
	u, err := provider.NewUpstreams(f.cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	cfg := batch.Config{Input: files.in, Output: files.out, Upstreams: u, Transport: f}
	for _, c := range change {
		c(&cfg)
	}
	rep, err := run(f.t, cfg)
	for _, up := range f.cfg.Upstreams {
		for _, lane := range up.Scheduler.Snapshot().Lanes {
			if lane.InFlight != 0 || lane.Waiting != 0 {
				f.t.Errorf("%s: %d in flight and %d waiting after the run", up.Name, lane.InFlight, lane.Waiting)
			}
		}
	}
	return rep, err
}

// by counts results by upstream.
func (f *farm) by(files files) map[string]int {
	n := make(map[string]int)
	for _, r := range files.results(f.t) {
		n[r.Sluice.Upstream]++
	}
	return n
}

// gone is a host that cannot be reached from one instant to another, counted from now.
func gone(rt http.RoundTripper, from, to time.Duration) http.RoundTripper {
	start := time.Now()
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if at := time.Since(start); at >= from && at < to {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
		}
		return rt.RoundTrip(r)
	})
}

// once fails the test if a server paid for a call twice, or the servers together did not for each item once.
func once(t *testing.T, items int, servers ...*sim.Server) {
	t.Helper()
	paid := make(map[string]int)
	for _, s := range servers {
		for id, n := range s.Stats().Paid {
			paid[id] += n
		}
	}
	for id, n := range paid {
		if n != 1 {
			t.Errorf("%s was answered %d times", id, n)
		}
	}
	if len(paid) != items {
		t.Errorf("%d calls were answered, want %d", len(paid), items)
	}
}

func near(t *testing.T, what string, got, want time.Duration, within float64) {
	t.Helper()
	if off := math.Abs(float64(got-want)) / float64(want); off > within {
		t.Errorf("%s took %v, want %v ± %.0f %%", what, got, want, within*100)
	}
}

func TestTwoUpstreamsAreUsedToTheFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, files := newFarm(t), newFiles(t, chats(900))
		fast, slow := newSim(t, sim.Config{RPM: 1200, Burst: time.Second}), newSim(t, sim.Config{RPM: 600, Burst: time.Second})
		f.add("fast", fast.Transport())
		f.add("slow", slow.Transport())
		rep, err := f.run(files)
		if err != nil || rep.Done != 900 || rep.Throttles > 20 {
			t.Fatalf("%+v, %v", rep, err)
		}
		once(t, 900, fast, slow)
		near(t, "the run", rep.Wall, 29*time.Second, 0.07)
	})
}

func TestSlowAnswersKeepAllUpstreamsBusyFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, files := newFarm(t), newFiles(t, chats(48))
		for _, name := range []string{"a", "b", "c"} {
			f.add(name, newSim(t, sim.Config{Latency: time.Minute}).Transport(), func(up *provider.Upstream) {
				up.Scheduler = f.scheduler(sluice.Config{Limits: sluice.Limits{Concurrency: 16}})
			})
		}
		if rep, err := f.run(files); err != nil || rep.Done != 48 || rep.Wall > 66*time.Second {
			t.Errorf("%+v, %v", rep, err)
		}
	})
}

func TestAnUpstreamDiesAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items = 1500
		f, files := newFarm(t), newFiles(t, chats(items))
		main, spare := newSim(t, sim.Config{RPM: 600, Burst: time.Second}), newSim(t, sim.Config{RPM: 600, Burst: time.Second})
		f.add("main", gone(main.Transport(), 5*time.Second, 20*time.Second))
		f.add("spare", spare.Transport())
		rep, err := f.run(files)
		if err != nil || rep.Done != items {
			t.Fatalf("%+v, %v", rep, err)
		}
		once(t, items, main, spare)
		// Ten a second each, and for 15 s the one alone.
		near(t, "the run", rep.Wall, 82500*time.Millisecond, 0.05)
		if n := f.by(files); n["main"]+n["spare"] != items || n["main"] < 600 {
			t.Errorf("answered by %v", n)
		}
		for id, r := range files.results(t) {
			if r.Sluice.WaitMS > 12_000 {
				t.Errorf("item %s waited %d ms", id, r.Sluice.WaitMS)
			}
		}
	})
}

func TestAUsageWindowSendsItemsToTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, files := newFarm(t), newFiles(t, chats(300))
		spare := newSim(t, sim.Config{RPM: 600, Burst: time.Second})
		f.add("main", roundTripper(func(r *http.Request) (*http.Response, error) {
			return answer(r, 429, `{"error":{"type":"usage_limit_reached","message":"You've hit your usage limit. Try again at `+
				time.Now().Add(3*time.Hour).UTC().Format(time.RFC3339)+`"}}`), nil
		}))
		f.add("spare", spare.Transport())
		rep, err := f.run(files)
		if err != nil || rep.Done != 300 {
			t.Fatalf("%+v, %v", rep, err)
		}
		once(t, 300, spare)
		near(t, "the run", rep.Wall, 29*time.Second, 0.07)
	})
}

func TestASpentUpstreamIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, files := newFarm(t), newFiles(t, chats(300))
		main, spare := newSim(t, sim.Config{SpentAfter: 40}), newSim(t, sim.Config{RPM: 600, Burst: time.Second})
		acme := f.scheduler(sluice.Config{Limits: sluice.Limits{Concurrency: 4}})
		ofAcme := func(up *provider.Upstream) { up.Account, up.Scheduler = "acme", acme }
		f.add("main", main.Transport(), ofAcme)
		f.add("twin", main.Transport(), ofAcme)
		f.add("spare", spare.Transport())
		rep, err := f.run(files)
		if err != nil || rep.Done != 300 {
			t.Fatalf("%+v, %v", rep, err)
		}
		once(t, 300, main, spare)
		if len(f.left) != 2 || f.left[0].Upstream != "main" || f.left[1].Upstream != "twin" || f.left[0].Kind != sluice.QuotaExhausted || !f.left[0].Whole {
			t.Errorf("left out: %v", f.left)
		}
		if n := f.by(files); n["spare"] < 250 {
			t.Errorf("answered by %v", n)
		}
	})
}

func TestABadKeyAmongTwoIsLeftOutAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, files := newFarm(t), newFiles(t, chats(100))
		server := newSim(t, sim.Config{Key: sentinelKey})
		f.cfg.Attempts = 1 // which a refused key does not spend
		f.add("main", server.Transport(), func(up *provider.Upstream) {
			up.Keys = []provider.Key{{From: "BAD", Value: "sk-not-the-key-at-all"}, {From: "GOOD", Value: sentinelKey}}
		})
		rep, err := f.run(files)
		if err != nil || rep.Done != 100 {
			t.Fatalf("%+v, %v", rep, err)
		}
		once(t, 100, server)
		if len(f.left) != 1 || f.left[0].Key != "BAD" || f.left[0].Whole || !strings.Contains(f.left[0].String(), "the key in BAD was rejected") {
			t.Errorf("left out: %v", f.left)
		}
	})
}

func TestKeysOfAnAccountTakeTurns(t *testing.T) {
	f, files, rt := newFarm(t), newFiles(t, chats(6)), &stub{}
	f.add("main", rt, func(up *provider.Upstream) {
		up.Keys = []provider.Key{{Value: "key-a"}, {Value: "key-b"}, {Value: "key-c"}}
	})
	if rep, err := f.run(files); err != nil || rep.Done != 6 {
		t.Fatalf("%+v, %v", rep, err)
	}
	used := make(map[string]int)
	for _, s := range rt.sent {
		used[s.header.Get("Authorization")]++
	}
	if used["Bearer key-a"] != 2 || used["Bearer key-b"] != 2 || used["Bearer key-c"] != 2 {
		t.Errorf("keys were used %v", used)
	}
}

func TestARunStopsWhenNoUpstreamIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, files := newFarm(t), newFiles(t, chats(200))
		spent := newSim(t, sim.Config{SpentAfter: 30})
		f.add("main", newSim(t, sim.Config{Key: sentinelKey}).Transport())
		f.add("spare", spent.Transport())
		rep, err := f.run(files)
		stop, ok := errors.AsType[*work.StoppedError](err)
		none, also := errors.AsType[*provider.NoUpstreamError](err)
		if !ok || !also || stop.Kind != sluice.QuotaExhausted || len(none.Left) != 2 {
			t.Fatalf("error %v", err)
		}
		if want := "all upstreams of model m are excluded; main: the key was rejected: "; !strings.HasPrefix(none.Error(), want) || !strings.Contains(none.Error(), "; spare: the account's quota is spent: ") {
			t.Errorf("%s", none)
		}
		if rep.Report.Failed != 0 || rep.Done < 30 || len(files.results(t)) != rep.Done {
			t.Errorf("%d done, %d failed", rep.Done, rep.Report.Failed)
		}
		// The rest is left to do, and whoever answers it does not matter.
		again := newFarm(t)
		again.add("other", newSim(t, sim.Config{}).Transport())
		next, err := again.run(files)
		if err != nil || next.Already != rep.Done || next.Done != 200-rep.Done {
			t.Errorf("afterwards: %+v, %v", next, err)
		}
	})
}

func TestEachUpstreamGetsItsOwnModel(t *testing.T) {
	rt := map[string]*stub{"a": {}, "b": {status: 503}, "g": {answer: geminiAnswer}}
	f := newFarm(t)
	lines := `{"custom_id":"1","method":"POST","url":"/v1/chat/completions","body":{"messages":[],  "mod\u0065l" : "small","x":{"model":"small"}}}
{"custom_id":"2","model":"pro","contents":[]}
{"custom_id":"3","prompt":"hi","model":"small"}`
	files := newFiles(t, lines)
	f.add("b", rt["b"], func(up *provider.Upstream) { up.Models = map[string]string{"small": "b-small"} })
	f.add("a", rt["a"], func(up *provider.Upstream) { up.Models = map[string]string{"small": "a/small"} })
	f.add("g", rt["g"], func(up *provider.Upstream) {
		up.Provider, _ = provider.Lookup("gemini")
		up.Models = map[string]string{"pro": "gemini-2.5-pro", "small": "gemini-2.5-flash"}
	})
	rep, err := f.run(files)
	if err != nil || rep.Done != 3 {
		t.Fatalf("%+v, %v", rep, err)
	}
	bodies := make(map[string]bool)
	for name, s := range rt {
		for _, sent := range s.sent {
			bodies[name+" "+sent.body] = true
		}
	}
	for _, want := range []string{
		`a {"messages":[],  "mod\u0065l" :"a/small","x":{"model":"small"}}`,
		`g {"contents":[]}`,
		`a {"model":"a/small","messages":[{"role":"user","content":"hi"}]}`,
	} {
		if !bodies[want] {
			t.Errorf("nobody was sent %s, but %v", want, bodies)
		}
	}
	if n := f.by(files); n["a"] != 2 || n["g"] != 1 || !strings.HasSuffix(rt["g"].sent[0].url, "/models/gemini-2.5-pro:generateContent") {
		t.Errorf("answered by %v at %s", n, rt["g"].sent[0].url)
	}
}

func TestLinesThatNoUpstreamServesAreRefused(t *testing.T) {
	f := newFarm(t)
	f.add("a", &stub{})
	f.cfg.Upstreams[0].Provider.OneDialect = true
	for line, want := range map[string]string{
		`{"model":"other","messages":[]}`:        `line 1: no upstream serves the model "other"`,
		`{"params":{"model":"m","messages":[]}}`: `line 1: no upstream of model m supports the endpoint /v1/messages`,
		`{"model":"m","contents":[]}`:            `line 1: no upstream of model m supports the endpoint `,
	} {
		_, err := f.run(newFiles(t, line))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestTheCheapestIsPreferredWhileItCanStartSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		price := func(in, out float64) func(*provider.Upstream) {
			return func(up *provider.Upstream) {
				up.Price = func(string) *provider.Price {
					if !(in > 0) {
						return nil
					}
					return provider.FlatPrice(in, out)
				}
			}
		}
		f, files := newFarm(t), newFiles(t, chats(200))
		f.cfg.Prefer = provider.PreferCost
		unknown, dear, cheap := newSim(t, sim.Config{}), newSim(t, sim.Config{}), newSim(t, sim.Config{RPM: 600, Burst: time.Second})
		f.add("unknown", unknown.Transport(), price(0, 0))
		f.add("dear", dear.Transport(), price(10, 30))
		f.add("cheap", gone(cheap.Transport(), 8*time.Second, 80*time.Second), price(1, 2))
		var cost float64
		rep, err := f.run(files, func(c *batch.Config) {
			c.OnResult = func(r *work.Result) {
				if !r.HasCost || r.Upstream == "unknown" {
					t.Errorf("%s: %+v", r.ID, r)
				}
			}
		})
		if err != nil || rep.Done != 200 || rep.Costed != 200 {
			t.Fatalf("%+v, %v", rep, err)
		}
		once(t, 200, unknown, dear, cheap)
		n := f.by(files)
		if n["cheap"] < 80 || n["dear"] < 50 || n["unknown"] != 0 {
			t.Errorf("answered by %v", n) // dear takes over when cheap is gone
		}
		for _, r := range files.results(t) {
			in, out := 1.0, 2.0
			if r.Sluice.Upstream == "dear" {
				in, out = 10, 30
			}
			want := (float64(r.Sluice.InputTokens)*in + float64(r.Sluice.OutputTokens)*out) / 1e6
			if r.Sluice.CostUSD == nil || math.Abs(*r.Sluice.CostUSD-want) > 1e-9 {
				t.Fatalf("%+v: want a cost of %v", r.Sluice, want)
			}
			cost += want
		}
		if math.Abs(cost-rep.Cost) > 1e-6 {
			t.Errorf("cost %v, want %v", rep.Cost, cost)
		}
	})
}

func TestAnUpstreamThatHangsDoesNotHoldItemsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, files := newFarm(t), newFiles(t, chats(300))
		spare := newSim(t, sim.Config{RPM: 600, Burst: time.Second})
		f.add("main", roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		}), func(up *provider.Upstream) {
			up.Scheduler = f.scheduler(sluice.Config{Limits: sluice.Limits{Concurrency: 8}})
		})
		f.add("spare", spare.Transport())
		rep, err := f.run(files, func(c *batch.Config) { c.Timeout = 5 * time.Minute })
		if err != nil || rep.Done != 300 {
			t.Fatalf("%+v, %v", rep, err)
		}
		once(t, 300, spare)
		quick := 0
		for _, r := range files.results(t) {
			if r.Sluice.WaitMS < 60_000 && r.Sluice.Attempts == 1 {
				quick++
			}
		}
		if quick < 292 {
			t.Errorf("%d of 300 items did not wait for what hangs", quick)
		}
	})
}

func TestNobodyIsReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, files := newFarm(t), newFiles(t, chats(50))
		f.add("main", gone(nil, 0, time.Hour))
		f.add("spare", gone(nil, 0, time.Hour))
		_, err := f.run(files)
		if missing, ok := errors.AsType[*batch.UnreachableError](err); !ok || missing.Recorded != 0 {
			t.Errorf("error %v", err)
		}
		if _, err := os.Stat(files.out); err == nil {
			t.Error("something was recorded")
		}
	})
}

// answer is a refusal.
func answer(to *http.Request, status int, body string) *http.Response {
	r, _ := (&stub{status: status, answer: body}).RoundTrip(to)
	return r
}
