// Package control lets somebody watch and tune a run while it goes on, from outside its process: an http.Handler over a
// Target, a listener for it that only its owner can reach, and the client of both.
//
// An address is a Unix socket ("unix:run.sock", or a path), which its file's mode guards, or host:port, which a token does.
package control

import (
	"errors"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// Target is what is watched and tuned. It must be safe for concurrent use.
type Target interface {
	// Status says how it stands.
	Status() (Status, error)

	// SetLimits exchanges single ceilings; 0 removes one, and those that are absent stay. It returns those of each
	// account before and after.
	SetLimits(limits map[limits.Dimension]int) ([]Change, error)

	// Act does what the action says. Doing it twice is as doing it once.
	Act(action Action) error
}

// Action is something that a Target can be told to do.
type Action string

// Actions.
const (
	Pause  Action = "pause"  // send no more calls, until Resume; those that are open go on
	Resume Action = "resume" // end a Pause
	Drain  Action = "drain"  // let open calls end, and then stop: what one interrupt does
)

// ErrNotReady is returned by a Target that has not begun yet.
var ErrNotReady = errors.New("the run has not begun yet")

// Status is how a run stands at one instant.
type Status struct {
	At        time.Time `json:"at"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	Input     string    `json:"input"`
	Output    string    `json:"output"` // its whole path
	Phase     Phase     `json:"phase"`

	Total     int     `json:"total"`  // 0: not known
	Done      int     `json:"done"`   // by this run and earlier ones
	Failed    int     `json:"failed"` // by this run
	Left      int     `json:"left"`
	InFlight  int     `json:"in_flight"`
	Waiting   int     `json:"waiting"`
	Throttles int     `json:"throttles"`
	PerMin    float64 `json:"per_min"` // of late
	Bound     string  `json:"bound"`   // what holds the run back, in words; "" if nothing does
	ETAms     *int64  `json:"eta_ms,omitempty"`

	Used     Used       `json:"used"`
	Accounts []Ceilings `json:"accounts"`
	Lanes    []Lane     `json:"lanes"`
}

// Phase is what a run is about.
type Phase string

// Phases.
const (
	Running  Phase = "running"
	Paused   Phase = "paused"   // by control; what pauses by itself is running
	Draining Phase = "draining" // lets open calls end
)

// Used is what a run has used, earlier ones aside.
type Used struct {
	InputTokens  int      `json:"input_tokens"`
	OutputTokens int      `json:"output_tokens"`
	CostUSD      *float64 `json:"cost_usd"`                     // null where no price is known
	EstimatedUSD float64  `json:"cost_estimated_usd,omitempty"` // the part of it that is an estimate
}

// Ceilings are the limits that are told of an account, by name, such as rpm. What is absent is learned.
type Ceilings struct {
	Account string         `json:"account"` // its provider
	Limits  map[string]int `json:"limits"`
}

// Change is what became of an account's ceilings.
type Change struct {
	Account string         `json:"account"`
	Before  map[string]int `json:"before"`
	After   map[string]int `json:"after"`
}

// Lane is what the provider limits together, usually a model.
type Lane struct {
	Lane      string    `json:"lane"`
	InFlight  int       `json:"in_flight"`
	Slots     int       `json:"slots"` // how many may be in flight now
	Waiting   int       `json:"waiting"`
	Oldest    time.Time `json:"oldest,omitzero"`         // when the oldest open call was sent
	Binding   string    `json:"binding,omitempty"`       // which limit holds the next call back
	Until     time.Time `json:"cooldown_until,omitzero"` // the lane pauses until then,
	Why       string    `json:"cooldown_why,omitempty"`  // for this
	Held      bool      `json:"paused_by_control"`
	Throttles int       `json:"throttles"`
	Budgets   []Budget  `json:"budgets"`
}

// Budget is one limit of a lane, and how much of it is at hand.
type Budget struct {
	Dimension string  `json:"dimension"` // such as rpm
	Limit     int64   `json:"limit"`
	Source    string  `json:"source"`
	Level     float64 `json:"level"`            // at hand now
	Cap       float64 `json:"cap"`              // at most at hand
	Spent     float64 `json:"spent"`            // since the start
	Shared    bool    `json:"shared,omitempty"` // others share it: how much is at hand is not known here
	limits.Claims
}

// Lanes returns what a Snapshot says of its lanes.
func Lanes(snap sluice.Snapshot, now time.Time) []Lane {
	lanes := make([]Lane, 0, len(snap.Lanes))
	for _, l := range snap.Lanes {
		lane := Lane{
			Lane: l.Lane, InFlight: l.InFlight, Slots: l.Slots, Waiting: l.Waiting, Oldest: l.Oldest, Held: l.Held,
			Throttles: l.Throttles, Budgets: make([]Budget, 0, len(l.Budgets)),
		}
		if l.Waiting > 0 && l.Binding != limits.AnyDimension {
			lane.Binding = l.Binding.String()
		}
		if l.Until.After(now) {
			lane.Until, lane.Why = l.Until, l.Pause.String()
		}
		for _, b := range l.Budgets {
			lane.Budgets = append(lane.Budgets, Budget{b.Dimension.String(), b.Limit, string(b.Source), b.Level, b.Cap, b.Spent, b.Shared, b.Claims})
		}
		lanes = append(lanes, lane)
	}
	return lanes
}

// Named returns the limits that there are by their names, per minute where they have another period.
func Named(limits sluice.Limits) map[string]int {
	named := make(map[string]int)
	limits = limits.PerMinute()
	for d, limit := range limits.All() {
		if *limit != 0 {
			named[d.String()] = *limit
		}
	}
	return named
}
