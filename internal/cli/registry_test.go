package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/provider"
)

func printed(t *testing.T, r *provider.Registry, asJSON bool) string {
	t.Helper()
	var out, err bytes.Buffer
	if err := listRegistry(newStreams(nil, nil, &out, &err), r, "", "", asJSON); err != nil {
		t.Fatal(err)
	}
	if err.Len() > 0 {
		t.Errorf("on standard error: %s", &err)
	}
	return out.String()
}

func TestTheTableHasEveryTier(t *testing.T) {
	text := printed(t, provider.Published(), false)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	rows := len(provider.Published().Tiers(""))
	for _, p := range provider.Published().All() {
		if len(provider.Published().Tiers(p.Name)) == 0 {
			rows++
		}
	}
	if len(lines) != rows+2 {
		t.Errorf("%d lines for %d rows:\n%s", len(lines), rows, text)
	}
	for _, want := range []string{
		"openai             tier1              gpt-4o gpt-4.1",
		"rpm 500, tpm 30,000  ",
		"1.32/3.96  2026-11",
		"2026-03-16 ?  https://github.com/continuedev/continue/issues/11472",
		"mistral            -                  -",
		"concurrent 2,500",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

func TestTheListInJSONIsComplete(t *testing.T) {
	var list struct {
		Providers []struct {
			Name, Dialect, Charge string
			Tiers                 []struct {
				Tier, Source string
				Models       []string
				Limits       map[string]int
				PriceIn      *float64 `json:"price_in"`
				LatencyMS    int      `json:"latency_ms"`
				Doubtful     bool
			}
		}
	}
	if err := json.Unmarshal([]byte(printed(t, provider.Published(), true)), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Providers) != len(provider.Published().Names()) {
		t.Errorf("%d providers", len(list.Providers))
	}
	for _, p := range list.Providers {
		if p.Name == "modal" && (len(p.Tiers) != 1 || p.Tiers[0].LatencyMS != 500 || p.Tiers[0].Limits["concurrent"] != 4 || !p.Tiers[0].Doubtful) {
			t.Errorf("%+v", p)
		}
		if p.Name == "anthropic" && (p.Dialect != "anthropic" || p.Charge != "actual") {
			t.Errorf("%+v", p)
		}
		if p.Tiers == nil {
			t.Errorf("%s has no list of tiers", p.Name)
		}
	}
}

func TestWhatAFileSaysIsHarmlessInTheTable(t *testing.T) {
	rpm := provider.Count(5)
	r, err := provider.Published().With(provider.Row{Name: "x\x1b[2J", Tiers: []provider.TierRow{{Tier: "a\tb\n", RPM: &rpm, Models: []string{"m\r"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if text := printed(t, r, false); strings.ContainsAny(text, "\x1b\r\t") || !strings.Contains(text, "rpm 5") {
		t.Errorf("%q", text)
	}
}
