package cli_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/provider"
)

func TestTheTableHasEveryTier(t *testing.T) {
	text := called(t, "plan", "--list")
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
		"concurrency 2,500",
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
				Limits    map[string]int
				LatencyMS int `json:"latency_ms"`
				Doubtful  bool
			}
		}
	}
	if err := json.Unmarshal([]byte(called(t, "plan", "--list", "--json")), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Providers) != len(provider.Published().Names()) {
		t.Errorf("%d providers", len(list.Providers))
	}
	for _, p := range list.Providers {
		if p.Name == "modal" && (len(p.Tiers) != 1 || p.Tiers[0].LatencyMS != 500 || p.Tiers[0].Limits["concurrency"] != 4 || !p.Tiers[0].Doubtful) {
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
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	put(t, file, "providers:\n  - {name: \"x\\e[2J\", tiers: [{tier: \"a\\tb\\n\", rpm: 5, models: [\"m\\r\"]}]}\n")
	if text := called(t, "plan", "--list", "--config", file); strings.ContainsAny(text, "\x1b\r\t") || !strings.Contains(text, "rpm 5") {
		t.Errorf("%q", text)
	}
}
