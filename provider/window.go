package provider

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// farthest is how far from now an instant in words may lie. Allowances are of hours, days, weeks and months.
const farthest = 400 * 24 * time.Hour

// resetCues are the words after which a message says when access comes back. A few are languages whose messages are
// known to be translated: Spanish, French, German, Portuguese, Italian.
var resetCues = [...]string{"reset", "try again at", "try again on", "try again after", "try again", "retry at",
	"retry after", "regain access", "available again", "available at", "available on", "renews", "replenish", "until",
	"come back at", "wait till", "blocked till", "ends on", "refresh",
	"restablece", "restablecer", "reinicia", "renueva", "de nuevo", "intentarlo", "réinitialis", "réessay",
	"zurückgesetzt", "zurück", "erneut", "wieder", "redefin", "novamente", "ripristin", "riprova"}

// laterCues stand after the time that they speak of: Chinese, Japanese, Korean, and the German verb.
var laterCues = [...]string{"重置", "恢复", "再试", "重试", "リセット", "再試行", "以降", "재설정", "초기화", "zurückgesetzt", "zurück", "erneut"}

// windowEnd reads when access comes back from a message: "resets 4pm (America/Los_Angeles)", "try again at Jul 5th,
// 2026 8:19 PM", "will reset on Monday at 09:00 UTC", "usage limit reached|1755615600". A time without a zone is in
// now's own location. The result is in UTC; it is zero when the message states no instant.
func windowEnd(s string, now time.Time) time.Time {
	low := asciiLower(s)
	for _, cue := range resetCues {
		for at := 0; ; {
			i := strings.Index(low[at:], cue)
			if i < 0 {
				break
			}
			at += i + len(cue)
			c := clockReader{s: s, low: low, i: at, now: now}
			if t := c.afterCue(); !t.IsZero() {
				return bounded(t, now)
			}
		}
	}
	for _, cue := range laterCues {
		if i := strings.Index(low, cue); i > 0 {
			if t := beforeCue(s, low, i, now); !t.IsZero() {
				return bounded(t, now)
			}
		}
	}
	if i := strings.Index(low, "limit reached|"); i >= 0 {
		c := clockReader{s: s, low: low, i: i + len("limit reached|"), now: now}
		return bounded(c.epoch(), now)
	}
	return time.Time{}
}

// bounded returns an instant in UTC, or none if it is too far away to be meant.
func bounded(t, now time.Time) time.Time {
	if d := t.Sub(now); t.IsZero() || d > farthest || d < -farthest {
		return time.Time{}
	}
	return t.UTC()
}

