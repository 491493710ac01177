package agents_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/proc/agents"
)

func TestClocksOfRefusalsAreReadInTheirZones(t *testing.T) {
	for words, want := range map[string]string{
		"resets 2:30am (America/Los_Angeles)": "2026-03-08T10:30:00Z", // which that night's clocks leave out: it is 3:30 there
		"resets 4am (US/Pacific)":             "2026-03-08T11:00:00Z", // a legacy zone, after the change
		"resets Mar 9, 12am (Asia/Calcutta)":  "2026-03-08T18:30:00Z",
	} {
		now := time.Date(2026, 3, 8, 8, 0, 0, 0, time.UTC)
		m := known(t, "claude").Read(agents.End{ExitCode: 1, Stdout: text("You've hit your limit · " + words)}, now)
		if got := m.Until.UTC().Format(time.RFC3339); got != want || m.Kind != sluice.UsageWindow {
			t.Errorf("%s: %v until %s, want %s", words, m.Kind, got, want)
		}
	}
}

func TestResetsAreReadAsTheyAreWritten(t *testing.T) {
	const tuesday = "2026-03-31T12:00:00Z"
	for _, tt := range []struct{ now, words, want string }{
		{tuesday, "resets Apr 3, 6am", "2026-04-03T06:00:00Z"},
		{tuesday, "resets Apr 3, 6am (US/Pacific)", "2026-04-03T13:00:00Z"},
		{tuesday, "resets Apr 3 at 6am (PST)", "2026-04-03T13:00:00Z"}, // by the clocks there, whatever the season's name
		{tuesday, "resets Monday at 9am", "2026-04-06T09:00:00Z"},
		{tuesday, "resets Mon 9am (America/New_York)", "2026-04-06T13:00:00Z"},
		{tuesday, "resets tomorrow at 9am (UTC)", "2026-04-01T09:00:00Z"},
		{tuesday, "resets 12am (UTC)", "2026-04-01T00:00:00Z"},
		{tuesday, "resets 12pm (UTC)", "2026-03-31T12:00:00Z"},
		{"2026-03-31T12:03:00Z", "resets 12pm (UTC)", "2026-03-31T12:00:00Z"}, // it has just passed
		{"2026-03-31T12:07:00Z", "resets 12pm (UTC)", "2026-04-01T12:00:00Z"},
		{tuesday, "resets 12:30am (America/Los_Angeles)", "2026-04-01T07:30:00Z"},
		{tuesday, "resets 16:00 (Europe/Berlin)", "2026-03-31T14:00:00Z"},
		{tuesday, "resets 6am (Asia/Kathmandu)", "2026-04-01T00:15:00Z"},
		{tuesday, "resets 6am (GMT+5:30)", "2026-04-01T00:30:00Z"},
		{tuesday, "resets 6am (Etc/GMT+8)", "2026-03-31T14:00:00Z"},
		{tuesday, "resets 6am (EST5EDT)", "2026-04-01T10:00:00Z"},
		{tuesday, "resets in 3 hours 20 minutes", "2026-03-31T15:20:00Z"},
		{tuesday, "resets in 2d 4h", "2026-04-02T16:00:00Z"},
		{tuesday, "resets Mar 30, 6am (UTC)", "2026-03-30T06:00:00Z"},
		{"2026-12-31T22:00:00Z", "resets Jan 2, 6am (UTC)", "2027-01-02T06:00:00Z"},
		{"2026-11-01T05:00:00Z", "resets 1:30am (America/New_York)", "2026-11-01T06:30:00Z"}, // the later of the two
		{"2026-03-08T09:00:00Z", "resets 2:30am (America/Los_Angeles)", "2026-03-08T10:30:00Z"},
		{tuesday, "resets 4pm (Mars/Olympus)", ""},
		{tuesday, "resets 4pm (America/Nowhere)", ""},
		{tuesday, "resets Feb 30, 6am (UTC)", ""},
	} {
		now, _ := time.Parse(time.RFC3339, tt.now)
		m := known(t, "claude").Read(agents.End{ExitCode: 1, Stdout: text("You've hit your limit · " + tt.words)}, now)
		got := ""
		if !m.Until.IsZero() {
			got = m.Until.UTC().Format(time.RFC3339)
		}
		if got != tt.want || m.Kind != sluice.UsageWindow {
			t.Errorf("%s at %s: %v until %s, want %s", tt.words, tt.now, m.Kind, got, tt.want)
		}
	}
	now, _ := time.Parse(time.RFC3339, tuesday)
	for instant, want := range map[string]string{"1774972800": "2026-03-31T16:00:00Z", "1774972800000": "2026-03-31T16:00:00Z", "17749": ""} {
		m := known(t, "claude").Read(agents.End{ExitCode: 1, Stdout: text("Claude AI usage limit reached|" + instant)}, now)
		if m.Kind != sluice.UsageWindow || m.Until.IsZero() != (want == "") || want != "" && m.Until.UTC().Format(time.RFC3339) != want {
			t.Errorf("%s: %v until %v, want %s", instant, m.Kind, m.Until, want)
		}
	}
}

func TestAResetKeepsTheZoneOfItsWords(t *testing.T) {
	exact := time.Date(2026, 3, 2, 0, 0, 7, 0, time.UTC)
	for stdout, want := range map[string]string{
		"You've hit your limit · resets 4pm (America/Los_Angeles)": "16:00:00 PST",
		"You've hit your limit · resets 5pm (US/Pacific)":          "17:00:00 PST",
		"You've hit your limit · resets 4pm (UTC)":                 "16:00:00 UTC",
		limitEvent("rejected", "five_hour", exact, "") + claudeResult(true, 429, "You've hit your limit · resets 4pm (America/Los_Angeles)"): "16:00:07 PST",
	} {
		m := known(t, "claude").Read(agents.End{ExitCode: 1, Stdout: text(stdout)}, noon.In(time.FixedZone("here", 3600)))
		if got := m.Until.Format("15:04:05 MST"); got != want {
			t.Errorf("%s: until %s, want %s", stdout, got, want)
		}
	}
	m := known(t, "claude").Read(agents.End{ExitCode: 1, Stdout: text("Claude AI usage limit reached|1772380800")}, noon)
	if m.Until.Location() != time.Local {
		t.Errorf("seconds since 1970 are told in %v", m.Until.Location())
	}
}
