package errtext_test

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/internal/errtext"
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

		// a weekday before a date, which says more
		{"resets at Thu, 23 Jul 2026 16:30:00 GMT", "2026-07-23T16:30:00Z"},
		{"resets at Fri, 24 Jul 2026 12:30 GMT", "2026-07-24T12:30:00Z"},
		{"resets at Fri, 24 Jul 2026 12:30:00 +0200", "2026-07-24T10:30:00Z"},
		{"resets at Friday, 24-Jul-26 12:30:00 GMT", "2026-07-24T12:30:00Z"},
		{"resets at Fri Jul 24 12:30:00 2026", "2026-07-24T12:30:00Z"},
		{"resets at Fri Jul 24 12:30:00 PDT 2026", "2026-07-24T19:30:00Z"},
		{"resets at Fri Jul 24 2026 12:30:00 GMT-0700 (Pacific Daylight Time)", "2026-07-24T19:30:00Z"},
		{"Your limit resets Sunday, July 26, 2026 at 12:30 PM (UTC)", "2026-07-26T12:30:00Z"},
		{"resets July 26 (Sunday) at 12:30 UTC", "2026-07-26T12:30:00Z"},
		{"resets Monday, 9am UTC", "2026-07-27T09:00:00Z"},
		{"resets at 12:30 PM UTC on July 26, 2026", "2026-07-26T12:30:00Z"},
		{"resets at 8:30 PM PT on Friday", "2026-07-25T03:30:00Z"},
		{"resets at 9am tomorrow (UTC)", "2026-07-24T09:00:00Z"},
		{"resets 2026-07-26 12:30:45 +0000 UTC", "2026-07-26T12:30:45Z"},
		{"resets tonight at midnight UTC", "2026-07-24T00:00:00Z"},
		{"resets daily at 00:00 UTC", "2026-07-24T00:00:00Z"},
		{"resets 12 midnight UTC", "2026-07-24T00:00:00Z"},
		{"resets 16:45:30", "2026-07-23T16:45:30Z"},
		{"resets at 16:45 PM", "2026-07-23T16:45:00Z"},
		{"Retry-After: 1784900000", "2026-07-24T13:33:20Z"},
		{"resets Feb 29, 2027 at 9am UTC", ""},
		{"resets Feb 29 at 9am UTC", ""},
		{"resets 2026-07-26 Sunday 12:30 UTC", "2026-07-26T12:30:00Z"},
		{"RESETS JUL 25 (SAT) AT 12:30 UTC", "2026-07-25T12:30:00Z"},
		{"resets Jul 26 4pm 2000 tokens", "2026-07-26T16:00:00Z"},

		// a clock that has just passed
		{"resets 3:56pm", "2026-07-23T15:56:00Z"},
		{"resets 3:54pm", "2026-07-24T15:54:00Z"},
		{"resets Thu 3:56pm", "2026-07-23T15:56:00Z"},
		{"resets Thu 3:54pm", "2026-07-30T15:54:00Z"},

		// zones in words
		{"resets 5pm Pacific", "2026-07-24T00:00:00Z"},
		{"resets 5pm Eastern.", "2026-07-23T21:00:00Z"},
		{"resets 5pm (Pacific Standard Time)", "2026-07-24T00:00:00Z"},
		{"resets 5pm PT", "2026-07-24T00:00:00Z"},
		{"resets 5pm ET, or upgrade", "2026-07-23T21:00:00Z"},
		{"resets 5pm in Pacific Time", "2026-07-24T00:00:00Z"},
		{"resets 5pm local time", "2026-07-23T17:00:00Z"},
		{"resets 5pm (your local time)", "2026-07-23T17:00:00Z"},
		{"resets 5pm (in 1 hour)", "2026-07-23T17:00:00Z"},
		{"resets 5pm and/or upgrade", "2026-07-23T17:00:00Z"},
		{"resets 21:00 (PST, UTC-8)", "2026-07-24T04:00:00Z"},
		{"resets at UTC 17:00", "2026-07-23T17:00:00Z"},
		{"resets 5pm ( UTC )", "2026-07-23T17:00:00Z"},

		// zones that nobody knows
		{"resets 5pm (Mars/Olympus)", ""},
		{"resets 5pm Mars/Olympus", ""},
		{"resets Jul 26, 5pm (Mars/Olympus)", ""},
		{"resets 5pm XQT", ""},

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
		{"retry after 1.25 seconds", ""},
		{"retry after 2h30m", ""},
		{"try again after 5h", ""},
		{"resets monthly", ""},
		{"available until terminated", ""},
	}
}

