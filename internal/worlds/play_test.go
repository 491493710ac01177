package worlds

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheSameSeedIsPlayedTheSameWay(t *testing.T) {
	for seed := range uint64(20) {
		w := Random(seed)
		again, err := Parse(w.Line(), Random)
		if err != nil || !reflect.DeepEqual(w, again) {
			t.Fatalf("seed %d: %s is read as %+v, %v", seed, w.Line(), again, err)
		}
		maker := Loops()["tenacity"].Maker
		if a, b := Play(w, maker, nil), Play(again, maker, nil); !reflect.DeepEqual(a, b) {
			t.Errorf("seed %d: %+v, then %+v", seed, a, b)
		}
	}
}

func TestRandomWorldsHaveTheirShares(t *testing.T) {
	const n = 500
	counts := map[string]int{}
	for seed := range uint64(n) {
		w := Random(seed + 10_000)
		counts[w.Knowledge()]++
		for name, is := range map[string]bool{
			"shared": w.Shared(), "change": len(w.Changes) > 0, "storm": len(w.Storms) > 0, "faults": w.Faulty(),
			"window": w.longestWindow() > 0, "unknown period": slices.Contains([]string{"seconds", "unix", "unixms"}, w.Show.Headers),
			"503 at once": slices.ContainsFunc(w.limits(), func(l Limit) bool { return l.Dim == Concurrency && l.Status == 503 }),
		} {
			if is {
				counts[name]++
			}
		}
		longest := maxOptimum.span()
		if w.longestWindow() > 20*time.Second {
			longest += 2 * w.longestWindow()
		}
		if o, ok := Optimum(w); !ok || o < minOptimum.span() || o > longest {
			t.Errorf("seed %d: the optimum is %v", w.Seed, o)
		}
	}
	for name, percent := range map[string]int{
		"unknown": 20, "partly": 20, "wrong": 25, "shared": 15, "change": 15, "storm": 15, "faults": 40,
		"window": 33, "unknown period": 20, "503 at once": 8,
	} {
		if counts[name]*100 < (percent-2)*n { // the sample is small
			t.Errorf("%s: %d of %d worlds, want %d %%", name, counts[name], n, percent)
		}
	}
}

func TestTheKnowingClientIsNearTheOptimum(t *testing.T) {
	var ratios []float64
	for _, s := range Survey(Random, 20_000, 150, "", Knowing) {
		if s.Violation != "" || s.Failed > 0 {
			t.Errorf("seed %d: %d items failed: %s", s.Seed, s.Failed, s.Violation)
		}
		if s.Class != "troubled" {
			ratios = append(ratios, s.Ratio)
		}
	}
	slices.Sort(ratios)
	if p90 := quantile(ratios, 0.9); p90 > 1.02 {
		t.Errorf("without trouble: %.3f × the optimum at the 90th percentile", p90)
	}
}

// hasty sends everything at once, again and again, and believes in everything.
type hasty struct {
	queue []*Item
	end   End
}

func (h *hasty) Add(_ time.Time, item *Item) { h.queue = append(h.queue, item) }

func (h *hasty) Next(time.Time) (send []*Attempt, wake time.Time) {
	for _, item := range h.queue {
		send = append(send, &Attempt{Item: item})
	}
	h.queue = nil
	return send, time.Time{}
}

func (h *hasty) Head(time.Time, *Attempt, *Response) {}

func (h *hasty) Done(_ time.Time, a *Attempt, r *Response) {
	if r.Status == 200 {
		h.end(a.Item, true)
		return
	}
	h.queue = append(h.queue, a.Item)
}

func hastyMaker(*World) func(int, End) Client {
	return func(_ int, end End) Client { return &hasty{end: end} }
}

func TestPlayNoticesABrokenGuarantee(t *testing.T) {
	w := &World{Lanes: 1, Load: Load{Items: 61}, Serve: Serve{Latency: 1}, Config: Config{Limits: []Limit{{Dim: RPM, N: 60}}}}
	if r := Play(w, hastyMaker, nil); !strings.Contains(r.Violation, "guarantee") {
		t.Errorf("61 requests at once: %+v", r)
	}
	w.Load.Items = 60
	if r := Play(w, hastyMaker, nil); r.Violation != "" || r.Time != time.Second {
		t.Errorf("60 requests at once: %+v", r)
	}
}

// idler sends each item a minute after the one before.
type idler struct{ hasty }

func (h *idler) Next(now time.Time) (send []*Attempt, wake time.Time) {
	if now.Sub(Epoch)%time.Minute == 0 && len(h.queue) > 0 {
		send = append(send, &Attempt{Item: h.queue[0]})
		h.queue = h.queue[1:]
	}
	return send, now.Add(time.Minute).Truncate(time.Minute)
}

