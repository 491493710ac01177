package sluice

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/limits"
)

// Ledger stores the token buckets and concurrency slots that several Schedulers share. Ledger methods must be idempotent
// by ID, because the Scheduler repeats a request after a lost reply. A Scheduler runs at most one Take call per lane at a
// time. Before Take, the Scheduler sends all corrections and settlements, so a Ledger may apply them during Take.
type Ledger interface {
	// Take charges calls in order until a call does not fit, and returns the waiting time of the remaining calls. If the
	// reply arrives after the lifetime of its permits, Take must return an error.
	Take(ctx context.Context, asks limits.Asks) (limits.Reply, error)
	// Settle frees the slot of a permit and refunds the unused part of the reserved cost.
	Settle(ctx context.Context, s limits.Settlement) error
	// Correct updates the token bucket, the concurrency or the pause of a lane after a response.
	Correct(ctx context.Context, c limits.Correction) error
	// Watch calls tell after each change of a lane until stop returns. If awake is true, the Scheduler should repeat Take for the lane.
	Watch(tell func(lane string, n limits.LaneState, awake bool)) (stop func())
}

const (
	askAgain  = 20 * time.Millisecond // before a request is repeated whose reply was lost
	lastWords = 2 * time.Second       // for what is still to be said when a Scheduler closes
)

// remote carries the gate's words to a Ledger: settlements and corrections in order by one goroutine, and a goroutine
// for each lane's outstanding ask, which is started once all that was said before it has arrived.
type remote struct {
	s      *Scheduler
	ledger Ledger
	ctx    context.Context
	cancel context.CancelFunc
	stop   func() // to watch
	wg     sync.WaitGroup
	wake   chan struct{} // has room for one

	pending []func(context.Context) error // guarded by s.mu
	taking  int                           // asks that are not answered; guarded by s.mu
	closing bool                          // guarded by s.mu
}

func newRemote(s *Scheduler, l Ledger) *remote {
	r := &remote{s: s, ledger: l, wake: make(chan struct{}, 1)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.stop = l.Watch(r.told)
	r.wg.Go(r.post)
	return r
}

// told passes on what the ledger says unasked.
func (r *remote) told(lane string, n limits.LaneState, awake bool) {
	r.s.mu.Lock()
	if r.closing {
		r.s.mu.Unlock()
		return
	}
	r.s.gate.Told(time.Now(), lane, &n, awake)
	r.s.unlockAndFlush()
}

// sendLocked passes on what the gate wants said.
func (r *remote) sendLocked() {
	fixes, settles, asks := r.s.gate.Outbox()
	for _, c := range fixes {
		r.pending = append(r.pending, func(ctx context.Context) error { return r.ledger.Correct(ctx, c) })
	}
	for _, s := range settles {
		r.pending = append(r.pending, func(ctx context.Context) error { return r.ledger.Settle(ctx, s) })
	}
	r.taking += len(asks)
	for _, a := range asks {
		r.pending = append(r.pending, func(context.Context) error {
			r.wg.Go(func() { r.take(a) })
			return nil
		})
	}
	if len(fixes)+len(settles)+len(asks) > 0 {
		wake.Up(r.wake)
	}
}

// take asks until there is an answer, and gives it to the gate.
func (r *remote) take(a limits.Asks) {
	var reply limits.Reply
	if !r.insist(func(ctx context.Context) (err error) {
		reply, err = r.ledger.Take(ctx, a)
		return err
	}) {
		return
	}
	r.s.mu.Lock()
	r.taking--
	if r.closing {
		defer wake.Up(r.wake)
	}
	r.s.gate.Reply(time.Now(), a.Lane, reply)
	r.s.unlockAndFlush()
}

// post says what is pending, in order, until the Scheduler closes and all is said.
func (r *remote) post() {
	for {
		r.s.mu.Lock()
		batch, closing := r.pending, r.closing && r.taking == 0
		r.pending = nil
		r.s.mu.Unlock()
		for _, say := range batch {
			if !r.insist(say) {
				return
			}
		}
		if len(batch) > 0 {
			continue
		}
		if closing {
			return
		}
		select {
		case <-r.wake:
		case <-r.ctx.Done():
			return
		}
	}
}

// insist repeats say until it succeeds. It reports false when there is no more time.
func (r *remote) insist(say func(context.Context) error) bool {
	for {
		if say(r.ctx) == nil {
			return true
		}
		if wake.In(r.ctx, askAgain, nil) != nil {
			return false
		}
	}
}

// close says what is pending and waits for all goroutines.
func (r *remote) close() {
	r.s.mu.Lock()
	r.closing = true
	r.s.mu.Unlock()
	wake.Up(r.wake)
	end := time.AfterFunc(lastWords, r.cancel)
	r.wg.Wait()
	r.stop()
	end.Stop()
	r.cancel()
}
