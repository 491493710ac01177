package runinfo

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
)

// status returns the status of a run with these lanes.
func status(now time.Time, p work.Report, perMin Rate, lanes ...limits.LaneSnapshot) Status {
	return New(p, sluice.Snapshot{Lanes: lanes}).measured(now, perMin, perMin)
}

func TestStatusNamesTheBindingLimit(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.Local)
	budgets := []limits.BucketSnapshot{
		{Dimension: limits.Requests, Limit: 600, Spent: 100}, {Dimension: limits.Tokens, Limit: 30000, Spent: 5000},
	}
	lane := func(change func(*limits.LaneSnapshot)) []limits.LaneSnapshot {
		l := limits.LaneSnapshot{Lane: "m", InFlight: 3, Waiting: 9, Slots: 8, Granted: 100, Budgets: budgets}
		change(&l)
		return []limits.LaneSnapshot{{Lane: "idle"}, l}
	}
	tests := []struct {
		name, limited string
		eta           time.Duration // for 300 remaining items, at a recent rate of 60 per minute
		lanes         []limits.LaneSnapshot
	}{
		{"nothing yet", "", 5 * time.Minute, nil},
		{"requests", "limited by 600 requests/min", 30 * time.Second,
			lane(func(l *limits.LaneSnapshot) { l.Binding = limits.Requests })},
		{"50 tokens per request", "limited by 30,000 tokens/min", 30 * time.Second,
			lane(func(l *limits.LaneSnapshot) { l.Binding = limits.Tokens })},
		{"slots", "limited by 8 concurrent requests", 5 * time.Minute,
			lane(func(l *limits.LaneSnapshot) { l.Binding = limits.Concurrency })},
		{"no request waits", "", 5 * time.Minute,
			lane(func(l *limits.LaneSnapshot) { l.Waiting, l.Binding = 0, limits.Requests })},
		{"a cooldown", "cooldown until 12:03:10", 5*time.Minute + 190*time.Second,
			lane(func(l *limits.LaneSnapshot) { l.Until = now.Add(190 * time.Second) })},
		{"a usage window", "usage window: paused until 2026-03-05 16:00 (28 h 00 min left)", 28*time.Hour + 5*time.Minute,
			lane(func(l *limits.LaneSnapshot) { l.Until, l.Pause = now.Add(28*time.Hour), sluice.UsageWindow })},
		{"a provider that fails", "provider keeps failing: paused until 12:00:30", 5*time.Minute + 30*time.Second,
			lane(func(l *limits.LaneSnapshot) { l.Until, l.Pause = now.Add(30*time.Second), sluice.ServerError })},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			st := status(now, work.Report{Total: 400, Done: 100}, 60, tt.lanes...)
			if got := st.Limited(); got != tt.limited {
				t.Errorf("%q, want %q", got, tt.limited)
			}
			if st.ETAms == nil || time.Duration(*st.ETAms)*time.Millisecond != tt.eta {
				t.Errorf("ETA %v, want %v", st.ETAms, tt.eta)
			}
		})
	}
}