// beforeCue reads the instant that ends right before a cue, among the last words.
func beforeCue(s, low string, cue int, now time.Time) time.Time {
	const reach = 64
	for i := max(0, cue-reach); i < cue; i++ {
		if i > 0 && (isDigit(s[i-1]) || isLetter(s[i-1])) || !utf8.RuneStart(s[i]) {
			continue
		}
		c := clockReader{s: s[:cue], low: low[:cue], i: i, now: now}
		if t := c.instant(); !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

// clockReader reads dates and clocks in words from s at i. low is s with ASCII in lower case, of the same length.
type clockReader struct {
	s, low string
	i      int
	now    time.Time

	year, day, hour, minute int
	month                   time.Month
	weekday                 int // 1 is Sunday; 0 none
	ahead                   int // days from today: tomorrow is 1
	dated, clocked, today   bool
}

// fillers are words between a cue and the time that it speaks of.
var fillers = [...]string{"on", "at", "by", "se", "the", "after", "about",
	"around", "approximately", "a las", "a la", "las", "la", "el", "le", "les", "à", "a", "às", "as", "os", "am", "um", "den", "dia", "día",
	"il", "alle", "将于", "将在", "于", "在", "is", "are", "will", "be", "your", "limit", "limits", "quota", "usage", "time", "date", "access",
	"window", "it", "again", "next", "resets", "reset", "de", "do", "da", "das", "para", "hasta", "sich", "wird", "de nuevo", "reached"}

// afterCue reads the instant that follows a cue, if at most a few filling words stand between.
func (c *clockReader) afterCue() time.Time {
	c.name() // the rest of the cue's own word: "resets", "restablecerá"
	for range 7 {
		c.skip(" ,:·-—–=\"'`*\u00a0")
		start := *c
		if t := c.instant(); !t.IsZero() {
			return t
		}
		*c = start
		if !c.word(fillers[:]) {
			return time.Time{}
		}
	}
	return time.Time{}
}

// skip moves over any of the characters.
func (c *clockReader) skip(set string) {
	for c.i < len(c.low) {
		r, n := utf8.DecodeRuneInString(c.low[c.i:])
		if !strings.ContainsRune(set, r) || r == utf8.RuneError {
			return
		}
		c.i += n
	}
}

// word moves over the longest of the words that stands here whole.
func (c *clockReader) word(words []string) bool {
	best := 0
	for _, w := range words {
		if len(w) > best && strings.HasPrefix(c.low[c.i:], w) && (c.endsAt(c.i+len(w)) || w[0] >= 0x80) {
			best = len(w)
		}
	}
	c.i += best
	return best > 0
}

// endsAt reports whether no word goes on at i.
func (c *clockReader) endsAt(i int) bool {
	return i >= len(c.low) || !isLetter(c.low[i]) && !isDigit(c.low[i])
}

// number reads up to most digits.
func (c *clockReader) number(most int) (n int, ok bool) {
	start := c.i
	for c.i < len(c.low) && isDigit(c.low[c.i]) {
		if c.i-start == most {
			return 0, false
		}
		n = n*10 + int(c.low[c.i]-'0')
		c.i++
	}
	return n, c.i > start
}

// instant reads a date, a clock, or both in either order, and a zone after them.
func (c *clockReader) instant() time.Time {
	if t := c.epoch(); !t.IsZero() {
		return t
	}
	for range 4 {
		c.skip(" ,\u00a0")
		start := c.i
		if !c.dated && (c.date() || c.dayName()) {
			c.skip(" ,\u00a0")
			if !c.word([]string{"at", "a las", "a la", "um", "à", "às", "alle", "ore", "的"}) && c.month != 0 && c.i+1 < len(c.low) &&
				c.low[c.i] == 't' && isDigit(c.low[c.i+1]) {
				c.i++ // RFC 3339
			}
			continue
		}
		c.i = start
		if !c.clocked && c.clock() {
			continue
		}
		c.i = start
		break
	}
	if !c.dated && !c.clocked {
		return time.Time{}
	}
	return c.resolve(c.zone())
}

// epoch reads seconds or milliseconds since 1970.
func (c *clockReader) epoch() time.Time {
	start := c.i
	for c.i < len(c.low) && isDigit(c.low[c.i]) {
		c.i++
	}
	n, err := strconv.ParseInt(c.low[start:c.i], 10, 64)
	size := c.i - start
	ends := c.endsAt(c.i)
	switch {
	case err == nil && ends && size == 10:
		return time.Unix(n, 0)
	case err == nil && ends && size == 13:
		return time.UnixMilli(n)
	}
	c.i = start
	return time.Time{}
}

// resolve returns the instant that was read, in a zone.
func (c *clockReader) resolve(at *time.Location) time.Time {
	now := c.now.In(at)
	y, m, d := now.Date()
	switch {
	case c.weekday > 0:
		ahead := (c.weekday - 1 - int(now.Weekday()) + 7) % 7
		t := wall(y, m, d+ahead, c.hour, c.minute, at)
		if t.Before(now) {
			t = wall(y, m, d+ahead+7, c.hour, c.minute, at)
		}
		return t
	case c.dated && c.year == 0 && c.month != 0:
		return c.nearestYear(y, at)
	case c.dated && c.month != 0:
		return wall(c.year, c.month, c.day, c.hour, c.minute, at)
	case c.today:
		return wall(y, m, d+c.ahead, c.hour, c.minute, at)
	}
	t := wall(y, m, d, c.hour, c.minute, at)
	if t.Before(now) { // a clock that has passed today is tomorrow's
		t = wall(y, m, d+1, c.hour, c.minute, at)
	}
	return t
}

// nearestYear gives a date without a year the year that brings it nearest to now. So "Jan 2" seen in December is next
// year's, and "Jul 26" seen on the 27th has just passed: no window is so long that it could be next July's.
func (c *clockReader) nearestYear(y int, at *time.Location) time.Time {
	var best time.Time
	for _, year := range [...]int{y - 1, y, y + 1} {
		t := wall(year, c.month, c.day, c.hour, c.minute, at)
		if best.IsZero() || t.Sub(c.now).Abs() < best.Sub(c.now).Abs() {
			best = t
		}
	}
	return best
}

// wall returns the instant at which a clock on the wall shows a time. Where clocks are put back, an hour comes twice:
// it is the later one, because a call at the earlier one may be refused. Where they are put forward, an hour is left
// out: a time in it is taken as by the clock that was not yet put forward, so that 2:30 is what is then called 3:30.
func wall(y int, m time.Month, d, hour, minute int, at *time.Location) time.Time {
	read := time.Date(y, m, d, hour, minute, 0, 0, time.UTC)
	_, before := read.Add(-24 * time.Hour).In(at).Zone()
	_, after := read.Add(24 * time.Hour).In(at).Zone()
	early := read.Add(-time.Duration(before) * time.Second).In(at)
	late := read.Add(-time.Duration(after) * time.Second).In(at)
	shows := func(t time.Time) bool { return t.Hour() == read.Hour() && t.Minute() == read.Minute() }
	switch {
	case shows(early) && shows(late) && late.Before(early), !shows(late):
		return early
	}
	return late
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
