package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	traces "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
)

// recorded are the events of a stormy run and of one that is stopped, and what the first came to.
func recorded(t *testing.T) (events []sluice.Event, rep, short batch.Report) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		r := &rig{t: t, observer: sluice.ObserverFunc(func(e sluice.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		})}
		rep = r.run(r.open("stormy", 150, stormy()))
		broken := r.open("dead", 60, dead())
		go func() {
			time.Sleep(10 * time.Minute)
			broken.Drain()
		}()
		short = r.run(broken)
		r.close()
	})
	return events, rep, short
}

func TestSpansOfARun(t *testing.T) {
	events, rep, short := recorded(t)
	c := collect(t)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "team=blue")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100000")
	var w warnings
	o := openOTel(t, &w)
	for _, e := range events {
		o.Observe(e)
	}
	o.Shutdown(context.Background())
	if all := w.all(); len(all) > 0 {
		t.Errorf("warnings: %v", all)
	}
	if c.resource["service.name"] != "sluice" || c.resource["service.version"] != "1.2.3" || c.resource["team"] != "blue" {
		t.Errorf("resource: %v", c.resource)
	}
	if strings.Contains(c.raw.String(), secretPrompt) || strings.Contains(c.raw.String(), "prompt:") {
		t.Error("a prompt was exported")
	}
	checkItems(t, c, events, rep, short)
	checkSteps(t, c, rep)
}

// checkItems looks at the spans of the items.
func checkItems(t *testing.T, c *collector, events []sluice.Event, rep, short batch.Report) {
	var kinds, cancelled, input, output int
	first, recorded := make(map[string]time.Time), make(map[string]bool)
	for _, e := range events {
		if e.Type == limits.EventItemDone {
			recorded[e.Call] = true
		}
		if e.Call != "" && first[e.Call].IsZero() {
			first[e.Call] = e.At
		}
	}
	for _, s := range c.items() {
		id := attr(s.Attributes, "sluice.item.id")
		c.of(t, id) // there is but one
		if s.StartTimeUnixNano != uint64(first[id].UnixNano()) {
			t.Errorf("%s starts at %d, not with its first event, %d", id, s.StartTimeUnixNano, first[id].UnixNano())
		}
		model := attr(s.Attributes, "gen_ai.request.model")
		for key, want := range map[string]string{
			"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "server.address": "127.0.0.1", "server.port": "8000",
		} {
			if got := attr(s.Attributes, key); got != want {
				t.Errorf("%s: %s is %q", id, key, got)
			}
		}
		if s.Name != "chat "+model || s.Kind != traces.Span_SPAN_KIND_CLIENT || !strings.HasPrefix(id, model) {
			t.Errorf("%s: span %q of kind %v", id, s.Name, s.Kind)
		}
		failure := attr(s.Attributes, "error.type")
		if (failure != "") != (s.Status.GetCode() == traces.Status_STATUS_CODE_ERROR) || s.Status.GetMessage() != failure {
			t.Errorf("%s: error.type %q, status %v", id, failure, s.Status)
		}
		if (failure == "cancelled") == recorded[id] {
			t.Errorf("%s: error.type %q, recorded: %v", id, failure, recorded[id])
		}
		switch {
		case failure == "cancelled":
			cancelled++
		case model == "stormy":
			kinds++
			var in, out int
			fmt.Sscan(attr(s.Attributes, "gen_ai.usage.input_tokens"), &in)
			fmt.Sscan(attr(s.Attributes, "gen_ai.usage.output_tokens"), &out)
			input, output = input+in, output+out
			if failure == "" && (attr(s.Attributes, "gen_ai.response.finish_reasons") == "" || attr(s.Attributes, "sluice.cost_usd") == "" ||
				attr(s.Attributes, "gen_ai.usage.cache_read.input_tokens") != "3" || out == 0) {
				t.Errorf("%s: %v", id, s.Attributes)
			}
		}
	}
	if kinds != rep.Done+rep.Report.Failed || input != rep.Usage.Input || output != rep.Usage.Output {
		t.Errorf("%d spans with %d tokens in and %d out, want %d with %d and %d", kinds, input, output,
			rep.Done+rep.Report.Failed, rep.Usage.Input, rep.Usage.Output)
	}
	if cancelled == 0 || cancelled > short.Left() {
		t.Errorf("%d spans are cancelled, of %d items that were left", cancelled, short.Left())
	}
}

