// Package plan computes concurrency, workers, throughput, time and cost from the limits of a provider and a workload.
//
// Compute calculates a Plan from known limits. Limits in response headers and measured limits take precedence over
// published limits. In a Plan, Slots is the concurrency for paced clients, such as a sluice.Scheduler. Workers is the
// concurrency for clients that limit only their requests in flight.
//
// Simulate runs a workload in virtual time with the Scheduler's admission logic and a simulated provider.
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

// ErrNoLimits is wrapped in the error of Compute if no known limit applies to the workload.
var ErrNoLimits = errors.New("no known limit applies to this workload")

// ErrTooLong is wrapped in the error of Compute if the requests would take more than 100 years.
var ErrTooLong = errors.New("would take longer than a century")

// Options configures a Plan. With zero Options, the provider counts declared tokens, and prices are unknown.
type Options struct {
	// Safety is the share of the limits that workers without pacing may use, from 0 to 1 (nil: 0.8). If Safety is 0, the
	// plan has one worker. Paced clients need no safety margin.
	Safety *float64

	Processes int // number of processes that share the limits, such as graphs of an agent (default 1)

	Charge limits.Charge // provider's method of counting tokens

	// PriceIn and PriceOut are prices in USD per million input and output tokens (nil: unknown).
	PriceIn, PriceOut *float64

	Deadline time.Duration // time limit for Plan.WithinDeadline (0: none)
	MaxCost  *float64      // maximum cost in USD for Plan.WithinBudget (nil: none)
}

// Seconds is a duration that JSON encodes as a number of seconds.
type Seconds struct{ time.Duration }

// MarshalJSON returns the number of seconds.
func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(s.Seconds()) }

// Plan is the result of Compute. All rates per minute are long-term means. The JSON form of a Plan is the output of
// sluice plan --json, with the fields of all groups at one level.
type Plan struct {
	Limits   sluice.Limits `json:"-"` // known limits, per minute or day
	Workload Workload      `json:"-"` // workload, including assumed values

	Load    `json:"workload"` // Requests of the plan.
	Assumed []Assumption      `json:"assumed,omitempty"` // Assumed values.
	Clients
	Pace
	BatchAPI *BatchAPI `json:"batch_api,omitempty"` // The same requests through the Batch API. Nil means that no Batch API with a known price exists.
	Charging

	*CapModel // common rule of thumb for the same limits; nil if the limits do not determine it

	WithinDeadline *int `json:"requests_within_deadline,omitempty"` // Requests finished by the deadline. The value is nil without Options.Deadline.
	WithinBudget   *int `json:"requests_within_budget,omitempty"`   // Requests within the maximum cost. The value is nil without Options.MaxCost or a price.

	stated sluice.Limits                // Limits with the periods that were stated
	orders [limits.NumDimensions]*order // nil: calls are all charged the same
}

// Load describes the workload of a Plan by the means of its requests.
type Load struct {
	Requests     int     `json:"requests,omitempty"`                  // Number of requests; missing for an endless workload.
	LatencyMS    float64 `json:"latency_ms"`                          // Mean latency.
	InputTokens  float64 `json:"input_tokens"`                        // Mean input tokens.
	OutputTokens float64 `json:"output_tokens"`                       // Mean output tokens.
	OtherModels  int     `json:"requests_for_other_models,omitempty"` // Ignored requests for other models.
}

