package provider

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/errtext"
)

// positive returns d between 0 and errtext.MaxWait.
func positive(d time.Duration) time.Duration { return max(0, min(d, errtext.MaxWait)) }

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
	return errtext.Scaled(f, unit)
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
	secondReset           // an instant, rounded to whole seconds
	numberReset           // a whole number without a unit: of seconds, as a rule
)

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
	if s[0] >= 'A' && len(s) >= len(time.ANSIC) {
		at, err := http.ParseTime(s)
		if err != nil {
			return 0, noReset
		}
		return positive(at.Sub(serverTime(h, now))), secondReset
	}
	if last := s[len(s)-1]; (last >= '0' && last <= '9' || last == '.') && strings.IndexByte(s, ':') < 0 {
		f, err := strconv.ParseFloat(s, 64)
		switch at := errtext.SinceEpoch(f); {
		case err != nil || f < 0:
			return 0, noReset
		case at.UnixMilli() == int64(f):
			return positive(at.Sub(serverTime(h, now))), exactReset
		case !at.IsZero():
			return positive(at.Sub(serverTime(h, now))), form
		}
		if form == secondReset {
			form = numberReset
		}
		return seconds(s, time.Second), form
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return positive(d), bucketReset
	}
	d, rest := errtext.Duration(s)
	if d == 0 || rest != "" {
		return 0, noReset
	}
	return d, bucketReset
}
