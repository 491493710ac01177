package cli

import (
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/provider"
)

func TestSnapshotsAreOfTheirModel(t *testing.T) {
	for id, want := range map[string]string{
		"gpt-4o-2024-08-06": "gpt-4o", "claude-opus-4-5-20251101": "claude-opus-4-5", "mistral-small-latest": "mistral-small",
		"gpt-4o": "gpt-4o", "gpt-4o-mini": "gpt-4o-mini", "-20251101": "-20251101", "m-20259901": "m-20259901", "": "",
	} {
		if got := family(id); got != want {
			t.Errorf("%q is of %q, want %q", id, got, want)
		}
	}
}

// Flags win over the file, and the file over the tier, each for its own limits alone.
func TestEachLimitIsOfTheNearestThatStatesIt(t *testing.T) {
	s := &settings{registry: provider.Published(), tier: "start", limits: &config.Limits{
		RPM:  &config.Limit{Value: 10, Source: config.SourceTold},
		ITPM: &config.Limit{Value: 20, Source: config.SourceMeasured},
		TPD:  &config.Limit{Value: 30, Source: config.SourceHeader},
	}}
	p, _ := provider.Lookup("anthropic")
	told, start, err := s.Limits(p, "claude-sonnet-5", sluice.Limits{ITPM: 1, Concurrent: 2, Burst: 3})
	if err != nil {
		t.Fatal(err)
	}
	if want := (sluice.Limits{RPM: 10, ITPM: 1, Concurrent: 2, Burst: 3}); told != want {
		t.Errorf("told %+v, want %+v", told, want)
	}
	if want := (sluice.Limits{OTPM: 400000, TPD: 30}); start != want {
		t.Errorf("start %+v, want %+v", start, want)
	}
}
