package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/limits"
)

// reference is an event as encoding/json writes it.
type reference struct {
	Event     limits.EventType `json:"event"`                        // Type of the event.
	At        time.Time        `json:"at"`                           // Time of the data or event.
	Account   string           `json:"account,omitempty"`            // Provider address and key hash.
	Member    string           `json:"member,omitempty"`             // Program that sends the requests.
	Lane      string           `json:"lane,omitempty"`               // Model, or upstream and model.
	Tenant    string           `json:"tenant,omitempty"`             // Tenant.
	Call      string           `json:"call,omitempty"`               // ID of the item or request.
	Attempt   int              `json:"attempt,omitempty"`            // Number of the attempt.
	Throttles int              `json:"throttles,omitempty"`          // Rate-limited requests.
	WaitMS    int64            `json:"wait_ms,omitempty"`            // Waiting time of the item or request.
	LatencyMS int64            `json:"latency_ms,omitempty"`         // Duration of the last attempt.
	Until     time.Time        `json:"until,omitzero"`               // End of the pause.
	Dimension string           `json:"dimension,omitempty"`          // Name of the limit, such as `rpm`.
	Limit     int64            `json:"limit,omitempty"`              // Value of the limit.
	Source    limits.Source    `json:"source,omitempty"`             // Origin of the value, such as `header`.
	Kind      string           `json:"kind,omitempty"`               // `ok`, or the kind of the failure.
	Error     string           `json:"error,omitempty"`              // Error message, without keys.
	Others    int              `json:"others_succeeded,omitempty"`   // Other requests that succeeded since this request's first rejection.
	Finish    string           `json:"finish_reason,omitempty"`      // Finish reason from the provider.
	Usage     *usage           `json:"usage,omitempty"`              // Usage.
	Cost      float64          `json:"cost_usd,omitempty"`           // Cost, if known.
	Estimated float64          `json:"cost_estimated_usd,omitempty"` // Estimated part of the cost.
	Reused    bool             `json:"reused,omitempty"`             // The result is copied or cached.
	Active    int              `json:"active"`                       // Requests in flight after the event.
	Max       int              `json:"max"`                          // Allowed concurrency of the lane.
	Waiting   int              `json:"waiting"`                      // Waiting requests.
}

// usage is the usage of an event.
type usage struct {
	Input       int `json:"input_tokens"`        // Input tokens.
	CachedInput int `json:"cached_input_tokens"` // Input tokens from a prompt cache.
	Output      int `json:"output_tokens"`       // Output tokens.
}

// sink is a file in memory.
type sink struct {
	bytes.Buffer
	fails  error
	writes int
}

func (s *sink) Write(b []byte) (int, error) {
	s.writes++
	if s.fails != nil {
		return 0, s.fails
	}
	return s.Buffer.Write(b)
}

func (s *sink) Close() error { return nil }

var noon = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.UTC)

// full is an event of that type with every field set.
func full(typ limits.EventType) sluice.Event {
	return sluice.Event{
		Type: typ, At: noon, Account: "a#1", Member: "run", Lane: "gpt-4o", Tenant: "t", Call: "q\"1\n", Attempt: 2, Throttles: 3,
		Wait: 1500 * time.Millisecond, Latency: 250 * time.Millisecond, Until: noon.Add(time.Second), Dimension: limits.Tokens, Limit: 90000,
		Source: limits.SourceHeader, Finish: "stop", Cost: 0.0125, Estimated: 0.005, Reused: true, InFlight: 4, Slots: 8, Waiting: 12,
		Outcome: sluice.Outcome{Kind: sluice.RateLimit, Err: errors.New("slow down, sk-secret"), Dimension: limits.Requests, Limit: 500, Others: 7,
			Usage: sluice.Usage{Input: 10, CachedInput: 3, Output: 20}, HasUsage: true},
	}
}

