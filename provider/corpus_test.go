package provider_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// sample is a line of a corpus: an error as it was found somewhere, and what it means.
type sample struct {
	ID        string
	Source    string `json:"source_url"`
	Provider  string // a hint; many are no API providers
	Channel   string // http, sdk or cli
	Status    int
	Headers   map[string]string
	Text      string
	Label     string   // a kind, or not_error
	Wait      *float64 `json:"retry_after_s"` // stated; nil: none is, or reset_text states it; -1: not looked at
	Reset     string   `json:"reset_text"`
	Until     string   `json:"reset_at"`
	Dimension string
	Probe     float64 `json:"probe_after_s"`
	Now       string
	Half      string
	Second    string `json:"second_label"` // of a second reader who did not know the first label, where it differs
}

func (c sample) now(t testing.TB) time.Time {
	if c.Now == "" {
		return noon
	}
	at, err := time.Parse(time.RFC3339, c.Now)
	if err != nil {
		t.Fatal(c.ID, err)
	}
	return at
}

// judge classifies a sample by its channel.
func (c sample) judge(t testing.TB) provider.Verdict {
	p, _ := provider.Lookup(c.Provider)
	if c.Channel != "http" || c.Status == 0 && len(c.Headers) == 0 {
		return provider.ClassifyText(p, c.Status, c.Text, c.now(t))
	}
	h := http.Header{}
	for k, v := range c.Headers {
		h.Set(k, v)
	}
	return provider.Classify(p, c.Status, h, []byte(c.Text), c.now(t))
}

func (c sample) kind() string { return strings.Replace(c.Label, "not_error", "ok", 1) }

func kindOf(t testing.TB, name string) (k sluice.Kind) {
	if err := k.UnmarshalText([]byte(name)); err != nil {
		t.Fatal(err)
	}
	return k
}

// corpus reads a file of samples.
func corpus(t testing.TB, path string) []sample {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []sample
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var c sample
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatalf("%s line %d: %v", path, len(list)+1, err)
		}
		list = append(list, c)
	}
	return list
}

// near reports whether a wait is the stated one, within a hundredth.
func near(got time.Duration, want float64) bool {
	return math.Abs(got.Seconds()-want) <= 0.01*want+1e-9
}

// Every error, header, wait and clock of the providers' published references, and every sentence of agents, that has
// an example.
func TestPublishedExamplesAreClassified(t *testing.T) {
	for _, c := range corpus(t, "testdata/published.jsonl") {
		v := c.judge(t)
		if v.Kind.String() != c.kind() {
			t.Errorf("%s: kind %v, want %s (%v): %.200s", c.ID, v.Kind, c.kind(), v.Why, c.Text)
			continue
		}
		want := 0.0
		if c.Wait != nil {
			want = *c.Wait
		}
		if want >= 0 && !near(v.Wait, want) {
			t.Errorf("%s: wait %v, want %vs: %.200s", c.ID, v.Wait, want, c.Text)
		}
		if at, _ := time.Parse(time.RFC3339, c.Until); c.Until != "" && !v.Until.Equal(at) {
			t.Errorf("%s: until %v, want %s: %.200s", c.ID, v.Until, c.Until, c.Text)
		}
		if c.Dimension != "" && v.Dimension.String() != c.Dimension {
			t.Errorf("%s: dimension %q, want %q: %.200s", c.ID, v.Dimension, c.Dimension, c.Text)
		}
		if v.Probe.Seconds() != c.Probe {
			t.Errorf("%s: probe %v, want %vs: %.200s", c.ID, v.Probe, c.Probe, c.Text)
		}
	}
}

// Texts of all channels, as they were found. -v prints which kinds are taken for which, every miss, and the rules that few lines
// fall under.
func TestCorpusIsClassified(t *testing.T) {
	t.Run("errors.jsonl", func(t *testing.T) { judgeCorpus(t, corpus(t, "testdata/errors.jsonl")) })
}

