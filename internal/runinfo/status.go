// Package runinfo describes runs: a Status at one instant, a Summary at the end, and a Stored run in the files beside its output.
// It returns data and texts, and prints nothing.
package runinfo

import (
	"fmt"
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
	At        time.Time `json:"at"`                           // Time of the data or event.
	Total     int       `json:"total"`                        // Items of the input.
	Done      int       `json:"done"`                         // Successful items of all runs.
	Failed    int       `json:"failed"`                       // Failed items of all runs.
	InFlight  int       `json:"in_flight"`                    // Requests in flight.
	Waiting   int       `json:"waiting"`                      // Waiting requests.
	Throttles int       `json:"throttles"`                    // Rate-limited requests.
	PerMin    float64   `json:"per_min"`                      // Items per minute.
	Mean      float64   `json:"mean_per_min"`                 // Items per minute since the start.
	Binding   string    `json:"binding"`                      // Binding limit.
	Until     time.Time `json:"cooldown_until,omitzero"`      // End of the cooldown of the busiest lane.
	ETAms     *int64    `json:"eta_ms,omitempty"`             // Expected remaining time.
	Input     int       `json:"input_tokens"`                 // Input tokens.
	Output    int       `json:"output_tokens"`                // Output tokens.
	Draining  bool      `json:"draining"`                     // The run does not start further requests.
	Rationed  int       `json:"waiting_for_cap,omitempty"`    // Requests that wait for a spending cap.
	Retrying  int       `json:"waiting_to_retry,omitempty"`   // Items in backoff.
	Outlook   string    `json:"outlook,omitempty"`            // State of the agent's usage windows.
	Cost      float64   `json:"cost_usd,omitempty"`           // Cost, if known.
	Estimated float64   `json:"cost_estimated_usd,omitempty"` // Estimated part of the cost.

	Workers   *int `json:"workers,omitempty"`           // Workers of a run with `--distribute`.
	RedisAway bool `json:"redis_unreachable,omitempty"` // Redis does not respond.

	Parts *Parts `json:"parts,omitempty"` // Batches of `--batch`.

	Lanes []Lane `json:"lanes"` // State by lane.

	Held      string `json:"-"` // Reason why no item starts, such as the hour; "" if items start.
	Commands  bool   `json:"-"` // Items are commands.
	Upstreams bool   `json:"-"` // There are several upstreams.

	lanes  []limits.LaneSnapshot
	perMin float64 // PerMin, not rounded
	mean   float64 // Mean, not rounded
	away   string  // message if Redis does not respond
}

// New returns the status of a run with these results and this Scheduler. A Meter adds the time and the rate.
func New(p work.Report, snap sluice.Snapshot) Status {
	s := Status{
		Total: p.Total, Done: p.AllDone(), Failed: p.Failed + p.AlreadyFailed, Input: p.Usage.Input, Output: p.Usage.Output,
		Cost: p.Cost, Estimated: p.Estimated, Retrying: snap.Retrying, lanes: snap.Lanes,
	}
	for _, lane := range snap.Lanes {
		s.InFlight += lane.InFlight
		s.Waiting += lane.Waiting
		s.Throttles += lane.Throttles
	}
	return s
}

