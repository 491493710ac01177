package telemetry_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/sim"
)

func storm() sim.Config {
	return sim.Config{
		RPM: 900, Burst: 2 * time.Second, Concurrency: 30, Latency: 300 * time.Millisecond, Jitter: .2,
		Storms: []sim.Storm{{From: 6 * time.Second, To: 11 * time.Second}},
		Faults: sim.Faults{BadRequest: .02, ServerError: .03},
	}
}

func TestAReportSaysWhatTheSchedulerSays(t *testing.T) {
	for name, c := range map[string]struct {
		sim    sim.Config
		told   sluice.Limits
		within float64 // of shares of the time
	}{
		"a storm":        {storm(), sluice.Limits{}, .03},
		"bound by slots": {sim.Config{Latency: 500 * time.Millisecond}, sluice.Limits{Concurrency: 3}, .01},
		// Two lanes fight for one budget. What holds calls back changes between two events, too: in 200 runs that came to .081
		// of the time at most, while a share that stands under another name is wrong by far more.
		"bound by tokens": {sim.Config{TPM: 6000, Burst: 2 * time.Second}, sluice.Limits{TPM: 6000}, .2},
		"nothing told":    {sim.Config{Concurrency: 7, NoHeaders: true, Latency: 300 * time.Millisecond}, sluice.Limits{}, .03},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := watch(t, c.sim, c.told, 300)
				r := o.live.Report()
				agree(t, r, o, c.within)
				fromFile := fromFiles(t, nil, o.events)
				for i := range fromFile.Run.Lanes { // times in files are in milliseconds
					fromFile.Run.Lanes[i].Latency, r.Run.Lanes[i].Latency = telemetry.Times{}, telemetry.Times{}
				}
				a, b := alike(t, fromFile), alike(t, r)
				if a != b {
					t.Errorf("the file says\n%s\nand who saw it happen\n%s", a, b)
				}
			})
		})
	}
}

// alike is what of a report must be the same from the file of events, which has no fractions of milliseconds.
func alike(t *testing.T, r *telemetry.Report) string {
	t.Helper()
	c := *r
	c.Waits, c.Latency, c.Longest, c.CooldownMS = telemetry.Times{}, telemetry.Times{}, nil, 0
	run := *r.Run
	run.First, run.Last = time.Time{}, time.Time{}
	run.Bound = nil
	run.Lanes = slices.Clone(run.Lanes)
	for i := range run.Lanes {
		run.Lanes[i].Bound = nil
	}
	c.Run = &run
	b, err := json.MarshalIndent(c, "", " ")
	check(t, err)
	return string(b)
}

// agree compares a report with the Scheduler and the Runner, which count for themselves.
func agree(t *testing.T, r *telemetry.Report, o *observed, within float64) {
	t.Helper()
	near := func(what string, got, want, within float64) {
		if math.Abs(got-want) > within {
			t.Errorf("%s is %.3f, want %.3f", what, got, want)
		}
	}
	wall := float64(r.Run.WallMS) / 1000
	for _, lane := range o.snapshot.Lanes {
		i := slices.IndexFunc(r.Run.Lanes, func(l telemetry.Lane) bool { return l.Lane == lane.Lane && l.Account == "sim" })
		if i < 0 {
			t.Fatalf("no lane %s in the report", lane.Lane)
		}
		l := r.Run.Lanes[i]
		if l.Sent != lane.Granted || l.Throttled != lane.Throttles || len(l.Quota) == 0 && len(lane.Budgets) > 0 {
			t.Errorf("%s: %d sent, %d throttled, want %d and %d; quota %+v", l.Lane, l.Sent, l.Throttled, lane.Granted, lane.Throttles, l.Quota)
		}
		for d, held := range lane.Bound {
			name := limits.Dimension(d).String()
			if d == int(limits.AnyDimension) {
				name = "cooldown"
			}
			near(lane.Lane+" bound by "+name, l.Bound[name], held.Seconds()/wall, within)
		}
	}
	failed := 0
	for kind, n := range o.report.Kinds {
		if kind != sluice.OK {
			failed += n
		}
	}
	if r.Items.Total != o.report.Items || r.Items.OK != o.report.Done || r.Items.Failed != failed || !reflect.DeepEqual(r.Finish, o.report.Finish) ||
		r.InputTokens != o.report.Usage.Input || r.OutputTokens != o.report.Usage.Output {
		t.Errorf("%+v %v %d/%d, want %+v", r.Items, r.Finish, r.InputTokens, r.OutputTokens, o.report)
	}
	if r.Cost == nil || math.Abs(*r.Cost-o.report.Cost) > 1e-9 {
		t.Errorf("cost %v, want %v", r.Cost, o.report.Cost)
	}
	near("wall", wall, o.report.Wall.Seconds(), 0.1)
	if s := r.Run.Slots; s.Acquired != s.Released || s.Leaked != 0 || s.Cut != 0 || s.Acquired == 0 {
		t.Errorf("slots: %+v", s)
	}
}

