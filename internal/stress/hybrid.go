package stress

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/pool"
)

// campaignPhases is how many phases a campaign has.
const campaignPhases = 4

// hybrid is the level of that name: a campaign, and beside it all the time reviews and a loop of tests.
var hybrid = []part{{"campaign, reviews and tests", 1, func(s *step) {
	s.goes(func() { campaign(s) })
	s.goes(func() { reviewing(s) })
	s.member("tester", pool.MemberConfig{Kind: "tester"}, func(a *agent) { testing(s, a) })
	s.rest()
}}}

// campaign is phases one after the other. The next begins when all members of the last have ended.
func campaign(s *step) {
	r := s.r
	each := s.left() / campaignPhases
	places := make([]*agent, scaled(r.cfg.Slots, 16)) // more than may be active
	for k := range places {
		places[k] = &agent{s: s}
	}
	defer s.fairness(places)
	for i := range campaignPhases {
		if !phase(s, i, s.start.Add(time.Duration(i+1)*each), places) {
			return
		}
		r.mu.Lock()
		r.phasesAdvanced++
		r.mu.Unlock()
	}
}

// phase is one phase until its time is over: tasks that wait for their turn in the pool's queue, each a member of its own. It
// reports whether all places had a task done.
func phase(s *step, i int, until time.Time, places []*agent) bool {
	var members sync.WaitGroup
	for k, place := range places {
		place.tasks = 0
		members.Add(1)
		s.goes(func() {
			defer members.Done()
			for n := 0; n == 0 || time.Now().Before(until) && s.ctx.Err() == nil; n++ {
				place.task(s, fmt.Sprintf("phase-%d-%d-%d", i+1, k, n))
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
func (a *agent) task(s *step, id string) {
	err := s.r.pool.Run(s.ctx, id, pool.MemberConfig{Kind: "campaign"}, func(_ context.Context, m *pool.Member) error {
		a.Member, a.id = m, id
		a.begin()
		a.burst(s)
		s.sleep(s.ctx, a.upTo(s.r.cfg.Latency))
		a.burst(s)
		err := m.SaveCheckpoint(newNote(id, 0, a.done.Load(), 1))
		return errors.Join(err, m.DeleteCheckpoint())
	})
	if err != nil {
		s.fail(err)
		s.sleep(s.ctx, s.r.cfg.Latency)
		return
	}
	a.tasks++
}

// burst is a few calls of one member at once.
func (a *agent) burst(s *step) {
	var calls sync.WaitGroup
	for range 1 + a.luck.IntN(4) {
		calls.Add(1)
		s.goes(func() {
			defer calls.Done()
			a.call(s.ctx, callConfig{})
		})
	}
	calls.Wait()
}

// reviewCalls is how many calls a review takes.
const reviewCalls = 3

// reviewing is reviews that somebody waits for: they come when they come, and go first.
func reviewing(s *step) {
	luck := s.r.luck(s.r.serial.Add(1))
	w := newWorkers(s, 2*s.r.cfg.Slots)
	end := s.until.Add(-s.left() / 10)
	for next := time.Now(); next.Before(end); {
		w.arrival(next, s.review)
		s.r.mu.Lock()
		s.r.reviews++
		s.r.mu.Unlock()
		next = next.Add(4*s.r.cfg.Latency + time.Duration(luck.Float64()*float64(8*s.r.cfg.Latency)))
		if !s.sleep(s.ctx, time.Until(next)) {
			return
		}
	}
}

// review is one review, which should have begun at an instant.
func (s *step) review(meant time.Time) {
	m, err := s.r.pool.Register(fmt.Sprintf("review-%d", s.r.serial.Add(1)), pool.MemberConfig{Kind: "reviewer", Priority: sluice.High})
	if err != nil {
		s.fail(err)
		return
	}
	defer m.Close()
	s.late(time.Since(meant))
	for range reviewCalls {
		if s.call(s.ctx, m, callConfig{}) != nil {
			return
		}
	}
	s.r.mu.Lock()
	s.r.reviewsFinished++
	s.r.mu.Unlock()
}

// late notes how much later than it should have something began.
func (s *step) late(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longest = max(s.longest, d)
}

// testing is a test that fails some times, is mended, and tried again. Between its tries it holds no slot.
func testing(s *step, a *agent) {
	for !s.over() {
		failures := a.luck.IntN(4)
		a.call(s.ctx, callConfig{after: func(o sluice.Outcome, _ time.Duration, p *sluice.Permit) sluice.Outcome {
			if o.Kind == sluice.OK && p.Attempt() <= failures {
				o.Kind, o.Err = sluice.InvalidOutput, errTest
			}
			return o
		}})
		s.sleep(s.ctx, s.r.cfg.Latency)
	}
}

var errTest = errors.New("the test fails")
