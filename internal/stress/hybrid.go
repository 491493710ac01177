package stress

import (
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
	r.mu.Lock()
	r.phases = campaignPhases
	r.mu.Unlock()
	each := s.left() / campaignPhases
	for i := range campaignPhases {
		if !phase(s, i, s.start.Add(time.Duration(i+1)*each)) {
			return
		}
		r.mu.Lock()
		r.phasesAdvanced++
		r.mu.Unlock()
	}
}

// phase is one phase until its time is over. It reports whether all of its members did their part.
func phase(s *step, i int, until time.Time) bool {
	var members sync.WaitGroup
	agents := make([]*agent, scaled(s.r.cfg.Slots, 8))
	for k := range agents {
		members.Add(1)
		agents[k] = s.member(fmt.Sprintf("phase-%d-%d", i+1, k), pool.MemberConfig{Kind: "campaign"}, func(a *agent) {
			defer members.Done()
			for time.Now().Before(until) && s.ctx.Err() == nil {
				a.burst(s)
				a.SaveCheckpoint(newNote(a.id, 0, a.done.Load(), 1))
				s.sleep(s.ctx, a.between(0, 2*s.r.cfg.Latency))
			}
		})
	}
	members.Wait()
	s.fairness(agents)
	for _, a := range agents {
		if a.done.Load() == 0 {
			return false
		}
	}
	return s.ctx.Err() == nil
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
		a.call(s.ctx, callConfig{after: func(p *sluice.Permit) *sluice.Outcome {
			if p.Attempt() > failures {
				return nil
			}
			return &sluice.Outcome{Kind: sluice.InvalidOutput, Err: errTest}
		}})
		s.sleep(s.ctx, s.r.cfg.Latency)
	}
}

var errTest = errors.New("the test fails")
