package forecast_test

import (
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/forecast"
	"github.com/sluice-llm/sluice/limits"
)

func TestAPlanUsesTheTierOfTheSettings(t *testing.T) {
	s := open(t, settings("paid"), "one", sluice.Limits{}).Settings
	p, err := forecast.MakePlan(t.Context(), forecast.PlanConfig{Settings: s, Provider: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if rpm := p.Limits.RPM; p.Tier != "paid" || rpm == nil || rpm.Value != 60 || rpm.Source != limits.SourceRegistry {
		t.Errorf("tier %q, rpm %+v", p.Tier, rpm)
	}
}