func TestStatusShowsNoRateAboveTheLimitThatBinds(t *testing.T) {
	budgets := []limits.BucketSnapshot{{Dimension: limits.Requests, Limit: 900}}
	lane := limits.LaneSnapshot{Lane: "m", Waiting: 9, Binding: limits.Requests, Budgets: budgets}
	for perMin, want := range map[Rate]string{1678: "limited by 900 requests/min", 900: "900/min · limited by 900 requests/min"} {
		st := status(time.Now(), work.Report{}, perMin, lane)
		if got := st.Speed(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestStatusShowsTheRateBesideTheMean(t *testing.T) {
	st := New(work.Report{}, sluice.Snapshot{}).measured(time.Now(), 1250, 980.4)
	if got := st.Speed(); got != "1,250/min (mean 980/min)" {
		t.Errorf("got %q", got)
	}
}

func TestStatusSaysThatAllItemsWaitForARetry(t *testing.T) {
	for inFlight, want := range []string{"3 items wait for a retry", ""} {
		st := New(work.Report{Total: 9}, sluice.Snapshot{Retrying: 3, Lanes: []limits.LaneSnapshot{{Lane: "m", InFlight: inFlight}}})
		if got := st.Limited(); got != want || st.Retrying != 3 {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestStatusNamesAnOutage(t *testing.T) {
	now := time.Now()
	open := limits.LaneSnapshot{Lane: "a", Waiting: 3, Pause: sluice.ServerError, Until: now.Add(time.Second)}
	probing := limits.LaneSnapshot{Lane: "b", InFlight: 1, Pause: sluice.ServerError, Probing: true}
	for _, tt := range []struct {
		name, want string
		lanes      []limits.LaneSnapshot
		change     func(*Status)
	}{
		{"a provider that fails", "no_provider", []limits.LaneSnapshot{open, {Lane: "idle"}}, func(*Status) {}},
		{"all upstreams fail", "no_upstream", []limits.LaneSnapshot{open, probing}, func(s *Status) { s.Upstreams = true }},
		{"one upstream works", "", []limits.LaneSnapshot{open, {Lane: "c", InFlight: 1}}, func(s *Status) { s.Upstreams = true }},
		{"a cooldown", "", []limits.LaneSnapshot{{Waiting: 1, Pause: sluice.RateLimit, Until: now.Add(time.Second)}}, func(*Status) {}},
		{"Redis", "no_redis", nil, func(s *Status) { s.WaitForRedis("redis://h") }},
		{"no worker", "no_worker", nil, func(s *Status) { s.Distribute(&cluster.RemoteStatus{}, 0) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := New(work.Report{Total: 5}, sluice.Snapshot{Lanes: tt.lanes})
			tt.change(&st)
			if got := st.outage(now); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestOutagesAreNotCooldowns(t *testing.T) {
	sum := Summary{Use: Use{WallMS: 10_000}, Bound: map[string]float64{"cooldown": 0.75, "rpm": 0.05}}
	sum.AddOutages(map[string]time.Duration{noProvider: 4 * time.Second, noRedis: time.Second})
	got := prose.Shares(sum.Bound)
	if got != "no provider 40 % of the time · cooldown 35 % of the time · no Redis 10 % of the time · requests/min 5 % of the time" {
		t.Errorf("got %q", got)
	}
}

func TestPartsQuoteTheProblemOfAPendingBatch(t *testing.T) {
	all := []batch.Part{
		{Account: "acme", Tag: "0123456789ab", State: batchjob.Recorded, Requests: 1, Problem: &batchjob.Problem{Message: "over"}},
		{Account: "acme", Tag: "0123456789ac", State: batchjob.Sent, Requests: 5},
	}
	now := time.Now()
	if text := NewParts(all).Text(now); text != "2 batches: 1 recorded, 1 sent" {
		t.Errorf("got %q", text)
	}
	all[1].Problem = &batchjob.Problem{Kind: batchjob.Broken, Message: "503: overloaded"}
	if text := NewParts(all).Text(now); !strings.HasSuffix(text, "; the provider says: 503: overloaded") {
		t.Errorf("got %q", text)
	}
}

func TestProgressNeverWrapsATerminalLine(t *testing.T) {
	lane := limits.LaneSnapshot{InFlight: 2, Oldest: time.Now().Add(-41 * time.Second)}
	st := New(work.Report{Total: 1e9, Already: 5e8, AlreadyFailed: 12345}, sluice.Snapshot{Lanes: []limits.LaneSnapshot{lane}})
	st.Parts = &Parts{All: 12, ByState: map[string]int{"in_progress": 3, "merged": 2, "waiting": 7}, Submitted: 6000, Done: 1234,
		Expires: time.Now().Add(24 * time.Hour)}
	var meter Meter
	meter.Drain()
	st = meter.Measure(st)
	for width := 2; width < 200; width++ {
		for _, line := range st.Block(width) {
			if n := utf8.RuneCountInString(line); n >= width {
				t.Fatalf("a line of %d characters on a terminal of %d", n, width)
			}
		}
	}
}

func TestTheCommandThatRepeatsFailedItemsKeepsOtherResults(t *testing.T) {
	for args, want := range map[string]string{
		"run a -o b":                   "sluice run a -o b --redo failed",
		"run --redo changed a -o b":    "sluice run a -o b --redo failed",
		"exec --redo none --state d":   "sluice exec --state d --redo failed,none",
		"exec --redo=failed,none -j 2": "sluice exec -j 2 --redo failed,none",
	} {
		if got := (CommandLine{Own: strings.Fields(args)}).RedoFailed(); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}
