package prose_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/prose"
)

func TestTexts(t *testing.T) {
	night := time.Date(2026, 3, 1, 23, 59, 58, 0, time.Local)
	tests := []struct{ got, want string }{
		{prose.Clock(night, night.Add(-time.Hour), "15:04"), "23:59"},
		{prose.Clock(night, night.Add(time.Minute), "15:04:05"), "2026-03-01 23:59"},
		{prose.Group(0), "0"}, {prose.Group(999), "999"}, {prose.Group(1000), "1,000"}, {prose.Group(-1234567), "-1,234,567"},
		{prose.Group(30000.9), "30,000"}, {prose.Number(2.345), "2.35"}, {prose.Number(1234.5), "1,235"}, {prose.Number(1e18), "1e+18"},
		{prose.Count(1, "item"), "1 item"}, {prose.Count(2000, "item"), "2,000 items"}, {prose.Count(0, "item"), "0 items"},
		{prose.Thousands(9_999), "9,999"}, {prose.Thousands(54_400), "54k"}, {prose.Thousands(999_499), "999k"}, {prose.Thousands(1_000_000), "1M"},
		{prose.Thousands(1_234_000), "1.23M"}, {prose.Times(0), "never"}, {prose.Times(1), "once"}, {prose.Times(2), "2 times"},
		{prose.Dollars(0), "$0.00"}, {prose.Dollars(0.1), "$0.10"}, {prose.Dollars(0.012), "$0.012"}, {prose.Dollars(2.1e-5), "$0.000021"},
		{prose.Dollars(0.999), "$1.00"}, {prose.Dollars(12345.678), "$12,345.68"}, {prose.Dollars(1e-300), "$1e-300"},
		{prose.Span(-time.Second), "0 s"}, {prose.Span(28 * time.Millisecond), "28 ms"}, {prose.Span(4200 * time.Millisecond), "4.2 s"},
		{prose.Span(41 * time.Second), "41 s"}, {prose.Span(200 * time.Second), "3 min 20 s"}, {prose.Span(125 * time.Minute), "2 h 05 min"},
		{prose.Span(72 * time.Hour), "3 days"}, {prose.Span(69*time.Hour + 24*time.Minute), "2 days 21 h"}, {prose.Span(72*time.Hour - time.Minute), "3 days"},
		{prose.Percent(0), "0 %"}, {prose.Percent(0.001), "<1 %"}, {prose.Percent(0.984), "98 %"},
		{prose.Counts(map[string]int{"a": 2, "b": 3000, "": 2}), "3,000 b, 2 none, 2 a"}, {prose.Counts(nil), ""},
		{prose.Shares(map[string]float64{"rpm": 0.25, "tpm": 0.004}), "requests/min 25 % of the time"}, {prose.Shares(nil), "nothing"},
		{prose.Clip("short", 5), "short"}, {prose.Clip("longer", 5), "longe…"}, {prose.Clip("aéé", 4), "aé…"}, {prose.Clip("é", 1), "…"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func TestZonedHasTheStatedZoneAndTheLocalOne(t *testing.T) {
	pacific := time.FixedZone("PDT", -7*3600)
	if _, east := time.Date(2026, 7, 1, 16, 0, 0, 0, time.Local).Zone(); east == -7*3600 {
		t.Skip("the local zone is that of the test")
	}
	now := time.Date(2026, 7, 1, 21, 2, 0, 0, time.UTC)
	for until, want := range map[time.Time]string{
		time.Date(2026, 7, 1, 16, 0, 0, 0, pacific): "16:00 PDT (",
		time.Date(2026, 7, 1, 16, 0, 1, 0, pacific): "16:00:01 PDT (",
		time.Date(2026, 7, 1, 14, 3, 7, 0, pacific): "14:03:07 PDT (",
		time.Date(2026, 7, 3, 6, 0, 0, 0, pacific):  "2026-07-03 06:00 PDT (",
	} {
		if got := prose.Zoned(until, now); got != want+prose.Zoned(until.Local(), now)+")" {
			t.Errorf("%v is written as %q, want %q and local time", until, got, want)
		}
	}
}
