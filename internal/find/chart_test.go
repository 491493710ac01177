package find_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/limits"
)

// searchOf is a search that went through bursts of these sizes, of which so many calls at once were accepted, and single calls
// of which every third was refused, if there are any; it ended with a soak.
func searchOf(accepted, single, workers int, bursts ...int) []find.Probe {
	rng := rand.New(rand.NewPCG(1, 2))
	var probes []find.Probe
	add := func(phase find.Phase, inFlight int, latency float64, real, refused bool) {
		latency *= math.Exp(0.15 * rng.NormFloat64())
		probes = append(probes, find.Probe{Phase: phase, At: time.Duration(len(probes)) * time.Second, InFlight: inFlight, Real: real, Refused: refused,
			Latency: time.Duration(latency * float64(time.Second))})
	}
	for range 3 {
		add(find.PhaseShape, 1, 8, true, false)
	}
	for _, n := range bursts {
		for i := range n {
			add(find.PhaseGallop, i+1, 0.4, false, i >= accepted)
		}
	}
	for i := range single {
		add(find.PhaseRate, 1+i%2, 0.4, false, i%3 == 0)
	}
	for i := range 3 * workers {
		add(find.PhaseSoak, min(i+1, workers), 9, true, false)
	}
	return probes
}

// measuredAs is a value that was measured.
func measuredAs(x float64) find.Finding { return find.Finding{Value: x, Source: limits.SourceMeasured} }

// slots are findings of a concurrency that was measured.
func slots(n float64) find.Findings {
	return find.Findings{Limits: map[limits.Dimension]find.Finding{limits.Concurrency: measuredAs(n)}}
}

func rateBound() *find.Result {
	return &find.Result{Workers: 11, Bound: find.BoundRequests, Binding: find.Binding{Dimension: limits.Requests}, Findings: find.Findings{
		Limits: map[limits.Dimension]find.Finding{limits.Requests: measuredAs(598), limits.Concurrency: {Value: 64, Source: limits.SourceAtLeast}},
	}, Probes: searchOf(64, 200, 11, 4, 8, 16, 32, 64)}
}

func capBound() *find.Result {
	return &find.Result{Workers: 20, Bound: find.BoundConcurrency, Findings: slots(20), Probes: searchOf(20, 0, 20, 4, 8, 16, 32, 32)}
}

func queueBound() *find.Result {
	r := &find.Result{Workers: 16, Bound: find.BoundQueue, Findings: slots(16), Probes: searchOf(100, 0, 16, 4, 8, 16, 32, 32, 32)}
	r.Findings.Queue = true
	for i := range r.Probes {
		p := &r.Probes[i]
		p.Latency *= time.Duration(1 + (p.InFlight-1)/16)
	}
	return r
}

func drawn(t *testing.T, r *find.Result) []byte {
	t.Helper()
	var svg bytes.Buffer
	if err := find.Draw(&svg, r); err != nil {
		t.Fatal(err)
	}
	return svg.Bytes()
}

// chartTexts are the texts of an SVG, one a line.
func chartTexts(t *testing.T, svg []byte) string {
	t.Helper()
	var all []string
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return strings.Join(all, "\n")
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		if text, ok := token.(xml.CharData); ok && len(bytes.TrimSpace(text)) > 0 {
			all = append(all, string(bytes.TrimSpace(text)))
		}
	}
}

func TestDrawSaysTheAnswerAndWhatBindsIt(t *testing.T) {
	slow := capBound()
	slow.Bound = find.BoundSoak
	tokens := rateBound()
	tokens.Bound, tokens.Binding.Dimension = find.BoundTokens, limits.OutputTokens
	tokens.Findings.Limits = map[limits.Dimension]find.Finding{limits.OutputTokens: {Value: 8000, Source: limits.SourceHeader}}
	none := &find.Result{Bound: find.BoundNothing, Probes: []find.Probe{{InFlight: 1, Refused: true}}}
	stopped := &find.Result{Probes: []find.Probe{{InFlight: 1, Latency: time.Second}}}
	for _, c := range []struct {
		name   string
		result *find.Result
		want   []string
		never  string
	}{
		{"rate", rateBound(), []string{"11 workers: 598 requests a minute (measured)", "answer: 11", "accepted calls: 293", "refused calls: 67",
			"at least 64 open at once (verified)", "latency of real calls", "latency of tiny calls", "latency (s, log)", "calls in flight"}, ""},
		{"cap", capBound(), []string{"20 workers: 20 calls may be open at once (measured)", "answer: 20", "refused calls: 24"}, "open at once (verified)"},
		{"queue", queueBound(), []string{"16 workers: 16 calls are served at once, and the others wait (measured)", "answer: 16", "refused calls: 0"}, ""},
		{"soak", slow, []string{"20 workers: more were refused when they ran"}, ""},
		{"tokens", tokens, []string{"11 workers: 8,000 output tokens a minute (header)"}, ""},
		{"nothing", none, []string{"no number of workers is known to be safe: every call was refused sooner or later"}, "latency"},
		{"stopped", stopped, []string{"no number of workers is known to be safe", "latency (s)", "latency of tiny calls"}, "real"},
	} {
		all := chartTexts(t, drawn(t, c.result))
		for _, want := range c.want {
			if !strings.Contains("\n"+all+"\n", "\n"+want+"\n") {
				t.Errorf("%s: the chart does not say %q, but:\n%s", c.name, want, all)
			}
		}
		if c.never != "" && strings.Contains(all, c.never) {
			t.Errorf("%s: the chart says %q:\n%s", c.name, c.never, all)
		}
	}
}

