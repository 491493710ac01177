package sim_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/sim"
)

// comer is a call that comes at an instant.
type comer struct {
	at     time.Duration
	body   string
	status int           // of its answer; 0: a reset
	took   time.Duration // from then on
}

// limiterConfigs are providers on which no two things happen at once.
func limiterConfigs() *rapid.Generator[sim.Config] {
	return rapid.Custom(func(t *rapid.T) sim.Config {
		n := func(name string, of ...int) int { return rapid.SampledFrom(of).Draw(t, name) }
		return sim.Config{
			Seed: rapid.Uint64().Draw(t, "seed"), RPM: n("RPM", 0, 30, 300), TPM: n("TPM", 0, 3000, 90_000), RPD: n("RPD", 0, 20),
			Concurrency: n("concurrency", 0, 2, 5), Queue: n("queue", 0, 0, 1, 3),
			Burst:   rapid.SampledFrom([]time.Duration{0, time.Second, 10 * time.Second}).Draw(t, "burst"),
			Charge:  rapid.SampledFrom([]limits.Charge{limits.ChargeDeclared, limits.ChargeActual}).Draw(t, "charge"),
			Latency: 197 * time.Millisecond, RefusalLatency: -1, PerToken: 1013 * time.Microsecond, Jitter: 0.1, OutputSigma: 0.5,
			ChargeRefusals: rapid.Bool().Draw(t, "charge refusals"),
			Faults:         sim.Faults{ServerError: 0.1, Overloaded: 0.1, Reset: 0.1, Throttled: 0.1},
			Storms:         []sim.Storm{{From: 3 * time.Second, To: 4 * time.Second}},
			Changes:        []sim.Change{{At: 6 * time.Second, Factor: 0.5}},
		}
	})
}

func TestLimiterDoesInVirtualTimeWhatTheServerDoes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := limiterConfigs().Draw(rt, "config")
		comers := make([]comer, rapid.IntRange(1, 40).Draw(rt, "calls"))
		bodies := make([][]byte, len(comers))
		at := time.Duration(0)
		for i := range comers {
			bodies[i] = fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"%d%s"}],"max_tokens":100}`, i,
				strings.Repeat("x", rapid.IntRange(0, 900).Draw(rt, "length")))
			comers[i] = comer{at: at, body: string(bodies[i])}
			at += time.Duration(rapid.IntRange(1, 500_003).Draw(rt, "pause")) * time.Microsecond
		}
		synctest.Test(t, func(t *testing.T) { sendAll(t, c, comers) })
		for i, want := range foresee(rt, c, c.Workload(chatPath, bodies...), comers) {
			if got := comers[i]; got.status != want.status || (got.took-want.took).Abs() > time.Microsecond {
				rt.Fatalf("call %d at %v: the server answers %d after %v, the limiter %d after %v", i, got.at, got.status, got.took, want.status, want.took)
			}
		}
	})
}

// sendAll sends the calls to a server.
func sendAll(t *testing.T, c sim.Config, comers []comer) {
	server, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range comers {
		a := &comers[i]
		go func() {
			time.Sleep(a.at)
			req, err := http.NewRequest(http.MethodPost, "http://sim"+chatPath, strings.NewReader(a.body))
			if err != nil {
				t.Error(err)
				return
			}
			begun := time.Now()
			resp, err := server.Transport().RoundTrip(req)
			if a.took = time.Since(begun); err == nil {
				a.status = resp.StatusCode
			}
		}()
	}
	time.Sleep(time.Hour)
}

// foresee asks a limiter.
func foresee(t *rapid.T, c sim.Config, w sim.Workload, comers []comer) []comer {
	l, err := sim.NewLimiter(c)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]comer, len(comers))
	type end struct {
		at       time.Duration
		output   int
		answered bool
	}
	var ends []end
	leave := func(now time.Duration) {
		for {
			first := -1
			for i, e := range ends {
				if e.at <= now && (first < 0 || e.at < ends[first].at) {
					first = i
				}
			}
			if first < 0 {
				return
			}
			l.Produced(ends[first].at, ends[first].output)
			l.Leave(ends[first].answered)
			ends = append(ends[:first], ends[first+1:]...)
		}
	}
	for i := range out {
		at := comers[i].at
		leave(at)
		course, no, ok := l.Admit(at, time.Hour, i, &w[i], 0)
		if !ok {
			if out[i].status = http.StatusTooManyRequests; no.Why == "" {
				t.Fatalf("a refusal without a reason: %+v", no)
			}
			continue
		}
		out[i].took = course.End - at
		out[i].status = map[limits.Kind]int{limits.OK: 200, limits.ServerError: 500, limits.Overloaded: 503}[course.Kind]
		ends = append(ends, end{course.End, course.Output, course.Kind == limits.OK})
	}
	return out
}

func TestLimiterTellsWhatHeadersWould(t *testing.T) {
	l, err := sim.NewLimiter(sim.Config{RPM: 60, TPM: 6000, Burst: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok := l.Admit(0, time.Minute, 0, &sim.Request{Input: 10, MaxTokens: 500}, 0); !ok {
		t.Fatal("refused")
	}
	got := l.Quotas(nil, time.Second)
	want := []sim.Quota{{Dimension: limits.Requests, Limit: 60, Remaining: 30}, {Dimension: limits.Tokens, Limit: 6000, Remaining: 2600, Reset: 4 * time.Second}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%+v, want %+v", got, want)
	}
	if s := l.Spent(); s != (sim.Spent{Requests: 1, Tokens: 500, Input: 10, Output: 500}) {
		t.Errorf("spent %+v", s)
	}
	if _, err := sim.NewLimiter(sim.Config{RPM: -1, TPM: -1, ITPM: -1, OTPM: -1, RPD: -1, Concurrency: -1}); err == nil || !strings.Contains(err.Error(), "Config.RPM") {
		t.Errorf("of limits below zero the first is to be named: %v", err)
	}
	if _, err := sim.NewLimiter(sim.Config{Contention: 2}); err == nil || !strings.Contains(err.Error(), "Config.Contention") {
		t.Errorf("contention, which a limiter cannot foresee: %v", err)
	}
}