// Distribute adds the state of a run whose requests workers send, with the rate-limited requests that they reported.
func (s *Status) Distribute(far *cluster.RemoteStatus, throttles int) {
	if far != nil {
		s.InFlight, s.Waiting, s.Throttles = far.InFlight, far.Waiting, throttles
		s.Workers, s.RedisAway, s.away = &far.Workers, far.Away != "", far.Away
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
	case s.Workers != nil && *s.Workers == 0 && s.remaining() > 0:
		return noWorker
	}
	failing := false
	for _, lane := range s.lanes {
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

// Finished is the number of items with a result.
func (s *Status) Finished() int { return s.Done + s.Failed }

// remaining is the number of items without a result.
func (s *Status) remaining() int { return max(0, s.Total-s.Finished()) }

// measured completes the status with its time, its present and mean rate, and the fields that follow from them.
func (s Status) measured(now time.Time, perMin, mean float64) Status {
	s.At, s.perMin, s.mean, s.Lanes = now, perMin, mean, newLanes(s.lanes, now)
	s.PerMin, s.Mean = math.Round(perMin*10)/10, math.Round(mean*10)/10
	if lane, ok := s.busiest(); ok {
		if lane.Waiting > 0 {
			s.Binding = lane.Binding.String()
		}
		if lane.Until.After(now) {
			s.Until = lane.Until
		}
	}
	if eta, ok := s.eta(); ok {
		s.ETAms = new(eta.Milliseconds())
	}
	return s
}

// busiest returns the lane with the most open requests: its limit holds the run back.
func (s *Status) busiest() (lane limits.LaneSnapshot, ok bool) {
	for _, l := range s.lanes {
		if !ok || l.Waiting+l.InFlight > lane.Waiting+lane.InFlight {
			lane, ok = l, true
		}
	}
	return lane, ok
}

// Limited returns the reason why requests wait: "limited by 900 requests/min", "cooldown until 12:03:10"; "" if there is none.
func (s *Status) Limited() string {
	switch {
	case s.Held != "":
		return s.Held
	case s.away != "":
		return s.away
	case s.Workers != nil && *s.Workers == 0 && s.remaining() > 0:
		return "waiting for a worker"
	}
	lane, ok := s.busiest()
	if !ok {
		return s.rationing()
	}
	if until := pause(lane, s.At); until != "" {
		return until
	}
	if lane.Waiting == 0 {
		return s.rationing()
	}
	limit := Bucket(lane, lane.Binding).Limit
	if lane.Binding == limits.Concurrency {
		limit = int64(lane.Slots)
	}
	switch {
	case lane.Binding == limits.AnyDimension:
		return ""
	case limit == 0:
		return "limited by " + prose.LimitName(lane.Binding.String())
	}
	return "limited by " + prose.Limit(lane.Binding, limit)
}

// rationing returns the number of requests that wait for a spending cap, or for a retry while none is in flight.
func (s *Status) rationing() string {
	waiting := func(n int, thing string) string {
		verb := " wait"
		if n == 1 {
			verb = " waits"
		}
		return prose.Count(n, thing) + verb
	}
	switch {
	case s.Rationed > 0:
		return waiting(s.Rationed, "request") + " for a spending cap"
	case s.Retrying > 0 && s.InFlight == 0:
		return waiting(s.Retrying, "item") + " for a retry"
	}
	return ""
}

// pause returns the end of a lane's pause and, unless it is a cooldown, the cause; "" if the lane is not paused.
func pause(lane limits.LaneSnapshot, now time.Time) string {
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

// eta estimates the remaining time, by the rate of the binding limit or, without one, by the measured rate. While a batch is
// pending there is no estimate.
func (s *Status) eta() (time.Duration, bool) {
	left := float64(s.remaining())
	if s.Total == 0 || left == 0 || s.Held != "" || s.Parts != nil && s.Parts.Pending > 0 {
		return 0, false
	}
	perMin := s.perMin
	lane, ok := s.busiest()
	if ok && lane.Waiting > 0 {
		bucket, window := Bucket(lane, lane.Binding), lane.Binding.Window().Minutes()
		if limit := float64(bucket.Limit); limit > 0 && window > 0 {
			if lane.Binding.Per(time.Minute) == limits.Requests {
				perMin = limit / window
			} else if bucket.Spent > 0 && lane.Granted > 0 {
				perMin = limit / window * float64(lane.Granted) / bucket.Spent
			}
		}
	}
	if !(perMin > 0) {
		return 0, false
	}
	wait := time.Duration(math.Min(left/perMin*float64(time.Minute), math.MaxInt64/2))
	if ok && lane.Until.After(s.At) {
		wait += lane.Until.Sub(s.At)
	}
	return wait, true
}

// Progress returns "done/total".
func (s *Status) Progress() string {
	if s.Total == 0 {
		return prose.Group(s.Finished()) + " done"
	}
	return prose.Group(s.Finished()) + "/" + prose.Group(s.Total)
}

// Failures returns the number of failed items; "" if there are none.
func (s *Status) Failures() string { return prose.If(s.Failed, prose.Group(s.Failed)+" failed") }

// Speed returns the present rate beside the mean of the run, the reason why it is not higher, and the remaining time. A rate above
// the limit is left out: it comes from a burst or from cached results, and cannot last.
func (s *Status) Speed() string {
	const tolerance = 1.05 // of the measurement
	rate, mean, eta := prose.Group(math.Round(s.perMin)), prose.Group(math.Round(s.mean)), ""
	if mean == rate {
		rate += "/min"
	} else {
		rate += "/min (mean " + mean + "/min)"
	}
	if len(s.lanes) == 1 && s.lanes[0].Waiting > 0 && s.lanes[0].Binding == limits.Requests {
		if limit := Bucket(s.lanes[0], limits.Requests).Limit; limit > 0 && s.perMin > tolerance*float64(limit) {
			rate = ""
		}
	}
	if left, ok := s.eta(); ok {
		eta = "ETA " + prose.Span(left)
	}
	return prose.Fields(rate, s.Limited(), eta)
}

// Requests returns the requests in flight, the waiting and the rate-limited requests, and the workers of a distributed run.
func (s *Status) Requests() string {
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
	var oldest time.Time
	for _, lane := range s.lanes {
		if !lane.Oldest.IsZero() && (oldest.IsZero() || lane.Oldest.Before(oldest)) {
			oldest = lane.Oldest
		}
	}
	if s.InFlight > 0 && !oldest.IsZero() {
		text += fmt.Sprintf(", oldest %s", prose.Span(s.At.Sub(oldest)))
	}
	return text + after
}

// Block returns the status in lines for a terminal of that width.
func (s *Status) Block(width int) []string {
	lines := []string{
		prose.Fields(s.Progress()+"  "+term.Bar(s.Finished(), s.Total, min(24, width/4)), s.Failures()),
		s.Speed(),
		prose.Fields(s.Requests(), fmt.Sprintf("tokens %s in, %s out", prose.Group(s.Input), prose.Group(s.Output))),
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
	return prose.Fields(s.Progress(), s.Failures(), s.Speed(), s.Requests(), s.Parts.Text(s.At), s.Outlook)
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
