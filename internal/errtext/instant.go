package errtext

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The layouts of dates and clocks, after tidy. A date without a year is of the nearest one.
var (
	dateLayouts = [...]string{"2006-01-02", "2006/01/02", "Jan 2 2006", "Jan 2", "2 Jan 2006", "2 Jan", "2-Jan-06", "2-Jan-2006",
		"01/02/2006", "1/2/2006"}
	// Go's 24-hour layouts take no hour of one digit with am or pm behind it, and 16:45 pm is written.
	clockLayouts = [...]string{"15:04:05", "15:04", "3:04:05pm", "3:04pm", "3pm", "15:04:05pm", "15:04pm"}
)

// tidy gives dates and clocks one form: no ordinals, months of three letters, no T of RFC 3339, zones and halves of the day
// apart.
var tidy = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`(?i)\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(?:uary|ruary|ch|il|e|y|ust|t|tember|ober|` +
		`ember)?\b\.?`), "$1"},
	{regexp.MustCompile(`(?i)\b(\d{1,2})(?:st|nd|rd|th)\b(?: of\b)?`), "$1"},
	{regexp.MustCompile(`(\d)T(\d)`), "$1 $2"},
	{regexp.MustCompile(`(?i)(\d) ?(a|p)\.? ?m\b\.?`), "${1}${2}m "},
	{regexp.MustCompile(`(:\d\d(?:\.\d+)?)(Z|[+-]\d\d:?\d\d)\b`), "$1 $2"},
	{regexp.MustCompile(`(?i)\b(?:12 )?midnight\b`), "0:00"},
	{regexp.MustCompile(`(?i)\b(?:12 )?noon\b`), "12:00"},
	{regexp.MustCompile(`[\s,()]+`), " "},
}

// fillers are the words within an instant that say nothing of it.
const fillers = " at on the by in time standard daylight us your local "

const ends = ".;:!\"'*`|" // of a word

// clockReader reads an instant out of words.
type clockReader struct {
	now     time.Time
	date    time.Time // year 0: none is named
	clock   time.Time
	weekday int // 1 is Sunday
	ahead   int // days from today
	zone    *time.Location
	dated   bool // date has a value; daily, named are the other forms
	named   bool // a weekday, today or tomorrow
	clocked bool
	lost    bool // a zone is named that is unknown
}

// instant reads a date, a clock and a zone, in any order, from the beginning of s. The result is zero if there is none. lost says
// that a zone is named which is unknown: the instant is not stated then, and another zone would be a wait of our own making.
func instant(s string, now time.Time) (t time.Time, lost bool) {
	s = s[:min(len(s), 96)]
	for _, t := range tidy {
		s = t.re.ReplaceAllString(s, t.to)
	}
	words := strings.Fields(s)
	if len(words) == 0 {
		return time.Time{}, false
	}
	if digits := strings.TrimRight(words[0], ".;\"'"); len(digits) == 10 || len(digits) == 13 {
		if n, err := strconv.ParseUint(digits, 10, 63); err == nil {
			return SinceEpoch(float64(n)), false
		}
	}
	c := clockReader{now: now}
	for len(words) > 0 {
		n := c.part(words)
		if n == 0 && (!strings.Contains(fillers, " "+strings.ToLower(words[0])+" ") || !c.dated && !c.named && !c.clocked) {
			break
		}
		words = words[max(n, 1):]
	}
	if c.lost || !c.dated && !c.named && !c.clocked {
		return time.Time{}, c.lost
	}
	if c.zone == nil {
		c.zone = now.Location()
	}
	return c.resolve(), false
}

// part reads one more part of an instant, and returns how many words it has.
func (c *clockReader) part(words []string) int {
	first := strings.TrimRight(words[0], ends)
	if !c.dated {
		for n := min(3, len(words)); n > 0; n-- {
			text := strings.TrimRight(strings.Join(words[:n], " "), ends)
			for _, layout := range dateLayouts {
				if t, err := time.Parse(layout, text); err == nil {
					c.date, c.dated = t, true
					return n
				}
			}
		}
	}
	if !c.clocked {
		for _, layout := range clockLayouts {
			if t, err := time.Parse(layout, strings.ToLower(first)); err == nil {
				c.clock, c.clocked = t, true
				return 1
			}
		}
	}
	if c.day(strings.ToLower(first)) {
		return 1
	}
	if y, err := strconv.Atoi(first); err == nil && c.dated && c.date.Year() == 0 && max(y-c.now.Year(), c.now.Year()-y) <= 1 {
		day := c.date.Day()
		c.date = c.date.AddDate(y, 0, 0) // as C writes it: "Sun Mar  1 12:30:00 2026"
		c.lost = c.date.Day() != day     // not every year has a 29 February
		return 1
	}
	if c.zone == nil && (c.dated || c.named || c.clocked || strings.HasPrefix(first, "UTC") || strings.HasPrefix(first, "GMT")) {
		at, lost := zone(first)
		if c.zone, c.lost = at, c.lost || lost; at != nil || lost {
			return 1
		}
	}
	return 0
}