func TestResetsInWordsAreRead(t *testing.T) {
	for _, c := range windowCases() {
		at := errtext.Until(c.text, july).UTC()
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
			if got := errtext.Until(c.text, now).UTC().Format(time.RFC3339); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// changes are where calendars are odd: clocks that are put forward and back, ends of years, leap days.
var changes = []string{"2026-03-08T10:00:00Z", "2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", "2026-11-01T06:00:00Z", "2026-04-04T16:00:00Z",
	"2026-10-03T16:00:00Z", "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z", "2028-02-29T12:00:00Z", "2028-03-01T00:00:00Z", "2026-07-23T16:00:00Z"}

var homes = []string{"UTC", "America/Los_Angeles", "America/New_York", "America/Sao_Paulo", "Europe/London", "Europe/Berlin", "Asia/Kolkata",
	"Asia/Kathmandu", "Asia/Tokyo", "Australia/Sydney", "Australia/Lord_Howe", "Pacific/Auckland"}

// forms are layouts of whole instants. ZONE stands for the name of a zone.
var forms = []string{time.RFC3339, "2006-01-02T15:04:05.000-07:00", "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05-07:00", "2006/01/02 15:04:05 (ZONE)",
	"Mon, 02 Jan 2006 15:04:05 -0700", "Mon Jan 02 2006 15:04:05 GMT-0700", "Mon Jan _2 15:04:05 ZONE 2006", "Mon Jan _2 15:04:05 2006 (ZONE)",
	"Monday, 02-Jan-06 15:04:05 -0700", "Monday, January 2, 2006 at 3:04:05 PM (ZONE)", "January 2, 2006, 3:04:05 PM ZONE", "Jan 2, 2006 at 3:04:05pm (ZONE)",
	"Jan 2 2006 15:04:05 UTC-07:00", "2 January 2006 at 15:04:05 ZONE", "3:04:05 PM ZONE on Monday, January 2, 2006",
	"15:04:05 on Jan 2 (ZONE)", "January 2 (Monday) at 15:04:05 (ZONE)", "01/02/2006 3:04:05 PM ZONE"}

// nearForms are layouts of what lies within a day.
var nearForms = []string{"3:04:05pm (ZONE)", "3:04:05 PM ZONE", "15:04:05 (ZONE)", "Mon 15:04:05 (ZONE)", "Monday at 3:04:05 PM ZONE", "3:04:05 PM ZONE on Monday"}

func TestAnInstantIsReadInEveryFormThatItIsWrittenIn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		change, err := time.Parse(time.RFC3339, rapid.SampledFrom(changes).Draw(t, "change"))
		if err != nil {
			t.Fatal(err)
		}
		zone := rapid.SampledFrom(homes).Draw(t, "zone")
		home, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		now := change.Add(time.Duration(rapid.IntRange(-2*86400, 2*86400).Draw(t, "now")) * time.Second)
		read := func(at time.Time, layouts []string) {
			at = at.In(home)
			if again(at) {
				return // the hour comes once more, and that is the one that is meant
			}
			for _, layout := range layouts {
				text := "resets at " + strings.ReplaceAll(at.Format(layout), "ZONE", zone)
				if got := errtext.Until(text, now); !got.Equal(at) {
					t.Errorf("%q at %v: got %v, want %v", text, now, got, at.UTC())
				}
			}
		}
		read(now.Add(time.Duration(rapid.IntRange(-150*86400, 150*86400).Draw(t, "far"))*time.Second), forms)
		read(now.Add(time.Duration(rapid.IntRange(-240, 22*3600).Draw(t, "near"))*time.Second), nearForms)
	})
}

// again reports whether clocks will show the same time once more, because they are put back.
func again(at time.Time) bool {
	for _, d := range []time.Duration{30 * time.Minute, time.Hour} {
		if at.Add(d).Format(time.DateTime) == at.Format(time.DateTime) {
			return true
		}
	}
	return false
}

func TestAClockWithoutAZoneIsInTheLocationOfNow(t *testing.T) {
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	at := errtext.Until("resets 4am", july.In(tokyo)).UTC() // 1:00 on the 24th there
	if want := time.Date(2026, 7, 23, 19, 0, 0, 0, time.UTC); !at.Equal(want) {
		t.Errorf("%v, want %v", at, want)
	}
}

func FuzzWindow(f *testing.F) {
	for _, c := range windowCases() {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const most = 400 * 24 * time.Hour
		at := errtext.Until(text, july)
		if d := at.Sub(july); !at.IsZero() && (d > most || d < -most) {
			t.Errorf("%v", at)
		}
		if again := errtext.Until(text, july); !again.Equal(at) {
			t.Errorf("%v, then %v", at, again)
		}
	})
}
