package provider_test

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/sluice-llm/sluice/provider"
)

// july is a Thursday, 18:00 in Berlin and 9:00 in Los Angeles.
var july = time.Date(2026, 7, 23, 16, 0, 0, 0, time.UTC)

type windowCase struct{ text, want string }

func windowCases() []windowCase {
	return []windowCase{
		// clocks
		{"You've hit your limit · resets 4pm (America/Los_Angeles)", "2026-07-23T23:00:00Z"},
		{"You've hit your session limit · resets 8:30pm (Asia/Tokyo)", "2026-07-24T11:30:00Z"},
		{"Claude usage limit reached. Your limit will reset at 5pm (Europe/Warsaw).", "2026-07-24T15:00:00Z"},
		{"You've hit your limit · resets 1am (UTC)", "2026-07-24T01:00:00Z"},
		{"You've hit your limit · resets 12:50am (Europe/Berlin)", "2026-07-23T22:50:00Z"},
		{"You've hit your limit · resets 12pm (Europe/Berlin)", "2026-07-24T10:00:00Z"},
		{"You've hit your limit · resets 12am (America/New_York)", "2026-07-24T04:00:00Z"},
		{"Limits will reset at 9:30 PM. View your usage details.", "2026-07-23T21:30:00Z"},
		{"limit reached, resets at 18:45 (Europe/Berlin)", "2026-07-23T16:45:00Z"},
		{"limit reached, try again at 06:05 UTC", "2026-07-24T06:05:00Z"},
		{"Your limit will reset at midnight (US/Pacific)", "2026-07-24T07:00:00Z"},
		{"You've hit your limit · resets 3:20am (Asia/Calcutta)", "2026-07-23T21:50:00Z"},
		{"resets 3am (america/argentina/buenos_aires)", "2026-07-24T06:00:00Z"},
		{"resets 1pm (Etc/GMT+5)", "2026-07-23T18:00:00Z"},
		{"resets 1pm EST", "2026-07-23T17:00:00Z"},
		{"resets at 7pm PDT", "2026-07-24T02:00:00Z"},
		{"resets at 7pm Pacific Time", "2026-07-24T02:00:00Z"},
		{"resets 21:00 CET", "2026-07-23T19:00:00Z"},
		{"resets 21:00 GMT+2", "2026-07-23T19:00:00Z"},
		{"resets 21:00 (UTC+02:00)", "2026-07-23T19:00:00Z"},
		{"resets 21:00 UTC-03:30", "2026-07-24T00:30:00Z"},
		{"resets 8pm", "2026-07-23T20:00:00Z"}, // no zone: now's own
		{"resets 4pm", "2026-07-23T16:00:00Z"}, // this very instant

		// dates
		{"You've hit your weekly limit · resets Jul 26, 5:59am (America/New_York)", "2026-07-26T09:59:00Z"},
		{"You've hit your limit · resets Jul 31 at 12pm (UTC)", "2026-07-31T12:00:00Z"},
		{"try again at Aug 5th, 2026 8:19 PM.", "2026-08-05T20:19:00Z"},
		{"or try again after August 3, 2026 at 2:45 PM.", "2026-08-03T14:45:00Z"},
		{"You will regain access on 2026-08-01 at 00:00 UTC.", "2026-08-01T00:00:00Z"},
		{"quota resets at 2026-08-01T07:00:00Z", "2026-08-01T07:00:00Z"},
		{"quota resets at 2026-08-01T07:00:00.123+02:00", "2026-08-01T05:00:00Z"},
		{"will reset on 26 July at 9am UTC", "2026-07-26T09:00:00Z"},
		{"resets Jul 20, 9am (UTC)", "2026-07-20T09:00:00Z"}, // passed: not next July
		{"resets on Monday at 09:00 UTC", "2026-07-27T09:00:00Z"},
		{"resets Thu 3pm (UTC)", "2026-07-30T15:00:00Z"},
		{"resets Thu 5pm (UTC)", "2026-07-23T17:00:00Z"},
		{"resets tomorrow at 9am UTC", "2026-07-24T09:00:00Z"},
		{"usage limit reached|1784800000", "2026-07-23T09:46:40Z"},
		{"resets at 1784900000", "2026-07-24T13:33:20Z"},

		// other languages
		{"Has alcanzado tu límite de uso · se restablece a las 4 p. m. (America/Bogota)", "2026-07-23T21:00:00Z"},
		{"Tu límite se restablecerá el 26 de julio a las 17:30 (Europe/Madrid)", "2026-07-26T15:30:00Z"},
		{"Vous avez atteint votre limite · réinitialisation à 20h30 (Europe/Paris)", "2026-07-23T18:30:00Z"},
		{"Limit erreicht. Es wird um 20:30 Uhr (Europe/Berlin) zurückgesetzt.", "2026-07-23T18:30:00Z"},
		{"Você atingiu seu limite · redefine às 16h (America/Sao_Paulo)", "2026-07-23T19:00:00Z"},
		{"使用制限に達しました。午後8:30 (Asia/Tokyo) にリセットされます", "2026-07-24T11:30:00Z"},
		{"已达到使用上限，将于7月26日 05:59 (Asia/Shanghai) 重置", "2026-07-25T21:59:00Z"},
		{"使用上限，将于 下午4点 重置", "2026-07-23T16:00:00Z"},

		// no instants
		{"resets in 5 hours", ""},
		{"try again in 5 days 22 hours 11 minutes.", ""},
		{"please try again after 30 seconds", ""},
		{"please try again later", ""},
		{"reset reason: connection termination", ""},
		{"resets 4", ""},
		{"resets 25pm", ""},
		{"resets at 99:99", ""},
		{"resets at 9999-01-01 at 00:00 UTC", ""},
		{"connection reset by peer 104:443", ""},
	}
}

