package find

// The parts of a search are not exported: these tests are in the package.

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// acceptedIn is the reply to a request that took so long.
func acceptedIn(took time.Duration, in, out int) *reply {
	sent := time.Unix(1e9, 0)
	return &reply{sent, sent.Add(took), sluice.Outcome{Usage: sluice.Usage{Input: in, Output: out}, HasUsage: in+out > 0}}
}

func rejected(o sluice.Outcome) *reply {
	o.Kind = sluice.RateLimit
	return &reply{time.Unix(1e9, 0), time.Unix(1e9, 5e6), o}
}

// parts are those of a search whose real requests take 2 s, 100 tokens in and 400 out, so often that the margin is the least.
func parts() (*measurements, *hypotheses, *certifier) {
	m := &measurements{soak: Soak{Requests: 100}}
	h := newHypotheses(&Config{MinOutputTokens: 500, MaxWorkers: 100}, m)
	for range 100 {
		m.add(&h.real, acceptedIn(2*time.Second, 100, 400))
		m.add(&tiny, acceptedIn(time.Second/2, 15, 1))
	}
	h.charge, h.chargeFrom = limits.ChargeActual, limits.SourceHeader
	return m, h, &certifier{m: m, h: h}
}

func TestMeasurementsCountUnstatedUsageAsTheMaximum(t *testing.T) {
	m, real := &measurements{}, shape{kind: realCall, prompt: strings.Repeat("x", 280), bound: 500}
	if !m.add(&real, acceptedIn(time.Second, 0, 0)) || m.add(&real, acceptedIn(3*time.Second, 100, 400)) {
		t.Error("which request states its usage is not said")
	}
	u := &m.of[realCall]
	if u.took.mean() != 2 || u.took.least != 1 || u.in.mean() != 104 || u.out.mean() != 450 {
		t.Errorf("%+v", u)
	}
	if m.add(&real, rejected(sluice.Outcome{})); u.took.n != 2 || m.longestRefusal() != 50*time.Millisecond {
		t.Errorf("a rejection counts as accepted, or decides after %v", m.longestRefusal())
	}
}

func TestMeasurementsEndTheSearchWhenHalfOfADayIsUsed(t *testing.T) {
	m := &measurements{}
	left := func(n int64) error {
		r := acceptedIn(time.Second, 1, 1)
		r.outcome.Readings = []limits.Reading{{Dimension: limits.RequestsPerDay, Limit: 1000, Remaining: n, Reset: 20 * time.Hour}}
		return m.hear(false, r)
	}
	if err := errors.Join(left(100), left(50)); err != nil {
		t.Error(err)
	}
	if err := left(49); !errors.Is(err, ErrDay) {
		t.Error(err)
	}
}

func TestTheTightestHypothesisBindsTheAnswer(t *testing.T) {
	of := func(v float64, source limits.Source) hypothesis {
		return hypothesis{Finding: Finding{Value: v, Source: source}}
	}
	for _, c := range []struct {
		name    string
		limits  map[limits.Dimension]hypothesis
		workers float64
		bound   Bound
		want    Binding
	}{
		{"requests", map[limits.Dimension]hypothesis{
			limits.Requests: of(300, limits.SourceMeasured), limits.Tokens: of(600_000, limits.SourceHeader),
		}, 9.8, BoundRequests, Binding{limits.Requests, 1, 10, 0.02}},
		{"tokens of output", map[limits.Dimension]hypothesis{
			limits.Requests: of(300, limits.SourceMeasured), limits.OutputTokens: of(48_000, limits.SourceHeader),
		}, 3.92, BoundTokens, Binding{limits.OutputTokens, 400, 4, 0.02}},
		{"a cap", map[limits.Dimension]hypothesis{
			limits.Requests: of(300, limits.SourceMeasured), limits.Concurrency: of(7, limits.SourceRejection),
		}, 7, BoundConcurrency, Binding{}},
		{"nothing", nil, 100, BoundWorkers, Binding{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, h, _ := parts()
			for d, l := range c.limits {
				h.limits[d] = l
			}
			workers, bound, got := h.answer()
			if diff := cmp.Diff(c.want, got, cmpopts.EquateApprox(1e-9, 0)); diff != "" || bound != c.bound || workers < c.workers-1e-9 || workers > c.workers+1e-9 {
				t.Errorf("%.2f workers by %s: %s", workers, bound, diff)
			}
		})
	}
}

