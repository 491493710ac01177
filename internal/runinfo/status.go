// Package runinfo describes runs: a Status at one instant, a Summary at the end, and a Stored run in the files beside its output.
// It returns data and texts, and prints nothing.
package runinfo

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
)

// MaxMessage is the maximum length of a quoted message, in characters.
const MaxMessage = 300

// Status is the state of a run at one instant.
type Status struct {
	At time.Time `json:"at"` // Time of the data or event.
	work.Counts
	Requests
	Pace
	work.Tokens
	Draining bool `json:"draining"` // The run does not start further requests.
	Waits
	Cost      float64 `json:"cost_usd,omitempty"`           // Cost, if known.
	Estimated float64 `json:"cost_estimated_usd,omitempty"` // Estimated part of the cost.
	Remote
	Parts *Parts                `json:"parts,omitempty"` // Batches of `--batch`.
	Lanes []limits.LaneSnapshot `json:"lanes"`           // State by lane.

	Held      string `json:"-"` // Reason why no item starts, such as the hour; "" if items start.
	Commands  bool   `json:"-"` // Items are commands.
	Upstreams bool   `json:"-"` // There are several upstreams.
}

// Requests are the open and the rate-limited requests of a run.
type Requests struct {
	InFlight  int `json:"in_flight"` // Requests in flight.
	Waiting   int `json:"waiting"`   // Waiting requests.
	Throttles int `json:"throttles"` // Rate-limited requests.
}

// Pace is the measured progress, and the limit that holds it back.
type Pace struct {
	PerMin  Rate             `json:"per_min"`                 // Items per minute.
	Mean    Rate             `json:"mean_per_min"`            // Items per minute since the start.
	Binding limits.Dimension `json:"binding"`                 // Binding limit.
	Until   time.Time        `json:"cooldown_until,omitzero"` // End of the cooldown of the busiest lane.
	ETAms   *int64           `json:"eta_ms,omitempty"`        // Expected remaining time.
}

// Waits are waits for other reasons than the limits of lanes.
type Waits struct {
	Rationed int    `json:"waiting_for_cap,omitempty"`  // Requests that wait for a spending cap.
	Retrying int    `json:"waiting_to_retry,omitempty"` // Items in backoff.
	Outlook  string `json:"outlook,omitempty"`          // State of the agent's usage windows.
}

// Remote is the state of workers and of Redis.
type Remote struct {
	Workers   *int   `json:"workers,omitempty"`           // Workers of a run with `--distribute`.
	RedisAway bool   `json:"redis_unreachable,omitempty"` // Redis does not respond.
	away      string // message if Redis does not respond
}

// Rate is a number of items per minute. In JSON it has one decimal.
type Rate float64

// MarshalJSON writes the rounded rate.
func (r Rate) MarshalJSON() ([]byte, error) { return json.Marshal(math.Round(float64(r)*10) / 10) }

func (r Rate) String() string { return prose.Group(math.Round(float64(r))) }

// New returns the status of a run with these results and this Scheduler. A Meter adds the time and the rate.
func New(p work.Report, snap sluice.Snapshot) Status {
	return Status{
		Counts: p.Counts(), Requests: requests(snap.Lanes), Tokens: work.TokensOf(p.Usage), Waits: Waits{Retrying: snap.Retrying},
		Cost: p.Cost, Estimated: p.Estimated, Lanes: snap.Lanes,
	}
}

// requests adds up the requests of lanes.
func requests(lanes []limits.LaneSnapshot) (r Requests) {
	for _, lane := range lanes {
		r.InFlight += lane.InFlight
		r.Waiting += lane.Waiting
		r.Throttles += lane.Throttles
	}
	return r
}

// Distribute adds the state of a run whose requests workers send, with the rate-limited requests that they reported.
func (s *Status) Distribute(far *cluster.RemoteStatus, throttles int) {
	if far != nil {
		s.Requests, s.Remote = Requests{far.InFlight, far.Waiting, throttles}, Remote{&far.Workers, far.Away != "", far.Away}
	}
}

// WaitForRedis marks the status of a run that sends no requests until Redis at url responds.
func (s *Status) WaitForRedis(url string) {
	s.RedisAway, s.away = true, "waiting for Redis at "+url
}

// Reasons why a run sends no requests, in addition to those of lanes.
const (
	noRedis    = "no_redis"
	noWorker   = "no_worker"
	noProvider = "no_provider"
	noUpstream = "no_upstream"
)

