package provider

import (
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// maxWait caps what any text may make us wait: longer than every window that providers have.
const maxWait = 31 * 24 * time.Hour

// positive returns d between 0 and maxWait.
func positive(d time.Duration) time.Duration { return max(0, min(d, maxWait)) }

// seconds reads a number of units, with or without decimals; 0 for what is none, not positive or not finite.
func seconds(s string, unit time.Duration) time.Duration {
	s = strings.TrimSpace(s)
	if s == "" || s[0] != '.' && (s[0] < '0' || s[0] > '9') {
		return 0 // also spares strconv its error's allocation for dates
	}
	for i := range len(s) {
		if c := s[i]; c != '.' && (c < '0' || c > '9') {
			return 0
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0
	}
	return scaled(f, unit)
}

// scaled returns f units, positive and capped. NaN is 0.
func scaled(f float64, unit time.Duration) time.Duration {
	f *= float64(unit)
	switch {
	case !(f > 0):
		return 0
	case f >= float64(maxWait):
		return maxWait
	}
	return time.Duration(f + 0.5)
}

// count reads a header that is a number of things: not negative, and small enough for a float. Anything after the
// digits that is not part of a number is let pass ("100, 100;w=60" of the IETF draft).
func count(v []string) (int64, bool) {
	if len(v) == 0 {
		return 0, false
	}
	s := strings.TrimSpace(v[0])
	var n int64
	i := 0
	for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		if n = n*10 + int64(s[i]-'0'); n > 1<<53 {
			return 0, false
		}
	}
	if i == 0 || i < len(s) && s[i] != ',' && s[i] != ';' && s[i] != '.' && s[i] != ' ' {
		return 0, false
	}
	return n, true
}

// resetForm is how a header states when a budget is full again.
type resetForm uint8

const (
	noReset     resetForm = iota
	bucketReset           // a duration with units, to the millisecond: the time until the bucket is full
	exactReset            // an instant or seconds, with decimals
	secondReset           // an instant or seconds, rounded to whole ones
)

// resetIn reads when a budget is full again: a duration ("6m0s"), an instant (RFC 3339, or an epoch in seconds or
// milliseconds), or seconds.
func resetIn(s string, h http.Header, now time.Time) (time.Duration, resetForm) {
	const (
		epoch       = 1e9 // 2001; no reset is as many seconds away
		epochMillis = 1e12
	)
	s = strings.TrimSpace(s)
	if s == "" {
		return 0, noReset
	}
	form := secondReset
	if strings.IndexByte(s, '.') >= 0 {
		form = exactReset
	}
	if len(s) >= len("2006-01-02T15:04:05Z") && s[4] == '-' {
		at, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return 0, noReset
		}
		return positive(at.Sub(serverTime(h, now))), form
	}
	if last := s[len(s)-1]; last >= '0' && last <= '9' || last == '.' {
		f, err := strconv.ParseFloat(s, 64)
		switch {
		case err != nil || f < 0:
			return 0, noReset
		case f >= epochMillis && f < 1e15:
			return positive(time.UnixMilli(int64(f)).Sub(serverTime(h, now))), exactReset
		case f >= epoch && f < epochMillis:
			return positive(time.Unix(int64(f), 0).Sub(serverTime(h, now))), form
		}
		return seconds(s, time.Second), form
	}
	d, rest := span(s)
	if d == 0 || rest != "" {
		return 0, noReset
	}
	return d, bucketReset
}

// span reads a duration from the beginning of s, and returns what follows it. It takes what APIs write in headers and
// in sentences: "6m0s", "2s81ms", "1.984999999s", "7 seconds", "3 hours 43 minutes", "1 minute and 5 seconds",
// "4.01:23:45". A number alone is seconds. It returns 0 when there is none.
func span(s string) (d time.Duration, rest string) {
	if d, rest, ok := clock(s); ok {
		return d, rest
	}
	var (
		total float64 // nanoseconds
		any   bool
	)
	rest = s
	for {
		t := strings.TrimLeft(rest, " \t\n")
		if any {
			for _, and := range [...]string{"and ", "y ", "et ", "und ", "e "} {
				t = strings.TrimPrefix(t, and)
			}
			t = strings.TrimLeft(t, ", ")
		}
		number, after := digits(t)
		if number == "" {
			break
		}
		f, err := strconv.ParseFloat(number, 64)
		if err != nil {
			break
		}
		u, after2 := unit(after)
		if u == 0 && any {
			break // another number, not a part of the duration
		}
		if u == 0 && !endsPhrase(after) {
			break // a date, or a number of something else
		}
		any = true
		if u == 0 {
			total, rest = f*float64(time.Second), after
			break
		}
		total += f * float64(u)
		rest = after2
	}
	if !any {
		return 0, s
	}
	return scaled(total, 1), rest
}