func TestTheOutputAloneSaysOfItemsWhatEventsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := watch(t, storm(), sluice.Limits{}, 300)
		alone, events := fromFiles(t, o.output, nil), fromFiles(t, nil, o.events)
		both := fromFiles(t, o.output, o.events)
		if alone.Run != nil || both.Run == nil {
			t.Fatal("an output tells nothing of the time, and events do")
		}
		for what, pair := range map[string][2]any{
			"retries":   {alone.Retries, events.Retries},
			"throttled": {alone.Throttled, events.Throttled},
			"finish":    {alone.Finish, events.Finish},
			"models":    {sum(alone.Models), events.Items.OK}, // a refusal names no model
			"tokens":    {alone.InputTokens + alone.OutputTokens, events.InputTokens + events.OutputTokens},
			"costed":    {alone.Costed, events.Costed},
			"failures":  {kinds(alone), kinds(events)},
			"waits":     {both.Waits, alone.Waits},
		} {
			if !reflect.DeepEqual(pair[0], pair[1]) {
				t.Errorf("%s: %v of the output, %v of the events", what, pair[0], pair[1])
			}
		}
		alone.Items.PerMin, events.Items.PerMin = 0, 0
		if alone.Items != events.Items || alone.Items.Throttled == 0 {
			t.Errorf("%+v of the output, %+v of the events", alone.Items, events.Items)
		}
		if d := alone.Waits.P95 - events.Waits.P95; d > 200 || d < -200 {
			t.Errorf("waits %+v of the output, %+v of the events", alone.Waits, events.Waits)
		}
		if alone.CooldownMS < 4000 {
			t.Errorf("items waited %d ms in pauses, of which one lasted for 5 s", alone.CooldownMS)
		}
	})
}

func sum(counts map[string]int) (n int) {
	for _, of := range counts {
		n += of
	}
	return n
}

func kinds(r *telemetry.Report) string {
	var all []string
	for _, f := range r.Failures {
		slices.Sort(f.IDs)
		all = append(all, fmt.Sprint(f.Kind, f.Count, f.IDs, f.Message != ""))
	}
	return strings.Join(all, "; ")
}

// script makes events at instants in milliseconds after noon.
type script struct{ bytes.Buffer }

func (s *script) at(ms int, event, rest string) {
	if rest != "" {
		rest = "," + rest
	}
	fmt.Fprintf(s, `{"event":%q,"at":%q%s}`+"\n", event, noon.Add(time.Duration(ms)*time.Millisecond).Format(time.RFC3339Nano), rest)
}

