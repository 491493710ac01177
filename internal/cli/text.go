package cli

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/internal/prose"
)

// Rows of figures are made of these again and again.

func group[N int | int64 | float64](n N) string { return prose.Group(n) }

func number(n float64) string { return prose.Number(n) }

func count(n int, thing string) string { return prose.Count(n, thing) }

func dollars(usd float64) string { return prose.Dollars(usd) }

func span(d time.Duration) string { return prose.Span(d) }

// clock writes the instant t as seen at now: the local time, with the date if that is another day.
func clock(t, now time.Time) string { return prose.Clock(t, now, "15:04:05") }

// zoned writes an instant in the zone that it was stated in, by its name, and in local time where that is another.
func zoned(t, now time.Time) string {
	local := t.Local()
	here := minute(local, now.Local()) + local.Format(" MST")
	if _, east := t.Zone(); east == eastOf(local) {
		return here
	}
	return minute(t, now.In(t.Location())) + t.Format(" MST") + " (" + here + ")"
}

func eastOf(t time.Time) int {
	_, east := t.Zone()
	return east
}

// minute writes a time of the day, with the date if now is another day, and with seconds if there are some or it is soon.
func minute(t, now time.Time) string {
	layout := "15:04"
	if t.Second() != 0 || t.Sub(now) < 2*time.Minute {
		layout = "15:04:05"
	}
	if t.YearDay() != now.YearDay() || t.Year() != now.Year() {
		layout = "2006-01-02 " + layout
	}
	return t.Format(layout)
}

// bar draws done of total.
func bar(done, total, width int) string {
	if total <= 0 {
		return ""
	}
	share := float64(min(done, total)) / float64(total)
	full := int(share * float64(width))
	return fmt.Sprintf("[%s%s] %3d %%", strings.Repeat("#", full), strings.Repeat(".", width-full), int(share*100))
}

// clip shortens a text to width characters, so that a line of a status never wraps: after a whole field, if it has several.
func clip(text string, width int) string {
	runes := []rune(text)
	if width < 1 || len(runes) <= width {
		return text
	}
	if i := strings.LastIndex(string(runes[:width]), " · "); i > 0 {
		return text[:i]
	}
	return string(runes[:width-1]) + "…"
}

// betweenCells separates the cells of a table.
var betweenCells = regexp.MustCompile(` {2,}`)

// fold breaks the line of a table at width characters: in the last cell that begins in its left half.
func fold(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	at := 0
	for _, gap := range betweenCells.FindAllStringIndex(line, -1) {
		if gap[1] <= width/2 {
			at = gap[1]
		}
	}
	return line[:at] + strings.ReplaceAll(wrap(line[at:], width-at), "\n", "\n"+strings.Repeat(" ", at))
}

// shellQuote writes word so that a shell reads it as one.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@%+,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
