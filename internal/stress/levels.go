package stress

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/pool"
)

// level is a kind of load with its thresholds.
type level struct {
	name       string
	duration   time.Duration
	maxWait    Threshold  // in seconds
	meanWait   *Threshold // in seconds
	completion Threshold  // in percent
	parts      []part
}

// part is a part of a level.
type part struct {
	name  string
	share float64 // of the duration
	run   func(*step)
}

// levels holds all levels, the easiest first.
var levels = [...]level{
	{name: "conservative", duration: 5 * time.Minute, maxWait: Threshold{"<", 1}, completion: Threshold{"=", 100}, parts: []part{
		{"one member", 0.4, func(s *step) { oneMember(s, s.until) }},
		{"one after another", 0.6, func(s *step) { sequential(s, s.until) }},
	}},
	{name: "aggressive", duration: 10 * time.Minute, maxWait: Threshold{"<", 30}, completion: Threshold{"=", 100}, parts: []part{
		{"as many members as slots", 0.25, func(s *step) { crowd(s, 5) }},
		{"more members than slots", 0.3, func(s *step) { crowd(s, 7) }},
		{"many members on few slots", 0.45, func(s *step) { crowd(s, 40) }},
	}},
	{name: chaos, duration: 15 * time.Minute, maxWait: Threshold{"<", 60}, completion: Threshold{">", 80}, parts: []part{
		{"cancelled in mid-call", 0.15, cancelling},
		{"spawned and cancelled", 0.15, spawning},
		{"contention", 0.2, contention},
		{"checkpoints", 0.1, hammering},
		{"a provider that rate-limits and fails", 0.2, failing},
		{"a provider that stops responding", 0.1, stopped},
		{"recovery", 0.1, recovering},
	}},
	{name: hybrid, duration: 20 * time.Minute, maxWait: Threshold{"<", 30}, meanWait: &Threshold{"<", 30}, completion: Threshold{"=", 100}, parts: []part{
		{"campaign, reviews and tests", 1, func(s *step) {
			s.goes(func() { campaign(s) })
			s.goes(func() { reviewing(s) })
			s.member("tester", "tester", testing)
			s.rest()
		}},
	}},
}

// Levels that have rows of their own.
const (
	chaos  = "chaos"
	hybrid = "hybrid"
)

// Levels returns the names of the levels, the easiest first.
func Levels() (names []string) {
	for _, l := range levels {
		names = append(names, l.name)
	}
	return names
}

// scaled scales a number of members on 5 slots to the slots of the run.
func (r *run) scaled(n int) int { return int(math.Ceil(float64(r.cfg.Slots) * float64(n) / 5)) }

// oneMember is one member that makes one call after the other.
func oneMember(s *step, until time.Time) {
	a := s.member("single", "worker", func(a *agent) {
		for time.Now().Before(until) && s.ctx.Err() == nil {
			if a.call(s.ctx, nil) != nil {
				return
			}
			s.sleep(a.upTo(s.r.cfg.Latency / 4))
		}
		s.r.misuse(s.ctx, a.id)
	})
	select {
	case <-a.over:
	case <-s.ctx.Done():
	}
}

// sequential is members that come and go, one at a time.
func sequential(s *step, until time.Time) {
	for i := 0; time.Now().Before(until) && s.ctx.Err() == nil; i++ {
		a := s.member(fmt.Sprintf("%s-%d", s.Name, i), "worker", func(a *agent) {
			for range 3 {
				if a.call(s.ctx, nil) != nil {
					return
				}
			}
		})
		<-a.over
		s.r.misuse(s.ctx, a.id)
	}
}

// crowd is members that all make one call after the other. They come one by one, in the first tenth of the time.
func crowd(s *step, on5 int) {
	s.goes(s.intruder)
	n := s.r.scaled(on5)
	apart := s.left() / 10 / time.Duration(n)
	agents := make([]*agent, n)
	for i := range n {
		agents[i] = s.member(fmt.Sprintf("%s-%d", s.Name, i), "worker", (*agent).calls)
		if i < n-1 {
			s.sleep(apart)
		}
	}
	for _, a := range agents { // all are there now
		a.before = a.done.Load()
	}
	s.rest()
	s.fairness(agents)
}

// intruder releases permits of other members while they hold them.
func (s *step) intruder() {
	for i := 0; !s.over(); i++ {
		s.sleep(min(s.left()/8+s.r.cfg.Latency, time.Second))
		s.r.misuse(s.ctx, fmt.Sprintf("%s-%d", s.Name, i))
	}
}

