package cli

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/limits"
)

// status is how a run stands at one instant.
type status struct {
	now time.Time

	total    int // items of the input; 0: not known yet
	done     int // over all runs, like failed
	failed   int
	perMin   float64
	usage    sluice.Usage
	cost     float64 // in US dollars, as far as it is known
	estimate float64 // the part of cost that is one
	heldFor  string  // why nothing is started, such as hours; "" where it is not so
	outlook  string  // what an agent states of its usage windows
	commands bool    // items are commands, which are nobody's to bill
	rationed int     // calls that wait for room in a budget
	retrying int     // calls that wait before they are tried again
	lanes    []limits.LaneSnapshot
	draining bool
	far      *cluster.RemoteStatus // of a distributed run
	limited  int                   // throttles that workers reported
	parts    *partFigures          // nil: calls go live
}

// sum adds up what the lanes say.
func (s *status) sum() (inFlight, waiting, throttles int) {
	if s.far != nil {
		return s.far.InFlight, s.far.Waiting, s.limited
	}
	for _, lane := range s.lanes {
		inFlight += lane.InFlight
		waiting += lane.Waiting
		throttles += lane.Throttles
	}
	return inFlight, waiting, throttles
}

// left is how many items have no result yet.
func (s *status) left() int { return max(0, s.total-s.done-s.failed) }

// busiest is the lane that has most left to do: what holds it holds the run.
func (s *status) busiest() (lane limits.LaneSnapshot, ok bool) {
	for _, l := range s.lanes {
		if !ok || l.Waiting+l.InFlight > lane.Waiting+lane.InFlight {
			lane, ok = l, true
		}
	}
	return lane, ok
}

