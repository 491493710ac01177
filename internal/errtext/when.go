package errtext

import (
	"iter"
	"regexp"
	"strings"
	"time"
)

// cue finds the words before a wait or an instant, with the words between. A client's own wait has a cue of its own.
var (
	cue = regexp.MustCompile(`(?i)(?:\b(?:(retrying|waiting|sleeping|backing off)|retry(?:[-_ ]?(?:after|delay))?|try again|again|` +
		`resets?|resetting|renews?|` +
		`replenished|regain access|available|wait|back|ends|until|till|come back)\b|limit reached\|)` +
		`(?:[\s,:·="'~(*_–—-]|\b(?:in|at|on|after|by|for|about|around|approximately|least|up to|another|the|is|will be|your|limit|` +
		`quota|usage|access|` +
		`daily|every day|next|date|time|resets?|again|of)\b)*`)
	// lasting ends a cue behind which a duration may stand, and not a clock.
	lasting = regexp.MustCompile(`(?i)(?:in|after|for|about|around|approximately|least|up to|another|wait|waiting|sleeping|` +
		`delay)\W*$`)
	// later is a client's wait with more in between: "retrying 1/5 in 195ms".
	later = regexp.MustCompile(`(?i)\bretrying\b.{0,160}?\sin (\d[\d.]*\s?[a-z]+)`)
)

// cues returns the texts behind the cues of s, each with its cue. own says that a client chose to wait.
func cues(s string) iter.Seq2[string, found] {
	return func(yield func(string, found) bool) {
		for _, m := range cue.FindAllStringSubmatchIndex(s, 40) {
			if !yield(s[m[1]:], found{lead: s[m[0]:m[1]], own: m[2] >= 0}) {
				return
			}
		}
	}
}

type found struct {
	lead string
	own  bool
}

// Wait returns how long a sentence asks to wait. told is the part of a provider, own of a client that tries again by itself.
func Wait(s string) (told, own time.Duration) {
	for rest, f := range cues(s) {
		if !lasting.MatchString(f.lead) {
			continue
		}
		switch d, _ := Duration(rest); {
		case d > 0 && !f.own:
			return d, own
		case own == 0:
			own = d
		}
	}
	if m := later.FindStringSubmatch(s); m != nil && own == 0 {
		own, _ = Duration(m[1])
	}
	return 0, own
}

// farthest is how far from now an instant in words may lie. Allowances are of hours, days, weeks and months.
const farthest = 400 * day

// Until reads when access comes back from a sentence: "resets 4pm (America/Los_Angeles)", "try again at Jul 5th, 2026 8:19 PM",
// "usage limit reached|1755615600". A time without a zone is in now's own location. The result is in the zone that was named, and
// zero if the sentence states no instant.
func Until(s string, now time.Time) time.Time {
	for rest, f := range cues(s) {
		if f.own {
			continue
		}
		if lasting.MatchString(f.lead) {
			if d, _ := Duration(rest); d > 0 {
				continue
			}
		}
		t, lost := instant(rest, now)
		if d := t.Sub(now); lost || !t.IsZero() && d.Abs() > farthest {
			return time.Time{}
		}
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

// protoDelay is a wait as Google's clients print it of a protocol buffer.
var protoDelay = regexp.MustCompile(`retry_delay \{\s*seconds: (\d+)(?:\s+nanos: (\d+))?`)

// proto returns the wait of a printed protocol buffer, or 0.
func proto(s string) time.Duration {
	if m := protoDelay.FindStringSubmatch(s); m != nil && strings.Contains(s, "}") {
		return Scaled(float(m[1])+float(m[2])/1e9, time.Second)
	}
	return 0
}