func TestALineHasEveryFieldOfAnEvent(t *testing.T) {
	for _, typ := range append(eventTypes(), "something_new") {
		var to sink
		l := telemetry.NewLog(&to, func(s string) string { return strings.ReplaceAll(s, "sk-secret", "***") })
		e := full(typ)
		l.Observe(e)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		want := reference{
			Event: typ, At: e.At, Account: e.Account, Member: e.Member, Lane: e.Lane, Tenant: e.Tenant, Call: e.Call, Attempt: 2, Throttles: 3,
			WaitMS: 1500, LatencyMS: 250, Until: e.Until, Dimension: "tpm", Limit: 90000, Source: e.Source, Error: "slow down, ***",
			Others: 7, Finish: "stop", Usage: &usage{10, 3, 20}, Cost: 0.0125, Estimated: 0.005, Reused: true, Active: 4, Max: 8, Waiting: 12,
		}
		switch typ {
		case limits.EventThrottled:
			want.Dimension, want.Limit = "rpm", 500
			fallthrough
		case limits.EventSlotReleased, limits.EventAttemptFailed, limits.EventGaveUp, limits.EventItemDone, limits.EventCooldownStarted:
			want.Kind = "rate_limit"
		}
		var got reference
		d := json.NewDecoder(bytes.NewReader(to.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil {
			t.Fatalf("%s: %v", to.Bytes(), err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", typ, got, want)
		}
		// And encoding/json writes the same bytes, in the same order.
		if b, _ := json.Marshal(want); string(b)+"\n" != to.String() {
			t.Errorf("%s\nis not\n%s", to.String(), b)
		}
	}
}

func TestWhatIsZeroIsLeftOut(t *testing.T) {
	var to sink
	l := telemetry.NewLog(&to, nil)
	l.Observe(sluice.Event{Type: limits.EventSlotAcquired, At: noon})
	l.Close()
	if want := `{"event":"slot_acquired","at":"2026-11-21T12:00:00.123456789Z","active":0,"max":0,"waiting":0}` + "\n"; to.String() != want {
		t.Errorf("%s, want %s", to.String(), want)
	}
}

func TestEventsReachTheFileInHalfASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "events.jsonl")
		l, err := telemetry.OpenLog(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		l.Observe(full(limits.EventThrottled))
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if b, err := os.ReadFile(name); err != nil || bytes.Count(b, []byte("\n")) != 1 {
			t.Errorf("%q, %v", b, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestTheFirstFailureToWriteIsReported(t *testing.T) {
	to := sink{fails: errors.New("disk full")}
	l := telemetry.NewLog(&to, nil)
	for range 2000 { // more than is buffered, so that it is tried more than once
		l.Observe(full(limits.EventThrottled))
	}
	if err := l.Close(); !errors.Is(err, to.fails) {
		t.Errorf("%v, want %v", err, to.fails)
	}
	if to.writes != 1 {
		t.Errorf("%d writes, want none after the first that failed", to.writes)
	}
}

func TestManyMayWriteAtOnceAndLinesStayWhole(t *testing.T) {
	name := filepath.Join(t.TempDir(), "events.jsonl")
	var all sync.WaitGroup
	for range 2 { // processes
		l, err := telemetry.OpenLog(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 500 {
					l.Observe(full(limits.EventSlotReleased))
				}
			})
		}
		all.Go(func() {
			wg.Wait()
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	cut, err := telemetry.ReadEvents(bytes.NewReader(b), func(*sluice.Event) error { n++; return nil })
	if n != 4000 || cut || err != nil {
		t.Errorf("%d events, cut: %v, %v", n, cut, err)
	}
}

func TestWhatIsAppendedBeginsOnANewLine(t *testing.T) {
	const line = `{"event":"slot_acquired","at":"2026-11-21T12:00:00Z","active":1,"max":8,"waiting":0}`
	for name, c := range map[string]struct {
		before, after string
		refused       bool
	}{
		"a new file":                   {"", "", false},
		"whole lines":                  {line + "\n", line + "\n", false},
		"a line that is cut":           {line + "\n" + line[:40], line + "\n", false},
		"a first line that is cut":     {line[:40], "", false},
		"a line cut after three bytes": {line + "\n" + line[:3], line + "\n", false},
		"a newline that is missing":    {line, line + "\n", false},
		"something else":               {"custom_id,prompt\n", "custom_id,prompt\n", true},
		"something else, unfinished":   {`{"custom_id":"a"`, `{"custom_id":"a"`, true},
		"something else at the end":    {line + "\n{\"id\":1}", line + "\n{\"id\":1}", true},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "events.jsonl")
			if err := os.WriteFile(file, []byte(c.before), 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := telemetry.OpenLog(file, nil)
			if (err != nil) != c.refused {
				t.Fatal(err)
			}
			want := c.after
			if !c.refused {
				l.Observe(sluice.Event{Type: limits.EventSlotAcquired, At: noon.Truncate(time.Second), InFlight: 1, Slots: 8})
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				want += line + "\n"
			}
			if b, _ := os.ReadFile(file); string(b) != want {
				t.Errorf("%q, want %q", b, want)
			}
		})
	}
}

func TestEventsComeBackAsTheyWere(t *testing.T) {
	var to sink
	l := telemetry.NewLog(&to, nil)
	var want []sluice.Event
	for _, typ := range eventTypes() {
		e := full(typ)
		want = append(want, e)
		l.Observe(e)
	}
	l.Close()
	i := 0
	_, err := telemetry.ReadEvents(&to.Buffer, func(got *sluice.Event) error {
		e := want[i]
		i++
		if e.Type == limits.EventThrottled {
			e.Dimension, e.Limit = e.Outcome.Dimension, e.Outcome.Limit
		} else {
			e.Outcome.Dimension, e.Outcome.Limit = 0, 0
		}
		if got.Outcome.Kind == sluice.OK {
			e.Outcome.Kind = sluice.OK
		}
		if got.Outcome.Err.Error() != e.Outcome.Err.Error() || !got.At.Equal(e.At) || !got.Until.Equal(e.Until) {
			t.Errorf("%+v, want %+v", got, e)
		}
		e.Outcome.Err, e.At, e.Until = got.Outcome.Err, got.At, got.Until
		if !reflect.DeepEqual(*got, e) {
			t.Errorf("%s:\n got %+v\nwant %+v", e.Type, got, e)
		}
		return nil
	})
	if err != nil || i != len(want) {
		t.Errorf("%d of %d events: %v", i, len(want), err)
	}
}

func TestAFileCallsAFailureWhatWhoSawItCallsIt(t *testing.T) {
	refused := sluice.Outcome{Kind: sluice.RateLimit, Err: errors.New("slow down")}
	e := sluice.Event{Type: limits.EventItemDone, At: noon, Call: "item-1", Attempt: 1, Throttles: 21, Outcome: refused}
	e.Outcome.Err = &sluice.CallError{Outcome: refused, Tally: sluice.Tally{Attempts: 1, Throttles: 21}}
	var to sink
	var live telemetry.Aggregate
	l := telemetry.NewLog(&to, nil)
	l.Observe(e)
	live.Observe(e)
	check(t, l.Close())
	seen, read := live.Report().Failures, fromFiles(t, nil, to.Bytes()).Failures
	if len(seen) != 1 || seen[0].Message != "slow down" || !reflect.DeepEqual(seen, read) {
		t.Errorf("the file says %+v, and who saw it happen %+v", read, seen)
	}
}

func TestALineThatIsNoEventIsNamed(t *testing.T) {
	const good = `{"event":"slot_acquired","at":"2026-11-21T12:00:00Z","active":1,"max":8,"waiting":0}` + "\n"
	for text, word := range map[string]string{
		good + "nonsense\n": "events line 2: not a JSON",
		"\n" + good + `{"at":"2026-11-21T12:00:00Z"}` + "\n":  `events line 3: not an event`,
		`{"event":"throttled","kind":"nice"}` + "\n":          `events line 1: kind: unknown kind "nice"`,
		`{"event":"throttled","at":"yesterday"}` + "\n":       "line 1: at: not an RFC 3339",
		`{"event":"throttled","wait_ms":-1}` + "\n":           "line 1: wait_ms: not a time",
		`{"event":"throttled","wait_ms":"1"}` + "\n":          "line 1: wait_ms",
		`{"event":"throttled","usage":[]}` + "\n":             "line 1: usage: not an object",
		`{"event":"throttled","usage":{"input_tokens":-2}}`:   "",
		`{"event":"throttled","cost_usd":-2}` + "\n":          "line 1: cost_usd",
		good + strings.Repeat("x", 2<<20) + "\n":              "events line 2: longer than",
		`{"event":"throttled","dimension":"length"}` + "\n{}": "line 1: dimension: unknown",
	} {
		cut, err := telemetry.ReadEvents(strings.NewReader(text), func(*sluice.Event) error { return nil })
		if word == "" {
			if err != nil || !cut {
				t.Errorf("%s: cut: %v, %v", text, cut, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%.100s: want %q: %v", text, word, err)
		}
	}
}

func FuzzReadEvents(f *testing.F) {
	f.Add([]byte(`{"event":"throttled","at":"2026-11-21T12:00:00Z","dimension":"rpm","kind":"rate_limit","usage":{"input_tokens":1}}` + "\n{"))
	f.Add([]byte("\n\n{\"event\":\"item_done\",\"cost_usd\":1e-9,\"reused\":true,\"call\":\"\\u0000\"}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var to sink
		l := telemetry.NewLog(&to, nil)
		n := 0
		if _, err := telemetry.ReadEvents(bytes.NewReader(b), func(e *sluice.Event) error {
			n++
			l.Observe(*e)
			return nil
		}); err != nil {
			l.Close()
			return
		}
		l.Close()
		again := 0
		if _, err := telemetry.ReadEvents(&to.Buffer, func(*sluice.Event) error { again++; return nil }); err != nil || again != n {
			t.Fatalf("%d of %d events come back: %v", again, n, err)
		}
		var a telemetry.Aggregate
		if err := a.ReadEvents(bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
		a.Report().Judge(telemetry.Advice{})
	})
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }

func BenchmarkLog(b *testing.B) {
	l := telemetry.NewLog(discard{}, nil)
	defer l.Close()
	e := full(limits.EventSlotReleased)
	e.Call = "q0001"
	e.Outcome.Err = nil
	b.ReportAllocs()
	for b.Loop() {
		l.Observe(e)
	}
}

func BenchmarkAggregate(b *testing.B) {
	var a telemetry.Aggregate
	e := full(limits.EventSlotAcquired)
	b.ReportAllocs()
	for b.Loop() {
		e.At = e.At.Add(time.Millisecond)
		a.Observe(e)
	}
}

// slowDisk takes nothing until it is let go.
type slowDisk struct {
	sink
	letGo <-chan struct{}
}

func (d *slowDisk) Write(b []byte) (int, error) {
	<-d.letGo
	return d.sink.Write(b)
}

func TestADiskThatHangsKeepsNobodyFromBeingObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		letGo := make(chan struct{})
		disk := &slowDisk{letGo: letGo}
		l := telemetry.NewLog(disk, nil)
		const events = 10_000
		observed := make(chan struct{})
		go func() {
			defer close(observed)
			for range events {
				l.Observe(full(limits.EventSlotReleased))
			}
		}()
		synctest.Wait()
		select {
		case <-observed:
		default:
			t.Error("whoever observes waits for the disk")
		}
		close(letGo)
		<-observed
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		line, _, _ := bytes.Cut(disk.Bytes(), []byte("\n"))
		if want := strings.Repeat(string(line)+"\n", events); disk.String() != want {
			t.Errorf("%d bytes were written, want %d lines of %d", disk.Len(), events, len(line)+1)
		}
	})
}

// eventTypes are all types of event.
func eventTypes() []limits.EventType {
	return []limits.EventType{
		limits.EventStarted, limits.EventClosed, limits.EventMemberRegistered, limits.EventMemberClosed,
		limits.EventSlotWaiting, limits.EventSlotAcquired, limits.EventSlotReleased, limits.EventSlotCancelled,
		limits.EventThrottled, limits.EventAttemptFailed, limits.EventGaveUp, limits.EventCooldownStarted, limits.EventCooldownEnded,
		limits.EventLimitsChanged, limits.EventBreaker, limits.EventPaused, limits.EventResumed, limits.EventShared, limits.EventItemDone,
	}
}