func TestPlayNoticesIdleTime(t *testing.T) {
	w := &World{Lanes: 1, Load: Load{Items: 3}, Serve: Serve{Latency: 1}}
	r := Play(w, func(*World) func(int, End) Client {
		return func(_ int, end End) Client { return &idler{hasty{end: end}} }
	}, nil)
	if !strings.Contains(r.Violation, "nothing was sent") || r.Idle != time.Minute {
		t.Errorf("%+v", r)
	}
}

func TestPlayNoticesAStalledLane(t *testing.T) {
	for name, c := range map[string]struct {
		world World
		want  time.Duration
	}{
		"no reason":         {World{Load: Load{Items: 2}}, 59 * time.Second},
		"a stated wait":     {World{Load: Load{Items: 1}, Storms: []Storm{{For: 59, Status: 429, RetryAfter: -1}}}, 0},
		"one long gone":     {World{Load: Load{Items: 1}, Storms: []Storm{{For: 20, Status: 429, RetryAfter: -1}}}, 59 * time.Second},
		"a bare rejection":  {World{Load: Load{Items: 1}, Storms: []Storm{{For: 20, Status: 429}}}, 59 * time.Second},
		"configured limits": {World{Load: Load{Items: 2}, Config: Config{Limits: []Limit{{Dim: RPM, N: 1}}}}, 0},
	} {
		c.world.Lanes, c.world.Serve = 1, Serve{Latency: 1, Reject: 1}
		r := Play(&c.world, func(*World) func(int, End) Client {
			return func(_ int, end End) Client { return &idler{hasty{end: end}} }
		}, nil)
		if r.Stalled != c.want {
			t.Errorf("%s: stalled for %v, want %v", name, r.Stalled, c.want)
		}
	}
}

func TestProbesInVainMayComeAtDoublingDistances(t *testing.T) {
	s, now := new(silence), time.Duration(0)
	s.wait(now, 1)
	for distance := 10 * time.Second; distance < time.Hour; distance = min(2*distance, 10*time.Minute) {
		if now > 2*time.Hour {
			break
		}
		now += distance
		s.send(now)
		s.done(now, &Response{Status: 429})
	}
	if s.stalled != 0 {
		t.Errorf("stalled for %v", s.stalled)
	}
	s.send(now + 12*time.Minute)
	if s.stalled != 12*time.Minute {
		t.Errorf("stalled for %v, want 12 minutes", s.stalled)
	}
}

func TestKilledItemsAreSentAgain(t *testing.T) {
	w := &World{Lanes: 1, Load: Load{Items: 30}, Serve: Serve{Latency: 1}, Lane: []Limit{{Dim: RPM, N: 600, Burst: 1}}, Procs: Processes{Kills: []Seconds{0.5}}}
	if r := Play(w, Knowing, nil); r.Violation != "" || r.Failed != 0 || r.Sent <= 30 {
		t.Errorf("%+v", r)
	}
}

func TestResponsesAreThoseOfTheDialect(t *testing.T) {
	for _, dialect := range []string{"openai", "anthropic", "gemini"} {
		for _, body := range []string{"", "named", "figures", "wait", "wrong", "contradictory"} {
			w := &World{Lanes: 1, Load: Load{Items: 3}, Serve: Serve{Latency: 1}, Lane: []Limit{{Dim: RPM, N: 60, Burst: 1}, {Dim: ITPM, N: 6000, Burst: 60}},
				Show: Show{Dialect: dialect, Headers: "right", RetryAfter: "date", Body: body, Skew: 30}}
			c := new(clock)
			p := newProvider(w, c, false)
			p.speaker = newSpeaker(w)
			for i, item := range w.Items() {
				r := p.arrive(item, never)
				var parsed map[string]any
				if err := json.Unmarshal(r.Body, &parsed); err != nil {
					t.Errorf("%s, %q: %s: %v", dialect, body, r.Body, err)
				}
				if i == 0 != (r.Status == 200) {
					t.Errorf("%s: response %d has status %d", dialect, i, r.Status)
				}
				for name := range r.Header {
					if http.CanonicalHeaderKey(name) != name {
						t.Errorf("%s is not a canonical name", name)
					}
				}
				if wait := retryAfter(r); i > 0 && (wait < time.Second || wait > 2*time.Second) {
					t.Errorf("%s: Retry-After %v, want 1 s", dialect, wait)
				}
			}
		}
	}
}

