package stress

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/pool"
	"github.com/sluice-llm/sluice/sim"
)

// chaos is the level of that name.
var chaos = []part{
	{"cancelled in mid-call", 0.15, cancelling},
	{"spawned and cancelled", 0.15, spawning},
	{"contention", 0.2, contention},
	{"checkpoints", 0.1, hammering},
	{"a provider that throttles and fails", 0.2, failing},
	{"a provider that stands still", 0.1, stopped},
	{"recovery", 0.1, recovering},
}

// cancelling is members whose calls are cancelled while they wait, in the middle, or not at all.
func cancelling(s *step) {
	s.goes(s.intruder)
	for i := range scaled(s.r.cfg.Slots, 8) {
		s.member(fmt.Sprintf("cancelled-%d", i), pool.MemberConfig{Kind: "cancelled"}, func(a *agent) {
			for !s.over() {
				a.cancelled(s.ctx)
			}
		})
	}
	s.rest()
}

// cancelled makes a call that is cancelled sooner or later, and perhaps too late.
func (a *agent) cancelled(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(a.upTo(2*a.s.r.cfg.Latency), cancel)
	defer timer.Stop()
	a.call(ctx, callConfig{byPlan: true})
}

// spawning is members that come at their own times, whoever is still there, and are cancelled soon.
func spawning(s *step) {
	luck := s.r.luck(s.r.serial.Add(1))
	workers := newWorkers(s, scaled(s.r.cfg.Slots, 16)) // more than may be active: some wait in the pool's queue
	next, n := time.Now(), 0
	for {
		burst := 1
		if n%10 == 9 {
			burst = 20
		}
		for range burst {
			id, life := fmt.Sprintf("spawned-%d", s.r.serial.Add(1)), time.Duration(luck.Float64()*float64(2*s.r.cfg.Latency))
			workers.arrival(next, func(time.Time) { s.shortLived(id, life) })
		}
		n++
		next = next.Add(s.r.cfg.Latency/2 + time.Duration(luck.Float64()*float64(s.r.cfg.Latency)/2))
		if !next.Before(s.until) || !s.sleep(s.ctx, time.Until(next)) {
			return
		}
	}
}

// shortLived is a member from the pool's queue that calls until it is cancelled.
func (s *step) shortLived(id string, life time.Duration) {
	ctx, cancel := context.WithTimeout(s.ctx, life)
	defer cancel()
	err := s.r.pool.Run(ctx, id, pool.MemberConfig{Kind: "spawned"}, func(ctx context.Context, m *pool.Member) error {
		for ctx.Err() == nil {
			s.call(ctx, m, callConfig{byPlan: true})
		}
		return ctx.Err()
	})
	if panicked, ok := errors.AsType[*sluice.PanicError](err); ok {
		s.r.panicky(panicked.Value, panicked.Stack)
	}
}

// contention is the most members on few slots, and some that do not behave.
func contention(s *step) {
	s.member("panicking", pool.MemberConfig{Kind: "misbehaving"}, func(a *agent) {
		for !s.over() {
			a.call(s.ctx, callConfig{after: func(sluice.Outcome, time.Duration, *sluice.Permit) sluice.Outcome {
				panic(planned{})
			}})
			s.sleep(s.ctx, s.r.cfg.Latency)
		}
	})
	s.member("late", pool.MemberConfig{Kind: "misbehaving"}, func(a *agent) {
		for !s.over() { // its answers are there long before it gives its slot back
			a.call(s.ctx, callConfig{after: func(o sluice.Outcome, _ time.Duration, _ *sluice.Permit) sluice.Outcome {
				s.sleep(s.ctx, 2*s.r.cfg.Latency)
				return o
			}})
		}
	})
	s.member("quitting", pool.MemberConfig{Kind: "misbehaving"}, func(a *agent) {
		a.quit(s)
	})
	crowd(s, scaled(s.r.cfg.Slots, 12))
}

// quit closes members of its own while they have calls open.
func (a *agent) quit(s *step) {
	for i := 0; !s.over(); i++ {
		m, err := s.r.pool.Register(fmt.Sprintf("%s-%d", a.id, i), pool.MemberConfig{Kind: "misbehaving"})
		if err != nil {
			s.fail(err)
			return
		}
		timer := time.AfterFunc(a.upTo(2*s.r.cfg.Latency), func() { m.Close() })
		s.call(s.ctx, m, callConfig{byPlan: true})
		timer.Stop()
		m.Close()
	}
}

