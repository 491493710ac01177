package plan

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/sim"
)

// Simulate predicts a run in virtual time with the Scheduler's admission logic and a simulated provider.
//
// If the scenario is invalid, Simulate returns a *FieldError. If the context ends, Simulate returns the context's error
// and the forecast up to then. For an endless scenario, Forecast.Stopped names the bound that stopped the simulation.
func Simulate(ctx context.Context, s Scenario) (Forecast, error) {
	patience := time.Duration(0)
	if s.MaxThrottles == 0 {
		patience = gate.DefaultPatience
	}
	s, err := s.withDefaults()
	if err != nil {
		return Forecast{}, err
	}
	limiter, err := sim.NewLimiter(s.Provider)
	if err != nil {
		return Forecast{}, &FieldError{Field: "Scenario.Provider", Err: err}
	}
	now := time.Now()
	now = now.Add(-time.Duration(now.UnixNano() % int64(time.Minute))) // guarantees are counted in parts of a minute: see run.epoch
	r := newRun(&s, limiter, now)
	if s.Unpaced == 0 {
		random := rand.New(rand.NewPCG(s.Provider.Seed, 1))
		r.gate = gate.New(gate.Config{
			Limits: s.Told, Account: s.Told, Start: s.Start, Charge: s.Provider.Charge,
			Attempts: s.Attempts, MaxThrottles: s.MaxThrottles, Patience: patience, Random: random.Int64N,
		})
	}
	err = r.run(ctx)
	return r.forecast(), err
}

// run is a simulation under way.
type run struct {
	s      *Scenario
	gate   *gate.Gate // nil: the workers are not paced
	owners map[*gate.Ticket]*try
	grants []*gate.Ticket
	virtual
	simulator
	crew
	record
}

func newRun(s *Scenario, limiter *sim.Limiter, epoch time.Time) *run {
	return &run{
		s: s, owners: make(map[*gate.Ticket]*try), virtual: virtual{epoch: epoch, timer: -1}, crew: crew{count: s.count()},
		simulator: simulator{cfg: limiter.Config(), limiter: limiter, wire: wire{s.Dialect, s.Provider.RetryAfter, epoch}, first: -1},
		record:    record{line: newTimeline()},
	}
}

// virtual is the time of a run.
type virtual struct {
	// epoch is the virtual instant 0, the start of a minute: nothing else follows from which it is. It has a monotonic
	// reading, which makes the gate's arithmetic on instants twice as fast.
	epoch time.Time

	now     time.Duration // since the start
	events  eventHeap
	timer   time.Duration // when the Scheduler's timer fires; below zero: it is not armed
	stuckAt time.Duration // the instant at which much happens,
	stuck   int           // and how much
	step    int
}

func (v *virtual) clock() time.Time { return v.epoch.Add(v.now) }

// later lets something happen to a try after d.
func (v *virtual) later(d time.Duration, what func(*run, *try), t *try) {
	v.events.push(event{at: after(v.now, max(0, d)), what: what, try: t})
}

// next returns the instant of the next event or of the timer; below zero: there is none.
func (v *virtual) next() (at time.Duration, isTimer bool) {
	if h := v.events.heap; len(h) > 0 && (v.timer < 0 || h[0].at <= v.timer) {
		return h[0].at, false
	}
	return v.timer, true
}

// simulator is the provider of a run.
type simulator struct {
	cfg     sim.Config
	limiter *sim.Limiter
	wire    wire
	first   time.Duration // when the first call reached it; below zero: none has
	quotas  []sim.Quota
}

// spent is what the provider has charged.
func (m *simulator) spent() limits.Vector {
	s := m.limiter.Spent()
	return limits.Vector{limits.Requests: s.Requests, limits.RequestsPerDay: s.Requests, limits.Tokens: s.Tokens,
		limits.InputTokens: s.Input, limits.OutputTokens: s.Output}
}

// tell computes what the headers of a call's response say at an instant of the provider.
func (m *simulator) tell(t *try, now time.Duration) {
	m.quotas = m.limiter.Quotas(m.quotas[:0], now)
	t.told = copy(t.quotas[:], m.quotas)
}

// crew is the workers of a run, and the calls that they take up.
type crew struct {
	count   int // of calls; below zero: without end
	taken   int // calls that were taken up
	workers int // that were started
	busy    int // of those, the ones that have a call
	waiting int // calls of theirs that wait to be sent
	row     int // calls in a row that failed by what may be about the account
	free    []*try
}

// record is what is seen of a run.
type record struct {
	f         Forecast
	open      int // calls in flight
	line      timeline
	waits     spread
	latencies spread
	last      time.Duration // when the last call ended
}

const (
	lookUp     = 4096      // steps between two looks at the context
	mostAtOnce = 1_000_000 // steps at one instant, beside some for each call
)