// checkSteps looks at the spans below those of the items.
func checkSteps(t *testing.T, c *collector, rep batch.Report) {
	seen := make(map[string]int)
	refused := 0
	for _, s := range c.items() {
		if attr(s.Attributes, "gen_ai.request.model") != "stormy" {
			continue
		}
		tries := 0
		for _, step := range c.below(s) {
			seen[step.Name]++
			if step.StartTimeUnixNano < s.StartTimeUnixNano || step.EndTimeUnixNano > s.EndTimeUnixNano || step.EndTimeUnixNano < step.StartTimeUnixNano {
				t.Errorf("%s: a step lies outside of its call", step.Name)
			}
			if step.Name == "attempt" {
				tries++
				if attr(step.Attributes, "sluice.limit.dimension") != "" {
					refused++
				}
			}
		}
		if want := attr(s.Attributes, "sluice.tries"); fmt.Sprint(tries) != want {
			t.Errorf("%s: %d attempts below it, want %s", attr(s.Attributes, "sluice.item.id"), tries, want)
		}
	}
	if seen["attempt"] != rep.Attempts+rep.Throttles || refused != rep.Throttles || seen["wait"] == 0 || seen["backoff"] == 0 || len(seen) != 3 {
		t.Errorf("steps: %v, %d refused; want %d attempts and %d throttles", seen, refused, rep.Attempts, rep.Throttles)
	}
}

// An item that is done is told by another than the Scheduler is, and may come first.
func TestAnItemMayBeToldBeforeItsCall(t *testing.T) {
	c := collect(t)
	var w warnings
	o := openOTel(t, &w)
	at := time.Now()
	event := func(typ limits.EventType, after time.Duration) sluice.Event {
		return sluice.Event{Type: typ, At: at.Add(after), Account: "http://h#1", Lane: "m", Call: "a", Attempt: 1, Latency: time.Second}
	}
	events := []sluice.Event{
		event(limits.EventSlotWaiting, 0), event(limits.EventSlotAcquired, time.Second), event(limits.EventSlotReleased, 2*time.Second),
	}
	for first := range len(events) + 1 {
		all := slices.Insert(slices.Clone(events), first, event(limits.EventItemDone, 2*time.Second))
		for _, e := range all {
			e.Call = fmt.Sprint("a", first)
			o.Observe(e)
		}
	}
	if n := o.Open(); n != 0 {
		t.Errorf("%d calls are open", n)
	}
	o.Shutdown(context.Background())
	for first := range len(events) + 1 {
		s := c.of(t, fmt.Sprint("a", first))
		if n := len(c.below(s)); n != 2 || s.Status.GetCode() == traces.Status_STATUS_CODE_ERROR {
			t.Errorf("told at %d: %d steps, status %v", first, n, s.Status)
		}
	}
}

// What is open as the run ends is cancelled, whatever it did then.
func TestCallsThatAreOpenAtTheEnd(t *testing.T) {
	c := collect(t)
	var w warnings
	o := openOTel(t, &w)
	at := time.Now()
	failed := sluice.Outcome{Kind: sluice.ServerError}
	for id, types := range map[string][]limits.EventType{
		"waits": {limits.EventSlotWaiting},
		"open":  {limits.EventSlotWaiting, limits.EventSlotAcquired},
		"backs": {limits.EventSlotAcquired, limits.EventSlotReleased, limits.EventAttemptFailed},
	} {
		for i, typ := range types {
			o.Observe(sluice.Event{Type: typ, At: at.Add(time.Duration(i) * time.Second), Lane: "m", Call: id, Outcome: failed, Wait: time.Second})
		}
	}
	o.Shutdown(context.Background())
	for id, steps := range map[string][]string{"waits": {"wait"}, "open": {"wait", "attempt"}, "backs": {"attempt", "backoff"}} {
		s := c.of(t, id)
		var names []string
		for _, step := range c.below(s) {
			names = append(names, step.Name)
		}
		if attr(s.Attributes, "error.type") != "cancelled" || !slices.Equal(names, steps) {
			t.Errorf("%s: error.type %q, steps %q, want %q", id, attr(s.Attributes, "error.type"), names, steps)
		}
	}
	if open := c.below(c.of(t, "open"))[1]; attr(open.Attributes, "error.type") != "cancelled" {
		t.Error("the try that was open is not cancelled")
	}
}

func TestNoCallIsKept(t *testing.T) {
	c := collect(t)
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	var w warnings
	o := openOTel(t, &w)
	at := time.Now()
	send := func(id string, typ limits.EventType, o2 sluice.Outcome, wait time.Duration) {
		at = at.Add(time.Millisecond)
		o.Observe(sluice.Event{Type: typ, At: at, Lane: "m", Call: id, Attempt: 1, Outcome: o2, Wait: wait})
	}
	failed := sluice.Outcome{Kind: sluice.ServerError, Err: errors.New("no")}
	most := 0
	for i := range 100_000 {
		id := fmt.Sprint("call-", i)
		send(id, limits.EventSlotWaiting, sluice.Outcome{}, 0)
		if i%5 == 0 {
			send(id, limits.EventSlotCancelled, sluice.Outcome{}, 0)
			continue
		}
		send(id, limits.EventSlotAcquired, sluice.Outcome{}, 0)
		switch i % 5 {
		case 1: // granted as it was cancelled
			send(id, limits.EventSlotReleased, sluice.Outcome{Unsent: true}, 0)
		case 2: // given up, and never recorded
			send(id, limits.EventSlotReleased, failed, 0)
			send(id, limits.EventAttemptFailed, failed, 0)
			send(id, limits.EventGaveUp, failed, 0)
		case 3: // answered, and never recorded
			send(id, limits.EventSlotReleased, sluice.Outcome{}, 0)
		case 4:
			send(id, limits.EventSlotReleased, sluice.Outcome{}, 0)
			send(id, limits.EventItemDone, sluice.Outcome{}, 0)
		}
		most = max(most, o.Open())
	}
	if most > 3000 { // those of the last five seconds
		t.Errorf("%d calls were kept at once", most)
	}
	at = at.Add(time.Minute)
	for range 3000 {
		send("last", limits.EventItemDone, sluice.Outcome{}, 0)
	}
	if n := o.Open(); n > 1 {
		t.Errorf("%d calls are kept", n)
	}
	o.Shutdown(context.Background())
	if len(c.spans) > 0 {
		t.Error("what was not asked for was exported")
	}
}

