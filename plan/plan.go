// Package plan turns a provider's limits and a workload into figures: how many slots and workers, what throughput, how
// long, at what price.
//
// Compute is arithmetic on stated limits, which are a prior: what a provider's headers say, or what a search for its
// limits finds, wins over every table. A Plan has two answers to "how many at once", because they differ: Slots are for
// a client that is paced, as by a sluice.Scheduler, and Workers for one that only bounds its open calls.
package plan

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
)

// usualSafety is the share of the limits that unpaced workers may use.
const usualSafety = 0.8

// ErrNoLimits is wrapped by the error of Compute for limits that do not bound the workload: nothing can be planned.
var ErrNoLimits = errors.New("no limit is known that bounds this workload")

// ErrTooLong is wrapped by the error of Compute for more requests than a century is enough for.
var ErrTooLong = errors.New("would take longer than a century")

// Options shape a Plan. The zero value is a provider that charges what is declared, and no prices.
type Options struct {
	// Safety is the share of the limits that unpaced workers may use, from 0 to 1; 0 leaves one worker. Nil is 0.8. A
	// paced client needs no margin.
	Safety *float64

	Graphs int // programs that run side by side and share the limits, such as graphs of an agent. Default 1

	Charge       sluice.Charge // how the provider counts tokens
	CountsCached bool          // with sluice.ChargeActual: input read from a prompt cache counts too

	// Prices in USD per million tokens. Nil is not known.
	PriceIn, PriceOut *float64
}

// Plan is what limits and a workload come to. Figures a minute are means over a long run.
type Plan struct {
	Limits   sluice.Limits
	Workload Workload     // what was assumed filled in
	Assumed  []Assumption // what nobody said
	Safety   float64
	Graphs   int

	Charge       sluice.Charge
	CountsCached bool

	// Slots are the open calls that a paced client needs so that pace alone holds it back, at most the provider's cap.
	Slots int

	// Workers is how many loops that call again as soon as they are answered, and keep to no pace, stay within all limits;
	// Safety is their margin for calls that end sooner than the mean. At least 1; when WorkersSafe is false even that one
	// is too many for the limits in Exceeded, so that no number is safe. Of calls that differ the heaviest stretch
	// decides, as they follow each other in Workload.Calls, the first after the last.
	//
	// Safe means that no minute sees more than its limit. What a provider's bucket holds is Limits.Burst, or where that is
	// not known a whole minute's. All workers begin at once: a bucket that holds less than WorkersBurst refuses some of
	// them, now and then.
	Workers      int
	WorkersSafe  bool
	WorkersBurst time.Duration
	Exceeded     []sluice.Dimension

	NodesPerGraph int // Slots shared by the graphs, at least 1

	Throughput float64 // requests a minute that a paced client gets, in the long run
	Bounds     []Bound // what bounds Throughput, the tightest first; never empty

	// Time is from the first call to the last answer: 0 without end. The buckets are full at first, and hold what
	// Limits.Burst says, or else a second's worth; a day's budget is whole at first and refills all day.
	Time time.Duration

	// In tokens a request: what counts against the limits in the end, what is reserved for it at first, and what is
	// used and paid for. With sluice.ChargeDeclared, charged is max(input, max_tokens).
	ChargedTokens, ReservedTokens float64
	InputTokens, OutputTokens     float64

	TooLarge int // requests that are above a whole limit, each alone: the provider refuses them

	// CostPerRequest and Cost are in USD; nil when a price is missing, Cost also without end.
	CostPerRequest, Cost *float64

	// CapModel is the usual rule of thumb for the same limits; nil when they do not determine it.
	CapModel *ConcurrencyModel

	orders [sluice.NumDimensions]*order // nil: calls are all charged the same
}

// Bound is one limit, and the requests a minute that it allows.
type Bound struct {
	Dimension sluice.Dimension
	Limit     int     // per minute or per day, as Dimension says; for concurrency, open calls
	Charged   float64 // of the limit, by one request on average; for concurrency 1
	PerMinute float64 // requests
}

// Binding is the limit that decides the throughput.
func (p Plan) Binding() Bound { return p.Bounds[0] }