func TestEpisodesOfThrottles(t *testing.T) {
	var s script
	s.at(0, "scheduler_started", `"account":"a"`)
	for _, ms := range []int{100, 900, 1800} { // each within a second of the last: one episode
		s.at(ms, "throttled", `"account":"a","lane":"m","kind":"rate_limit","dimension":"rpm","limit":60`)
	}
	s.at(5000, "throttled", `"account":"a","lane":"m","kind":"rate_limit"`) // another,
	s.at(5000, "cooldown_started", `"account":"a","lane":"m","kind":"rate_limit","until":"2026-11-21T12:00:09Z"`)
	s.at(8000, "throttled", `"account":"a","lane":"m","kind":"rate_limit"`) // which lasts
	s.at(12000, "cooldown_started", `"account":"a","lane":"m","kind":"rate_limit","until":"2026-11-21T12:00:15Z"`)
	s.at(15000, "cooldown_ended", `"account":"a","lane":"m"`)
	s.at(17000, "throttled", `"account":"a","lane":"m","kind":"rate_limit"`) // and a third
	s.at(36000, "scheduler_closed", `"account":"a"`)
	r := fromFiles(t, nil, s.Bytes())
	want := telemetry.Throttles{Count: 6, ByLimit: map[string]int{"rpm": 3, "unstated": 3}, Episodes: 3, EpisodesPerHour: 300}
	if !reflect.DeepEqual(r.Run.Throttles, want) || r.Run.Cooldowns.Count != 2 {
		t.Errorf("%+v, %+v; want %+v", r.Run.Throttles, r.Run.Cooldowns, want)
	}
}

func TestALimitIsKnownFromWhereItWasFirst(t *testing.T) {
	var s script
	s.at(0, "scheduler_started", "")
	s.at(0, "limits_changed", `"lane":"m","dimension":"rpm","limit":600,"source":"header"`)
	s.at(0, "slot_waiting", `"lane":"m","waiting":5`)
	s.at(10, "throttled", `"lane":"m","kind":"rate_limit","dimension":"rpm","limit":600,"waiting":5`)
	s.at(20, "throttled", `"lane":"m","kind":"rate_limit","dimension":"tpm","limit":900,"waiting":5`)
	s.at(30, "scheduler_closed", "")
	r := fromFiles(t, nil, s.Bytes())
	var text strings.Builder
	check(t, r.WriteText(&text))
	for _, want := range []string{"of rpm 600 (header)", "of tpm 900 (rejection)", "2 (1 rpm, 1 tpm) in 1 episode, 120,000 an hour"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("want %q in %s", want, text.String())
		}
	}
}

func TestPublishedLimitsStandBesideOthers(t *testing.T) {
	var s script
	s.at(0, "scheduler_started", "")
	s.at(0, "limits_changed", `"lane":"m","dimension":"rpm","limit":1000,"source":"published"`)
	s.at(0, "limits_changed", `"lane":"m","dimension":"tpm","limit":9000,"source":"published"`)
	s.at(5, "limits_changed", `"lane":"m","dimension":"rpm","limit":600,"source":"header"`)
	s.at(30, "scheduler_closed", "")
	r := fromFiles(t, nil, s.Bytes())
	var text strings.Builder
	check(t, r.WriteText(&text))
	for _, want := range []string{"of rpm 600 (header; published 1,000, observed 600)", "of tpm 9,000 (published)"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("want %q in %s", want, text.String())
		}
	}
}

func TestWhatHeldCallsBack(t *testing.T) {
	var s script
	s.at(0, "scheduler_started", `"account":"a"`)
	s.at(0, "slot_waiting", `"account":"a","lane":"m","dimension":"rpm","active":1,"max":8,"waiting":1`)
	s.at(4000, "slot_acquired", `"account":"a","lane":"m","dimension":"rpm","wait_ms":4000,"active":2,"max":8,"waiting":0`)
	s.at(5000, "slot_waiting", `"account":"a","lane":"m","dimension":"concurrency","active":8,"max":8,"waiting":1`)
	s.at(6000, "paused", `"account":"a"`)
	s.at(6000, "slot_waiting", `"account":"a","lane":"m","active":8,"max":8,"waiting":2`)
	s.at(8000, "resumed", `"account":"a"`)
	s.at(8000, "cooldown_started", `"account":"a","lane":"m","kind":"rate_limit","until":"2026-11-21T12:00:09Z"`)
	s.at(9000, "slot_acquired", `"account":"a","lane":"m","wait_ms":4000,"active":2,"max":8,"waiting":0`)
	s.at(10000, "scheduler_closed", `"account":"a"`)
	r := fromFiles(t, nil, s.Bytes())
	want := map[string]float64{"rpm": .4, "concurrency": .1, "paused": .2, "cooldown": .1}
	if !reflect.DeepEqual(r.Run.Bound, want) || r.Run.Cooldowns.LostMS != 1000 {
		t.Errorf("%v, want %v; %+v", r.Run.Bound, want, r.Run.Cooldowns)
	}
	r.Judge(telemetry.Advice{})
	if !strings.Contains(r.Verdict, "limited by requests/min 40 % and paused 20 % of the time") {
		t.Error(r.Verdict)
	}
}

