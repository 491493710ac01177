package work

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/limits"
)

// Pauses counts the pauses and the rate-limit responses of the Schedulers that it observes. The zero value is ready. It is safe for
// concurrent use.
type Pauses struct {
	// IgnoreEarlier has Recall do nothing. It is set before the first use.
	IgnoreEarlier bool

	mu      sync.Mutex
	count   int
	limited int                  // rate-limit responses
	why     string               // accounts are paused as a whole; "": somebody said so
	until   map[string]RateLimit // by lane
	earlier string               // the lane whose pause an earlier run began; "": none
	held    map[string]bool      // accounts that are paused as a whole
	kick    chan struct{}        // see watch
}

// Observe counts rate-limit responses and the start of a pause, and remembers how long each lane's lasts, and which accounts are paused as
// a whole.
func (p *Pauses) Observe(e sluice.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Type {
	case limits.EventSlotReleased:
		if o := &e.Outcome; o.Kind.Throttle() && !o.TooLarge && !o.Unsent {
			p.limited++
		} else if o.Kind == sluice.OK && e.Lane == p.earlier && !p.until[e.Lane].Until.After(e.At) {
			p.earlier = "" // no event ends the pause of an earlier run
			delete(p.until, e.Lane)
		}
		return
	case limits.EventCooldownStarted:
		p.coolLocked(e)
	case limits.EventCooldownEnded:
		delete(p.until, e.Lane)
	case limits.EventPaused:
		if len(p.held) == 0 { // several accounts pause together
			p.count++
			p.held = make(map[string]bool)
		}
		p.held[e.Account] = true
	case limits.EventResumed:
		delete(p.held, e.Account)
	default:
		return
	}
	wake.Up(p.kick)
}

func (p *Pauses) coolLocked(e sluice.Event) {
	if p.until == nil {
		p.until = make(map[string]RateLimit)
	}
	before, paused := p.until[e.Lane]
	if !paused { // else a request that tested it was rejected
		p.count++
	}
	if !e.Until.After(before.Until) {
		return
	}
	l := limitOf(e)
	if paused && e.Outcome.Err == nil { // nothing is said of its cause
		before.Until = l.Until
		l = before
	} else if paused && l.Kind == before.Kind && l.Dimension == before.Dimension {
		l.SeenAt = before.SeenAt
	}
	p.until[e.Lane] = l
}

// Recall has the pause continue in which an earlier run ended: it is not counted again, and keeps its text, source and instant until a
// request succeeds.
func (p *Pauses) Recall(earlier State) {
	if l := earlier.RateLimit; p != nil && !p.IgnoreEarlier && !l.Until.IsZero() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.until, p.earlier = map[string]RateLimit{l.Lane: l}, l.Lane
	}
}

// Limit returns what a lane pauses for, or what it paused for last.
func (p *Pauses) Limit(lane string) RateLimit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until[lane]
}

// mostText is how much of a provider's words the state keeps.
const mostText = 300

// limitOf is what the event of a pause says of it.
func limitOf(e sluice.Event) RateLimit {
	l := RateLimit{Kind: e.Outcome.Kind, Dimension: e.Outcome.Dimension, Lane: e.Lane, Until: e.Until.UTC(), SeenAt: e.At.UTC()}
	if err := e.Outcome.Err; err != nil {
		l.Text = prose.Clip(strings.ToValidUTF8(err.Error(), "\ufffd"), mostText)
		var from interface{ Source() string }
		if errors.As(err, &from) {
			l.Source = from.Source()
		}
		var by interface{ Stated() bool }
		if errors.As(err, &by) {
			l.Stated = by.Stated()
		}
	}
	return l
}

// Count returns how many pauses there were.
func (p *Pauses) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// Because says why accounts are paused as a whole, where it is not that somebody said so, which is "".
func (p *Pauses) Because(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.why = why
}

// watch returns a channel that is sent to when a pause begins or grows, or the whole run goes on.
func (p *Pauses) watch() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kick == nil {
		p.kick = make(chan struct{}, 1)
	}
	return p.kick
}

// describe puts the longest present pause, and why accounts are paused as a whole, into the state of a run. It returns how many pauses
// and rate-limit responses there were.
func (p *Pauses) describe(s *State, tellLimits bool) (count, limited int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Status, s.Reason, s.RateLimit = Running, "", RateLimit{}
	now := time.Now()
	for _, lane := range slices.Sorted(maps.Keys(p.until)) { // of pauses that end at once the same is told each time
		if l := p.until[lane]; l.Until.After(now) && l.Until.After(s.RateLimit.Until) {
			s.Status, s.RateLimit = Paused, l
			if tellLimits {
				s.Status = Limited
			}
		}
	}
	s.RateLimitUntil = s.RateLimit.Until
	if len(p.held) > 0 {
		s.Status, s.Reason = Paused, cmp.Or(p.why, "the scheduler is paused")
	}
	return p.count, p.limited
}
