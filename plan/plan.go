// Package plan computes slots, workers, throughput, time and cost from the limits of a provider and a workload.
//
// Compute is arithmetic on stated limits. Limits in headers, and limits that a search measured, take precedence over published
// tables. A Plan has two numbers for concurrency: Slots for clients that keep a pace, such as a sluice.Scheduler, and Workers for
// clients that only bound their open calls.
//
// Simulate runs a workload through the real Scheduler against a simulated provider in virtual time.
package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// usualSafety is the share of the limits that unpaced workers may use.
const usualSafety = 0.8

// ErrNoLimits is wrapped by the error of Compute for limits that do not bound the workload: nothing can be planned.
var ErrNoLimits = errors.New("no known limit applies to this workload")

// ErrTooLong is wrapped by the error of Compute for more requests than a century is enough for.
var ErrTooLong = errors.New("would take longer than a century")

// Options shape a Plan. The zero value is a provider that charges the declared tokens, and no prices.
type Options struct {
	// Safety is the share of the limits that unpaced workers may use, from 0 to 1; 0 leaves one worker. Nil is 0.8. A
	// paced client needs no margin.
	Safety *float64

	Processes int // programs that run side by side and share the limits, such as graphs of an agent. Default 1

	Charge limits.Charge // how the provider counts tokens

	// Prices in USD per million tokens. Nil is unknown.
	PriceIn, PriceOut *float64

	Deadline time.Duration // the time for which Plan.WithinDeadline counts the requests; 0 is none
	MaxCost  *float64      // the sum in USD for which Plan.WithinBudget counts the requests; nil is none
}

// Seconds is a duration that JSON has as a number of seconds.
type Seconds struct{ time.Duration }

// MarshalJSON writes the number of seconds.
func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(s.Seconds()) }

// Plan is the result of limits and a workload. Figures per minute are means over a long run. As JSON it is the document of
// sluice plan: its groups are one level there.
type Plan struct {
	Limits   sluice.Limits `json:"-"`
	Workload Workload      `json:"-"` // with the assumed values filled in

	Load    `json:"workload"` // Requests of the plan.
	Assumed []Assumption      `json:"assumed,omitempty"` // Assumed values.
	Clients
	Pace
	BatchAPI *BatchAPI `json:"batch_api,omitempty"` // The same requests by Batch API. Nil: the provider has none with a known price.
	Charging

	*CapModel // the usual rule of thumb for the same limits; nil when they do not determine it

	WithinDeadline *int `json:"requests_within_deadline,omitempty"` // Requests within the deadline. Nil: no Options.Deadline.
	WithinBudget   *int `json:"requests_within_budget,omitempty"`   // Requests within the maximum cost. Nil: no Options.MaxCost, or a price is missing.

	stated sluice.Limits                // Limits with the periods that were stated
	orders [limits.NumDimensions]*order // nil: calls are all charged the same
}

// Load is the workload of a Plan by its mean request.
type Load struct {
	Requests     int     `json:"requests,omitempty"`                  // Requests; missing if endless. 0 is endless.
	LatencyMS    float64 `json:"latency_ms"`                          // Mean latency.
	InputTokens  float64 `json:"input_tokens"`                        // Mean input tokens.
	OutputTokens float64 `json:"output_tokens"`                       // Mean output tokens.
	OtherModels  int     `json:"requests_for_other_models,omitempty"` // Requests for other models. They are of the same file, and not planned; see Workload.
}

// Clients is how many calls or workers fit the limits.
type Clients struct {
	Safety    float64 `json:"safety"`    // Share of limits that workers use.
	Processes int     `json:"processes"` // Processes that share the slots.

	// Slots are the open calls that a paced client needs so that only its pace delays it, at most the provider's cap.
	Slots int `json:"slots"` // Concurrency that a paced client needs.

	// Workers is how many loops that call again after each response, and keep to no pace, stay within all limits;
	// Safety is their margin for calls that end sooner than the mean. At least 1; when WorkersSafe is false even that one
	// is too many for the limits in Exceeded, so that no number is safe. Of calls that differ the heaviest stretch
	// decides, in the order of Workload.Calls, the first after the last.
	//
	// Safe means that no minute sees more than its limit. A provider's bucket holds Limits.Burst, or if that is unknown a
	// whole minute's refill. All workers start at once: a bucket that holds less than WorkersBurst refuses some of
	// them, now and then.
	Workers      int                `json:"workers"`                  // Unpaced workers within all limits.
	WorkersSafe  bool               `json:"workers_safe"`             // These workers exceed no limit.
	Exceeded     []limits.Dimension `json:"workers_exceed,omitempty"` // Limits that one worker exceeds.
	WorkersBurst Seconds            `json:"workers_burst_seconds"`    // Required size of token buckets, in seconds of refill.

	NodesPerProcess int `json:"nodes_per_process"` // Concurrency of each process, at least 1.
}

