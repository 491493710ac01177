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
	"retry after", "retry-after", "retry_after", "regain access", "available again", "available at", "available on", "renews", "replenish", "until",
	"come back at", "wait till", "blocked till", "ends on", "refresh",
	"restablece", "restablecer", "reinicia", "renueva", "de nuevo", "intentarlo", "réinitialis", "réessay",
	"zurückgesetzt", "zurück", "erneut", "wieder", "redefin", "novamente", "ripristin", "riprova"}

// laterCues stand after the time that they speak of: Chinese, Japanese, Korean, and the German verb.
var laterCues = [...]string{"重置", "恢复", "再试", "重试", "リセット", "再試行", "以降", "재설정", "초기화", "zurückgesetzt", "zurück", "erneut"}

// windowEnd reads when access comes back from a message: "resets 4pm (America/Los_Angeles)", "try again at Jul 5th,
// 2026 8:19 PM", "will reset on Monday at 09:00 UTC", "usage limit reached|1755615600". A time without a zone is in
// now's own location. The result is in the zone that it was read in; it is zero when the message states no instant.
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

// bounded returns an instant, or none if it is too far away to be meant.
func bounded(t, now time.Time) time.Time {
	if d := t.Sub(now); t.IsZero() || d > farthest || d < -farthest {
		return time.Time{}
	}
	return t
}