func TestHypothesesTakeTheStrongerEvidence(t *testing.T) {
	m := &measurements{}
	cfg := Config{MaxWorkers: 100, Told: sluice.Limits{TPM: 9000}}
	h := newHypotheses(&cfg, m)
	hears := func(d limits.Dimension, limit int64) {
		r := acceptedIn(time.Second, 1, 1)
		r.outcome.Readings = []limits.Reading{{Dimension: d, Limit: limit, Remaining: limit}}
		if err := m.hear(false, r); err != nil {
			t.Error(err)
		}
		h.absorb()
	}
	hears(limits.Requests, 500)
	hears(limits.Tokens, 5000)
	if rpm, tpm := h.limits[limits.Requests], h.limits[limits.Tokens]; rpm.Value != 500 || rpm.Source != limits.SourceHeader || tpm.Value != 9000 {
		t.Errorf("%+v, %+v: headers do not correct configured limits", rpm, tpm)
	}
	if err := m.hear(false, rejected(sluice.Outcome{Dimension: limits.Requests, Limit: 400})); err != nil {
		t.Error(err)
	}
	if h.absorb(); h.limits[limits.Requests].Value != 500 {
		t.Errorf("a rejection is believed before a header: %+v", h.limits[limits.Requests])
	}
	h.cap(20, limits.SourceMeasured)
	if err := m.hear(false, rejected(sluice.Outcome{Dimension: limits.Concurrency, Limit: 15})); err != nil {
		t.Error(err)
	}
	if h.absorb(); h.limits[limits.Concurrency].Value != 20 {
		t.Errorf("a rejection is believed before a measurement: %+v", h.limits[limits.Concurrency])
	}
}

func TestCertifierAsksForTheProofThatIsMissing(t *testing.T) {
	_, h, c := parts()
	of, s, ok := c.next()
	if of != ofRequests || s.kind != declaredCall || s.bound < 500 || !ok {
		t.Errorf("first %s by %+v", of, s)
	}
	d := c.drain(of, s)
	if need := 60 * h.need(); float64(d.calls) < need || d.pace > certifyPace*h.need() {
		t.Errorf("%d requests at %.1f a second do not use up %.0f", d.calls, d.pace, need)
	}
	c.passed(&d, d.calls, 15*time.Second)
	of, s, ok = c.next()
	if of != ofUsed || s.kind != fatCall || !ok {
		t.Errorf("then %s by %+v", of, s)
	}
	h.limits[limits.Tokens].Finding = Finding{Value: 90_000, Source: limits.SourceHeader}
	if of, _, ok = c.next(); ok {
		t.Errorf("%s is to be proved although a header states the limit", of)
	}
}

func TestCertifierBoundsTheAnswerByWhatTheBudgetAllows(t *testing.T) {
	_, h, c := parts()
	of, s, _ := c.next()
	d := c.drain(of, s)
	c.passed(&d, 120, 15*time.Second)
	if w, bound, _ := c.answer(); w != 4 || bound != BoundCertified {
		t.Errorf("%d workers by %s", w, bound)
	}
	known := make(map[limits.Dimension]Finding)
	c.vouch(ofUsed, &tiny, voucher{perSecond: 1})
	if got := c.atLeast(known); known[limits.Requests].Value != 120 || known[limits.Tokens].Value != 30_000 || got.Dimension != limits.Tokens {
		t.Errorf("%+v, bound by %+v", known, got)
	}
	c.lowered = 3
	if w, bound, _ := c.answer(); w != 3 || bound != BoundSoak {
		t.Errorf("%d workers by %s", w, bound)
	}
	if low, high := c.interval(); low != 0 || high != h.ceiling() {
		t.Errorf("%d to %d", low, high)
	}
}