// verticals are where the dashed vertical lines of black are.
func verticals(t *testing.T, svg []byte) []float64 {
	t.Helper()
	var at []float64
	for _, m := range regexp.MustCompile(`(?s)<path d="M([0-9.]+),([0-9.]+)L([0-9.]+),([0-9.]+)"\s+style="([^"]*)"`).FindAllSubmatch(svg, -1) {
		if x := string(m[1]); x == string(m[3]) && string(m[2]) != string(m[4]) && bytes.Contains(m[5], []byte("stroke-dasharray:6,3")) {
			n, err := strconv.ParseFloat(x, 64)
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, n)
		}
	}
	return at
}

func TestDrawMarksTheAnswerInBothPanels(t *testing.T) {
	where := make(map[int]float64)
	for _, workers := range []int{0, 4, 8, 16} {
		r := capBound()
		r.Workers = workers
		at := verticals(t, drawn(t, r))
		if workers == 0 {
			if len(at) > 0 {
				t.Errorf("no answer is marked at %v", at)
			}
			continue
		}
		if len(at) != 3 || at[0] != at[1] || at[1] != at[2] { // above and below the counts, and in the panel of latency
			t.Fatalf("%d workers are marked at %v", workers, at)
		}
		where[workers] = at[0]
	}
	if one, two := where[8]-where[4], where[16]-where[8]; one <= 0 || math.Abs(two-2*one) > 0.01*two {
		t.Errorf("4, 8 and 16 workers are marked at %v", where)
	}
}

func TestDrawStacksSharesThatAreWhole(t *testing.T) {
	r := &find.Result{Probes: []find.Probe{{InFlight: 1, Latency: time.Second}, {InFlight: 2, Refused: true}, {InFlight: 2, Latency: time.Second}, {InFlight: 3, Refused: true}}}
	svg := drawn(t, r)
	if blue, red := bytes.Count(svg, []byte("fill:#56B4E9")), bytes.Count(svg, []byte("fill:#D55E00")); blue != 3 || red != 3 { // and one in the legend
		t.Errorf("%d bars of accepted and %d of refused calls", blue, red)
	}
}

func TestDrawDrawsTheSameTwice(t *testing.T) {
	if first, again := drawn(t, rateBound()), drawn(t, rateBound()); !bytes.Equal(first, again) {
		t.Error("the same result makes other bytes")
	}
}

func TestDrawStaysSmallHoweverManyCallsThereWere(t *testing.T) {
	r := rateBound()
	for range 6 {
		r.Probes = append(r.Probes, r.Probes...)
	}
	if svg := drawn(t, r); len(svg) > 1_000_000 {
		t.Errorf("%d calls make %d bytes", len(r.Probes), len(svg))
	}
}

func TestDrawLeavesNoTextUnescaped(t *testing.T) {
	r := capBound()
	r.Bound = `"><script>alert('&')</script>`
	r.Findings.Limits[limits.Concurrency] = find.Finding{Value: 20, Source: `<b>`}
	svg := drawn(t, r)
	if bytes.Contains(svg, []byte("<script")) || bytes.Contains(svg, []byte("<b>")) {
		t.Error("a text became markup")
	}
	if all := chartTexts(t, svg); !strings.Contains(all, `20 workers: "><script>alert('&')</script>`) {
		t.Errorf("the chart says:\n%s", all)
	}
}

func TestDrawRefusesWhatCannotBeShown(t *testing.T) {
	var svg bytes.Buffer
	if err := find.Draw(&svg, &find.Result{Workers: 3}); err == nil || svg.Len() > 0 {
		t.Errorf("no calls: %v, %d bytes", err, svg.Len())
	}
	if err := find.Draw(brokenWriter{}, capBound()); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a writer's error is lost: %v", err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
