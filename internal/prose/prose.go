// Package prose writes numbers, sums, times, shares and what is quoted as people read them, alike in every text of ours.
package prose

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/limits"
)

// beyond is where whole numbers end: neither a reader nor an int64 has a use for so many digits.
const beyond = 1e15

// Group writes a whole number with a comma between groups of three digits. Of a fraction it takes the whole part.
func Group[N int | int64 | float64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Known writes a number, or the text for an unknown number.
func Known[N int | int64](n *N, unknown string) string {
	if n == nil {
		return unknown
	}
	return Group(*n)
}

// Number writes a figure, none below zero, with as many digits as it is worth.
func Number(n float64) string {
	switch {
	case n >= beyond:
		return fmt.Sprintf("%.3g", n)
	case n >= 100 || n == math.Trunc(n):
		return Group(n + 0.5)
	}
	return fmt.Sprintf("%.3g", n)
}

// Source returns the source of a limit, with the values of other sources if the provider publishes the limit.
func Source(source limits.Source, c limits.Claims) string {
	text, others := string(source), [...]struct {
		name  string
		value int64
	}{{"configured", c.Configured}, {"published", c.Published}, {"observed", c.Observed}}
	if c.Published == 0 || c.Configured+c.Observed == 0 {
		return text
	}
	sign := "; "
	for _, other := range others {
		if other.value > 0 && other.name != string(source) {
			text, sign = text+sign+other.name+" "+Group(other.value), ", "
		}
	}
	return text
}

// Limit writes a limit with its unit: "900 requests/min", "8 concurrent requests".
func Limit(d limits.Dimension, n int64) string { return Group(n) + " " + d.Counted("/min", "/day") }

// Limits lists limits with the names of their flags.
func Limits(all limits.Limits) string {
	var words []string
	for d, limit := range all.All() {
		if *limit > 0 {
			words = append(words, d.String()+" "+Group(*limit))
		}
	}
	if len(words) == 0 {
		return "none known"
	}
	return strings.Join(words, ", ")
}

// Fields joins the fields of a line, without empty ones.
func Fields(fields ...string) string {
	return strings.Join(slices.DeleteFunc(fields, func(f string) bool { return f == "" }), " · ")
}

// If returns the text if the number is not zero, and else "".
func If(n int, text string) string {
	if n == 0 {
		return ""
	}
	return text
}

// Count writes a number of things: "1 item", "2 items", "2 batches".
func Count(n int, thing string) string {
	if n != 1 && strings.HasSuffix(thing, "ch") {
		thing += "e"
	}
	if n != 1 {
		thing += "s"
	}
	return Group(n) + " " + thing
}

// Verb returns the form of a verb after a number of things.
func Verb(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}

// Thousands writes a count whose last digits say nothing: "9,999", "54k", "1.23M".
func Thousands(n int) string {
	switch {
	case n < 10_000:
		return Group(n)
	case n < 999_500:
		return fmt.Sprintf("%.0fk", float64(n)/1e3)
	}
	return fmt.Sprintf("%.3gM", float64(n)/1e6)
}

// Times writes how often something happened.
func Times(n int) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return Group(n) + " times"
}

// Dollars writes a sum of money, none below zero: cents, and of what is below a dollar the two digits that count.
func Dollars(usd float64) string {
	if usd > 1e-12 && usd < 0.995 {
		digits := max(2, 1-int(math.Floor(math.Log10(usd))))
		return "$" + strconv.FormatFloat(usd, 'f', digits, 64)
	}
	if usd >= beyond || usd > 0 && usd <= 1e-12 {
		return fmt.Sprintf("$%.3g", usd)
	}
	cents := int64(usd*100 + 0.5)
	return fmt.Sprintf("$%s.%02d", Group(cents/100), cents%100)
}

// RoundDollars takes off the noise of binary fractions, which is far below the price of a token.
func RoundDollars(usd float64) float64 {
	const unit = 1e12
	return math.Round(usd*unit) / unit
}

// Span writes a duration: "41 s", "3 min 20 s", "2 h 05 min", "2 days 21 h".
func Span(d time.Duration) string {
	s := int64(math.Round(d.Seconds()))
	switch {
	case d < 0:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %02d s", s/60, s%60)
	case s < 48*3600:
		return fmt.Sprintf("%d h %02d min", s/3600, s%3600/60)
	}
	hours := (s + 1800) / 3600
	if hours%24 == 0 {
		return fmt.Sprintf("%d days", hours/24)
	}
	return fmt.Sprintf("%d days %d h", hours/24, hours%24)
}

// Hours writes a long duration as providers state it, such as 24 h.
func Hours(d time.Duration) string {
	if d%time.Hour != 0 {
		return Span(d)
	}
	return Number(d.Hours()) + " h"
}

// Clock writes an instant as seen at another: the local time in that layout, or the date and time if that is another day.
func Clock(t, now time.Time, layout string) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() != now.YearDay() || t.Year() != now.Year() {
		layout = "2006-01-02 15:04"
	}
	return t.Format(layout)
}

// Zoned writes an instant in its own zone, with the name of the zone, and in local time if that differs.
func Zoned(t, now time.Time) string {
	local := t.Local()
	here := minute(local, now.Local()) + local.Format(" MST")
	_, east := t.Zone()
	if _, hereEast := local.Zone(); east == hereEast {
		return here
	}
	return minute(t, now.In(t.Location())) + t.Format(" MST") + " (" + here + ")"
}

// minute writes a time of day: with the date if now is another day, and with seconds if t has some or is soon.
func minute(t, now time.Time) string {
	layout := "15:04"
	if t.Second() != 0 || t.Sub(now) < 2*time.Minute {
		layout = time.TimeOnly
	}
	if t.YearDay() != now.YearDay() || t.Year() != now.Year() {
		layout = "2006-01-02 " + layout
	}
	return t.Format(layout)
}

// Percent writes a share of one; what is above nothing is never written as 0 %.
func Percent(share float64) string {
	if share > 0 && share < 0.005 {
		return "<1 %"
	}
	return fmt.Sprintf("%.0f %%", share*100)
}

// Counts writes numbers by name, the largest first.
func Counts(byName map[string]int) string {
	var parts []string
	for _, name := range LargestFirst(byName) {
		parts = append(parts, fmt.Sprintf("%s %s", Group(byName[name]), cmp.Or(name, "none")))
	}
	return strings.Join(parts, ", ")
}

// Shares writes the share of the time for which each limit held requests back, the largest first, and omits those near zero.
func Shares(byName map[string]float64) string {
	var fields []string
	for _, name := range LargestFirst(byName) {
		if share := byName[name]; share >= 0.005 {
			fields = append(fields, fmt.Sprintf("%s %s of the time", LimitName(name), Percent(share)))
		}
	}
	return cmp.Or(Fields(fields...), "nothing")
}

// LimitName returns the unit of the limit of that name, and the words of other names: "requests/min" for rpm, "no provider" for
// no_provider.
func LimitName(name string) string {
	var d limits.Dimension
	if d.UnmarshalText([]byte(name)) != nil {
		return strings.NewReplacer("redis", "Redis", "_", " ").Replace(name)
	}
	return d.Counted("/min", "/day")
}

// LargestFirst returns the names by falling value. It sorts names with the same value by their text.
func LargestFirst[K comparable, V cmp.Ordered](byName map[K]V) []K {
	return slices.SortedFunc(maps.Keys(byName), func(a, b K) int {
		return cmp.Or(cmp.Compare(byName[b], byName[a]), strings.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
}

// Clip shortens a text to so many bytes, at a rune's boundary, and marks where it was cut.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}
