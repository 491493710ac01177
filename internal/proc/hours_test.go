package proc_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // as the binary has it

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/work"
)

// in is an instant such as 2026-03-11 11:59 in a zone. An offset behind it tells hours apart that a clock shows twice.
func in(t *testing.T, zone, text string) time.Time {
	t.Helper()
	where, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	if at, err := time.Parse("2006-01-02 15:04 -0700", text); err == nil {
		return at.In(where)
	}
	at, err := time.ParseInLocation("2006-01-02 15:04", text, where)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestNotBetween(t *testing.T) {
	// 2026-03-11 is a Wednesday.
	type instant struct{ now, until string } // until "" is now
	for _, test := range []struct {
		name, zone string
		hours      []string
		at         []instant
	}{
		{"hours of weekdays", "UTC", []string{"12:00-19:00 Mon-Fri UTC"}, []instant{
			{"2026-03-11 11:59", ""},
			{"2026-03-11 12:00", "2026-03-11 19:00"},
			{"2026-03-11 18:59", "2026-03-11 19:00"},
			{"2026-03-11 19:00", ""},
			{"2026-03-14 13:00", ""},
		}},
		{"in a zone of their own", "UTC", []string{"9:00-17:30 America/Los_Angeles"}, []instant{
			{"2026-01-05 16:59", ""},
			{"2026-01-05 17:00", "2026-01-06 01:30"},
			{"2026-07-05 16:00", "2026-07-06 00:30"},
		}},
		{"over midnight, by the day on which they begin", "UTC", []string{"22:00-06:00 Fri UTC"}, []instant{
			{"2026-03-13 05:00", ""},
			{"2026-03-13 22:00", "2026-03-14 06:00"},
			{"2026-03-14 05:59", "2026-03-14 06:00"},
			{"2026-03-14 22:30", ""},
		}},
		{"days over the weekend, and single ones", "UTC", []string{"08:00-09:00 sat-mon,WEDNESDAY UTC"}, []instant{
			{"2026-03-14 08:00", "2026-03-14 09:00"},
			{"2026-03-16 08:00", "2026-03-16 09:00"},
			{"2026-03-10 08:00", ""},
			{"2026-03-11 08:00", "2026-03-11 09:00"},
			{"2026-03-12 08:00", ""},
		}},
		{"whole days", "UTC", []string{"00:00-24:00 Sat,Sun UTC"}, []instant{
			{"2026-03-13 23:59", ""},
			{"2026-03-14 00:00", "2026-03-16 00:00"},
			{"2026-03-16 00:00", ""},
		}},
		{"one after the other", "UTC", []string{"14:00-15:00 UTC", "12:00-14:30 UTC", "15:00-16:00 Thu UTC"}, []instant{
			{"2026-03-11 12:00", "2026-03-11 15:00"},
			{"2026-03-12 12:00", "2026-03-12 16:00"},
		}},
		{"clocks go forward during them", "Europe/Berlin", []string{"01:00-04:00 Europe/Berlin"}, []instant{
			{"2026-03-29 00:59", ""},
			{"2026-03-29 01:00", "2026-03-29 04:00"}, // two hours on
		}},
		{"they end in the hour that is skipped", "Europe/Berlin", []string{"01:00-02:30 Europe/Berlin"}, []instant{
			{"2026-03-29 01:59", "2026-03-29 03:00"}, // a minute on
			{"2026-03-29 03:00", ""},
		}},
		{"they begin in the hour that is skipped", "America/New_York", []string{"02:30-04:00 America/New_York"}, []instant{
			{"2026-03-08 01:45", ""},
			{"2026-03-08 03:00", "2026-03-08 04:00"},
		}},
		{"a day that has no midnight", "America/Sao_Paulo", []string{"00:00-06:00 Sun America/Sao_Paulo"}, []instant{
			{"2018-11-03 23:30", ""}, // a Saturday
			{"2018-11-04 01:00", "2018-11-04 06:00"},
		}},
		{"clocks go back during them", "America/New_York", []string{"00:00-03:00 America/New_York"}, []instant{
			{"2026-11-01 00:00", "2026-11-01 03:00"}, // four hours on
			{"2026-11-01 01:30 -0500", "2026-11-01 03:00"},
		}},
		{"they end in the hour that comes twice", "America/New_York", []string{"00:00-01:30 America/New_York"}, []instant{
			{"2026-11-01 01:00 -0400", "2026-11-01 01:30 -0400"},
			{"2026-11-01 01:45 -0400", ""},
			{"2026-11-01 01:15 -0500", "2026-11-01 01:30 -0500"},
		}},
		{"clocks that are set by half an hour", "Australia/Lord_Howe", []string{"01:00-02:15 Australia/Lord_Howe"}, []instant{
			{"2026-10-04 01:30", "2026-10-04 02:30"}, // half an hour on
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, one := range test.at {
				now, want := in(t, test.zone, one.now), time.Time{}
				if one.until != "" {
					want = in(t, test.zone, one.until)
				}
				hours, err := proc.ParseHours(test.hours)
				if until := hours.End(now); err != nil || !until.Equal(want) {
					t.Errorf("at %v: until %v, want %v, error %v", now, until, want, err)
				}
			}
		})
	}
}

func TestHoursThatAreNone(t *testing.T) {
	for text, fine := range map[string]bool{
		"": false, "12:00": false, "12-19": false, "25:00-26:00": false, "12:60-13:00": false, "12:00-12:00": false, "00:00-12:00,12:00-24:00": false,
		"12:00-13:00 Mon-": false, "12:00-13:00 Mo": false, "12:00-13:00 Mon Mars/Olympus": false, "12:00-13:00 Mon UTC UTC": false,
		"12:00-13:00 UTC Mon-Fri": false, "12:00-13:00 ../../etc/passwd": false, "00:00-24:00": false, "00:00-24:00 Mon-Fri,Sat-Fri": false,
		"22:00-21:59 Mon,Wed,Fri,Sun": true, "12:00-13:00 Monday-Wednesday": true, "24:00-02:00": true,
	} {
		if _, err := proc.ParseHours([]string{text}); (err == nil) != fine || err != nil && !strings.Contains(err.Error(), "--not-between") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := proc.ParseHours([]string{"00:00-12:00 UTC", "12:00-24:00 UTC"}); err == nil {
		t.Error("hours that leave nothing are taken")
	}
}

func TestHoursPauseAScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // from 2000-01-01 00:00 UTC
		s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		hours, err := proc.ParseHours([]string{"23:30-00:45 UTC"})
		if err != nil {
			t.Fatal(err)
		}
		changes, start := 0, time.Now()
		stop := hours.Keep(s, &work.Pauses{}, slog.New(slog.DiscardHandler), func() { changes++ })
		if reason := hours.Reason(time.Now()); !strings.Contains(reason, "by --not-between (45") {
			t.Errorf("the reason is %q", reason)
		}
		permit, err := s.Acquire(t.Context(), sluice.Call{})
		if err != nil {
			t.Fatal(err)
		}
		permit.Release(sluice.Outcome{})
		stop()
		if took := time.Since(start).Round(time.Second); took != 45*time.Minute || hours.Reason(time.Now()) != "" || changes != 2 {
			t.Errorf("resumed after %v with %d changes, because %q", took, changes, hours.Reason(time.Now()))
		}
		stop()
	})
}