func TestCallsWithoutItemsWaitForSlots(t *testing.T) {
	var s script
	s.at(0, "scheduler_started", `"account":"a"`)
	s.at(0, "slot_waiting", `"account":"a","lane":"m","call":"first","dimension":"concurrency","active":2,"max":2,"waiting":1`)
	s.at(0, "slot_waiting", `"account":"a","member":"agent","lane":"m","call":"quitter","dimension":"concurrency","active":2,"max":2,"waiting":2`)
	s.at(3000, "slot_acquired", `"account":"a","lane":"m","call":"first","dimension":"concurrency","wait_ms":3000,"active":2,"max":2,"waiting":1`)
	s.at(8000, "slot_cancelled", `"account":"a","member":"agent","lane":"m","call":"quitter","dimension":"concurrency","wait_ms":8000,"active":2,"max":2,"waiting":0`)
	s.at(9000, "slot_acquired", `"account":"a","lane":"m","call":"last","active":2,"max":2,"waiting":0`)
	s.at(9500, "slot_released", `"account":"a","lane":"m","call":"first","kind":"server_error","error":"no","active":1,"max":2,"waiting":0`)
	s.at(10000, "scheduler_closed", `"account":"a"`)
	r := fromFiles(t, nil, s.Bytes())
	if w := r.Waits; w.Count != 3 || w.Max != 8000 {
		t.Errorf("%+v", w)
	}
	if want := []telemetry.LongWait{{ID: "quitter", Member: "agent", Wait: 8000}, {ID: "first", Wait: 3000}}; !reflect.DeepEqual(r.Longest, want) {
		t.Errorf("%+v, want %+v", r.Longest, want)
	}
	if want := (telemetry.Slots{Acquired: 2, Waited: 2, Released: 1, Cancelled: 1, Errors: 1, Leaked: 1, Most: 2, Max: 2}); r.Run.Slots != want {
		t.Errorf("%+v, want %+v", r.Run.Slots, want)
	}
	var text strings.Builder
	check(t, r.WriteText(&text))
	for _, want := range []string{"2 acquired, 2 waited, 1 released, 1 cancelled, 1 error, 1 leaked; at most 2 of 2 in flight", "quitter of agent (8.0 s), first (3.0 s)"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in %s", want, text.String())
		}
	}
	r.Judge(telemetry.Advice{})
	if !strings.HasSuffix(r.Verdict, "More slots would help if the provider accepts them.") {
		t.Error(r.Verdict)
	}
	s.at(10000, "item_done", `"account":"a","lane":"m","call":"item","kind":"ok","wait_ms":10`)
	if r := fromFiles(t, nil, s.Bytes()); r.Waits.Count != 1 || r.Waits.Max != 10 {
		t.Errorf("of one that has items: %+v", r.Waits)
	}
}