func TestCertifierGivesUpAProofThatIsFutileTwice(t *testing.T) {
	_, _, c := parts()
	c.futile(ofRequests)
	if of, _, _ := c.next(); of != ofRequests {
		t.Errorf("%s after one drain", of)
	}
	c.futile(ofRequests)
	if of, _, _ := c.next(); of != ofDeclared {
		t.Errorf("%s after two drains", of)
	}
}

// probing is a prober over a server.
func probing(t *testing.T, tokens int, server func(*http.Request) (*http.Response, error)) (*prober, *measurements, context.Context) {
	p, _ := provider.Lookup("openai")
	cfg, err := Config{
		Provider: p, Target: provider.Target{BaseURL: "http://server/v1", Key: "any", Model: "m"}, Base: roundTrip(server), Budget: Budget{Tokens: tokens},
	}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	m := &measurements{}
	prober, ctx := newProber(t.Context(), cfg, m)
	return prober, m, ctx
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// responds takes half a second.
func responds(status int, body string) (*http.Response, error) {
	time.Sleep(time.Second / 2)
	return &http.Response{StatusCode: status, Header: make(http.Header), Body: io.NopCloser(strings.NewReader(body))}, nil
}

const yes = `{"choices":[{"message":{"content":"Yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":1}}`

func TestProberStopsBeforeItsBudgetIsExceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, ctx := probing(t, 100, func(*http.Request) (*http.Response, error) { return responds(200, yes) })
		defer p.stop(nil)
		var err error
		for err == nil {
			_, err = p.once(ctx, &tiny)
		}
		if s := p.spent(); !errors.Is(err, ErrTokenBudget) || !errors.Is(context.Cause(ctx), err) || s.Accepted == 0 || s.Tokens() > 100 {
			t.Errorf("%v after %+v", err, s)
		}
	})
}

func TestProberKeepsNoMoreOpenThanThereIsRoomFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open, most atomic.Int64
		p, _, ctx := probing(t, -1, func(*http.Request) (*http.Response, error) {
			defer open.Add(-1)
			most.Store(max(most.Load(), open.Add(1)))
			return responds(429, `{"error":{"message":"Rate limit reached","type":"rate_limit_error"}}`)
		})
		defer p.stop(nil)
		l := &loop{p: p, sh: &tiny, room: 3}
		sent := 0
		for range 5 {
			if l.send(ctx) {
				sent++
			}
		}
		if replies, err := l.wait(); sent != 3 || most.Load() != 3 || len(replies) != 3 || err != nil || l.refused(0, 3) != 3 {
			t.Errorf("%d were sent, %d were open: %v", sent, most.Load(), err)
		}
	})
}

func TestWorkersOfACrewRestAfterARejection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, ctx := probing(t, -1, func(*http.Request) (*http.Response, error) {
			return responds(429, `{"error":{"message":"Rate limit reached","type":"rate_limit_error"}}`)
		})
		defer p.stop(nil)
		began, n := time.Now(), 0
		for range p.work(ctx, &tiny, crew{workers: 2, calls: 5, rests: true}) {
			n++
		}
		if took := time.Since(began); n != 5 || took < 3500*time.Millisecond || took > 5*time.Second {
			t.Errorf("%d requests in %v", n, took)
		}
	})
}

func TestFiguresHaveThreeDigits(t *testing.T) {
	for got, want := range map[string]string{
		exactly(1254 * time.Millisecond): "1.25 s", exactly(200 * time.Millisecond): "200 ms", exactly(2 * time.Minute): "2 min 00 s",
		marginWords(0): "", marginWords(0.0042): "0.4 %", marginWords(0.03): "3 %",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