// Clients contains the concurrency and the number of workers that stay within the limits.
type Clients struct {
	Safety    float64 `json:"safety"`    // Share of each limit that workers may use.
	Processes int     `json:"processes"` // Processes that share the slots.

	// Slots is the number of requests in flight that a paced client needs for full throughput, at most the provider's limit.
	Slots int `json:"slots"` // Concurrency that a client with pacing needs.

	// Workers is the maximum number of workers without pacing that stay within all limits, at least 1. A worker without
	// pacing sends the next request after each response. Safety is the margin for requests that finish faster than the
	// mean. If WorkersSafe is false, one worker already exceeds the limits in Exceeded. If the calls differ, the most
	// expensive sequence in Workload.Calls determines Workers.
	//
	// Workers stay within a limit if the usage exceeds the limit in no minute. The plan assumes that token buckets hold
	// Limits.Burst (default: a minute's refill) and that all workers start at the same time. If a bucket holds less than
	// WorkersBurst, the provider sometimes rejects requests.
	Workers      int                `json:"workers"`                  // Number of workers that stay within all limits without pacing.
	WorkersSafe  bool               `json:"workers_safe"`             // The workers stay within every limit.
	Exceeded     []limits.Dimension `json:"workers_exceed,omitempty"` // Limits that even one worker exceeds.
	WorkersBurst Seconds            `json:"workers_burst_seconds"`    // Required size of token buckets, in seconds of refill.

	NodesPerProcess int `json:"nodes_per_process"` // Concurrency of each process, at least 1.
}

// Pace contains the throughput of a paced client, and the duration and the cost of all requests.
type Pace struct {
	Throughput float64 `json:"throughput_rpm"` // Sustained requests per minute.
	Binding    Binding `json:"binding"`        // Limit that determines the throughput.
	Bounds     []Bound `json:"bounds"`         // Throughput by limit. The list starts with the tightest limit and is never empty.

	// Time is the time from the first request to the last response (0: endless workload). At the start, token buckets hold
	// Limits.Burst, or one second's refill. An allowance per day starts full and refills continuously.
	Time Seconds `json:"time_s,omitzero"` // Duration, if known.

	// Cost and CostPerRequest are in USD, or nil if a price is unknown. For an endless workload, Cost is nil.
	Cost           *float64 `json:"cost_usd,omitempty"`             // Cost, if known.
	CostPerRequest *float64 `json:"cost_per_request_usd,omitempty"` // Mean cost of a request.
}

// Charging contains the numbers of tokens per request that count against limits.
type Charging struct {
	Charge         limits.Charge `json:"charge"`                           // Counted tokens: `declared` or `actual`.
	ChargedTokens  float64       `json:"charged_tokens_per_request"`       // Tokens counted after the response. With limits.ChargeDeclared, the number is max(input, max_tokens).
	ReservedTokens float64       `json:"reserved_tokens_per_request"`      // Tokens counted before the response.
	TooLarge       int           `json:"requests_above_a_limit,omitempty"` // Requests that are larger than an entire rate limit.
}

// Bound is one limit with the number of requests per minute that the limit allows.
type Bound struct {
	Dimension limits.Dimension `json:"dimension"`           // Name of the limit, such as `rpm`.
	Limit     int              `json:"limit"`               // Value of the limit. The value applies per minute or day, depending on Dimension.
	Charged   float64          `json:"charged_per_request"` // Mean amount of a request that counts against the limit. The amount is 1 for concurrency.
	PerMinute float64          `json:"requests_per_minute"` // Allowed requests per minute.
}

// Binding names the limit that determines the throughput, and the next tightest limit.
type Binding struct {
	Dimension limits.Dimension `json:"dimension"`             // Name of the limit, such as `rpm`.
	Next      limits.Dimension `json:"next,omitempty"`        // Next tightest limit. AnyDimension means that no other limit is known.
	Factor    float64          `json:"next_factor,omitempty"` // Throughput at the next limit divided by the planned throughput.
}

// ResourceLimits returns limits for the concurrent nodes of each graph and for the concurrent calls of all graphs
// together. Total calls and tokens are not limited, because the totals of a plan are estimates.
func (p Plan) ResourceLimits() limits.ResourceLimits {
	return limits.ResourceLimits{
		ConcurrentNodes: new(int64(p.NodesPerProcess)), ConcurrentCalls: new(int64(p.Slots)),
	}
}

// Compute calculates a Plan. If a value is invalid, or if no limit applies to the workload (ErrNoLimits), Compute
// returns a *FieldError.
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
		if err := inRange("Limits."+d.Field(), *limit, limits.MaxLimit); err != nil {
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