// misuse has one member release the permit of another, which releases it twice. The pool must refuse both.
func (r *run) misuse(ctx context.Context, name string) {
	owner, err := r.pool.Register("owner of "+name, pool.MemberConfig{Kind: "owner"})
	if err != nil {
		return
	}
	defer owner.Close()
	thief, err := r.pool.Register("thief of "+name, pool.MemberConfig{Kind: "thief"})
	if err != nil {
		return
	}
	defer thief.Close()
	p, err := owner.Acquire(ctx, sluice.Call{ID: "held by " + name, Lane: r.endpoint.Target.Model})
	if err != nil {
		return
	}
	unsent := sluice.Outcome{Unsent: true}
	stolen := !errors.Is(thief.Release(p, unsent), pool.ErrNotHeld)
	kept := owner.Release(p, unsent) == nil
	twice := !errors.Is(owner.Release(p, unsent), pool.ErrNotHeld)
	if stolen || !kept || twice {
		r.count("foreign_releases")
	}
}

const campaignPhases = 4

// campaign is phases one after the other. The next begins when all members of the last have ended.
func campaign(s *step) {
	each := s.left() / campaignPhases
	places := make([]*agent, s.r.scaled(16)) // more than may be active
	for k := range places {
		places[k] = &agent{s: s}
	}
	defer s.fairness(places)
	for i := range campaignPhases {
		if !phase(s, i, s.start.Add(time.Duration(i+1)*each), places) {
			return
		}
		s.r.count("phases_advanced")
	}
}

// phase runs tasks until its time is over. Each is a member of its own that waits for its turn in the pool's queue. It reports
// whether a task was done in every place.
func phase(s *step, i int, until time.Time, places []*agent) bool {
	var members sync.WaitGroup
	for k, place := range places {
		place.tasks = 0
		members.Add(1)
		s.goes(func() {
			defer members.Done()
			for n := 0; n == 0 || time.Now().Before(until) && s.ctx.Err() == nil; n++ {
				place.task(fmt.Sprintf("phase-%d-%d-%d", i+1, k, n))
			}
		})
	}
	members.Wait()
	for _, place := range places {
		if place.tasks == 0 {
			return false
		}
	}
	return s.ctx.Err() == nil
}

// task is a member that makes two bursts of calls, with a rest between, and keeps a checkpoint.
func (a *agent) task(id string) {
	s := a.s
	err := s.r.pool.Run(s.ctx, id, pool.MemberConfig{Kind: "campaign"}, func(_ context.Context, m *pool.Member) error {
		a.Member, a.id = m, id
		a.begin().burst()
		s.sleep(a.upTo(s.r.cfg.Latency))
		a.burst()
		err := m.SaveCheckpoint(newNote(id, 0, a.done.Load(), 1))
		return errors.Join(err, m.DeleteCheckpoint())
	})
	if err != nil {
		s.fail(err)
		s.sleep(s.r.cfg.Latency)
		return
	}
	a.tasks++
}

// burst is a few concurrent calls of one member.
func (a *agent) burst() {
	var calls sync.WaitGroup
	for range 1 + a.luck.IntN(4) {
		calls.Add(1)
		a.s.goes(func() {
			defer calls.Done()
			a.call(a.s.ctx, nil)
		})
	}
	calls.Wait()
}

// reviewing is reviews of three calls that arrive at times of their own and go first.
func reviewing(s *step) {
	r, luck := s.r, s.r.luck()
	arrival := s.arrivals(2 * r.cfg.Slots)
	end := s.until.Add(-s.left() / 10)
	for next := time.Now(); next.Before(end); {
		meant := next
		arrival(func() {
			m, err := r.pool.Register(fmt.Sprintf("review-%d", r.serial.Add(1)), pool.MemberConfig{Kind: "reviewer", Priority: limits.High})
			if err != nil {
				s.fail(err)
				return
			}
			defer m.Close()
			s.late(time.Since(meant))
			for range 3 {
				if s.call(s.ctx, m, nil) != nil {
					return
				}
			}
			r.count("reviews_finished")
		})
		next = next.Add(4*r.cfg.Latency + time.Duration(luck.Float64()*float64(8*r.cfg.Latency)))
		if !s.sleep(time.Until(next)) {
			return
		}
	}
}

// testing is a test that fails up to three times. It holds no slot between its attempts.
func testing(a *agent) {
	for !a.s.over() {
		failures := a.luck.IntN(4)
		a.call(a.s.ctx, func(o sluice.Outcome, _ time.Duration, p *sluice.Permit) sluice.Outcome {
			if o.Kind == sluice.OK && p.Attempt() <= failures {
				o.Kind, o.Err = sluice.InvalidOutput, errors.New("the test fails")
			}
			return o
		})
		a.s.sleep(a.s.r.cfg.Latency)
	}
}