func TestTheBusiestMinuteIsOneOfCallsThatWereTaken(t *testing.T) {
	var s script
	s.at(0, "scheduler_started", "")
	s.at(0, "limits_changed", `"lane":"m","dimension":"rpm","limit":60,"source":"header"`)
	for i, minute := range []int{10, 30, 20} {
		for j := range minute {
			s.at(60_000*i+j*100+1000, "slot_acquired", `"lane":"m"`)
		}
		for j := range 8 {
			s.at(60_000*i+j*100+20_000, "throttled", `"lane":"m","kind":"rate_limit"`)
		}
		s.at(60_000*i+30_000, "slot_released", `"lane":"m","kind":"ok","usage":{"input_tokens":7,"output_tokens":5}`)
	}
	s.at(180_000, "scheduler_closed", "")
	q := fromFiles(t, nil, s.Bytes()).Run.Lanes[0].Quota
	if len(q) != 1 || q[0].Used != 36 || q[0].Busiest != 22 || q[0].Share != .2 {
		t.Errorf("%+v, want 36 used, 22 in the busiest minute, a fifth", q)
	}
}

func TestSlotsOfProcessesThatEndAndThatAreKilled(t *testing.T) {
	acquired := `"account":"a","lane":"m","active":1,"max":8`
	process := func(s *script, from, releases int, ends bool) {
		s.at(from, "member_registered", `"member":"run"`)
		s.at(from+1, "scheduler_started", `"account":"a"`)
		for range 3 {
			s.at(from+10, "slot_acquired", acquired)
		}
		for range releases {
			s.at(from+1000, "slot_released", acquired+`,"kind":"ok"`)
		}
		if ends {
			s.at(from+1000, "member_closed", `"member":"run"`)
			s.at(from+1000, "scheduler_closed", `"account":"a"`)
		}
	}
	for name, c := range map[string]struct {
		processes []bool // whether they end in good order
		releases  int
		want      telemetry.Slots
	}{
		"all given back":             {[]bool{true, true}, 3, telemetry.Slots{Acquired: 6, Released: 6}},
		"leaked":                     {[]bool{true}, 1, telemetry.Slots{Acquired: 3, Released: 1, Leaked: 2}},
		"leaked twice":               {[]bool{true, true}, 2, telemetry.Slots{Acquired: 6, Released: 4, Leaked: 2}},
		"killed, then resumed":       {[]bool{false, true}, 2, telemetry.Slots{Acquired: 6, Released: 4, Leaked: 1, Cut: 1}},
		"killed twice":               {[]bool{false, false}, 2, telemetry.Slots{Acquired: 6, Released: 4, Cut: 2}},
		"killed, resumed and killed": {[]bool{false, true, false}, 3, telemetry.Slots{Acquired: 9, Released: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			var s script
			for i, ends := range c.processes {
				process(&s, i*3_600_000, c.releases, ends)
			}
			r := fromFiles(t, nil, append(s.Bytes(), `{"event":"slot_acq`...))
			c.want.Most, c.want.Max = 1, 8
			if r.Run.Slots != c.want || !r.Cut {
				t.Errorf("%+v, want %+v; cut: %v", r.Run.Slots, c.want, r.Cut)
			}
			killed := c.want.Cut > 0 && !c.processes[len(c.processes)-1]
			if r.Judge(telemetry.Advice{}); strings.Contains(r.Next, "was killed") != killed {
				t.Errorf("the last process was killed: %v, and: %s", killed, r.Next)
			}
			if r.Run.Processes != len(c.processes) || r.Run.WallMS != int64(1000*len(c.processes)) {
				t.Errorf("%d processes ran for %d ms, want %d of a second", r.Run.Processes, r.Run.WallMS, len(c.processes))
			}
			if n := len(r.Run.Lanes[0].Bins); n > 4*len(c.processes)+1 {
				t.Errorf("%d bins: the time between processes must not be drawn", n)
			}
		})
	}
}