// binding returns the reason why requests wait now: "limited by 900 requests/min", "cooldown until 12:03:10"; "" if there is none.
func (s *status) binding() string {
	switch {
	case s.heldFor != "":
		return s.heldFor
	case s.far != nil && s.far.Away != "":
		return s.far.Away
	case s.far != nil && s.far.Workers == 0 && s.left() > 0:
		return "waiting for a worker"
	}
	lane, ok := s.busiest()
	if !ok {
		return s.rationing()
	}
	if until := s.pause(lane); until != "" {
		return until
	}
	if lane.Waiting == 0 {
		return s.rationing()
	}
	limit := limitOf(lane, lane.Binding)
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
func (s *status) rationing() string {
	switch inFlight, _, _ := s.sum(); {
	case s.rationed > 0:
		return waiting(s.rationed, "request") + " for a spending cap"
	case s.retrying > 0 && inFlight == 0:
		return waiting(s.retrying, "item") + " for a retry"
	}
	return ""
}

// waiting returns "1 item waits", "3 items wait".
func waiting(n int, thing string) string {
	if n == 1 {
		return "1 " + thing + " waits"
	}
	return prose.Count(n, thing) + " wait"
}

// pause says until when a lane pauses and, where it is not a mere cooldown, why.
func (s *status) pause(lane limits.LaneSnapshot) string {
	if !lane.Until.After(s.now) {
		return ""
	}
	what, left := "cooldown", ""
	switch lane.Pause {
	case sluice.UsageWindow:
		what, left = "usage window: paused", " ("+prose.Span(lane.Until.Sub(s.now))+" left)" // it may be hours
	case sluice.ServerError:
		what = "provider keeps failing: paused"
	case sluice.Overloaded:
		what = "provider overloaded: paused"
	}
	return what + " until " + prose.Clock(lane.Until, s.now, time.TimeOnly) + left
}

// eta estimates what is left: at the rate of what binds, if a limit does, else at the rate of late.
//
// Nobody knows when a batch ends: while one is pending there is no estimate.
func (s *status) eta() (time.Duration, bool) {
	left := float64(s.left())
	if s.total == 0 || left == 0 || s.heldFor != "" || s.parts != nil && s.parts.Pending > 0 {
		return 0, false
	}
	perMin := s.perMin
	lane, ok := s.busiest()
	if ok && lane.Waiting > 0 {
		window := lane.Binding.Window().Minutes()
		if limit := float64(limitOf(lane, lane.Binding)); limit > 0 && window > 0 {
			if lane.Binding.Per(time.Minute) == limits.Requests {
				perMin = limit / window
			} else if spent := spentOf(lane, lane.Binding); spent > 0 && lane.Granted > 0 {
				perMin = limit / window * float64(lane.Granted) / spent
			}
		}
	}
	if !(perMin > 0) {
		return 0, false
	}
	wait := time.Duration(math.Min(left/perMin*float64(time.Minute), math.MaxInt64/2))
	if ok && lane.Until.After(s.now) {
		wait += lane.Until.Sub(s.now)
	}
	return wait, true
}

// block is the status as it is redrawn on a terminal of that width.
func (s *status) block(width int) []string {
	lines := []string{
		prose.Fields(s.progress()+"  "+term.Bar(s.done+s.failed, s.total, min(24, width/4)), s.failures()),
		s.speed(),
		prose.Fields(s.requests(), fmt.Sprintf("tokens %s in, %s out", prose.Group(s.usage.Input), prose.Group(s.usage.Output))),
	}
	if text := s.parts.words(s.now); text != "" {
		lines = append(lines, folded(text, width)...)
	}
	if s.outlook != "" {
		lines = append(lines, s.outlook)
	}
	if s.draining {
		lines = append(lines, folded(s.drainLine(), width)...) // its end must be read
	}
	for i, line := range lines {
		lines[i] = term.Clip(line, width-1)
	}
	return lines
}

// folded breaks a text that does not fit into a line at its semicolons.
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

// plain is the status on one line, for logs.
func (s *status) plain() string {
	return prose.Fields(s.progress(), s.failures(), s.speed(), s.requests(), s.parts.words(s.now), s.outlook)
}

// failures returns the number of failed items; "" if there are none.
func (s *status) failures() string { return prose.If(s.failed, prose.Group(s.failed)+" failed") }

// speed returns the rate, the reason why it is not higher, and the remaining time. A rate above the limit is left out: it
// comes from a burst or from cached results, and cannot last.
func (s *status) speed() string {
	const tolerance = 1.05 // of the measurement
	rate := prose.Group(math.Round(s.perMin)) + "/min"
	if len(s.lanes) == 1 && s.lanes[0].Waiting > 0 && s.lanes[0].Binding == limits.Requests {
		if limit := limitOf(s.lanes[0], limits.Requests); limit > 0 && s.perMin > tolerance*float64(limit) {
			rate = ""
		}
	}
	text := prose.Fields(rate, s.binding())
	if eta, ok := s.eta(); ok {
		text = prose.Fields(text, "ETA "+prose.Span(eta))
	}
	return text
}

// requests returns the requests in flight, the waiting ones, the rate-limit rejections, and the workers of a distributed run.
func (s *status) requests() string {
	inFlight, waiting, throttles := s.sum()
	text := prose.Fields(prose.Group(inFlight)+" in flight", prose.Group(waiting)+" waiting", prose.If(throttles, prose.Group(throttles)+" rate-limited"))
	if s.far != nil {
		text = prose.Fields(text, prose.Count(s.far.Workers, "worker"))
	}
	return text
}

// progress is "done/total".
func (s *status) progress() string {
	if s.total == 0 {
		return prose.Group(s.done+s.failed) + " done"
	}
	return fmt.Sprintf("%s/%s", prose.Group(s.done+s.failed), prose.Group(s.total))
}

// drainLine returns the open work of an interrupted run, and the effect of another interrupt.
func (s *status) drainLine() string {
	inFlight, _, _ := s.sum()
	what, after := "request", "; Ctrl-C again aborts them (they can be billed)"
	switch {
	case s.commands:
		what, after = "command", "; Ctrl-C again stops them (they run again later)"
	case s.far != nil:
		after = "; Ctrl-C again leaves them to the workers (the same command records them)"
	}
	text := prose.Count(inFlight, what) + " in flight"
	switch {
	case s.parts == nil || inFlight > 0:
	case s.parts.running > 0:
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
	if inFlight > 0 && !oldest.IsZero() {
		text += fmt.Sprintf(", oldest %s", prose.Span(s.now.Sub(oldest)))
	}
	return text + after
}

// statusLine is the status as one JSON line.
type statusLine struct {
	At        time.Time `json:"at"`                           // Time of the data or event.
	Total     int       `json:"total"`                        // Items of the input.
	Done      int       `json:"done"`                         // Successful items of all runs.
	Failed    int       `json:"failed"`                       // Failed items of all runs.
	InFlight  int       `json:"in_flight"`                    // Requests in flight.
	Waiting   int       `json:"waiting"`                      // Waiting requests.
	Throttles int       `json:"throttles"`                    // Rate-limited requests.
	PerMin    float64   `json:"per_min"`                      // Items per minute.
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

	Parts *partFigures `json:"parts,omitempty"` // Batches of `--batch`.

	Lanes []laneStatus `json:"lanes"` // State by lane.
}

// laneStatus is a lane as programs read it.
type laneStatus struct {
	Lane      string         `json:"lane"`                    // Model, or upstream and model.
	InFlight  int            `json:"in_flight"`               // Requests in flight.
	Slots     int            `json:"concurrency"`             // Allowed concurrency.
	Waiting   int            `json:"waiting"`                 // Waiting requests.
	Oldest    time.Time      `json:"oldest,omitzero"`         // Start of the oldest request in flight.
	Binding   string         `json:"binding,omitempty"`       // Binding limit.
	Until     time.Time      `json:"cooldown_until,omitzero"` // End of the cooldown.
	Why       string         `json:"cooldown_why,omitempty"`  // Cause of the cooldown.
	Throttles int            `json:"throttles"`               // Rate-limited requests.
	Budgets   []budgetStatus `json:"limits"`                  // State by limit.
}

// budgetStatus is one limit of a lane and its level.
type budgetStatus struct {
	Dimension string  `json:"dimension"`        // Name of the limit, such as `rpm`.
	Limit     int64   `json:"limit"`            // Value of the limit.
	Source    string  `json:"source"`           // Origin of the value, such as `header`.
	Level     float64 `json:"level"`            // Level of the token bucket; negative after too much use.
	Cap       float64 `json:"cap"`              // Size of the token bucket.
	Spent     float64 `json:"spent"`            // Amount used since the process started.
	Shared    bool    `json:"shared,omitempty"` // Other clients share the limit.
	limits.Claims
}

func laneStatuses(all []limits.LaneSnapshot, now time.Time) []laneStatus {
	lanes := make([]laneStatus, 0, len(all))
	for _, l := range all {
		lane := laneStatus{
			Lane: l.Lane, InFlight: l.InFlight, Slots: l.Slots, Waiting: l.Waiting, Oldest: l.Oldest, Throttles: l.Throttles,
			Budgets: make([]budgetStatus, 0, len(l.Budgets)),
		}
		if l.Waiting > 0 && l.Binding != limits.AnyDimension {
			lane.Binding = l.Binding.String()
		}
		if l.Until.After(now) {
			lane.Until, lane.Why = l.Until, l.Pause.String()
		}
		for _, b := range l.Budgets {
			lane.Budgets = append(lane.Budgets, budgetStatus{b.Dimension.String(), b.Limit, string(b.Source), b.Level, b.Cap, b.Spent, b.Shared, b.Claims})
		}
		lanes = append(lanes, lane)
	}
	return lanes
}

func (s *status) line() statusLine {
	inFlight, waiting, throttles := s.sum()
	line := statusLine{
		At: s.now, Total: s.total, Done: s.done, Failed: s.failed, InFlight: inFlight, Waiting: waiting,
		Throttles: throttles, PerMin: math.Round(s.perMin*10) / 10, Input: s.usage.Input, Output: s.usage.Output,
		Draining: s.draining, Rationed: s.rationed, Retrying: s.retrying, Outlook: s.outlook, Cost: s.cost, Estimated: s.estimate,
		Parts: s.parts, Lanes: laneStatuses(s.lanes, s.now),
	}
	if s.far != nil {
		line.Workers, line.RedisAway = &s.far.Workers, s.far.Away != ""
	}
	if lane, ok := s.busiest(); ok {
		if lane.Waiting > 0 {
			line.Binding = lane.Binding.String()
		}
		if lane.Until.After(s.now) {
			line.Until = lane.Until
		}
	}
	if eta, ok := s.eta(); ok {
		ms := eta.Milliseconds()
		line.ETAms = &ms
	}
	return line
}

// limitOf is the limit of a lane in one dimension; 0 is unknown.
func limitOf(lane limits.LaneSnapshot, d limits.Dimension) int64 {
	for _, b := range lane.Budgets {
		if b.Dimension == d {
			return b.Limit
		}
	}
	return 0
}

// spentOf is what a lane has taken from its budget in one dimension.
func spentOf(lane limits.LaneSnapshot, d limits.Dimension) float64 {
	for _, b := range lane.Budgets {
		if b.Dimension == d {
			return b.Spent
		}
	}
	return 0
}
