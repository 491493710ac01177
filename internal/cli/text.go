package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// group writes a whole number with a comma between groups of three digits.
func group[N int | int64 | float64](n N) string {
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

// span writes a duration as people say it: "41 s", "3 min 20 s", "2 h 05 min", "2 days 21 h".
func span(d time.Duration) string {
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

// clock writes the instant t as seen at now: the local time, with the date if that is another day.
func clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04")
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

// clip cuts text to width characters, so that a line of a status never wraps.
func clip(text string, width int) string {
	runes := []rune(text)
	if width < 1 || len(runes) <= width {
		return text
	}
	return string(runes[:width])
}

// percent writes a share of one; what is above nothing is never written as 0 %.
func percent(share float64) string {
	if share > 0 && share < 0.005 {
		return "<1 %"
	}
	return fmt.Sprintf("%.0f %%", share*100)
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