// endsPhrase reports whether what follows a number leaves it a number alone.
func endsPhrase(s string) bool {
	t := strings.TrimLeft(s, " ")
	return t == "" || strings.IndexByte(".,;)]}\"'\n!", t[0]) >= 0
}

// digits cuts a decimal number off the beginning of s. A dot that ends a sentence is not part of it.
func digits(s string) (number, rest string) {
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.') {
		i++
	}
	for i > 0 && s[i-1] == '.' {
		i--
	}
	return s[:i], s[i:]
}

// unit cuts a unit of time off the beginning of s; 0 when there is none.
func unit(s string) (time.Duration, string) {
	s = strings.TrimLeft(s, " \t\n\u00a0")
	i := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsLetter(r) })
	if i < 0 {
		i = len(s)
	}
	if d, ok := unitOf(strings.ToLower(s[:i])); ok {
		return d, s[i:]
	}
	for _, u := range hanUnits {
		if rest, ok := strings.CutPrefix(s, u.name); ok {
			return u.unit, rest
		}
	}
	return 0, s
}

// unitOf returns the unit of time of a name: of Go's durations, then of English, Spanish, French, German, Portuguese and
// Italian sentences.
func unitOf(name string) (time.Duration, bool) {
	switch name {
	case "ns":
		return time.Nanosecond, true
	case "us", "µs", "μs":
		return time.Microsecond, true
	case "ms", "msec", "millisecond", "milliseconds":
		return time.Millisecond, true
	case "s", "sec", "secs", "second", "seconds", "segundo", "segundos", "seconde", "secondes", "sekunde", "sekunden", "secondi", "secondo":
		return time.Second, true
	case "m", "min", "mins", "minute", "minutes", "minuto", "minutos", "minuten", "minuti":
		return time.Minute, true
	case "h", "hr", "hrs", "hour", "hours", "hora", "horas", "heure", "heures", "stunde", "stunden", "std", "ora", "ore":
		return time.Hour, true
	case "d", "day", "days", "día", "días", "dia", "dias", "jour", "jours", "tag", "tage", "tagen", "giorno", "giorni":
		return day, true
	case "w", "wk", "week", "weeks", "semana", "semanas", "semaine", "semaines", "woche", "wochen":
		return 7 * day, true
	}
	return 0, false
}

const day = 24 * time.Hour

// hanUnits are those of Chinese, Japanese and Korean, where no space follows a word; the longer come first.
var hanUnits = [...]struct {
	name string
	unit time.Duration
}{
	{"毫秒", time.Millisecond}, {"ミリ秒", time.Millisecond}, {"秒", time.Second}, {"초", time.Second},
	{"分钟", time.Minute}, {"分鐘", time.Minute}, {"分", time.Minute}, {"분", time.Minute},
	{"个小时", time.Hour}, {"小时", time.Hour}, {"小時", time.Hour}, {"時間", time.Hour}, {"시간", time.Hour},
	{"天", day}, {"日間", day}, {"日", day}, {"일", day},
}

// clock reads a span of .NET, "d.hh:mm:ss" or "hh:mm:ss", as Azure API Management writes it.
func clock(s string) (d time.Duration, rest string, ok bool) {
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == ':' || s[i] == '.') {
		i++
	}
	text := strings.TrimRight(s[:i], ".:")
	if strings.Count(text, ":") != 2 {
		return 0, s, false
	}
	var days float64
	if dot, colon := strings.IndexByte(text, '.'), strings.IndexByte(text, ':'); dot >= 0 && dot < colon {
		days, _ = strconv.ParseFloat(text[:dot], 64)
		text = text[dot+1:]
	}
	total := days * 24
	parts := strings.Split(text, ":")
	for j, scale := range []float64{1, 60, 3600} {
		f, err := strconv.ParseFloat(parts[j], 64)
		if err != nil {
			return 0, s, false
		}
		total += f / scale
	}
	return scaled(total, time.Hour), s[i:], true
}
