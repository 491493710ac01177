package telemetry_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"regexp"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
)

// samples are the values of a registry by name and labels, as name{a="b",c="d"}. Of histograms they are the counts.
type samples map[string]float64

func scrape(t testing.TB, m prometheus.Collector) samples {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(samples)
	for _, f := range families {
		for _, s := range f.Metric {
			all[f.GetName()+labels(s)] = value(s)
		}
	}
	return all
}

func labels(m *dto.Metric) string {
	var pairs []string
	for _, l := range m.Label {
		pairs = append(pairs, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	sort.Strings(pairs)
	if len(pairs) == 0 {
		return ""
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return float64(m.Histogram.GetSampleCount())
}

// sum adds up the values of a name whose labels hold that text.
func (s samples) sum(name string, with ...string) (n float64) {
next:
	for key, v := range s {
		if key != name && !strings.HasPrefix(key, name+"{") {
			continue
		}
		for _, text := range with {
			if !strings.Contains(key, text) {
				continue next
			}
		}
		n += v
	}
	return n
}

// names returns the names of all metrics there are, moved or not.
func names(m *telemetry.Metrics) map[string]bool {
	ch := make(chan *prometheus.Desc, 1000)
	m.Describe(ch)
	close(ch)
	all := make(map[string]bool)
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range ch {
		all[name.FindStringSubmatch(d.String())[1]] = true
	}
	return all
}

// watchMost scrapes again and again until stop is called, which returns the greatest value of each sample.
func watchMost(t testing.TB, m *telemetry.Metrics) (stop func() samples) {
	most, quit, done := make(samples), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for last := false; ; {
			for key, v := range scrape(t, m) {
				most[key] = max(most[key], v)
			}
			if last {
				return
			}
			select {
			case <-quit:
				last = true
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
	return func() samples {
		close(quit)
		<-done
		return most
	}
}

func TestEveryMetricMovesAndAgreesWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t}
		m := telemetry.NewMetrics(r.snapshot)
		r.observer = m
		stop := watchMost(t, m)

		b := r.open("stormy", 150, stormy())
		m.SetProgress(b.Progress)
		rep := r.run(b)

		broken := r.open("dead", 12, dead()) // one call tests it every 9 s, and the run is stopped while calls wait
		m.SetProgress(broken.Progress)
		go func() {
			time.Sleep(4 * time.Minute)
			broken.Drain()
		}()
		short := r.run(broken)
		if short.Failed == 0 || short.Left() == 0 {
			t.Errorf("the run of a dead provider failed %d items and left %d: it must do both", short.Failed, short.Left())
		}
		reuse(t, m)
		most := stop()
		r.close()
		end := scrape(t, m)

		for name := range names(m) {
			if most.sum(name) == 0 {
				t.Errorf("%s did not move", name)
			}
		}
		checkAgreement(t, end, r, rep, short)
		for kind, n := range rep.Kinds {
			if got := end.sum("sluice_items_total", fmt.Sprintf("kind=%q", kind), `lane="stormy"`); got != float64(n) {
				t.Errorf("sluice_items_total of %s is %v, want %d", kind, got, n)
			}
		}
		if most[`sluice_paused{lane="stormy"}`] != 1 || most[`sluice_breaker_open{lane="dead"}`] != 1 {
			t.Error("paused and breaker_open are 1 where they are true")
		}
	})
}

// checkAgreement compares the values at the end with what the reports say of the runs.
func checkAgreement(t *testing.T, end samples, r *rig, rep, short batch.Report) {
	for _, want := range []struct {
		name, with string
		value      float64
	}{
		{"sluice_items_total", `lane="stormy"`, float64(rep.Done + rep.Report.Failed)},
		{"sluice_items_total", `kind="ok",lane="stormy"`, float64(rep.Done)},
		{"sluice_items_total", `lane="dead"`, float64(short.Done + short.Report.Failed)},
		{"sluice_attempts_total", `lane="stormy"`, float64(rep.Attempts)},
		{"sluice_throttles_total", `lane="stormy"`, float64(r.throttles("stormy"))},
		{"sluice_throttles_total", `lane="stormy"`, float64(rep.Throttles)},
		{"sluice_tokens_total", `direction="input",lane="stormy"`, float64(rep.Usage.Input)},
		{"sluice_tokens_total", `direction="output",lane="stormy"`, float64(rep.Usage.Output)},
		{"sluice_tokens_total", `direction="cached_input",lane="stormy"`, float64(rep.Usage.CachedInput)},
		{"sluice_cost_usd_total", `lane="stormy"`, rep.Cost},
		{"sluice_cost_estimated_usd_total", `lane="stormy"`, rep.Estimated},
		{"sluice_wait_seconds", `lane="stormy"`, float64(rep.Attempts + rep.Throttles)},
		{"sluice_call_duration_seconds", `lane="stormy"`, float64(rep.Attempts + rep.Throttles)},
		{"sluice_gave_up_total", `lane="stormy"`, float64(rep.Report.Failed)},
		{"sluice_retries_total", `lane="stormy"`, float64(rep.Attempts - rep.Done - rep.Report.Failed)},
		{"sluice_items_reused_total", `lane="cached"`, 1},
		{"sluice_in_flight", "", 0},
		{"sluice_waiting", "", 0},
		{"sluice_items_remaining", "", float64(short.Left())},
		{"sluice_input_items", "", float64(short.Total)},
	} {
		if got := end.sum(want.name, want.with); math.Abs(got-want.value) > 1e-9 {
			t.Errorf("%s{%s} is %v, want %v", want.name, want.with, got, want.value)
		}
	}
}

// reuse runs one item whose answer is there already.
func reuse(t testing.TB, o sluice.Observer) {
	handler := work.HandlerFunc(func(context.Context, work.Item) (work.Result, error) { return work.Result{Cached: true}, nil })
	feed := func(context.Context) iter.Seq2[work.Item, error] {
		return func(yield func(work.Item, error) bool) { yield(work.Item{ID: "cached-1", Lane: "cached"}, nil) }
	}
	r, err := work.New(work.Config{Observer: o, Handler: handler, Feed: feed})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func none() sluice.Snapshot { return sluice.Snapshot{} }

func TestLanesBeyondAHundredAreOthers(t *testing.T) {
	var lanes []limits.LaneSnapshot
	m := telemetry.NewMetrics(func() sluice.Snapshot { return sluice.Snapshot{Lanes: lanes} })
	for i := range 1000 {
		lane := fmt.Sprintf("model-%d", i)
		m.Observe(sluice.Event{Type: limits.EventItemDone, Lane: lane})
		m.Observe(sluice.Event{Type: limits.EventBreaker, Lane: lane, Until: time.Now()})
		lanes = append(lanes, limits.LaneSnapshot{Lane: lane, InFlight: 1, Slots: 2, Budgets: []limits.BucketSnapshot{
			{Dimension: limits.Requests, Limit: 60, Source: limits.SourceHeader}}})
	}
	got := scrape(t, m)
	for name, want := range map[string]float64{
		`sluice_items_total{kind="ok",lane="other"}`:        900,
		`sluice_in_flight{lane="other"}`:                    900,
		`sluice_concurrency{lane="other"}`:                  1800,
		`sluice_breaker_open{lane="other"}`:                 900,
		`sluice_limit{dimension="rpm",lane="other"}`:        900 * 60,
		`sluice_items_total{kind="ok",lane="model-99"}`:     1,
		`sluice_limit{dimension="rpm",lane="model-99"}`:     60,
		`sluice_cooldowns_total{lane="other"}`:              0,
		`sluice_items_total{kind="timeout",lane="model-1"}`: 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, %v, want %v", name, v, ok, want)
		}
	}
	if n := len(got); n > 101*100 {
		t.Errorf("there are %d samples", n)
	}
	if got.sum("sluice_items_total") != 1000 {
		t.Error("items were lost")
	}
}

func TestLabelsAreSanitised(t *testing.T) {
	m := telemetry.NewMetrics(none)
	for _, lane := range []string{"bad\xff\xfeutf8", "bad\xff\xffutf8", "new\nline\"quote\\", strings.Repeat("ä", 500), ""} {
		m.Observe(sluice.Event{Type: limits.EventItemDone, Lane: lane})
	}
	for key := range scrape(t, m) {
		if !utf8.ValidString(key) || len(key) > 600 {
			t.Errorf("%q", key)
		}
	}
	if n := scrape(t, m).sum("sluice_items_total"); n != 5 {
		t.Errorf("%v items were counted of 5", n)
	}
}

func TestHostileNumbersDoNotPanic(t *testing.T) {
	m := telemetry.NewMetrics(none)
	usage := sluice.Usage{Input: -1, Output: math.MinInt, CachedInput: -5}
	m.Observe(sluice.Event{Type: limits.EventItemDone, Outcome: sluice.Outcome{Kind: 200, Usage: usage, HasUsage: true}, Cost: math.NaN()})
	m.Observe(sluice.Event{Type: limits.EventItemDone, Cost: -1})
	for _, kind := range []sluice.Kind{200, sluice.RateLimit, sluice.OK} {
		o := sluice.Outcome{Kind: kind, Dimension: 200}
		for _, typ := range []limits.EventType{limits.EventSlotReleased, limits.EventThrottled, limits.EventAttemptFailed,
			limits.EventGaveUp, limits.EventSlotAcquired, limits.EventStarted, "unheard_of"} {
			m.Observe(sluice.Event{Type: typ, Outcome: o, Wait: -1, Latency: -1})
		}
	}
	scrape(t, m)
}

// Each kind has a counter of its own: one that is added after Internal would be counted as that.
func TestInternalIsTheLastKind(t *testing.T) {
	if name := (sluice.Internal + 1).String(); !strings.HasPrefix(name, "kind(") {
		t.Errorf("there is a kind %s: numKinds must count it", name)
	}
}

func TestAThrottleThatCanNeverFitIsAnAttempt(t *testing.T) {
	m := telemetry.NewMetrics(none)
	m.Observe(sluice.Event{Type: limits.EventSlotReleased, Outcome: sluice.Outcome{Kind: sluice.RateLimit, TooLarge: true}})
	m.Observe(sluice.Event{Type: limits.EventSlotReleased, Outcome: sluice.Outcome{Unsent: true}}) // no try at all
	got := scrape(t, m)
	if got.sum("sluice_throttles_total") != 0 || got.sum("sluice_attempts_total", `kind="rate_limit"`) != 1 || got.sum("sluice_attempts_total") != 1 {
		t.Error(got)
	}
}

// A throttled try is no attempt: a series for it would stay at zero. The kinds of those that can never fit are there all the same.
func TestAttemptsHaveNoSeriesForWhatIsNoAttempt(t *testing.T) {
	m := telemetry.NewMetrics(none)
	m.Observe(sluice.Event{Type: limits.EventSlotReleased, Lane: "m", Outcome: sluice.Outcome{Kind: sluice.Overloaded}})
	series := func(kind sluice.Kind) string { return `sluice_attempts_total{kind="` + kind.String() + `",lane="m"}` }
	got := scrape(t, m)
	for kind := sluice.OK; kind <= sluice.Internal; kind++ {
		if _, there := got[series(kind)]; there == (kind == sluice.Overloaded || kind == sluice.UsageWindow) {
			t.Errorf("%s: %v", series(kind), there)
		}
	}
	m.Observe(sluice.Event{Type: limits.EventSlotReleased, Lane: "m", Outcome: sluice.Outcome{Kind: sluice.Overloaded, TooLarge: true}})
	if got := scrape(t, m); got[series(sluice.Overloaded)] != 1 {
		t.Error(got)
	}
}

func TestABreakerOpensAndCloses(t *testing.T) {
	m := telemetry.NewMetrics(func() sluice.Snapshot { return sluice.Snapshot{Lanes: []limits.LaneSnapshot{{Lane: "m"}}} })
	for i, until := range []time.Time{{}, time.Now(), time.Now(), {}} { // opens again without closing, as after a probe
		m.Observe(sluice.Event{Type: limits.EventBreaker, Lane: "m", Until: until})
		if open := scrape(t, m)[`sluice_breaker_open{lane="m"}`]; (open == 1) != !until.IsZero() {
			t.Errorf("event %d: breaker_open is %v", i, open)
		}
	}
}

func BenchmarkMetricsObserve(b *testing.B) {
	m := telemetry.NewMetrics(none)
	benchmark(b, m)
}

// benchmark observes the events of calls that wait, are sent and are answered.
func benchmark(b *testing.B, o sluice.Observer) {
	const account, lane = "https://api.example.com/v1#0123", "gpt-4o-mini"
	ids := make([]string, 1<<14)
	for i := range ids {
		ids[i] = fmt.Sprint("call-", i)
	}
	at := time.Now()
	usage := sluice.Outcome{Usage: sluice.Usage{Input: 100, Output: 50}, HasUsage: true}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		id := ids[n/4%len(ids)]
		e := sluice.Event{At: at, Account: account, Lane: lane, Call: id, Attempt: 1, Wait: time.Second, Latency: time.Second}
		switch n % 4 {
		case 0:
			e.Type = limits.EventSlotWaiting
		case 1:
			e.Type = limits.EventSlotAcquired
		case 2:
			e.Type, e.Outcome = limits.EventSlotReleased, usage
		case 3:
			e.Type, e.Outcome, e.Account, e.Finish, e.Cost = limits.EventItemDone, usage, "", "stop", 0.001
		}
		o.Observe(e)
		n++
	}
}