// beforeCue reads the instant that ends right before a cue, among the last words.
func beforeCue(s, low string, cue int, now time.Time) time.Time {
	const reach = 64
	for i := max(0, cue-reach); i < cue; i++ {
		if i > 0 && (isDigit(s[i-1]) || isLetter(s[i-1])) || !utf8.RuneStart(s[i]) {
			continue
		}
		c := clockReader{s: s[:cue], low: low[:cue], i: i, now: now}
		if t := c.instant(); !t.IsZero() || c.lost {
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
	second                  time.Duration // with its decimals
	month                   time.Month
	weekday                 int // 1 is Sunday; 0 none
	ahead                   int // days from today: tomorrow is 1
	dated, clocked, today   bool
	in                      *time.Location // the zone that is named; nil if none is
	lost                    bool           // a zone is named that nobody knows
	at24                    bool           // a word stood before that makes a clock of "16h30"
}

// clockWords are those of Spanish, French and Portuguese that stand before a clock.
var clockWords = []string{"a las", "a la", "las", "à", "às", "as"}

// joints are words between a date and a clock, in either order.
var joints = []string{"at", "on", "the", "um", "am", "den", "alle", "ore", "le", "el", "em", "的"}

// fillers are words between a cue and the time that it speaks of.
var fillers = [...]string{"on", "at", "by", "se", "the", "after", "about",
	"around", "approximately", "la", "el", "le", "les", "a", "os", "am", "um", "den", "dia", "día",
	"il", "alle", "将于", "将在", "于", "在", "is", "are", "will", "be", "your", "limit", "limits", "quota", "usage", "time", "date", "access",
	"window", "daily", "every day", "each day", "it", "again", "next", "resets", "reset", "de", "do", "da", "das", "para", "hasta", "sich", "wird", "de nuevo", "reached"}

// afterCue reads the instant that follows a cue, if at most a few filling words stand between.
func (c *clockReader) afterCue() time.Time {
	c.name() // the rest of the cue's own word: "resets", "restablecerá"
	for range 7 {
		c.skip(" ,:·-—–=\"'`*~(_\u00a0")
		start := *c
		if t := c.instant(); !t.IsZero() || c.lost {
			return t
		}
		*c = start
		if c.word(clockWords) {
			c.at24 = true
		} else if !c.word(fillers[:]) {
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

// instant reads a date, a clock and a zone, in any order. It is none if the zone is not known.
func (c *clockReader) instant() time.Time {
	if t := c.epoch(); !t.IsZero() {
		return t
	}
	c.leadingZone()
	for range 8 {
		c.skip(" ,\u00a0")
		if c.part() {
			continue
		}
		start, at24 := c.i, c.at24
		c.join()
		if !c.part() {
			c.i, c.at24 = start, at24
			break
		}
	}
	if !c.dated && !c.clocked || c.lost {
		return time.Time{}
	}
	if c.in == nil {
		c.in = c.now.Location()
	}
	return c.resolve(c.in)
}

// join moves over the words between two parts: "Monday, the 2nd, at 4pm", "4pm on Monday".
func (c *clockReader) join() {
	for range 3 {
		switch {
		case c.word(clockWords):
			c.at24 = true
		case !c.word(joints):
			return
		}
		c.skip(" ,\u00a0")
	}
}

// part reads one more part of an instant.
func (c *clockReader) part() bool {
	switch {
	case !c.dated && (c.date() || c.dayName()):
		if c.month != 0 && c.i+1 < len(c.low) && c.low[c.i] == 't' && isDigit(c.low[c.i+1]) {
			c.i++ // RFC 3339
		}
		return true
	case c.month != 0 && c.dayBeside():
		return true
	case !c.clocked && c.clock():
		return true
	case !c.dated && !c.clocked || c.lost:
		return false
	case c.month != 0 && c.clocked && c.year == 0 && c.lateYear():
		return true
	}
	return c.in == nil && c.zone()
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

// grace is how long ago a clock may have shown a time that is still meant, rather than the next day's. A refusal is
// sent, logged and read a moment after it was written, clocks differ, and what resets at 4pm may refuse a little longer.
const grace = 5 * time.Minute

// resolve returns the instant that was read, in a zone.
func (c *clockReader) resolve(at *time.Location) time.Time {
	now := c.now.In(at)
	y, m, d := now.Date()
	switch {
	case c.weekday > 0:
		const week = 7
		return c.coming(y, m, d+(c.weekday-1-int(now.Weekday())+week)%week, week, at)
	case c.dated && c.year == 0 && c.month != 0:
		return c.nearestYear(y, at)
	case c.dated && c.month != 0 && !c.exists(c.year):
		return time.Time{}
	case c.dated && c.month != 0:
		return c.wall(c.year, c.month, c.day, at)
	case c.today && c.ahead == 0 && c.clocked && c.hour < morning:
		return c.coming(y, m, d, 1, at)
	case c.today:
		return c.wall(y, m, d+c.ahead, at)
	}
	return c.coming(y, m, d, 1, at)
}

// morning is the hour before which "tonight" and "today at midnight" are of the next day.
const morning = 6

// coming returns the first instant that has not passed, of those every so many days before and after a day.
func (c *clockReader) coming(y int, m time.Month, d, every int, at *time.Location) (t time.Time) {
	for _, day := range [...]int{d - every, d, d + every} {
		if t = c.wall(y, m, day, at); !t.Before(c.now.Add(-grace)) {
			break
		}
	}
	return t
}

// wall returns the instant of a day at which the clock shows what was read.
func (c *clockReader) wall(y int, m time.Month, d int, at *time.Location) time.Time {
	return wall(y, m, d, c.hour, c.minute, at).Add(c.second)
}

// exists reports whether a year has the date that was read: not every one has a 29 February.
func (c *clockReader) exists(year int) bool {
	return time.Date(year, c.month, c.day, 0, 0, 0, 0, time.UTC).Day() == c.day
}

// nearestYear gives a date without a year the year that brings it nearest to now. So "Jan 2" seen in December is next
// year's, and "Jul 26" seen on the 27th has just passed: no window is so long that it could be next July's.
func (c *clockReader) nearestYear(y int, at *time.Location) time.Time {
	var best time.Time
	for _, year := range [...]int{y - 1, y, y + 1} {
		if !c.exists(year) {
			continue
		}
		t := c.wall(year, c.month, c.day, at)
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
