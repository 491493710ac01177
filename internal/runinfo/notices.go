package runinfo

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// Notices turns the events of a run into lines for its user. Set the fields before the first event. It is safe for concurrent use.
type Notices struct {
	Verbose  bool
	Shared   bool                              // programs share limits by Redis
	Commands bool                              // the run is of commands, and not of requests
	Pauses   *work.Pauses                      // gets the events before the Notices
	Label    func(account, lane string) string // name of a lane of requests
	Foreign  func(model string) string         // model and file of the limits, if another model starts with them; "" if not
	Waiting  func() int                        // number of waiting items of a run of commands; 0 if it is unknown

	mu      sync.Mutex
	lanes   map[string]*laneNotes // by label
	reached bool                  // a request was sent, so the provider responds
	warned  map[string]bool       // models with foreign limits
	limit   work.RateLimit        // the last limit that a line described
}

// lines are lines of text.
type lines []string

func (l *lines) add(format string, args ...any) {
	*l = append(*l, "sluice: "+fmt.Sprintf(format, args...))
}

// Lines returns the lines for an event, as they are printed. Most events have none.
func (n *Notices) Lines(e sluice.Event) (l lines) {
	model, foreign, waiting := e.Lane, "", 0
	switch {
	case !n.Commands:
		if model != "" {
			foreign = n.Foreign(model)
		}
		e.Lane = n.Label(e.Account, e.Lane)
	case e.Type == limits.EventCooldownStarted:
		waiting = n.Waiting()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	lane := n.lanes[e.Lane]
	if lane == nil {
		lane = &laneNotes{}
		n.lanes = put(n.lanes, e.Lane, lane)
	}
	if text := lane.observe(&e); text != "" {
		l.add("%s: %s", text, n.advice())
	}
	if n.Commands {
		n.ofCommands(&l, &e, waiting)
		return l
	}
	n.ofRequests(&l, &e, lane)
	if foreign != "" && !n.warned[model] {
		n.warned = put(n.warned, model, true)
		l.add("warning: %s starts with the limits of %s", model, foreign)
	}
	return l
}

// advice returns the next step if a provider rate-limits many requests.
func (n *Notices) advice() string {
	const own = "set --rpm and --tpm to the limits of your account"
	switch {
	case n.Commands:
		return "lower --jobs, or set --rpm"
	case n.Shared:
		return own
	}
	return "if other programs use this key, share limits with --redis; otherwise " + own
}

func (n *Notices) ofRequests(l *lines, e *sluice.Event, lane *laneNotes) {
	o := &e.Outcome
	switch e.Type {
	case limits.EventShared:
		if !n.Shared {
			l.add("another process uses %s with the same key: together both may exceed its limits", e.Lane)
			*l = append(*l, "hint: set --redis URL in both processes, use `sluice serve`, or run one process after the other")
		}
	case limits.EventSlotReleased:
		n.reached = n.reached || !o.Unsent
		if o.Kind.Transient() && o.Err != nil {
			lane.lastErr = term.Clip(o.Err.Error(), MaxMessage)
		}
	case limits.EventBreaker:
		if e.Until.IsZero() {
			l.add("%s: responds again", e.Lane)
		} else if n.reached { // else the run ends, without a next attempt
			l.add("%s: keeps failing, next attempt at %s%s", e.Lane, clock(e), prose.If(len(lane.lastErr), ": "+lane.lastErr))
		}
	}
	if !n.Verbose {
		return
	}
	switch e.Type {
	case limits.EventLimitsChanged:
		l.add("%s: %s is %s", e.Lane, e.Dimension, prose.Group(e.Limit))
	case limits.EventCooldownStarted:
		l.add("%s: pauses until %s: %s", e.Lane, clock(e), o.Kind)
	case limits.EventCooldownEnded:
		l.add("%s: resumed", e.Lane)
	case limits.EventThrottled, limits.EventGaveUp:
		l.add("%s: %s: %v", e.Lane, e.Call, o.Err)
	}
}

func (n *Notices) ofCommands(l *lines, e *sluice.Event, waiting int) {
	switch e.Type {
	case limits.EventCooldownStarted:
		limit := n.Pauses.Limit(e.Lane)
		if !n.limit.SeenAt.Equal(limit.SeenAt) || limit.Until.Sub(n.limit.Until) >= time.Second { // else an earlier line described it
			l.add("%s", limitText(&limit, e, waiting))
		}
		n.limit = limit
	case limits.EventCooldownEnded:
		l.add("the pause for the limit is over: commands start again")
	case limits.EventShared:
		l.add("another process runs %s too: together both may exceed its limits", e.Lane)
	case limits.EventBreaker:
		if e.Until.IsZero() {
			l.add("%s: resumed", e.Lane)
		} else {
			l.add("%s: the provider keeps failing, next attempt at %s", e.Lane, clock(e))
		}
	case limits.EventThrottled, limits.EventGaveUp, limits.EventAttemptFailed:
		if n.Verbose {
			l.add("%s: %s: %v", e.Call, e.Outcome.Kind, e.Outcome.Err)
		}
	}
}

// clock returns the end of the pause that an event reports.
func clock(e *sluice.Event) string { return prose.Clock(e.Until, e.At, time.TimeOnly) }

// limitText describes the limit of a pause that starts: its time, the number of waiting items, and its reset. If the reset is unknown, it
// has the next attempt instead.
func limitText(limit *work.RateLimit, e *sluice.Event, items int) string {
	waiting := cmp.Or(prose.If(items, prose.Count(items, "item")+prose.Verb(items, " waits", " wait")), "items wait")
	next, until := "next attempt at", limit.Until.Local()
	if limit.Stated {
		next = "reset"
	}
	if end, ok := errors.AsType[*proc.EndError](e.Outcome.Err); ok && end.Stated() {
		until = end.Until // in the zone of its text
	}
	text := fmt.Sprintf("%s because of a limit reached at %s (%s), %s %s", waiting, prose.Clock(limit.SeenAt, e.At, time.TimeOnly),
		strings.ReplaceAll(limit.Kind.String(), "_", " "), next, prose.Zoned(until, e.At))
	return text + prose.If(len(limit.Text), ": "+term.Clip(limit.Text, MaxMessage))
}

// ExclusionLine returns the line for an exclusion of an upstream or of one of its keys, or for its end.
func ExclusionLine(x provider.Exclusion) string {
	format := "sluice: upstream %s: continues without one of its keys: %s"
	switch {
	case x.Kind == sluice.OK:
		format = "sluice: upstream %s: %s"
	case x.Whole:
		format = "sluice: upstream %s: excluded: %s"
	}
	return fmt.Sprintf(format, x.Upstream, x)
}

// SharedLimitLine returns a hint if the account seems to have one limit for several lanes together; "" otherwise.
func (n *Notices) SharedLimitLine(sum *Summary) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(sum.Upstreams) > 0 || n.Shared {
		return ""
	}
	var all telemetry.SharedLimits
	for _, l := range sum.Lanes {
		lane := n.lanes[l.Lane]
		for _, u := range l.Limits {
			if lane != nil && all.Add("", u, l.Granted, lane.rejections[u.Dimension]) {
				return fmt.Sprintf("hint: set --%[1]s %[2]d if all models of the account share one limit: "+
					"models were rejected below half of their own %[1]s limits", u.Dimension, u.Limit)
			}
		}
	}
	return ""
}