// Texts that were collected later, from other sources. Of those in half "held" none was read while the table was written: -v prints
// no text of them. Services that serve no model write the same words as providers, and reports quote errors, so not all can be right.
func TestCollectedTextsAreClassified(t *testing.T) {
	const least = 75 // %
	for _, half := range [...]string{"dev", "dev2", "held"} {
		t.Run(half, func(t *testing.T) {
			table, rules := map[[2]string]int{}, map[string]int{}
			all, right := 0, 0
			for _, c := range corpus(t, "testdata/collected.jsonl") {
				if c.Half != half {
					continue
				}
				p, _ := provider.Lookup(c.Provider)
				v := c.judge(t)
				got := strings.Replace(v.Kind.String(), "ok", "not_error", 1)
				if v.Kind == sluice.Auth && c.Channel == "http" && c.Label != "auth" {
					got = v.Outcome(p, c.Status, "").Kind.String() // what one request proves of the key
				}
				all++
				if got == c.Label || got == c.Second {
					right++
				} else if table[[2]string{c.Label, got}]++; half != "held" {
					t.Logf("%s %s: %s, want %s (%v): %q", c.ID, c.Channel, got, c.Label, v.Why, shorten(c.Text))
				}
			}
			report(t, table, rules)
			t.Logf("%d of %d kinds", right, all)
			if right*100 < all*least {
				t.Errorf("%d of %d kinds are right, which is below %d %%", right, all, least)
			}
		})
	}
}

// judgeCorpus fails if a kind or a wait is wrong, and when something waits that is no limit.
func judgeCorpus(t *testing.T, samples []sample) {
	const least = 100
	table := map[[2]string]int{}
	rules := map[string]int{}
	right, waits, exact := 0, 0, 0
	for _, c := range samples {
		v := c.judge(t)
		got := v.Kind.String()
		table[[2]string{c.kind(), got}]++
		rules[v.Why.Rule]++
		if got == c.kind() {
			right++
		} else {
			t.Logf("%s %s: %s, want %s (%v): %q", c.ID, c.Channel, got, c.kind(), v.Why, shorten(c.Text))
		}
		if (v.Wait > 0 || !v.Until.IsZero()) && !v.Kind.Throttle() && v.Kind != sluice.QuotaExhausted {
			t.Errorf("%s: %s waits %v", c.ID, got, v.Wait)
		}
		if c.Wait == nil {
			if v.Wait > 0 && c.Reset == "" && got == c.kind() {
				t.Logf("%s: a wait of %v that is not stated: %q", c.ID, v.Wait, shorten(c.Text))
			}
			if c.Reset != "" && v.Until.IsZero() && v.Wait == 0 {
				t.Logf("%s: reset %q is not read: %q", c.ID, c.Reset, shorten(c.Text))
			}
			continue
		}
		if !kindOf(t, c.kind()).Throttle() {
			continue // what a client chose to wait for something else than a limit is none
		}
		waits++
		if near(v.Wait, *c.Wait) {
			exact++
		} else {
			t.Logf("%s: wait %v, want %vs (%s): %q", c.ID, v.Wait, *c.Wait, got, shorten(c.Text))
		}
	}
	report(t, table, rules)
	t.Logf("%d of %d kinds, %d of %d waits", right, len(samples), exact, waits)
	if exact*100 < waits*least {
		t.Errorf("%d of %d waits are right, which is below %d %%", exact, waits, least)
	}
	if right*100 < len(samples)*least {
		t.Errorf("%d of %d kinds are right, which is below %d %%", right, len(samples), least)
	}
}

// report prints the table of kinds against verdicts, and the rules that fewer than three lines fall under.
func report(t *testing.T, table map[[2]string]int, rules map[string]int) {
	var b strings.Builder
	for _, pair := range slices.SortedFunc(maps.Keys(table), func(a, b [2]string) int {
		return strings.Compare(a[0]+" "+a[1], b[0]+" "+b[1])
	}) {
		mark := ""
		if pair[0] != pair[1] {
			mark = "  <--"
		}
		fmt.Fprintf(&b, "\n%16s as %-16s %4d%s", pair[0], pair[1], table[pair], mark)
	}
	t.Log(b.String())
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		if rules[name] < 3 {
			t.Logf("rule %q matches %d", name, rules[name])
		}
	}
}

func shorten(s string) string {
	if len(s) > 260 {
		return s[:200] + " ... " + s[len(s)-55:]
	}
	return s
}