// outage returns the reason why no request can succeed; "" if there is none. A provider is away while the circuit breakers of all
// lanes with open requests are open, or test requests check whether they can close.
func (s *Status) outage(now time.Time) string {
	switch {
	case s.RedisAway:
		return noRedis
	case s.idle():
		return noWorker
	}
	failing := false
	for _, lane := range s.Lanes {
		if lane.Pause == sluice.ServerError && (lane.Until.After(now) || lane.Probing) {
			failing = true
		} else if lane.InFlight+lane.Waiting > 0 {
			return ""
		}
	}
	switch {
	case !failing:
		return ""
	case s.Upstreams:
		return noUpstream
	}
	return noProvider
}

// idle reports whether items remain without a worker.
func (s *Status) idle() bool { return s.Workers != nil && *s.Workers == 0 && s.Remaining() > 0 }

// measured completes the status with its time, its present and mean rate, and the fields that follow from them.
func (s Status) measured(now time.Time, perMin, mean Rate) Status {
	s.At, s.PerMin, s.Mean, s.Lanes = now, perMin, mean, at(now, s.Lanes)
	lane := busiest(s.Lanes)
	s.Binding, s.Until = lane.Binding, lane.Until
	if eta := s.eta(&lane); eta > 0 {
		s.ETAms = new(eta.Milliseconds())
	}
	return s
}

// Limited returns the reason why requests wait: "limited by 900 requests/min", "cooldown until 12:03:10"; "" if there is none.
func (s *Status) Limited() string {
	switch {
	case s.Held != "":
		return s.Held
	case s.away != "":
		return s.away
	case s.idle():
		return "waiting for a worker"
	}
	lane := busiest(s.Lanes)
	limit := binding(&lane)
	switch until := pause(&lane, s.At); {
	case until != "":
		return until
	case lane.Waiting == 0:
		return s.rationing()
	case limit.Dimension == limits.AnyDimension:
		return ""
	case limit.Limit == 0:
		return "limited by " + prose.LimitName(limit.Dimension.String())
	}
	return "limited by " + prose.Limit(limit.Dimension, limit.Limit)
}

// rationing returns the number of requests that wait for a spending cap, or for a retry while none is in flight.
func (s *Status) rationing() string {
	waiting := func(n int, thing string) string { return prose.Count(n, thing) + prose.Verb(n, " waits", " wait") }
	switch {
	case s.Rationed > 0:
		return waiting(s.Rationed, "request") + " for a spending cap"
	case s.Retrying > 0 && s.InFlight == 0:
		return waiting(s.Retrying, "item") + " for a retry"
	}
	return ""
}

// pause returns the end of a lane's pause and, unless it is a cooldown, the cause; "" if the lane is not paused.
func pause(lane *limits.LaneSnapshot, now time.Time) string {
	if !lane.Until.After(now) {
		return ""
	}
	what, left := "cooldown", ""
	switch lane.Pause {
	case sluice.UsageWindow:
		what, left = "usage window: paused", " ("+prose.Span(lane.Until.Sub(now))+" left)" // it may be hours
	case sluice.ServerError:
		what = "provider keeps failing: paused"
	case sluice.Overloaded:
		what = "provider overloaded: paused"
	}
	return what + " until " + prose.Clock(lane.Until, now, time.TimeOnly) + left
}

// eta estimates the remaining time, by the rate of the limit that binds the busiest lane or, without one, by the measured rate. It is 0
// if it is unknown, as while a batch is pending.
func (s *Status) eta(lane *limits.LaneSnapshot) time.Duration {
	left, perMin := float64(s.Remaining()), float64(s.PerMin)
	if s.Total == 0 || left == 0 || s.Held != "" || s.Parts != nil && s.Parts.Pending > 0 {
		return 0
	}
	b := binding(lane)
	if limit := float64(b.Limit) / b.Dimension.Window().Minutes(); limit > 0 && !math.IsInf(limit, 0) {
		if b.Dimension.Per(time.Minute) == limits.Requests {
			perMin = limit
		} else if b.Spent > 0 && lane.Granted > 0 {
			perMin = limit * float64(lane.Granted) / b.Spent
		}
	}
	if !(perMin > 0) {
		return 0
	}
	wait := time.Duration(math.Min(left/perMin*float64(time.Minute), math.MaxInt64/2))
	return wait + max(0, lane.Until.Sub(s.At))
}

