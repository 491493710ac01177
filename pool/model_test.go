package pool_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/pool"
)

// model is what a pool should count, kept by plain means.
type model struct {
	slots   int
	members map[string]*modelMember
	calls   int64
	tokens  int64
	waits   int64
	waited  time.Duration
	longest time.Duration
	ended   int64
	failed  int64
	queue   []*ask // in the order in which they asked: members have the same priority
	orphans []*grant
}

type modelMember struct {
	m       *pool.Member
	calls   int64
	waited  time.Duration
	open    []*grant
	waiting int
	asked   bool
}

type grant struct {
	of     *modelMember
	permit *sluice.Permit
	sent   bool
}

type ask struct {
	of     *modelMember
	since  time.Time
	cancel context.CancelFunc
	got    chan *sluice.Permit
}

// TestMetricsAreThoseOfAPlainModel does random things to a pool, one after the other, and compares all that it counts.
func TestMetricsAreThoseOfAPlainModel(t *testing.T) {
	for seed := range suite.Size(20, 60) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(seed), 1))
			w := &model{slots: 1 + random.IntN(4), members: map[string]*modelMember{}}
			p := newPool(t, w.slots, pool.Config{SlotTimeout: -1})
			for range 200 {
				w.act(t, p, random)
				synctest.Wait()
				w.take()
				if !w.check(t, p) {
					t.Fatalf("seed %d", seed)
				}
			}
			w.clear(t, p)
		})
	}
}

// act does one thing.
func (w *model) act(t *testing.T, p *pool.Pool, random *rand.Rand) {
	id := fmt.Sprint("m", random.IntN(6))
	m := w.members[id]
	switch op := random.IntN(10); {
	case m == nil:
		w.members[id] = &modelMember{m: register(t, p, id, pool.MemberConfig{Tenant: "all"})}
	case op < 4:
		w.ask(t, m)
	case op < 5:
		for i, a := range w.queue {
			if a.of == m {
				w.drop(i)
				a.cancel()
				break
			}
		}
	case op < 6 && len(m.open) > 0:
		if g := m.open[random.IntN(len(m.open))]; !g.sent {
			g.sent = true
			w.calls++
			m.calls++
			g.permit.Sent()
		}
	case op < 8 && len(m.open) > 0:
		i := random.IntN(len(m.open))
		g := m.open[i]
		m.open = append(m.open[:i], m.open[i+1:]...)
		w.release(t, g, random)
	case op == 8 && len(w.orphans) > 0:
		g := w.orphans[0]
		w.orphans = w.orphans[1:]
		w.release(t, g, random)
	case op == 9 && random.IntN(3) == 0:
		w.end(m, random.IntN(2) == 0)
		delete(w.members, id)
	default:
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
	}
}

func (w *model) ask(t *testing.T, m *modelMember) {
	ctx, cancel := context.WithCancel(t.Context())
	a := &ask{of: m, since: time.Now(), cancel: cancel, got: make(chan *sluice.Permit, 1)}
	m.asked = true
	m.waiting++
	w.queue = append(w.queue, a)
	go func() {
		if permit, err := m.m.Acquire(ctx, sluice.Call{}); err == nil {
			a.got <- permit
		}
	}()
}

func (w *model) release(t *testing.T, g *grant, random *rand.Rand) {
	o := used(random.IntN(100))
	o.Unsent = random.IntN(4) == 0
	if !g.sent && !o.Unsent {
		w.calls++
		g.of.calls++
	}
	w.tokens += int64(o.Usage.Input + o.Usage.Output)
	if err := g.of.m.Release(g.permit, o); err != nil {
		t.Error(err)
	}
}

// end closes a member: its waits are over, its permits stay out.
func (w *model) end(m *modelMember, well bool) {
	for i := len(w.queue) - 1; i >= 0; i-- {
		if w.queue[i].of == m {
			w.drop(i)
		}
	}
	w.orphans = append(w.orphans, m.open...)
	if well {
		w.ended++
		m.m.Close()
	} else {
		w.failed++
		m.m.Fail(nil)
	}
}