// failing is members whose provider throttles them and fails.
func failing(s *step) {
	r := s.r
	if r.cfg.Endpoint != nil {
		r.leaveOut(s, "an endpoint throttles and fails when it wants to")
		return
	}
	d := s.left()
	bad, err := newImitation(sim.Config{
		Seed: r.cfg.Seed, Latency: r.cfg.Latency, Jitter: 0.5, OutputTokens: 16, RetryAfter: sim.RetryAfterMillis,
		Faults: sim.Faults{ServerError: 0.04, Overloaded: 0.03, Reset: 0.02, Cut: 0.02, Throttled: 0.03},
		Storms: []sim.Storm{{From: d * 4 / 10, To: d*4/10 + min(d/10, 3*time.Second)}},
	})
	if err != nil {
		s.fail(err)
		return
	}
	r.wire.to(bad)
	for i := range scaled(r.cfg.Slots, 8) {
		s.member(fmt.Sprintf("patient-%d", i), pool.MemberConfig{Kind: "worker"}, (*agent).calls)
	}
	s.rest()
}

// leaveOut notes that a part is not run.
func (r *run) leaveOut(s *step, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leftOut = append(r.leftOut, LeftOut{s.name, why})
}

// stopped is a provider that stands still for seconds, in the middle of calls, and then goes on.
func stopped(s *step) {
	r := s.r
	switch {
	case r.cfg.Endpoint != nil:
		r.leaveOut(s, "an endpoint of others cannot be stopped")
		return
	case !canStop:
		r.leaveOut(s, "processes cannot be stopped on "+runtime.GOOS)
		return
	case r.cfg.Program == "":
		r.leaveOut(s, "there is no program that could be the provider")
		return
	}
	c, err := r.startChild()
	if err != nil {
		r.leaveOut(s, "a provider of its own did not start: "+err.Error())
		return
	}
	defer c.end()
	r.wire.to(c)
	var members []*agent
	for i := range scaled(r.cfg.Slots, 8) {
		members = append(members, s.member(fmt.Sprintf("halted-%d", i), pool.MemberConfig{Kind: "worker"}, (*agent).calls))
	}
	s.sleep(s.ctx, s.left()/4)
	r.halt(s, c, min(s.left()/2, 5*time.Second))
	s.rest()
	for _, m := range members {
		<-m.over
	}
	if err := c.count(s.ctx); err != nil {
		s.fail(err)
	}
}

// halt stops the provider for so long.
func (r *run) halt(s *step, c *child, d time.Duration) {
	if err := c.stop(); err != nil {
		s.fail(err)
		return
	}
	r.mu.Lock()
	r.outages = append(r.outages, outage{from: time.Now()})
	n := len(r.outages) - 1
	r.mu.Unlock()
	s.sleep(s.ctx, d)
	if err := c.resume(); err != nil {
		s.fail(err)
	}
	r.mu.Lock()
	r.outages[n].to = time.Now().Add(2 * r.cfg.Latency) // what was in the middle ends then
	r.mu.Unlock()
}

// recovering is a conservative round, behind what the provider itself still asks for.
func recovering(s *step) {
	r := s.r
	r.wire.to(r.calm)
	for !s.over() && r.paused() {
		s.sleep(s.ctx, sampleEvery)
	}
	left := max(s.left(), 4*r.cfg.Latency) // however long the pause was
	oneMember(s, time.Now().Add(left/2))
	sequential(s, time.Now().Add(left/2))
	r.mu.Lock()
	r.recovery = s
	r.mu.Unlock()
}

// paused reports whether a lane pauses.
func (r *run) paused() bool {
	snap := r.sched.Snapshot()
	for _, l := range snap.Lanes {
		if snap.At.Before(l.Until) {
			return true
		}
	}
	return false
}

// workers are those that take arrivals, each one at a time. An arrival that finds none free is dropped: one that waited for
// a worker would hide how late it is.
type workers struct {
	s    *step
	free chan struct{}
}

func newWorkers(s *step, n int) *workers {
	w := &workers{s, make(chan struct{}, n)}
	for range n {
		w.free <- struct{}{}
	}
	return w
}

// arrival gives what should have begun at an instant to a free worker.
func (w *workers) arrival(meant time.Time, do func(meant time.Time)) {
	select {
	case <-w.free:
	default:
		w.s.drop(false)
		return
	}
	w.s.drop(true)
	w.s.goes(func() {
		defer func() { w.free <- struct{}{} }()
		do(meant)
	})
}
