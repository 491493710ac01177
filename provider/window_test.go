package provider_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// july is a Thursday, 18:00 in Berlin and 9:00 in Los Angeles.
var july = time.Date(2026, 7, 23, 16, 0, 0, 0, time.UTC)

// A decimal or "2h30m" was once a clock, so that a limit per minute became a window of hours.
func TestWaitsAreNoClocks(t *testing.T) {
	for _, text := range []string{"Rate limit reached. Please retry after 1.25 seconds.", "Rate limit reached. Please retry after 0h30m.",
		"429 Too many requests, try again after 20.45s"} {
		if v := provider.ClassifyText(provider.Provider{}, 429, text, july); v.Kind != sluice.RateLimit || v.Wait == 0 || !v.Until.IsZero() {
			t.Errorf("%q: %v, wait %v, until %v", text, v.Kind, v.Wait, v.Until)
		}
	}
}

func TestAClockThatHasJustPassedIsNoWait(t *testing.T) {
	v := provider.ClassifyText(provider.Provider{}, 0, "You've hit your limit · resets 4pm (UTC)", july.Add(5*time.Second))
	if v.Kind != sluice.UsageWindow || v.Wait != 0 || !v.Until.Equal(july) {
		t.Errorf("%v, wait %v, until %v", v.Kind, v.Wait, v.Until)
	}
}