// run goes from event to event until there are none.
func (r *run) run(ctx context.Context) error {
	for r.f.Stopped == "" {
		r.pump()
		if r.taken == r.count && r.busy == 0 {
			return nil
		}
		r.arm()
		if r.step++; r.step%lookUp == 0 {
			if ctx.Err() != nil {
				r.f.Stopped = "cancelled"
				return ctx.Err()
			}
			if r.s.Progress != nil {
				r.s.Progress(r.f.Completed+r.f.Failed, r.now)
			}
		}
		next, isTimer := r.next()
		switch {
		case next < 0:
			return nil
		case next > r.s.Horizon:
			r.now = r.s.Horizon
			r.f.Stopped = fmt.Sprintf("the forecast stopped after %v", r.s.Horizon)
			continue
		}
		r.now = max(r.now, next)
		r.watch()
		if isTimer {
			r.timer = -1
			r.gate.Tick(r.clock())
			continue
		}
		e := r.events.pop()
		e.what(r, e.try)
	}
	return nil
}

// watch ends a look at something that goes on for ever.
func (r *run) watch() {
	if r.now > r.stuckAt {
		r.stuckAt, r.stuck = r.now, 0
	}
	if r.stuck++; r.stuck > mostAtOnce+64*max(0, r.count) {
		r.f.Stopped = "the simulated time does not advance: requests finish as soon as they start"
	}
}

// after is d after the instant at, or an hour that no clock shows.
func after(at, d time.Duration) time.Duration {
	if d > math.MaxInt64-at {
		return math.MaxInt64
	}
	return at + d
}

// pump sends what the gate grants, and lets workers take up calls, until neither is possible.
func (r *run) pump() {
	for r.f.Stopped == "" {
		some := false
		if r.gate != nil {
			r.grants = append(r.grants[:0], r.gate.Granted()...)
			for _, ticket := range r.grants {
				some = true
				r.send(r.owners[ticket])
			}
		}
		if !r.take() && !some {
			return
		}
	}
}

// take lets a worker take up the next call, if there is one and a worker that may. As in a run, a worker is started for a
// call if none is idle and few calls wait to be sent; once started, it takes up one call after the other.
func (r *run) take() bool {
	if r.taken == r.count {
		return false
	}
	if r.busy == r.workers {
		switch {
		case r.gate == nil && r.workers >= r.s.Unpaced:
			return false
		case r.gate != nil && (r.workers >= r.s.Workers || r.s.Spare > 0 && r.waiting >= r.s.Spare):
			return false
		}
		r.workers++
	}
	r.watch()
	t := r.fresh()
	t.call, t.index = r.s.call(r.taken), r.taken
	r.taken++
	r.busy++
	r.waiting++
	r.ask(t)
	return true
}

// fresh returns a try for a call.
func (r *run) fresh() *try {
	n := len(r.free)
	if n == 0 {
		t := new(try)
		r.owners[&t.ticket] = t
		return t
	}
	t := r.free[n-1]
	r.free = r.free[:n-1]
	t.history = history{}
	return t
}

// ask queues a call's next try, as the Scheduler does.
func (r *run) ask(t *try) {
	if r.gate == nil {
		r.send(t)
		return
	}
	cost := sluice.Cost{Input: max(1, t.call.Input), MaxOutput: t.call.MaxTokens}
	t.ticket = gate.Ticket{Call: limits.Call{Cost: cost}, Attempt: t.attempts + 1, Throttles: t.throttles, Throttled: t.throttled, Overloads: t.overloads,
		Queued: t.queued, Order: t.order, Front: t.order > 0}
	if !r.gate.Acquire(r.clock(), &t.ticket) {
		if !t.aside {
			r.waiting--
		}
		t.outcome = sluice.Outcome{Kind: sluice.ContextLength, TooLarge: true}
		r.end(t, false)
	}
}

// send lets a granted call leave: at the instant of its grant, by which the gate has it down as sent already.
func (r *run) send(t *try) {
	if r.gate != nil {
		t.queued, t.order = t.ticket.Queued, t.ticket.Order
		t.waited += t.ticket.Waited + t.ticket.Paused
	}
	if !t.aside {
		r.waiting--
	}
	if r.f.Tries == r.s.MaxTries {
		r.f.Stopped = fmt.Sprintf("the forecast stopped after %d attempts", r.f.Tries)
		return
	}
	t.sent, t.told = r.now, 0
	t.outcome = sluice.Outcome{}
	r.open++
	r.f.Peak = max(r.f.Peak, r.open)
	r.f.Tries++
	r.present().Sent++
	r.line.have(r.open, r.waiting)
	if r.s.RoundTrip > 0 {
		r.later(r.s.RoundTrip/2, (*run).arrive, t)
		return
	}
	r.arrive(t)
}

