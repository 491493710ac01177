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

// Numbers from these on are instants, in seconds and in milliseconds since 1970: no wait is as long.
const (
	epoch       = 1e9 // 2001
	epochMillis = 1e12
)

// sinceEpoch reads an instant from a number of seconds or milliseconds since 1970; zero for smaller numbers.
func sinceEpoch(f float64) time.Time {
	switch {
	case f >= epochMillis && f < 1e15:
		return time.UnixMilli(int64(f))
	case f >= epoch && f < epochMillis:
		return time.UnixMilli(int64(f * 1000))
	}
	return time.Time{}
}

// resetIn reads when a budget is full again: a duration ("6m0s"), an instant (RFC 3339, the form of HTTP's own dates,
// or an epoch in seconds or milliseconds), or seconds.
func resetIn(s string, h http.Header, now time.Time) (time.Duration, resetForm) {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0, noReset
	}
	form := secondReset
	if strings.IndexByte(s, '.') >= 0 {
		form = exactReset
	}
	if len(s) >= len("2006-01-02T15:04:05Z") && s[4] == '-' {
		at, err := time.Parse(time.RFC3339, strings.Replace(s, " ", "T", 1))
		if err != nil {
			return 0, noReset
		}
		return positive(at.Sub(serverTime(h, now))), form
	}
	if isLetter(s[0]) && len(s) >= len(time.ANSIC) {
		at, err := http.ParseTime(s)
		if err != nil {
			return 0, noReset
		}
		return positive(at.Sub(serverTime(h, now))), secondReset
	}
	if last := s[len(s)-1]; (isDigit(last) || last == '.') && strings.IndexByte(s, ':') < 0 {
		f, err := strconv.ParseFloat(s, 64)
		switch at := sinceEpoch(f); {
		case err != nil || f < 0:
			return 0, noReset
		case f >= epochMillis && !at.IsZero():
			return positive(at.Sub(serverTime(h, now))), exactReset
		case !at.IsZero():
			return positive(at.Sub(serverTime(h, now))), form
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
// "1,200 seconds", "an hour", "30-60 seconds" (the longer), "PT1M30S", "4.01:23:45". A number alone is seconds, unless
// it is an instant. It returns 0 when there is none.
func span(s string) (d time.Duration, rest string) {
	if d, rest, ok := clock(s); ok {
		return d, rest
	}
	if d, rest, ok := isoSpan(s); ok {
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
			t = joint(t)
		}
		f, after, ok := quantity(t)
		if !ok {
			break
		}
		u, after2 := unit(after)
		if u == 0 && any {
			break // another number, not a part of the duration
		}
		if u == 0 {
			if upper, u, rest := longer(after); u > 0 {
				return scaled(max(f, upper), u), rest
			}
			if !endsPhrase(after) || f >= epoch {
				break // a date, or a number of something else
			}
			return scaled(f, time.Second), after
		}
		any = true
		total += f * float64(u)
		rest = after2
	}
	if !any {
		return 0, s
	}
	return scaled(total, 1), rest
}

// joint moves over what joins the parts of a duration: "3 hours, and 43 minutes".
func joint(s string) string {
	s = strings.TrimLeft(s, ", ")
	for _, and := range [...]string{"and ", "& ", "y ", "et ", "und ", "e "} {
		s = strings.TrimPrefix(s, and)
	}
	return strings.TrimLeft(s, ", ")
}

// longer reads the longer end of a range and its unit from what follows the shorter one: "-60 seconds", " to 10 minutes".
func longer(s string) (f float64, u time.Duration, rest string) {
	t := strings.TrimLeft(s, " ")
	for _, to := range [...]string{"-", "–", "—", "to ", "or "} {
		after, ok := strings.CutPrefix(t, to)
		if !ok {
			continue
		}
		if f, after, ok := quantity(strings.TrimLeft(after, " ")); ok {
			if u, rest := unit(after); u > 0 {
				return f, u, rest
			}
		}
	}
	return 0, 0, s
}

// isoSpan reads a duration of ISO 8601: "PT30S", "P1DT2H". Its months and years are of no fixed length, and not read.
func isoSpan(s string) (d time.Duration, rest string, ok bool) {
	if len(s) < len("PT1S") || s[0]|0x20 != 'p' || s[1]|0x20 != 't' && !isDigit(s[1]) {
		return 0, s, false
	}
	rest = s[1:]
	var total float64
	for scale := isoDays; rest != ""; {
		if rest[0]|0x20 == 't' {
			scale, rest = isoTimes, rest[1:]
			continue
		}
		number, after := digits(rest)
		f, err := strconv.ParseFloat(number, 64)
		if err != nil || after == "" || scale[after[0]|0x20] == 0 {
			break
		}
		total += f * float64(scale[after[0]|0x20])
		rest, ok = after[1:], true
	}
	if !ok || rest != "" && (isLetter(rest[0]) || isDigit(rest[0])) {
		return 0, s, false
	}
	return scaled(total, 1), rest, true
}

// The units of ISO 8601, before and after its T.
var (
	isoDays  = map[byte]time.Duration{'w': 7 * day, 'd': day}
	isoTimes = map[byte]time.Duration{'h': time.Hour, 'm': time.Minute, 's': time.Second}
)

// endsPhrase reports whether what follows a number leaves it a number alone.
func endsPhrase(s string) bool {
	t := strings.TrimLeft(s, " ")
	return t == "" || strings.IndexByte(".,;)]}\"'\n!", t[0]) >= 0
}

// quantity cuts a number off the beginning of s, in digits or as the words that stand before a single unit.
func quantity(s string) (f float64, rest string, ok bool) {
	number, rest := digits(s)
	if number != "" {
		f, err := strconv.ParseFloat(number, 64)
		return f, rest, err == nil
	}
	word, after, _ := strings.Cut(s[:min(len(s), 48)], " ")
	if !ones[strings.ToLower(word)] {
		return 0, s, false
	}
	if u, _ := unit(after); u < time.Second {
		return 0, s, false
	}
	return 1, s[len(word):], true
}

// ones are the words for one, in the languages of units.
var ones = map[string]bool{"a": true, "an": true, "one": true, "un": true, "una": true, "une": true, "uno": true, "um": true, "uma": true,
	"ein": true, "eine": true, "einer": true, "einem": true, "einen": true}

// digits cuts a decimal number off the beginning of s, without the commas between its thousands. A dot that ends a
// sentence is not part of it.
func digits(s string) (number, rest string) {
	i, commas := 0, 0
	for i < len(s) && (isDigit(s[i]) || s[i] == '.' || s[i] == ',' && i > 0 && i <= 3+4*commas && commas < 4 && isThousand(s[i+1:])) {
		if s[i] == ',' {
			commas++
		}
		i++
	}
	for i > 0 && s[i-1] == '.' {
		i--
	}
	if n := decimals(s[i:]); i > 0 && (n == 2 || n > 2 && s[:i] == "0") && commas == 0 && strings.IndexByte(s[:i], '.') < 0 {
		return s[:i] + "." + s[i+1:i+n], s[i+n:]
	}
	if commas > 0 {
		return strings.ReplaceAll(s[:i], ",", ""), s[i:]
	}
	return s[:i], s[i:]
}

// decimals returns the length of a comma with the one or two digits and the unit behind it, as most of Europe writes a
// decimal number; 0 if there is none. The unit is not counted.
func decimals(s string) int {
	n := 1
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	if n < 2 || n > 3 || s[0] != ',' {
		return 0
	}
	if u, _ := unit(s[n:]); u == 0 {
		return 0
	}
	return n
}

// unit cuts a unit of time off the beginning of s; 0 when there is none.
func unit(s string) (time.Duration, string) {
	s = strings.TrimLeft(s, " \t\n\u00a0")
	i := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsLetter(r) })
	if i < 0 {
		i = len(s)
	}
	if d, ok := units[strings.ToLower(s[:i])]; ok {
		return d, s[i:]
	}
	for _, u := range hanUnits {
		if rest, ok := strings.CutPrefix(s, u.name); ok {
			return u.unit, rest
		}
	}
	return 0, s
}

