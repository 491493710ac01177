package plan

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// What a Simulation's client understands is what provider.Exchange makes of the real text of the same answers. It is
// tested from inside because nobody else has a use for the difference.
func TestWireUnderstandsWhatTheTextOfAnAnswerSays(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]sim.Config{
		"requests":            {RPM: 3, Burst: 30 * s},
		"requests of a day":   {RPD: 2},
		"headers of the day":  {RPM: 60, RPD: 3, DailyHeaders: true},
		"tokens":              {TPM: 1500, Burst: 50 * s},
		"tokens, too large":   {TPM: 90},
		"tokens in and out":   {ITPM: 12000, OTPM: 3000},
		"tokens as produced":  {ITPM: 12000, OTPM: 300, Charge: limits.ChargeActual, OutputTokens: 250},
		"tokens in":           {ITPM: 3000, Burst: 9 * s, Charge: limits.ChargeActual},
		"tokens out":          {OTPM: 300, Charge: limits.ChargeActual, OutputTokens: 250},
		"both as produced":    {TPM: 3000, OTPM: 300, Charge: limits.ChargeActual, OutputTokens: 250},
		"slots":               {Concurrency: 1, RPM: 100},
		"late headers":        {RPM: 3, TPM: 9000, LateHeaders: true},
		"no headers":          {RPM: 3, NoHeaders: true},
		"vague":               {RPM: 3, VagueBodies: true},
		"milliseconds":        {RPM: 3, VagueBodies: true, RetryAfter: sim.RetryAfterMillis},
		"a date":              {RPM: 3, VagueBodies: true, RetryAfter: sim.RetryAfterDate},
		"no hint":             {RPM: 3, RetryAfter: sim.RetryAfterNone},
		"storm":               {RPM: 90, Storms: []sim.Storm{{To: s}}},
		"silent storm":        {RPM: 90, Storms: []sim.Storm{{To: s, Silent: true}}},
		"overload":            {RPM: 90, Storms: []sim.Storm{{To: s, Status: 529}}},
		"silent overload":     {RPM: 90, Storms: []sim.Storm{{To: s, Status: 503, Silent: true}}},
		"overloaded for once": {RPM: 90, Faults: sim.Faults{Overloaded: 1}},
		"errors":              {RPM: 90, Faults: sim.Faults{ServerError: 1}},
		"resets":              {RPM: 90, Faults: sim.Faults{Reset: 1}},
		"cuts":                {RPM: 90, Faults: sim.Faults{Cut: 1}},
		"hangs":               {RPM: 90, Faults: sim.Faults{Hang: 1}},
		"bad requests":        {RPM: 90, Faults: sim.Faults{BadRequest: 1}},
		"money":               {RPM: 90, SpentAfter: 1},
		"fixed windows":       {RPM: 3, FixedWindow: true},
	} {
		c.Latency = 230 * time.Millisecond // so that no answer leaves as another call comes
		for dialect, endpoint := range map[string]provider.Endpoint{"openai": provider.ChatCompletions, "anthropic": provider.Messages, "gemini": provider.GenerateContent} {
			t.Run(name+" by "+dialect, func(t *testing.T) {
				want := heard(t, c, dialect, endpoint)
				got := understood(t, c, dialect)
				for i := range want {
					if want[i].TooLarge { // nothing follows from which limit it was
						want[i].Dimension, got[i].Dimension = 0, 0
					}
				}
				ignore := cmpopts.IgnoreFields(sluice.Outcome{}, "Err")
				if diff := cmp.Diff(want, got, ignore, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("Exchange and wire differ (-text +wire):\n%s", diff)
				}
			})
		}
	}
}

func TestEventsComeInTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h eventHeap
		var want []event
		ats := rapid.SliceOfN(rapid.Int64Range(0, 9), 0, 60).Draw(t, "at")
		for i, at := range ats {
			e := event{at: time.Duration(at), seq: uint64(i) + 1}
			h.push(e)
			want = append(want, e)
		}
		slices.SortStableFunc(want, func(a, b event) int { return int(a.at - b.at) })
		for i, w := range want {
			if e := h.pop(); e.at != w.at || e.seq != w.seq {
				t.Fatalf("event %d is number %d at %v, want %d at %v", i, e.seq, e.at, w.seq, w.at)
			}
		}
	})
}

const wireCalls = 6 // at 100 ms from each other

// heard is what Exchange makes of the answers of a server, half a second apart on the way.
func heard(t *testing.T, c sim.Config, dialect string, endpoint provider.Endpoint) []sluice.Outcome {
	out := make([]sluice.Outcome, wireCalls)
	synctest.Test(t, func(t *testing.T) {
		srv, err := sim.New(c)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := provider.Lookup(dialect)
		for i := range out {
			go func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				body := fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"%020d"}],"max_tokens":300}`, i)
				if endpoint == provider.GenerateContent {
					body = fmt.Appendf(nil, `{"contents":[{"parts":[{"text":"%020d"}]}],"generationConfig":{"maxOutputTokens":300}}`, i)
				}
				req, err := p.NewRequest(t.Context(), provider.Target{BaseURL: "http://x", Key: "k", Endpoint: endpoint, Model: "m"}, body)
				if err != nil {
					t.Error(err)
					return
				}
				if endpoint == provider.ChatCompletions {
					req.URL.Path = "/v1/chat/completions"
				}
				_, out[i] = provider.Exchange(context.Background(), slow{srv.Transport()}, nil, req,
					provider.ExchangeConfig{Provider: p, Endpoint: endpoint, Timeout: 20 * time.Second})
			}()
		}
		time.Sleep(time.Minute)
	})
	return out
}

// slow adds 100 ms each way.
type slow struct{ http.RoundTripper }

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(100 * time.Millisecond)
	resp, err := s.RoundTripper.RoundTrip(r)
	time.Sleep(100 * time.Millisecond)
	return resp, err
}

// understood is what the client of a Simulation makes of the same calls.
func understood(t *testing.T, c sim.Config, dialect string) []sluice.Outcome {
	p, _ := provider.Lookup(dialect)
	s, err := Scenario{Provider: c, Dialect: p.Dialect, RoundTrip: 200 * time.Millisecond, Unpaced: wireCalls, Patience: Patience{Attempts: 1,
		MaxThrottles: -1, Timeout: 20 * time.Second}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := sim.NewLimiter(c)
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(&s, limiter, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
	r.count, r.taken, r.busy = wireCalls, wireCalls, wireCalls
	out := make([]sluice.Outcome, wireCalls)
	tries := make([]*try, wireCalls)
	for i := range tries {
		tries[i] = &try{call: Call{Input: 5, MaxTokens: 300}, index: i}
		r.later(time.Duration(i)*100*time.Millisecond, (*run).ask, tries[i])
	}
	for len(r.events.heap) > 0 {
		e := r.events.pop()
		r.now = e.at
		e.what(r, e.try)
	}
	for i := range out {
		out[i] = tries[i].outcome
	}
	return out
}