// Progress returns "done/total".
func (s *Status) Progress() string { return progress(s.Finished(), s.Total, "/") }

// progress returns the number of finished items, and the number of all items if it is known.
func progress(finished, total int, of string) string {
	if total == 0 {
		return prose.Group(finished) + " done"
	}
	return prose.Group(finished) + of + prose.Group(total)
}

// Failures returns the number of failed items; "" if there are none.
func (s *Status) Failures() string { return prose.If(s.Failed, prose.Group(s.Failed)+" failed") }

// Speed returns the present rate beside the mean of the run, the reason why it is not higher, and the remaining time. A rate above
// the limit is left out: it comes from a burst or from cached results, and cannot last.
func (s *Status) Speed() string {
	const tolerance = 1.05 // of the measurement
	rate, eta, lane := s.PerMin.String(), "", busiest(s.Lanes)
	if mean := s.Mean.String(); mean == rate {
		rate += "/min"
	} else {
		rate += "/min (mean " + mean + "/min)"
	}
	if b := binding(&lane); len(s.Lanes) == 1 && b.Dimension == limits.Requests && b.Limit > 0 && s.PerMin > tolerance*Rate(b.Limit) {
		rate = ""
	}
	if s.ETAms != nil {
		eta = "ETA " + prose.Span(time.Duration(*s.ETAms)*time.Millisecond)
	}
	return prose.Fields(rate, s.Limited(), eta)
}

// Load returns the requests in flight, the waiting and the rate-limited requests, and the workers of a distributed run.
func (s *Status) Load() string {
	text := prose.Fields(prose.Group(s.InFlight)+" in flight", prose.Group(s.Waiting)+" waiting",
		prose.If(s.Throttles, prose.Group(s.Throttles)+" rate-limited"))
	if s.Workers != nil {
		text = prose.Fields(text, prose.Count(*s.Workers, "worker"))
	}
	return text
}

// Stopping returns the open work of an interrupted run, and the effect of another interrupt.
func (s *Status) Stopping() string {
	what, after := "request", "; Ctrl-C again aborts them (they can be billed)"
	switch {
	case s.Commands:
		what, after = "command", "; Ctrl-C again stops them (they run again later)"
	case s.Workers != nil:
		after = "; Ctrl-C again leaves them to the workers (the same command records them)"
	}
	text := prose.Count(s.InFlight, what) + " in flight"
	switch {
	case s.Parts == nil || s.InFlight > 0:
	case s.Parts.running > 0:
		text, after = "batches continue at the provider", ""
	default:
		text, after = "no batch runs at the provider", ""
	}
	var oldest time.Duration
	for _, lane := range s.Lanes {
		if !lane.Oldest.IsZero() {
			oldest = max(oldest, s.At.Sub(lane.Oldest))
		}
	}
	if s.InFlight > 0 && oldest > 0 {
		text += ", oldest " + prose.Span(oldest)
	}
	return text + after
}

// Block returns the status in lines for a terminal of that width.
func (s *Status) Block(width int) []string {
	lines := []string{
		prose.Fields(s.Progress()+"  "+term.Bar(s.Finished(), s.Total, min(24, width/4)), s.Failures()),
		s.Speed(),
		prose.Fields(s.Load(), "tokens "+s.InOut()),
	}
	if text := s.Parts.Text(s.At); text != "" {
		lines = append(lines, folded(text, width)...)
	}
	if s.Outlook != "" {
		lines = append(lines, s.Outlook)
	}
	if s.Draining {
		lines = append(lines, folded(s.Stopping(), width)...) // its end must be visible
	}
	for i, line := range lines {
		lines[i] = term.Clip(line, width-1)
	}
	return lines
}

// Line returns the status in one line, for logs.
func (s *Status) Line() string {
	if s.Draining {
		return "stopping: " + s.Stopping()
	}
	return prose.Fields(s.Progress(), s.Failures(), s.Speed(), s.Load(), s.Parts.Text(s.At), s.Outlook)
}

// folded breaks a text that is too long for a line at its semicolons.
func folded(text string, width int) []string {
	var lines []string
	for len(text) >= width {
		i := strings.LastIndex(text[:width], "; ")
		if i < 0 {
			break
		}
		lines, text = append(lines, text[:i+1]), text[i+2:]
	}
	return append(lines, text)
}