// units are the names of units of time: of Go's durations, then of English, Spanish, French, German, Portuguese and
// Italian sentences.
var units = map[string]time.Duration{
	"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond,
	"ms": time.Millisecond, "msec": time.Millisecond, "millisecond": time.Millisecond, "milliseconds": time.Millisecond,
	"s": time.Second, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "mins": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hrs": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": day, "day": day, "days": day, "w": 7 * day, "wk": 7 * day, "week": 7 * day, "weeks": 7 * day,
	"month": 30 * day, "months": 30 * day,

	"segundo": time.Second, "segundos": time.Second, "seconde": time.Second, "secondes": time.Second,
	"sekunde": time.Second, "sekunden": time.Second, "secondi": time.Second, "secondo": time.Second,
	"minuto": time.Minute, "minutos": time.Minute, "minuten": time.Minute, "minuti": time.Minute,
	"hora": time.Hour, "horas": time.Hour, "heure": time.Hour, "heures": time.Hour, "stunde": time.Hour,
	"stunden": time.Hour, "std": time.Hour, "ora": time.Hour, "ore": time.Hour,
	"día": day, "días": day, "dia": day, "dias": day, "jour": day, "jours": day, "tag": day, "tage": day, "tagen": day,
	"giorno": day, "giorni": day,
	"semana": 7 * day, "semanas": 7 * day, "semaine": 7 * day, "semaines": 7 * day, "woche": 7 * day, "wochen": 7 * day,
}

const day = 24 * time.Hour

// hanUnits are those of Chinese, Japanese and Korean, where no space follows a word; the longer come first.
var hanUnits = [...]struct {
	name string
	unit time.Duration
}{
	{"毫秒", time.Millisecond}, {"ミリ秒", time.Millisecond}, {"秒", time.Second}, {"초", time.Second},
	{"分钟", time.Minute}, {"分鐘", time.Minute}, {"分", time.Minute}, {"분", time.Minute},
	{"个小时", time.Hour}, {"個小時", time.Hour}, {"小时", time.Hour}, {"小時", time.Hour}, {"時間", time.Hour}, {"시간", time.Hour},
	{"天", day}, {"日間", day}, {"日", day}, {"일", day},
	{"週間", 7 * day}, {"周", 7 * day}, {"주", 7 * day},
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
