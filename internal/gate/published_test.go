package gate_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// of are limits of the lane of these tests.
func of(l limits.Limits) map[string]limits.Limits { return map[string]limits.Limits{"": l} }

func TestPublishedLimitsPrecedeStartValuesAndFollowConfiguredOnes(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{TPM: 9000}, Start: limits.Limits{RPM: 60, OTPM: 700}})
	r.g.SetPublished(r.now, of(limits.Limits{RPM: 600, TPM: 5000}))
	r.g.Recall(r.now, gate.Memory{SavedAt: r.now, Limits: []limits.Limit{
		{Dimension: limits.Requests, Value: 120, Source: limits.SourceHeader, At: r.now.Add(-time.Hour), Confidence: 1},
		{Dimension: limits.InputTokens, Value: 4000, Source: limits.SourceHeader, At: r.now.Add(-time.Hour), Confidence: 1}}})
	r.release(r.acquire(limits.Call{}), limits.Outcome{})
	for d, want := range map[limits.Dimension]limits.BucketSnapshot{
		limits.Requests:     {Limit: 600, Source: limits.SourcePublished, Claims: limits.Claims{Published: 600}},
		limits.Tokens:       {Limit: 9000, Source: limits.SourceConfigured, Claims: limits.Claims{Configured: 9000, Published: 5000}},
		limits.InputTokens:  {Limit: 4000, Source: limits.SourceHeader, Claims: limits.Claims{Observed: 4000}},
		limits.OutputTokens: {Limit: 700, Source: limits.SourceStart},
	} {
		if b := r.budget(d); b.Limit != want.Limit || b.Source != want.Source || b.Claims != want.Claims {
			t.Errorf("%v is %+v, want %+v", d, b, want)
		}
	}
	m, _ := r.g.Memory(r.now, "")
	for _, l := range m.Limits {
		if l.Dimension == limits.Requests {
			t.Errorf("a published limit is kept for the next process, which reads its own: %+v", l)
		}
	}
	r.g.SetLimits(r.now, limits.Limits{}, limits.Limits{})
	if b := r.budget(limits.Tokens); b.Limit != 5000 || b.Source != limits.SourcePublished {
		t.Errorf("%+v: without a configured limit the published one is in force", b)
	}
}

func TestResponsesPrecedePublishedLimits(t *testing.T) {
	r := newRig(t, gate.Config{})
	r.g.SetPublished(r.now, of(limits.Limits{RPM: 600}))
	r.answer(r.acquire(limits.Call{}), limits.Reading{Limit: 900, Remaining: 899, Reset: 67 * time.Millisecond})
	for range 2 {
		want := limits.Claims{Published: 600, Observed: 900}
		if b := r.budget(limits.Requests); b.Limit != 900 || b.Source != limits.SourceHeader || b.Claims != want {
			t.Errorf("%+v, want what the header shows", b)
		}
		r.sleep(10 * time.Minute)
		r.g.SetPublished(r.now, of(limits.Limits{RPM: 600}))
	}
}

func TestPublishedLimitsChangeInOpenLanes(t *testing.T) {
	r := newRig(t, gate.Config{})
	r.release(r.acquire(limits.Call{}), limits.Outcome{}) // the lane is open and knows no limit
	for _, rpm := range []int{600, 120, 1200} {
		r.g.SetPublished(r.now, of(limits.Limits{RPM: rpm}))
		r.drain()
		r.perSecond(2 * time.Minute) // the buckets are empty then
		if got, want := r.perSecond(time.Minute), float64(rpm)/60; got > 1.01*want || got < 0.95*want {
			t.Errorf("at %d published requests a minute %.2f a second are sent, want %.2f", rpm, got, want)
		}
	}
}

// A rejection shows that a published limit is too high for this account. Then the limit is measured, as any other.
func TestRejectionsCorrectPublishedLimits(t *testing.T) {
	r := newRig(t, gate.Config{})
	r.g.SetPublished(r.now, of(limits.Limits{RPM: 600}))
	r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Requests, Limit: 200, Wait: 600 * time.Millisecond})
	r.sleep(time.Minute)
	r.g.SetPublished(r.now, of(limits.Limits{RPM: 600}))
	if b := r.budget(limits.Requests); b.Limit != 200 || b.Source != limits.SourceRejection {
		t.Errorf("%+v, want the limit of the rejection", b)
	}
}

// A limit that is published is not exceeded as a test, as one is that was only measured.
func TestPublishedLimitsAreNotExceeded(t *testing.T) {
	r := newRig(t, gate.Config{})
	r.g.SetPublished(r.now, of(limits.Limits{RPM: 600}))
	r.perSecond(time.Minute)
	r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Requests}) // the bucket was empty
	r.sleep(time.Second)
	if got := r.perSecond(5 * time.Minute); got > 10.1 || got < 9.5 {
		t.Errorf("%.2f a second are sent, want 10", got)
	}
	if b := r.budget(limits.Requests); b.Limit != 600 || b.Source != limits.SourcePublished {
		t.Errorf("%+v, want the published limit", b)
	}
}
