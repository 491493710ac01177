package stress

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/pool"
)

// conservative is the level of that name.
var conservative = []part{
	{"one member", 0.4, func(s *step) { oneMember(s, s.until) }},
	{"one after another", 0.6, func(s *step) { sequential(s, s.until) }},
}

// oneMember is one member that makes one call after the other.
func oneMember(s *step, until time.Time) {
	done := make(chan struct{})
	s.member("single", pool.MemberConfig{Kind: "worker"}, func(a *agent) {
		defer close(done)
		for time.Now().Before(until) && s.ctx.Err() == nil {
			if a.call(s.ctx, callConfig{}) != nil {
				return
			}
			s.sleep(s.ctx, a.upTo(s.r.cfg.Latency/4))
		}
		s.r.misuse(s.ctx, a.id)
	})
	select {
	case <-done:
	case <-s.ctx.Done():
	}
}

// sequential is members that come and go, one at a time.
func sequential(s *step, until time.Time) {
	for i := 0; time.Now().Before(until) && s.ctx.Err() == nil; i++ {
		id := fmt.Sprintf("%s-%d", s.name, i)
		m, err := s.r.pool.Register(id, pool.MemberConfig{Kind: "worker"})
		if err != nil {
			s.fail(err)
			return
		}
		for range 3 {
			if s.call(s.ctx, m, callConfig{}) != nil {
				break
			}
		}
		if err := m.Close(); err != nil {
			s.fail(err)
		}
		s.r.misuse(s.ctx, id)
	}
}

// aggressive is the level of that name.
var aggressive = []part{
	{"as many members as slots", 0.25, func(s *step) { crowd(s, s.r.cfg.Slots) }},
	{"more members than slots", 0.3, func(s *step) { crowd(s, scaled(s.r.cfg.Slots, 7)) }},
	{"many members on few slots", 0.45, func(s *step) { crowd(s, scaled(s.r.cfg.Slots, 40)) }},
}

// scaled is n members on 5 slots, on so many slots.
func scaled(slots, n int) int { return int(math.Ceil(float64(slots) * float64(n) / 5)) }

// crowd is members that all make one call after the other. They come one by one, in the first tenth of the time.
func crowd(s *step, n int) {
	s.goes(s.intruder)
	apart := s.left() / 10 / time.Duration(n)
	agents := make([]*agent, 0, n)
	for i := range n {
		id := fmt.Sprintf("%s-%d", s.name, i)
		a := s.member(id, pool.MemberConfig{Kind: "worker"}, (*agent).calls)
		agents = append(agents, a)
		if i < n-1 {
			s.sleep(s.ctx, apart)
		}
	}
	for _, a := range agents { // from here on all are there
		a.before = a.done.Load()
	}
	s.rest()
	s.fairness(agents)
}

// intruder releases what others hold, while they do.
func (s *step) intruder() {
	for i := 0; !s.over(); i++ {
		s.sleep(s.ctx, min(s.left()/8+s.r.cfg.Latency, time.Second))
		s.r.misuse(s.ctx, fmt.Sprintf("%s-%d", s.name, i))
	}
}

// misuse has one member release what another holds, and that one release it twice. None of it may take effect.
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
		r.mu.Lock()
		r.foreign++
		r.mu.Unlock()
	}
}