// Calls whose end nobody tells of, since they were cancelled in their own backoff, make room for others after a while.
func TestCallsThatSleepForeverMakeRoom(t *testing.T) {
	collect(t)
	var w warnings
	o := openOTel(t, &w)
	at := time.Now()
	for i := range 70_000 {
		for _, typ := range []limits.EventType{limits.EventSlotAcquired, limits.EventSlotReleased, limits.EventAttemptFailed} {
			o.Observe(sluice.Event{Type: typ, At: at, Lane: "m", Call: fmt.Sprint(i), Wait: time.Second, Outcome: sluice.Outcome{Kind: sluice.Timeout}})
		}
	}
	if n := o.Open(); n != 1<<16 {
		t.Errorf("%d calls are kept", n)
	}
	o.Observe(sluice.Event{Type: limits.EventSlotWaiting, At: at.Add(time.Hour), Lane: "m", Call: "new"})
	if n := o.Open(); n != 1 {
		t.Errorf("%d calls are kept after an hour", n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o.Shutdown(ctx)
}

func TestACollectorThatIsAwayCostsOneWarning(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	exportTo(t, time.Minute)
}

func TestACollectorThatHangsEndsWithItsTime(t *testing.T) {
	quit := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-quit }))
	defer server.Close()
	defer close(quit)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	exportTo(t, time.Minute)
}

func TestAnOverloadedCollectorIsAskedAgainOnce(t *testing.T) {
	for status, want := range map[int]int{http.StatusServiceUnavailable: 2, http.StatusBadRequest: 1} {
		var requests []*http.Request
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests = append(requests, r)
			w.Header().Set("Retry-After-Ms", "1")
			w.WriteHeader(status)
		}))
		defer server.Close()
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", server.URL+"/own")
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b, x-team=blue")
		var w warnings
		o := openOTel(t, &w)
		o.Observe(sluice.Event{Type: limits.EventItemDone, At: time.Now(), Lane: "m", Call: "a"})
		o.Shutdown(context.Background())
		if len(requests) != want || len(w.all()) != 1 || !strings.Contains(fmt.Sprint(w.all()), http.StatusText(status)) {
			t.Errorf("%d: %d requests, warnings %v", status, len(requests), w.all())
		}
		if r := requests[0]; r.URL.Path != "/own" || r.Header.Get("X-Key") != "a b" || r.Header.Get("X-Team") != "blue" {
			t.Errorf("%d: %s with %v", status, r.URL, r.Header)
		}
	}
}

// exportTo exports to a collector that takes nothing, and must be over in that time.
func exportTo(t *testing.T, most time.Duration) {
	t.Helper()
	var w warnings
	o := openOTel(t, &w)
	start := time.Now()
	for i := range 20_000 {
		for _, typ := range []limits.EventType{limits.EventSlotAcquired, limits.EventSlotReleased, limits.EventItemDone} {
			o.Observe(sluice.Event{Type: typ, At: time.Now(), Lane: "m", Call: fmt.Sprint(i), Attempt: 1})
		}
	}
	if took := time.Since(start); suite.Full && took > most {
		t.Errorf("events took %v", took)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	start = time.Now()
	o.Shutdown(ctx)
	if took := time.Since(start); suite.Full && took > most/2 {
		t.Errorf("the shutdown took %v", took)
	}
	if all := w.all(); len(all) != 1 {
		t.Errorf("warnings: %v", all)
	}
}

func BenchmarkOTelObserve(b *testing.B) {
	for _, bench := range []struct{ name, env string }{
		{"all", ""}, {"sampled", "OTEL_TRACES_SAMPLER=always_off"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/x-protobuf")
			}))
			defer server.Close()
			b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
			if name, value, ok := strings.Cut(bench.env, "="); ok {
				b.Setenv(name, value)
			}
			var w warnings
			o := openOTel(b, &w)
			benchmark(b, o)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			o.Shutdown(ctx)
		})
	}
}