// drop ends a wait.
func (w *model) drop(i int) {
	a := w.queue[i]
	w.queue = append(w.queue[:i], w.queue[i+1:]...)
	w.waited += time.Since(a.since)
	w.longest = max(w.longest, time.Since(a.since))
	a.of.waited += time.Since(a.since)
	w.waits++
	a.of.waiting--
}

// active is how many permits are out.
func (w *model) active() int {
	n := len(w.orphans)
	for _, m := range w.members {
		n += len(m.open)
	}
	return n
}

// take grants as many as there is room for: the oldest first.
func (w *model) take() {
	for w.active() < w.slots && len(w.queue) > 0 {
		a := w.queue[0]
		w.drop(0)
		a.of.open = append(a.of.open, &grant{of: a.of, permit: <-a.got})
	}
}

func (m *modelMember) phase() pool.Phase {
	switch {
	case len(m.open) > 0:
		return pool.Executing
	case m.waiting > 0:
		return pool.WaitingForSlot
	case m.asked:
		return pool.ProcessingResult
	}
	return pool.Initializing
}

// check compares.
func (w *model) check(t *testing.T, p *pool.Pool) bool {
	t.Helper()
	got := p.Metrics()
	want := pool.Metrics{
		Slots: w.slots, Active: w.active(), Waiting: len(w.queue), Calls: w.calls, Tokens: w.tokens, Waits: w.waits, TotalWait: w.waited,
		LongestWait: w.longest, Members: len(w.members), Completed: w.ended, Failed: w.failed,
		Orphans: len(w.orphans),
	}
	if w.waits > 0 {
		want.AverageWait = w.waited / time.Duration(w.waits)
	}
	phases := map[pool.Phase]int{}
	for id, m := range w.members {
		phases[m.phase()]++
		if s := m.m.State(); s.Calls != m.calls || s.TotalWait != m.waited || s.Phase != m.phase() {
			t.Errorf("%s is %+v, want %d calls, %v, %s", id, s, m.calls, m.waited, m.phase())
			return false
		}
	}
	want.Phases = phases
	if !reflect.DeepEqual(got, want) { // its String has not all
		t.Errorf("counted:\n%#v\nwant:\n%#v", got, want)
		return false
	}
	return true
}

// clear ends all that is left.
func (w *model) clear(t *testing.T, p *pool.Pool) {
	for _, m := range w.members {
		w.end(m, true)
	}
	for _, g := range w.orphans {
		g.of.m.Release(g.permit, sluice.Outcome{})
	}
	synctest.Wait()
}

// TestMetricsAreConsistentAtEveryInstant looks at them while members work at once.
func TestMetricsAreConsistentAtEveryInstant(t *testing.T) {
	p := newPool(t, 3, pool.Config{})
	var wg, watch sync.WaitGroup
	stop := make(chan struct{})
	watch.Go(func() {
		var last pool.Metrics
		for {
			m := p.Metrics()
			phases := 0
			for _, n := range m.Phases {
				phases += n
			}
			if m.Active < 0 || m.Active > 3 || m.Waiting < 0 || m.Waiting > 8 || phases != m.Members || m.Calls < last.Calls ||
				m.Waits < last.Waits || m.TotalWait < last.TotalWait || m.Phases[pool.Executing] > m.Active {
				t.Errorf("%+v behind %+v", m, last)
			}
			last = m
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for i := range 8 {
		wg.Go(func() {
			for n := range 200 {
				m := register(t, p, fmt.Sprint("m", i))
				ctx, cancel := context.WithCancel(t.Context())
				if n%3 == 0 {
					go cancel()
				}
				if n%2 == 0 {
					m.Do(ctx, sluice.Call{}, func(_ context.Context, p *sluice.Permit) sluice.Outcome {
						p.Sent()
						return sluice.Outcome{}
					})
				} else if held, err := m.Acquire(ctx, sluice.Call{}); err == nil {
					m.Release(held, sluice.Outcome{Unsent: n%5 == 0})
				}
				cancel()
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	watch.Wait()
	if m := p.Metrics(); m.Completed != 1600 || m.Members != 0 {
		t.Errorf("%+v", m)
	}
}