// Next is the limit that would decide next, and how many times the throughput it allows; false when no other is known.
func (p Plan) Next() (next Bound, factor float64, ok bool) {
	if len(p.Bounds) < 2 {
		return Bound{}, 0, false
	}
	next = p.Bounds[1]
	return next, next.PerMinute / p.Bounds[0].PerMinute, true
}

// ResourceLimits are the plan's bounds on what runs at once: nodes of each graph, and open calls of all together. How
// many calls and tokens are too many in all is the caller's to say: a plan's totals are estimates.
func (p Plan) ResourceLimits() sluice.ResourceLimits {
	return sluice.ResourceLimits{
		ConcurrentNodes: new(int64(p.NodesPerGraph)), ConcurrentCalls: new(int64(p.Slots)),
	}
}

// Compute plans. It fails with a *FieldError that names what is wrong, or one that wraps ErrNoLimits.
func Compute(limits sluice.Limits, w Workload, o Options) (Plan, error) {
	if err := cmp.Or(checkLimits(limits), w.check(), o.check()); err != nil {
		return Plan{}, err
	}
	if w.Requests == 0 {
		w.Requests = len(w.Calls)
	}
	p := Plan{Limits: limits, Safety: o.safety(), Graphs: max(1, o.Graphs), Charge: o.Charge, CountsCached: o.CountsCached}
	p.Workload, p.Assumed = w.complete(limits, o)
	d := p.Workload.demand(limits, o)
	if p.Bounds = p.bounds(d); len(p.Bounds) == 0 {
		return Plan{}, &FieldError{Field: "Limits", Err: ErrNoLimits}
	}
	p.Throughput = p.Bounds[0].PerMinute
	p.InputTokens, p.OutputTokens = d.input, d.output
	p.ChargedTokens, p.ReservedTokens = d.charged[sluice.Tokens], d.reserved[sluice.Tokens]
	p.TooLarge = int(math.Round(float64(d.tooLarge) / float64(d.count) * float64(p.Workload.Requests)))
	p.Slots = p.slots()
	p.orders = p.ordersOf(o)
	p.Workers, p.Exceeded = p.workers()
	p.WorkersSafe, p.WorkersBurst = len(p.Exceeded) == 0, p.workersBurst()
	p.NodesPerGraph = max(1, p.Slots/p.Graphs)
	p.price(o)
	p.CapModel = modelOf(limits, p)
	if p.Workload.Requests > 0 {
		seconds := p.seconds(p.Workload.Requests)
		if seconds > longestTime.Seconds() {
			return Plan{}, wrong("Workload.Requests", "%d at %.3g a minute: %w", p.Workload.Requests, p.Throughput, ErrTooLong)
		}
		p.Time = time.Duration(seconds * float64(time.Second))
	}
	return p, nil
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
	if o.Charge != sluice.ChargeDeclared && o.Charge != sluice.ChargeActual {
		return wrong("Options.Charge", "%d is not known", o.Charge)
	}
	return cmp.Or(
		inRange("Options.Graphs", o.Graphs, mostGraphs),
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
		if err := inRange("Limits."+fieldOf(d), *limit, mostLimit); err != nil {
			return err
		}
	}
	return inRange("Limits.Burst", l.Burst, 24*time.Hour)
}

// limitOf picks a dimension's limit; 0 is not known.
func limitOf(l sluice.Limits, d sluice.Dimension) int {
	if limit := l.At(d); limit != nil {
		return *limit
	}
	return 0
}

// fieldOf names the field of a limit.
func fieldOf(d sluice.Dimension) string {
	if d == sluice.Concurrency {
		return "Concurrent"
	}
	return strings.ToUpper(d.String())
}

// minutes is the time over which a limit is counted.
func minutes(d sluice.Dimension) float64 {
	if d == sluice.RequestsPerDay || d == sluice.TokensPerDay {
		return 24 * 60
	}
	return 1
}

// bounds lists what bounds the throughput. A day's budget does where it does not last for the whole workload.
func (p *Plan) bounds(d demand) []Bound {
	var bounds []Bound
	for dim, stated := range p.Limits.All() {
		limit := float64(*stated)
		b := Bound{Dimension: dim, Limit: *stated, Charged: d.charged[dim]}
		switch {
		case limit == 0:
			continue
		case dim == sluice.Concurrency:
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

// price multiplies tokens by prices. A side without tokens needs no price. Cached input is paid in full: what it costs
// less is not known.
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
