package errtext_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/internal/errtext"
	_ "github.com/sluice-llm/sluice/internal/suite"
)

type spanCase struct {
	text string
	want time.Duration
	rest string
}

func spanCases() []spanCase {
	const day = 24 * time.Hour
	return []spanCase{
		{"6m0s", 6 * time.Minute, ""},
		{"5h59m59s", 6*time.Hour - time.Second, ""},
		{"3 hours, 43 minutes", 3*time.Hour + 43*time.Minute, ""},
		{"3 hours, and 43 minutes.", 3*time.Hour + 43*time.Minute, "."},
		{"1 day & 2 hours", 26 * time.Hour, ""},
		{"4.01:23:45", 4*day + time.Hour + 23*time.Minute + 45*time.Second, ""},

		// thousands
		{"1,200 seconds", 20 * time.Minute, ""},
		{"86,400 seconds", day, ""},
		{"2,500ms", 2500 * time.Millisecond, ""},
		{"1,200.5 s", 1200500 * time.Millisecond, ""},
		{"1,200", 20 * time.Minute, ""},
		{"1,234,567 ms", 1234567 * time.Millisecond, ""},
		{"30, then 60", 30 * time.Second, ", then 60"},

		// words and ranges
		{"an hour", time.Hour, ""},
		{"a minute or two", time.Minute, " or two"},
		{"one day and 2 hours", 26 * time.Hour, ""},
		{"1 month", 30 * day, ""},
		{"30-60 seconds", time.Minute, ""},
		{"5 to 10 minutes", 10 * time.Minute, ""},
		{"1–2 hours.", 2 * time.Hour, "."},

		// none
		{"a few minutes", 0, "a few minutes"},
		{"a while", 0, "a while"},
		{"one", 0, "one"},
		{"5,200 requests", 0, "5,200 requests"},
		{"3 to 5 regions", 0, "3 to 5 regions"},
		{"1772368200", 0, "1772368200"}, // an instant
		{"2026-04-01", 0, "2026-04-01"},
	}
}

func TestDurationsInWordsAreRead(t *testing.T) {
	for _, c := range spanCases() {
		if d, rest := errtext.Duration(c.text); d != c.want || rest != c.rest {
			t.Errorf("%q: got %v and %q, want %v and %q", c.text, d, rest, c.want, c.rest)
		}
	}
}

// grouped writes a number with commas between its thousands.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

func TestADurationIsReadInEveryFormThatItIsWrittenIn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 31*24*3600).Draw(t, "seconds")
		d := time.Duration(n) * time.Second
		days, h, m, s := n/86400, n/3600%24, n/60%60, n%60
		for _, text := range []string{
			d.String(), fmt.Sprint(n), grouped(n), fmt.Sprintf("%d seconds", n), fmt.Sprintf("%s seconds", grouped(n)), fmt.Sprintf("%s,000ms", grouped(n)),
			fmt.Sprintf("%d days %d hours %d minutes %d seconds", days, h, m, s), fmt.Sprintf("%dd%dh%dm%ds", days, h, m, s),
			fmt.Sprintf("%d days, %d hours, %d minutes, and %d seconds", days, h, m, s), fmt.Sprintf("%d.%02d:%02d:%02d", days, h, m, s),
			fmt.Sprintf("1-%d seconds", n),
		} {
			got, rest := errtext.Duration(text)
			if diff := (got - d).Abs(); diff > time.Microsecond || rest != "" {
				t.Errorf("%q: got %v and %q, want %v", text, got, rest, d)
			}
		}
	})
}

func FuzzSpan(f *testing.F) {
	for _, s := range []string{"6m0s", "2s81ms", "1.984999999s", "3 hours 43 minutes", "1 minute and 5 seconds", "4.01:23:45", "58 hours",
		"5 days 22 hours 11 minutes", "3小时43分钟", "2 horas y 5 minutos", "1e9s", "9999999999999999999d", "NaN", "-5s", "...", "1.2.3s"} {
		f.Add(s)
	}
	for _, c := range spanCases() {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, rest := errtext.Duration(s)
		if d < 0 || d > errtext.MaxWait || !strings.HasSuffix(s, rest) {
			t.Errorf("%q: %v, rest %q", s, d, rest)
		}
	})
}