func TestResetsInWordsAreRead(t *testing.T) {
	for _, c := range windowCases() {
		at := provider.WindowEnd(c.text, july)
		got := ""
		if !at.IsZero() {
			got = at.Format(time.RFC3339)
		}
		if got != c.want {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
}

// New York puts its clocks forward at 2:00 on 8 March 2026, and back at 2:00 on 1 November.
func TestHoursThatAreLeftOutOrComeTwiceHaveAnInstant(t *testing.T) {
	cases := []struct{ name, now, text, want string }{
		{"a clock that is left out is taken as before the change", "2026-03-08T05:00:00Z", "resets 2:30am (America/New_York)", "2026-03-08T07:30:00Z"},
		{"before it", "2026-03-08T05:00:00Z", "resets 1:59am (America/New_York)", "2026-03-08T06:59:00Z"},
		{"after it", "2026-03-08T05:00:00Z", "resets 3am (America/New_York)", "2026-03-08T07:00:00Z"},
		{"a clock that comes twice is the later one", "2026-11-01T04:00:00Z", "resets 1:30am (America/New_York)", "2026-11-01T06:30:00Z"},
		{"between the two", "2026-11-01T05:45:00Z", "resets 1:30am (America/New_York)", "2026-11-01T06:30:00Z"},
		{"behind them", "2026-11-01T04:00:00Z", "resets 2am (America/New_York)", "2026-11-01T07:00:00Z"},
		{"tomorrow has 23 hours", "2026-03-07T20:00:00Z", "resets 2pm (America/New_York)", "2026-03-08T18:00:00Z"},
		{"a year's end", "2026-12-31T20:00:00Z", "resets Jan 2, 5am (UTC)", "2027-01-02T05:00:00Z"},
		{"a year's beginning", "2027-01-01T01:00:00Z", "resets Dec 31, 11pm (UTC)", "2026-12-31T23:00:00Z"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			now, err := time.Parse(time.RFC3339, c.now)
			if err != nil {
				t.Fatal(err)
			}
			if got := provider.WindowEnd(c.text, now).Format(time.RFC3339); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestAClockWithoutAZoneIsInTheLocationOfNow(t *testing.T) {
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	at := provider.WindowEnd("resets 4am", july.In(tokyo)) // 1:00 on the 24th there
	if want := time.Date(2026, 7, 23, 19, 0, 0, 0, time.UTC); !at.Equal(want) {
		t.Errorf("%v, want %v", at, want)
	}
	if at.Location() != time.UTC {
		t.Errorf("in %v: verdicts could not be compared", at.Location())
	}
}