// Pace is the speed of a paced client, and what its requests take and cost.
type Pace struct {
	Throughput float64 `json:"throughput_rpm"` // Requests per minute in the long run.
	Binding    Binding `json:"binding"`        // Limit that decides the throughput.
	Bounds     []Bound `json:"bounds"`         // Throughput by limit. The tightest first; never empty.

	// Time is from the first call to the last response: 0 without end. The buckets are full at first, and hold
	// Limits.Burst, or else a second's refill; a day's budget is whole at first and refills all day.
	Time Seconds `json:"time_s,omitzero"` // Duration, if known.

	// Cost and CostPerRequest are in USD; nil when a price is missing, Cost also without end.
	Cost           *float64 `json:"cost_usd,omitempty"`             // Cost, if known.
	CostPerRequest *float64 `json:"cost_per_request_usd,omitempty"` // Mean cost of a request.
}

// Charging is how requests count against limits, in tokens per request.
type Charging struct {
	Charge         limits.Charge `json:"charge"`                           // `declared` or `actual` tokens count.
	ChargedTokens  float64       `json:"charged_tokens_per_request"`       // Tokens counted after the response. With limits.ChargeDeclared: max(input, max_tokens).
	ReservedTokens float64       `json:"reserved_tokens_per_request"`      // Tokens counted before the response.
	TooLarge       int           `json:"requests_above_a_limit,omitempty"` // Requests that exceed a whole limit.
}

// Bound is one limit, and the requests per minute that it allows.
type Bound struct {
	Dimension limits.Dimension `json:"dimension"`           // Name of the limit, such as `rpm`.
	Limit     int              `json:"limit"`               // Value of the limit. Per minute or day, as Dimension says.
	Charged   float64          `json:"charged_per_request"` // Mean amount per request. 1 for concurrency.
	PerMinute float64          `json:"requests_per_minute"` // Allowed requests per minute.
}

// Binding is the limit that decides the throughput, and the one that would decide next.
type Binding struct {
	Dimension limits.Dimension `json:"dimension"`             // Name of the limit, such as `rpm`.
	Next      limits.Dimension `json:"next,omitempty"`        // Next tightest limit. AnyDimension: no other limit is known.
	Factor    float64          `json:"next_factor,omitempty"` // Its relative throughput.
}

// ResourceLimits are the plan's bounds on what runs at once: nodes of each graph, and open calls of all together. How
// many calls and tokens are too many in all is the caller's to say: a plan's totals are estimates.
func (p Plan) ResourceLimits() limits.ResourceLimits {
	return limits.ResourceLimits{
		ConcurrentNodes: new(int64(p.NodesPerProcess)), ConcurrentCalls: new(int64(p.Slots)),
	}
}

// Compute plans. It fails with a *FieldError for an invalid value, or with one that wraps ErrNoLimits.
func Compute(bounds sluice.Limits, w Workload, o Options) (Plan, error) {
	if err := cmp.Or(checkLimits(bounds), w.check(), o.check()); err != nil {
		return Plan{}, err
	}
	if w.Requests == 0 {
		w.Requests = len(w.Calls)
	}
	p := Plan{stated: bounds}
	bounds = bounds.PerMinute()
	p.Limits = bounds
	p.Workload, p.Assumed = w.complete(bounds, o)
	d := p.Workload.demand(bounds, o)
	p.Load = Load{Requests: w.Requests, LatencyMS: p.Workload.Latency.Seconds() * 1000, InputTokens: d.input, OutputTokens: d.output}
	p.Charging = Charging{
		Charge: o.Charge, ChargedTokens: d.charged[limits.Tokens], ReservedTokens: d.reserved[limits.Tokens],
		TooLarge: int(math.Round(float64(d.tooLarge) / float64(d.count) * float64(w.Requests))),
	}
	if p.Bounds = p.bounds(d); len(p.Bounds) == 0 {
		return Plan{}, &FieldError{Field: "Limits", Err: ErrNoLimits}
	}
	first := p.Bounds[0]
	p.Throughput, p.Binding = first.PerMinute, Binding{Dimension: first.Dimension}
	if len(p.Bounds) > 1 {
		p.Binding.Next, p.Binding.Factor = p.Bounds[1].Dimension, p.Bounds[1].PerMinute/first.PerMinute
	}
	p.Safety, p.Processes = o.safety(), max(1, o.Processes)
	p.Slots = p.slots()
	p.orders = p.ordersOf(o)
	p.Workers, p.Exceeded = p.workers()
	p.WorkersSafe, p.WorkersBurst.Duration = len(p.Exceeded) == 0, p.workersBurst()
	p.NodesPerProcess = max(1, p.Slots/p.Processes)
	p.price(o)
	p.CapModel = p.capModel()
	if w.Requests > 0 {
		seconds := p.seconds(w.Requests)
		if seconds > longestTime.Seconds() {
			return Plan{}, wrong("Workload.Requests", "%d requests at %.3g per minute: %w", w.Requests, p.Throughput, ErrTooLong)
		}
		p.Time.Duration = time.Duration(seconds * float64(time.Second))
	}
	p.count(o)
	return p, nil
}