// laneNotes are the rejections and the last error of a lane.
type laneNotes struct {
	rejections [limits.NumDimensions]int // by the limit that the provider named
	lastErr    string                    // of the last failed request
	since      time.Time                 // start of the present minute
	sent       int                       // requests with a response in the present minute
	rejected   int                       // rate-limited requests among them
	reported   bool
}

// Rejections pile up if they are more than this share of this number of requests within a minute.
const (
	pileUpRequests = 50
	pileUpShare    = 0.1
)

// observe adds an event. As soon as rejections pile up, it returns a description, once; "" otherwise.
func (l *laneNotes) observe(e *sluice.Event) string {
	o := &e.Outcome
	if e.Type == limits.EventThrottled {
		l.rejections[o.Dimension]++
	}
	if e.Type != limits.EventSlotReleased || o.Unsent || o.TooLarge {
		return ""
	}
	if e.At.Sub(l.since) > time.Minute {
		l.since, l.sent, l.rejected = e.At, 0, 0
	}
	l.sent++
	if o.Kind.Throttle() {
		l.rejected++
	}
	if l.reported || l.sent < pileUpRequests || float64(l.rejected) <= pileUpShare*float64(l.sent) {
		return ""
	}
	l.reported = true
	return fmt.Sprintf("%s: the provider rate-limited %s of %s requests within a minute, and Sluice slows down",
		e.Lane, prose.Group(l.rejected), prose.Group(l.sent))
}
