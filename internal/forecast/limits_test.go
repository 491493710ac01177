package forecast

import (
	"testing"

	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/limits"
)

func TestAnAmountThatPassedGivesWayToAPublishedLimit(t *testing.T) {
	passed, published := &config.Limits{}, &config.Limits{}
	passed.RPM = &config.Limit{Value: 90, Source: limits.SourceAtLeast}
	published.RPM = &config.Limit{Value: 500, Source: limits.SourceRegistry}
	if all := layered(nil, passed, published); all.RPM == nil || all.RPM.Value != 500 {
		t.Errorf("rpm %+v, want 500", all.RPM)
	}
	if all := layered(passed, nil); all.RPM == nil || all.RPM.Value != 90 {
		t.Errorf("rpm %+v, want 90 if no limit is known", all.RPM)
	}
}
