// Package errtext reads what an error says of itself: its kind, the limit that it names, how long to wait and until when.
// It reads error objects in JSON and Python, the words of SDKs, and the output of commands. One table has all patterns.
package errtext

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// MaxWait caps a stated wait. It is longer than every usage window that providers have.
const MaxWait = 31 * 24 * time.Hour

// Scaled returns f units of time, between 0 and MaxWait. NaN is 0.
func Scaled(f float64, unit time.Duration) time.Duration {
	f *= float64(unit)
	switch {
	case !(f > 0):
		return 0
	case f >= float64(MaxWait):
		return MaxWait
	}
	return time.Duration(f + 0.5)
}

const number = `(\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?`

// The forms of durations: a part with its unit, a number of seconds, and [days.]hh:mm:ss of .NET. A range has its longer end.
var (
	durationPart = regexp.MustCompile(`(?i)^[\s,]*(?:and\s|&\s?)?(?:\d+\s?(?:-|–|to\s|or\s)\s?)?` + number + `|\.\d+|an?\s|` +
		`one\s)\s*(ns|us|µs|μs|ms|msecs?|` +
		`milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?|months?)(?:[^a-z]|$)`)
	bareSeconds  = regexp.MustCompile(`^\s*` + number + `)(?:\s*$|\s*(?:[.;)\]}"'!\n]|,(?:\D|$)))`)
	clockSeconds = regexp.MustCompile(`^(?:(\d+)\.)?(\d+):(\d\d):(\d\d(?:\.\d+)?)`)
)

// units are the units of time by the first letters of their names.
var units = [...]struct {
	name string
	unit time.Duration
}{
	{"ns", time.Nanosecond}, {"us", time.Microsecond}, {"µs", time.Microsecond}, {"μs", time.Microsecond}, {"ms", time.Millisecond},
	{"milli", time.Millisecond}, {"mo", 30 * day}, {"m", time.Minute}, {"s", time.Second}, {"h", time.Hour}, {"d", day},
	{"w", 7 * day},
}

const day = 24 * time.Hour

// Duration reads a duration from the beginning of s and returns the text behind it: "6m0s", "3 hours, 43 minutes", "1,200
// seconds", "an hour", "30-60 seconds", "4.01:23:45". A number alone is seconds, unless it is an instant. It returns 0 if there
// is none.
func Duration(s string) (d time.Duration, rest string) {
	if m := clockSeconds.FindStringSubmatch(s); m != nil {
		return Scaled(((float(m[1])*24+float(m[2]))*60+float(m[3]))*60+float(m[4]), time.Second), s[len(m[0]):]
	}
	total := 0.0
	for rest = s; ; {
		m := durationPart.FindStringSubmatchIndex(rest)
		if m == nil {
			break
		}
		name := strings.ToLower(rest[m[4]:m[5]])
		for _, u := range units {
			if strings.HasPrefix(name, u.name) {
				total += float(rest[m[2]:m[3]]) * float64(u.unit)
				break
			}
		}
		rest = rest[m[5]:]
	}
	if len(rest) < len(s) {
		return Scaled(total, 1), rest
	}
	if m := bareSeconds.FindStringSubmatchIndex(s); m != nil && float(s[m[2]:m[3]]) < epoch {
		return Scaled(float(s[m[2]:m[3]]), time.Second), s[m[3]:]
	}
	return 0, s
}

// float reads a number with commas between its thousands; "a", "an" and "one" are 1, and "" is 0.
func float(s string) float64 {
	if s != "" && s[0]|0x20 >= 'a' {
		return 1
	}
	f, _ := strconv.ParseFloat(strings.ReplaceAll(s, ",", ""), 64)
	return f
}

// Numbers from these on are instants, in seconds and in milliseconds since 1970: no wait is as long.
const (
	epoch       = 1e9 // 2001
	epochMillis = 1e12
)

// SinceEpoch reads an instant from a number of seconds or milliseconds since 1970; zero for smaller numbers.
func SinceEpoch(f float64) time.Time {
	switch {
	case f >= epochMillis && f < 1e15:
		return time.UnixMilli(int64(f))
	case f >= epoch && f < epochMillis:
		return time.UnixMilli(int64(f * 1000))
	}
	return time.Time{}
}
