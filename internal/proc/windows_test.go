package proc_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/proc/agents"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestTheLastStatementOfEachWindowIsShownUntilItsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(noon))
		l := proc.NewLane()
		soon, late := noon.Add(2*time.Hour), noon.Add(72*time.Hour)
		for _, stated := range [][]agents.WindowUse{
			{{Name: "5-hour", Used: 0.5, HasUsed: true, Resets: soon}, {Name: "weekly", Resets: late}},
			{{Name: "5-hour", Used: 0.72, HasUsed: true, Resets: soon}},
			{{Name: "5-hour", Resets: soon}},
		} {
			l.State(stated...)
		}
		at := func(t time.Time) string { return t.Local().Format("15:04") }
		weekly := "weekly window: reset at " + late.Local().Format("2006-01-02 15:04")
		if got, want := l.Outlook(), "5-hour window: 72 % used, reset at "+at(soon)+"; "+weekly; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		time.Sleep(3 * time.Hour)
		if got := l.Outlook(); got != weekly {
			t.Errorf("after the reset: %q", got)
		}
		l.State(agents.WindowUse{Name: "5-hour", Resets: noon.Add(7 * time.Hour)})
		if got, want := l.Outlook(), "5-hour window: reset at "+at(noon.Add(7*time.Hour))+"; "+weekly; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