// present is the step of the present instant.
func (r *run) present() *Step { return r.line.at(r.now, r.spent) }

// returned is when an answer has come in: the permit goes back, and the call is done, given up or tried again, as in Do.
func (r *run) returned(t *try) {
	r.open--
	s := r.present()
	r.line.have(r.open, r.waiting)
	o := &t.outcome
	if o.Kind == sluice.OK {
		o.Usage, o.HasUsage = sluice.Usage{Input: max(1, t.call.Input), Output: t.course.Output}, true
	}
	if o.Kind != sluice.Timeout && (o.Kind != sluice.Network || t.course.Cut) {
		o.Readings = r.readings(t)
	}
	if o.Kind == sluice.RateLimit && o.Dimension == limits.AnyDimension {
		o.Dimension = exhausted(o.Readings)
	}
	if o.Kind.Throttle() {
		r.f.Throttled++
		s.Throttled++
	}
	var d gate.Decision
	if r.gate != nil {
		d = r.gate.Release(r.clock(), &t.ticket, o)
	} else {
		d = r.unpaced(t)
	}
	if d.Throttle {
		if t.throttles++; t.throttles == 1 {
			t.throttled = r.clock()
		}
	} else {
		t.attempts++
	}
	if o.Kind == sluice.Overloaded {
		t.overloads++
	}
	switch d.Action {
	case gate.Done, gate.GiveUp:
		r.end(t, d.Action == gate.Done)
		return
	}
	if t.aside = o.Kind.Transient(); !t.aside {
		r.waiting++
	}
	if d.Wait > 0 {
		if r.gate == nil {
			t.waited += d.Wait
		}
		r.later(d.Wait, (*run).ask, t)
		return
	}
	r.ask(t)
}

// unpaced is what a client without a scheduler does after a try.
func (r *run) unpaced(t *try) gate.Decision {
	const pause = 500 * time.Millisecond // where nobody says how long to wait
	o := &t.outcome
	switch {
	case o.Kind == sluice.OK:
		return gate.Decision{Action: gate.Done}
	case o.Kind.Throttle() && !o.TooLarge && t.throttles < r.s.MaxThrottles:
		wait := o.Wait
		if wait <= 0 {
			wait = pause
		}
		return gate.Decision{Action: gate.Again, Throttle: true, Wait: wait}
	case o.Kind.Transient() && t.attempts+1 < r.s.Attempts:
		return gate.Decision{Action: gate.Again, Wait: pause}
	}
	return gate.Decision{Action: gate.GiveUp}
}

// mostInRow is the number of such failures after which a run stops.
const mostInRow = 20

// end is when a worker is done with a call.
func (r *run) end(t *try, good bool) {
	s := r.present()
	r.busy--
	r.last = r.now
	r.free = append(r.free, t)
	if t.outcome.Kind.Fatal() {
		r.f.Stopped = "no further request can succeed: " + t.outcome.Kind.String()
	}
	if t.outcome.Scope == limits.ScopeRequest {
		r.row = 0
	} else if r.row++; r.row >= mostInRow {
		r.f.Stopped = "no further request succeeds: " + t.outcome.Kind.String()
	}
	if !good {
		r.f.Failed++
		s.Failed++
		return
	}
	r.f.Completed++
	s.Completed++
	r.f.Input += int64(max(1, t.call.Input))
	r.f.Output += int64(t.course.Output)
	r.waits.add(t.waited)
	r.latencies.add(r.now - t.sent)
}

// arm sets the one timer to the next instant at which the gate has something to do, as the Scheduler does: a timer that
// fires earlier is armed again then.
func (r *run) arm() {
	if r.gate == nil {
		return
	}
	next := r.gate.Next()
	if next.IsZero() {
		return
	}
	if at := next.Sub(r.epoch); r.timer < 0 || at < r.timer {
		r.timer = max(at, r.now)
	}
}

// forecast is what was seen.
func (r *run) forecast() Forecast {
	f := &r.f
	f.Client = Client{LimitMap(r.s.Told), LimitMap(r.s.Start)}
	f.Jitter, f.Seed = r.s.Provider.Jitter, r.s.Provider.Seed
	f.Time.Duration = r.last
	if f.Stopped != "" {
		f.Time.Duration = r.now
	}
	if f.Time.Duration > 0 {
		f.Throughput = float64(f.Completed) / f.Time.Minutes()
	}
	r.line.at(max(r.now, f.Time.Duration), r.spent)
	spent := r.spent()
	r.line.endMinute(spent)
	r.line.next(spent)
	f.Width, f.Steps = r.line.width, r.line.steps[:len(r.line.steps)-1]
	f.Quotas = quotas(r.cfg, f.Time.Duration, spent, r.line.busiest)
	f.Wait, f.Latency = r.waits.result(), r.latencies.result()
	return *f
}
