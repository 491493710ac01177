package account_test

import (
	"log/slog"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

func TestSnapshotsAreOfTheirModel(t *testing.T) {
	for id, want := range map[string]string{
		"gpt-4o-2024-08-06": "gpt-4o", "claude-opus-4-5-20251101": "claude-opus-4-5", "mistral-small-latest": "mistral-small",
		"gpt-4o": "gpt-4o", "gpt-4o-mini": "gpt-4o-mini", "-20251101": "-20251101", "m-20259901": "m-20259901", "": "",
	} {
		if got := account.ModelKey(id); got != want {
			t.Errorf("%q is of %q, want %q", id, got, want)
		}
	}
}

// Flags win over the file, and the file over the tier, each for its own limits alone.
func TestEachLimitIsOfTheNearestThatStatesIt(t *testing.T) {
	written := &config.Limits{Each: limits.Each[*config.Limit]{
		RPM:  &config.Limit{Value: 10, Source: limits.SourceConfigured},
		ITPM: &config.Limit{Value: 20, Source: limits.SourceMeasured},
		OTPM: &config.Limit{Value: 25, Source: limits.SourceMeasured},
		TPD:  &config.Limit{Value: 30, Source: limits.SourceHeader},
	}}
	s := &account.Settings{Registry: provider.Published(), Log: slog.New(slog.DiscardHandler)}
	s.File = config.File{Limits: written, Tier: "tier1"}
	p, _ := provider.Lookup("anthropic")
	flags := sluice.Limits{ITPM: 1, Concurrency: 2, Burst: 3}
	apply := func(c *sluice.Config, model string, flags sluice.Limits) error {
		a := &account.Accounts{Config: account.Config{Model: model, Limits: flags}, Settings: s}
		return a.ApplyLimits(c, p, "")
	}
	for _, model := range []string{"", "claude-sonnet-4-5"} { // of the file
		var c sluice.Config
		written.Model = model
		if err := apply(&c, "claude-sonnet-4-5-20250929", flags); err != nil {
			t.Fatal(err)
		}
		ceilings := sluice.Limits{RPM: 10, ITPM: 1, Concurrency: 2, Burst: 3}
		if c.Limits != ceilings {
			t.Errorf("ceilings %+v, want %+v", c.Limits, ceilings)
		}
		if want := (sluice.Limits{OTPM: 25, TPD: 30}); c.Start != want {
			t.Errorf("start %+v, want %+v", c.Start, want)
		}
		if model != "" {
			ceilings = flags
		}
		if c.Account != ceilings {
			t.Errorf("account %+v, want %+v", c.Account, ceilings)
		}
	}
	written.Model = ""
	s.File.Tier = "start"
	var c sluice.Config
	err := apply(&c, "claude-sonnet-5", sluice.Limits{RPM: 3})
	if err != nil || c.Start != (sluice.Limits{ITPM: 20, OTPM: 25, TPD: 30}) {
		t.Errorf("%+v, %v", c.Start, err)
	}
}

func TestAnAmountThatPassedGivesWayToAPublishedLimit(t *testing.T) {
	s := &account.Settings{Registry: provider.Published(), File: config.File{Limits: &config.Limits{}}}
	s.File.Limits.RPM = &config.Limit{Value: 90, Source: limits.SourceAtLeast}
	published := &config.Limits{}
	published.RPM = &config.Limit{Value: 500, Source: limits.SourcePublished}
	p, _ := provider.Lookup("openai")
	for want, layer := range map[float64]*config.Limits{500: published, 90: nil} {
		if l, err := s.Layered(sluice.Limits{}, p, "", "gpt-4o", layer); err != nil || l.RPM == nil || l.RPM.Value != want {
			t.Errorf("rpm %+v, %v, want %v", l.RPM, err, want)
		}
	}
}