// count sets how many requests fit the caller's deadline and budget.
func (p *Plan) count(o Options) {
	if o.Deadline > 0 {
		p.WithinDeadline = new(p.Within(o.Deadline))
	}
	if o.MaxCost != nil {
		if n, ok := p.Affordable(*o.MaxCost); ok {
			p.WithinBudget = &n
		}
	}
}

const longestTime = 100 * 365 * 24 * time.Hour

func (o Options) safety() float64 {
	if o.Safety == nil {
		return usualSafety
	}
	return *o.Safety
}

func (o Options) check() error {
	if s := o.safety(); !(s >= 0 && s <= 1) {
		return wrong("Options.Safety", "%v is not between 0 and 1", s)
	}
	if o.Charge != limits.ChargeDeclared && o.Charge != limits.ChargeActual {
		return wrong("Options.Charge", "%d is not a known value", o.Charge)
	}
	return cmp.Or(
		inRange("Options.Processes", o.Processes, maxProcesses),
		checkPrice("Options.PriceIn", o.PriceIn),
		checkPrice("Options.PriceOut", o.PriceOut),
	)
}

func checkPrice(field string, usd *float64) error {
	if usd != nil && !(*usd >= 0 && *usd <= 1e9) {
		return wrong(field, "%v is not a price in USD per million tokens", *usd)
	}
	return nil
}

func checkLimits(l sluice.Limits) error {
	for d, limit := range l.All() {
		if err := inRange("Limits."+d.Field(), *limit, mostLimit); err != nil {
			return err
		}
	}
	if err := inRange("Limits.Burst", l.Burst, 24*time.Hour); err != nil {
		return err
	}
	if err := l.Check(); err != nil {
		return wrong("Limits", "%w", err)
	}
	return nil
}

// minutes is the time over which a limit is counted.
func minutes(d limits.Dimension) float64 { return d.Window().Minutes() }

// bounds lists what bounds the throughput. A day's budget does where it does not last for the whole workload.
func (p *Plan) bounds(d demand) []Bound {
	var bounds []Bound
	for dim, stated := range p.Limits.All() {
		limit := float64(*stated)
		b := Bound{Dimension: dim, Limit: *stated, Charged: d.charged[dim]}
		switch {
		case limit == 0:
			continue
		case dim == limits.Concurrency:
			b.Charged, b.PerMinute = 1, limit/p.Workload.Latency.Minutes()
		case b.Charged == 0:
			continue
		case minutes(dim) > 1 && p.Workload.Requests > 0 && float64(p.Workload.Requests)*b.Charged <= limit:
			continue
		default:
			b.PerMinute = limit / minutes(dim) / b.Charged
		}
		bounds = append(bounds, b)
	}
	slices.SortStableFunc(bounds, func(a, b Bound) int { return cmp.Compare(a.PerMinute, b.PerMinute) })
	return bounds
}

// price multiplies tokens by prices. A side without tokens needs no price.
func (p *Plan) price(o Options) {
	usd := 0.0
	for _, side := range []struct {
		tokens float64
		price  *float64
	}{{p.InputTokens, o.PriceIn}, {p.OutputTokens, o.PriceOut}} {
		if side.tokens == 0 {
			continue
		}
		if side.price == nil {
			return
		}
		usd += side.tokens * *side.price / 1e6
	}
	p.CostPerRequest = &usd
	if p.Workload.Requests > 0 {
		p.Cost = new(usd * float64(p.Workload.Requests))
	}
}
