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

// cancelling is members whose calls are cancelled while they wait, in the middle, or not at all.
func cancelling(s *step) {
	s.goes(s.intruder)
	s.members("cancelled", "cancelled", 8, func(a *agent) {
		for !s.over() {
			ctx, cancel := context.WithCancel(s.ctx)
			timer := time.AfterFunc(a.upTo(2*s.r.cfg.Latency), cancel)
			a.call(ctx, nil)
			timer.Stop()
			cancel()
		}
	})
	s.rest()
}

// spawning is members from the pool's queue that arrive at times of their own, and are cancelled soon.
func spawning(s *step) {
	r, luck := s.r, s.r.luck()
	arrival := s.arrivals(r.scaled(16)) // more than may be active: some wait in the pool's queue
	next := time.Now()
	for n := 0; ; n++ {
		burst := 1
		if n%10 == 9 {
			burst = 20
		}
		for range burst {
			id, life := fmt.Sprintf("spawned-%d", r.serial.Add(1)), time.Duration(luck.Float64()*float64(2*r.cfg.Latency))
			arrival(func() { s.shortLived(id, life) })
		}
		next = next.Add(r.cfg.Latency/2 + time.Duration(luck.Float64()*float64(r.cfg.Latency)/2))
		if !next.Before(s.until) || !s.sleep(time.Until(next)) {
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
			s.call(ctx, m, nil)
		}
		return ctx.Err()
	})
	if panicked, ok := errors.AsType[*sluice.PanicError](err); ok {
		s.r.panicky(panicked.Value, panicked.Stack)
	}
}

// contention is the most members on few slots, and some that do not behave.
func contention(s *step) {
	latency := s.r.cfg.Latency
	s.member("panicking", "misbehaving", func(a *agent) {
		for !s.over() {
			a.call(s.ctx, func(sluice.Outcome, time.Duration, *sluice.Permit) sluice.Outcome { panic(planned{}) })
			s.sleep(latency)
		}
	})
	s.member("late", "misbehaving", func(a *agent) {
		for !s.over() { // it has its response long before it gives its slot back
			a.call(s.ctx, func(o sluice.Outcome, _ time.Duration, _ *sluice.Permit) sluice.Outcome {
				s.sleep(2 * latency)
				return o
			})
		}
	})
	s.member("quitting", "misbehaving", func(a *agent) { // it closes members of its own while they have open calls
		for i := 0; !s.over(); i++ {
			m, err := s.r.pool.Register(fmt.Sprintf("%s-%d", a.id, i), pool.MemberConfig{Kind: "misbehaving"})
			if err != nil {
				s.fail(err)
				return
			}
			timer := time.AfterFunc(a.upTo(2*latency), func() { m.Close() })
			s.call(s.ctx, m, nil)
			timer.Stop()
			m.Close()
		}
	})
	crowd(s, 12)
}

// failing is members of a provider that throttles them and fails.
func failing(s *step) {
	r, d := s.r, s.left()
	if r.cfg.Endpoint != nil {
		s.leaveOut("faults and rejections cannot be simulated at an external endpoint")
		return
	}
	bad, err := simulator(sim.Config{
		Seed: r.cfg.Seed, Latency: r.cfg.Latency, Jitter: 0.5, OutputTokens: 16, RetryAfter: sim.RetryAfterMillis,
		Faults: sim.Faults{ServerError: 0.04, Overloaded: 0.03, Reset: 0.02, Cut: 0.02, Throttled: 0.03},
		Storms: []sim.Storm{{From: d * 4 / 10, To: d*4/10 + min(d/10, 3*time.Second)}},
	})
	if err != nil {
		s.fail(err)
		return
	}
	r.wire.to(bad)
	s.members("patient", "worker", 8, (*agent).calls)
	s.rest()
}

// leaveOut notes that the part is not run.
func (s *step) leaveOut(why string) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.leftOut = append(s.r.leftOut, Omission{s.Name, why})
}

// stopped is a provider that stands still for seconds, in the middle of calls, and then resumes.
func stopped(s *step) {
	r := s.r
	switch {
	case r.cfg.Endpoint != nil:
		s.leaveOut("an external endpoint cannot be stopped")
		return
	case !canStop:
		s.leaveOut("processes cannot be stopped on " + runtime.GOOS)
		return
	case r.cfg.Program == "":
		s.leaveOut("the program that simulates the provider is not available")
		return
	}
	c, err := r.startChild()
	if err != nil {
		s.leaveOut("the separate provider did not start: " + err.Error())
		return
	}
	defer c.end()
	r.wire.to(&c.backend)
	members := s.members("halted", "worker", 8, (*agent).calls)
	s.sleep(s.left() / 4)
	r.halt(s, c, min(s.left()/2, 5*time.Second))
	s.rest()
	for _, m := range members {
		<-m.over
	}
	if err := c.count(s.ctx); err != nil {
		s.fail(err)
	}
}

// halt stops the provider for a time.
func (r *run) halt(s *step, c *child, d time.Duration) {
	if err := c.stop(); err != nil {
		s.fail(err)
		return
	}
	r.mu.Lock()
	r.outage.from = time.Now()
	r.mu.Unlock()
	s.sleep(d)
	if err := c.resume(); err != nil {
		s.fail(err)
	}
	r.mu.Lock()
	r.outage.to = time.Now().Add(2 * r.cfg.Latency) // when the calls of that moment have ended
	r.mu.Unlock()
}

// recovering is a conservative round, after the pauses that the provider still asks for.
func recovering(s *step) {
	r := s.r
	r.wire.to(r.calm)
	for !s.over() && r.paused() {
		s.sleep(sampleEvery)
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