func TestAccountsOfOneProcessAreNotProcesses(t *testing.T) {
	var s script
	s.at(0, "member_registered", `"member":"run"`)
	s.at(1, "scheduler_started", `"account":"a"`)
	s.at(2, "slot_acquired", `"account":"a","lane":"m","active":1,"max":8`)
	s.at(3, "scheduler_started", `"account":"b"`)
	s.at(4, "slot_acquired", `"account":"b","lane":"m","active":1,"max":8`)
	s.at(5, "slot_released", `"account":"b","lane":"m","active":1,"max":8,"kind":"ok"`)
	s.at(6, "scheduler_closed", `"account":"b"`)
	s.at(7, "slot_released", `"account":"a","lane":"m","active":1,"max":8,"kind":"ok"`)
	s.at(8, "scheduler_closed", `"account":"a"`)
	r := fromFiles(t, nil, s.Bytes())
	if r.Run.Processes != 1 || len(r.Run.Lanes) != 2 || r.Run.Slots.Leaked != 0 || r.Run.Slots.Cut != 0 {
		t.Errorf("%+v", r.Run)
	}
	var text strings.Builder
	check(t, r.WriteText(&text))
	if !strings.Contains(text.String(), "m of a: 1 answered") || !strings.Contains(text.String(), "m of b: 1 answered") {
		t.Error(text.String())
	}
}

func TestFailuresHaveThreeIdsAndAMessage(t *testing.T) {
	var b bytes.Buffer
	for i := range 50 {
		fmt.Fprintf(&b, result, fmt.Sprint("bad", i), "null", `{"code":"bad_request","message":"no"}`, 1, 0, 1, 1, "bad_request")
		fmt.Fprintf(&b, result, fmt.Sprint("slow", i), "null", `{"code":"timeout","message":"late"}`, 6, i%3, 1, 1, "timeout")
		fmt.Fprintf(&b, result, fmt.Sprint("good", i), "null", `null`, 2, i%3, i, 1, "ok")
	}
	r := fromFiles(t, b.Bytes(), nil)
	want := []telemetry.Failure{
		{Kind: "bad_request", Count: 50, IDs: []string{"bad0", "bad1", "bad2"}, Message: "no"},
		{Kind: "timeout", Count: 50, IDs: []string{"slow0", "slow1", "slow2"}, Message: "late"},
	}
	if !reflect.DeepEqual(r.Failures, want) {
		t.Errorf("%+v", r.Failures)
	}
	if want := []telemetry.Count{{Of: 0, Items: 50}, {Of: 1, Items: 50}, {Of: 5, Items: 50}}; !reflect.DeepEqual(r.Retries, want) {
		t.Errorf("retries %v, want %v", r.Retries, want)
	}
	if want := []telemetry.Count{{Of: 0, Items: 84}, {Of: 1, Items: 34}, {Of: 2, Items: 32}}; !reflect.DeepEqual(r.Throttled, want) {
		t.Errorf("throttles %v, want %v", r.Throttled, want)
	}
	if r.Items.Throttled != 66 || r.Items.ThrottledOK != 33 || r.Items.ThrottleRate != .5 {
		t.Errorf("%+v", r.Items)
	}
	if len(r.Longest) != 5 || r.Longest[0] != (telemetry.LongWait{ID: "good49", Wait: 49}) || r.Longest[4].Wait != 45 {
		t.Errorf("longest waits: %v", r.Longest)
	}
	r.Judge(telemetry.Advice{Retry: "sluice run a -o b --redo failed"})
	if !strings.Contains(r.Verdict, "50 of 150 items done, 100 failed") || !strings.Contains(r.Next, "may succeed for 50 failed items") || r.Command == "" {
		t.Errorf("%s %s %s", r.Verdict, r.Next, r.Command)
	}
}

func TestOtherPeoplesWordsAreNoLinesOfOurs(t *testing.T) {
	out := fmt.Sprintf(result, `a\nb`, "null", `{"code":"timeout","message":"late\n  items      9: 9 done"}`, 1, 0, 9, 1, "timeout")
	r := fromFiles(t, []byte(out), nil)
	r.Judge(telemetry.Advice{Stopped: "no\nluck"})
	var text strings.Builder
	check(t, r.WriteText(&text))
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "  items      9") || strings.HasPrefix(line, "luck") || strings.HasPrefix(line, "b ") {
			t.Errorf("%s", text.String())
		}
	}
}