func TestFormsOfRateLimitersStateAWindow(t *testing.T) {
	old := func(reset string) map[string]string {
		return map[string]string{"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "99", "X-Ratelimit-Reset": reset}
	}
	for name, want := range map[string]map[string]string{
		"seconds": old("10"), "unix": old("1772366410"), "unixms": old("1772366410000"),
		"draft6": {"Ratelimit-Policy": "100;w=10", "Ratelimit-Limit": "100", "Ratelimit-Remaining": "99", "Ratelimit-Reset": "10"},
		"draft7": {"Ratelimit-Policy": "100;w=10", "Ratelimit": "limit=100, remaining=99, reset=10"},
		"draft8": {"Ratelimit-Policy": `"default"; q=100; w=10`, "Ratelimit": `"default"; r=99; t=10`},
	} {
		w := &World{Lanes: 1, Load: Load{Items: 1}, Serve: Serve{Latency: 1}, Lane: []Limit{{Dim: RPM, N: 600, Burst: 10, Kind: Opened}},
			Show: Show{Dialect: "bare", Headers: name}}
		p := newProvider(w, new(clock), false)
		p.speaker = newSpeaker(w)
		header := p.arrive(w.Items()[0], never).Header
		if len(header) != len(want)+2 { // Date and Content-Type
			t.Errorf("%s: %v", name, header)
		}
		for field, value := range want {
			if header.Get(field) != value {
				t.Errorf("%s: %s is %q, want %q", name, field, header.Get(field), value)
			}
		}
	}
}

func TestRateLimitersRejectInTheirWords(t *testing.T) {
	busy := Limit{Dim: Concurrency, N: 1, Status: 503}
	counter := Limit{Dim: RPM, N: 60, Burst: 1, Kind: Estimate}
	for _, c := range []struct {
		limit  Limit
		body   string
		status int
		field  string
		words  string
	}{
		{busy, "overflow", 503, "X-Envoy-Overloaded", "reset reason: overflow"},
		{busy, "page", 503, "Content-Type", "<h1>503 Service Temporarily Unavailable</h1>"},
		{counter, "page", 429, "Content-Type", "<h1>429 Too Many Requests</h1>"},
		{counter, "law", 429, "Content-Type", "Rate limit exceeded: 1 per 1 second"},
	} {
		w := &World{Lanes: 1, Load: Load{Items: 6}, Serve: Serve{Latency: 1}, Lane: []Limit{c.limit}, Charge: Charge{Rejected: true},
			Show: Show{Dialect: "bare", Body: c.body}}
		p := newProvider(w, new(clock), false)
		p.speaker = newSpeaker(w)
		for i, item := range w.Items() {
			r := p.arrive(item, never)
			if i > 0 && (r.Status != c.status || r.Header.Get(c.field) == "" || !strings.Contains(string(r.Body), c.words)) {
				t.Errorf("%s: %d %v %s", c.body, r.Status, r.Header, r.Body)
			}
		}
		if left := p.lanes[0][0].left(0); c.limit.Dim == RPM && left != -5 {
			t.Errorf("%s: %v left after six requests, all of which count", c.body, left)
		}
	}
}

func TestStatedFiguresAgreeWithTheWait(t *testing.T) {
	w := &World{Lanes: 1, Load: Load{Items: 2}, Serve: Serve{Latency: 1}, Lane: []Limit{{Dim: RPM, N: 1800, Burst: 1.0 / 30}}, Show: Show{Body: "figures"}}
	p := newProvider(w, new(clock), false)
	p.speaker = newSpeaker(w)
	items := w.Items()
	p.arrive(items[0], never)
	if got := string(p.arrive(items[1], never).Body); !strings.Contains(got, "Limit 1800, Used 1800, Requested 1. Please try again in 34ms.") {
		t.Error(got)
	}
	w.Show.Body = "contradictory"
	p.speaker = newSpeaker(w)
	if got := string(p.arrive(items[1], never).Body); !strings.Contains(got, "Limit 1800, Used 1, Requested 1. Please try again in 34ms.") {
		t.Error(got)
	}
}

func TestShrinkFindsASimpleWorld(t *testing.T) {
	var w *World
	for seed := uint64(1); w == nil || len(w.Storms) == 0 || !w.Faulty(); seed++ {
		w = Random(seed)
	}
	small := Shrink(w, func(w *World) bool { return len(w.Storms) > 0 && w.Load.Items >= 7 })
	want := fmt.Sprintf(`{"seed":0,"load":{"items":7},"lanes":1,"serve":{"latency":1},"storms":[{"at":0,"for":0,"status":%d}],"config":{}}`, small.Storms[0].Status)
	if small.Line() != want || w.Line() == want {
		t.Errorf("%s\nwant %s", small.Line(), want)
	}
}

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := ParseScript(string(text))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		failures, err := s.Check(Knowing)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for _, failure := range failures {
			t.Errorf("%s: the knowing client: %s", file, failure)
		}
	}
}