// day reads today, tomorrow or a weekday. Beside a date a weekday says nothing.
func (c *clockReader) day(name string) bool {
	switch name {
	case "tomorrow":
		c.ahead, c.named = 1, true
		return true
	case "today", "tonight":
		c.named = true
		return true
	}
	for d := time.Sunday; d <= time.Saturday; d++ {
		full := strings.ToLower(d.String())
		if len(name) >= 3 && strings.HasPrefix(full, name) {
			c.weekday, c.named = int(d)+1, true
			return true
		}
	}
	return false
}

// zones are the zones that messages name without their name in the database. PST in summer means the clocks there, whatever it is
// called.
var zones = map[string]string{
	"utc": "UTC", "gmt": "UTC", "z": "UTC", "pt": "America/Los_Angeles", "pst": "America/Los_Angeles", "pdt": "America/Los_Angeles",
	"pacific": "America/Los_Angeles", "mst": "America/Denver", "mdt": "America/Denver", "cst": "America/Chicago",
	"cdt": "America/Chicago", "et": "America/New_York", "est": "America/New_York", "edt": "America/New_York", "eastern": "America/New_York",
	"cet": "Europe/Berlin", "cest": "Europe/Berlin",
}

var (
	zoneOffset = regexp.MustCompile(`^(?:UTC|GMT)?([+-])(\d{1,2}):?(\d\d)?$`)
	zoneLike   = regexp.MustCompile(`^(?:[A-Z]\w*/[A-Z][\w/+-]*|[A-Z]{2,4}T|[A-Z]{3}\d[A-Z]{3})$`)
)

// zone reads the name of a time zone: "America/Los_Angeles", "PST", "GMT+2", "-03:30". lost says that the word looks like a
// zone's name and is unknown.
func zone(name string) (at *time.Location, lost bool) {
	if m := zoneOffset.FindStringSubmatch(name); m != nil {
		minutes := int(float(m[2]))*60 + int(float(m[3]))
		if m[1] == "-" {
			minutes = -minutes
		}
		return time.FixedZone("", minutes*60), false
	}
	full, known := zones[strings.ToLower(name)]
	if !known {
		if full = name; !zoneLike.MatchString(name) {
			return nil, false
		}
	}
	at, err := time.LoadLocation(full)
	return at, err != nil
}

// grace is how long ago a clock may have shown a time that is still meant, rather than the next day's. A rejection is sent,
// logged and read a moment after it was written, and clocks differ.
const grace = 5 * time.Minute

// resolve returns the instant that was read.
func (c *clockReader) resolve() time.Time {
	now := c.now.In(c.zone)
	y, m, d := now.Date()
	switch {
	case c.dated && c.date.Year() > 0:
		return c.wall(c.date.Date())
	case c.dated:
		return c.nearestYear(y)
	case c.weekday > 0:
		const week = 7
		return c.coming(y, m, d+(c.weekday-1-int(now.Weekday())+week)%week, week)
	case c.ahead > 0:
		return c.wall(y, m, d+c.ahead)
	}
	return c.coming(y, m, d, 1)
}

// coming returns the first instant that has not passed, of those every so many days before and after a day.
func (c *clockReader) coming(y int, m time.Month, d, every int) (t time.Time) {
	for _, day := range [...]int{d - every, d, d + every} {
		if t = c.wall(y, m, day); !t.Before(c.now.Add(-grace)) {
			break
		}
	}
	return t
}

// nearestYear gives a date without a year the year that brings it nearest to now. So "Jan 2" seen in December is next year's, and
// "Jul 26" seen on the 27th has just passed: no window is so long that it could be next July's.
func (c *clockReader) nearestYear(y int) (best time.Time) {
	for _, year := range [...]int{y - 1, y, y + 1} {
		day := time.Date(year, c.date.Month(), c.date.Day(), 0, 0, 0, 0, time.UTC)
		t := c.wall(day.Date())
		if day.Day() == c.date.Day() && (best.IsZero() || t.Sub(c.now).Abs() < best.Sub(c.now).Abs()) {
			best = t
		}
	}
	return best
}

// wall returns the instant of a day at which the clock shows what was read.
func (c *clockReader) wall(y int, m time.Month, d int) time.Time {
	at := Wall(y, m, d, c.clock.Hour(), c.clock.Minute(), c.zone)
	return at.Add(time.Duration(c.clock.Second())*time.Second + time.Duration(c.clock.Nanosecond()))
}

// Wall returns the instant at which a clock on the wall shows a time. Where clocks are put back, an hour comes twice: it is the
// later one, because a request at the earlier one may be rejected. Where they are put forward, an hour is left out: a time in it
// is taken as by the clock that was not yet put forward, so that 2:30 is what is then called 3:30.
func Wall(y int, m time.Month, d, hour, minute int, at *time.Location) time.Time {
	read := time.Date(y, m, d, hour, minute, 0, 0, time.UTC)
	_, before := read.Add(-day).In(at).Zone()
	_, after := read.Add(day).In(at).Zone()
	early := read.Add(-time.Duration(before) * time.Second).In(at)
	late := read.Add(-time.Duration(after) * time.Second).In(at)
	shows := func(t time.Time) bool { return t.Hour() == read.Hour() && t.Minute() == read.Minute() }
	if shows(early) && shows(late) && late.Before(early) || !shows(late) {
		return early
	}
	return late
}
