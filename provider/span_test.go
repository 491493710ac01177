package provider_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/provider"
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
		{"5,20 seconds", 5 * time.Second, ",20 seconds"},
		{"1234,567 ms", 1234 * time.Second, ",567 ms"},
		{"1,2345 ms", time.Second, ",2345 ms"},

		// words, ranges and ISO 8601
		{"an hour", time.Hour, ""},
		{"a minute or two", time.Minute, " or two"},
		{"one day and 2 hours", 26 * time.Hour, ""},
		{"una hora", time.Hour, ""},
		{"1 month", 30 * day, ""},
		{"30-60 seconds", time.Minute, ""},
		{"5 to 10 minutes", 10 * time.Minute, ""},
		{"1–2 hours.", 2 * time.Hour, "."},
		{"PT30S", 30 * time.Second, ""},
		{"pt1m30.5s.", 90500 * time.Millisecond, "."},
		{"P1DT2H", 26 * time.Hour, ""},

		// none
		{"a few minutes", 0, "a few minutes"},
		{"a while", 0, "a while"},
		{"one", 0, "one"},
		{"5,200 requests", 0, "5,200 requests"},
		{"3 to 5 regions", 0, "3 to 5 regions"},
		{"1772368200", 0, "1772368200"}, // an instant
		{"PT", 0, "PT"},
		{"pt5x", 0, "pt5x"},
		{"P1M", 0, "P1M"}, // a month, of whatever length
		{"2026-04-01", 0, "2026-04-01"},
	}
}

func TestDurationsInWordsAreRead(t *testing.T) {
	for _, c := range spanCases() {
		if d, rest := provider.Span(c.text); d != c.want || rest != c.rest {
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
			fmt.Sprintf("P%dDT%dH%dM%dS", days, h, m, s), fmt.Sprintf("PT%dS", n), fmt.Sprintf("%d天%d小时%d分钟%d秒", days, h, m, s),
			fmt.Sprintf("%d Tage, %d Stunden, %d Minuten und %d Sekunden", days, h, m, s), fmt.Sprintf("1-%d seconds", n),
		} {
			got, rest := provider.Span(text)
			if diff := (got - d).Abs(); diff > time.Microsecond || rest != "" {
				t.Errorf("%q: got %v and %q, want %v", text, got, rest, d)
			}
		}
	})
}

func TestDecimalCommasAreRead(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"rate limit: try again in 1,5 seconds": 1500 * time.Millisecond, "rate limit exceeded, retry in 0,25 s": 250 * time.Millisecond,
		"rate limit: try again in 1,200 seconds": 1200 * time.Second,
	} {
		body := []byte(`{"error":{"message":"` + text + `"}}`)
		if got := provider.Classify(provider.Provider{}, 429, nil, body, time.Now()).Wait; got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestSuggestionsNameEachOnce(t *testing.T) {
	if got := provider.Nearest("rmp", []string{"rpm", "rpm"}); len(got) != 1 {
		t.Errorf("%q", got)
	}
}