func TestPercentilesAreNearTheTrueOnes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, scale := range []float64{1, 50, 3000, 4e6} {
		var b bytes.Buffer
		var all []int64
		for range 5000 {
			ms := int64(scale * math.Exp(random.NormFloat64()))
			all = append(all, ms)
			fmt.Fprintf(&b, result, "x", "null", "null", 1, 0, ms, ms, "ok")
		}
		slices.Sort(all)
		w := fromFiles(t, b.Bytes(), nil).Waits
		for part, got := range map[float64]int64{.5: w.P50, .95: w.P95, .99: w.P99, 1: w.Max} {
			want := all[int(math.Ceil(part*5000))-1]
			if math.Abs(float64(got-want)) > 0.032*float64(want)+0.5 {
				t.Errorf("scale %v: percentile %v is %d ms, want %d", scale, part, got, want)
			}
		}
		n, last := 0, int64(-1)
		for _, bar := range w.Bars {
			if n += bar.Count; bar.From >= bar.To || last >= 0 && bar.From != last {
				t.Errorf("bars %v", w.Bars)
			}
			last = bar.To
		}
		if n != 5000 || w.Bars[0].Count == 0 || w.Bars[len(w.Bars)-1].To <= w.Max {
			t.Errorf("scale %v: %d in bars %v up to %d", scale, n, w.Bars, w.Max)
		}
	}
}

func TestMemoryDoesNotGrowWithTheItems(t *testing.T) {
	var a telemetry.Aggregate
	observe := func(n, from int) {
		for i := from; i < from+n; i++ {
			e := sluice.Event{Type: limits.EventSlotAcquired, Account: "a", Lane: fmt.Sprint("lane", i%1000), Call: fmt.Sprint("call", i),
				At: noon.Add(time.Duration(i) * 50 * time.Millisecond)}
			a.Observe(e)
			e.Type, e.Outcome.Kind, e.Outcome.Dimension, e.Outcome.Limit = limits.EventThrottled, sluice.RateLimit, limits.Requests, int64(i)
			a.Observe(e)
			e.Type, e.Until = limits.EventCooldownStarted, e.At.Add(time.Millisecond)
			a.Observe(e)
			e.Type, e.Finish = limits.EventItemDone, fmt.Sprint("finish", i)
			a.Observe(e)
			e.Outcome.Kind = sluice.OK
			a.Observe(e)
		}
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	observe(60_000, 0)
	before := heap()
	observe(200_000, 60_000)
	if after := heap(); after > before+8<<20 || after > 64<<20 {
		t.Errorf("%d KiB after 60,000 items, %d KiB after 260,000", before>>10, after>>10)
	}
	if r := a.Report(); r.Items.Total != 520_000 || len(r.Run.Lanes) > 201 || len(r.Finish) > 201 || len(r.Failures[0].IDs) != 3 {
		t.Errorf("%+v, %d lanes, %d reasons", r.Items, len(r.Run.Lanes), len(r.Finish))
	}
}

// Programs read these fields of sluice report --json. No other test names them.
func TestReportsHaveTheirFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := watch(t, storm(), sluice.Limits{RPM: 900}, 300)
		b, err := json.Marshal([]*telemetry.Report{o.live.Report(), fromFiles(t, o.output, nil)})
		if err != nil {
			t.Fatal(err)
		}
		for field := range strings.FieldsSeq(`bin_ms by_limit episodes episodes_per_hour failed_attempts from_ms items_backoff_ms
			items_cooldown_ms limit_by_bin longest_waits lost_ms max_ms mean_ms most_in_flight open_at_end p50_ms p95_ms p99_ms per_min
			throttled_ok throttled_ok_share throttles_by_item to_ms used_by_bin wall_ms`) {
			if !bytes.Contains(b, []byte(`"`+field+`":`)) {
				t.Errorf("no %s in %s", field, b)
			}
		}
	})
}
