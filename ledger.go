package sluice

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// The words between a Scheduler and a Ledger.
type (
	Asks       = gate.Asks
	Ask        = gate.Ask
	Reply      = gate.Reply
	News       = gate.News
	Pause      = gate.Pause
	SlotLimit  = gate.SlotLimit
	Settlement = gate.Settlement
	Correction = gate.Correction
	Vector     = gate.Vector
)

// Ledger says whether calls fit into budgets and slots that several Schedulers share. Every method is idempotent by the ID
// it is given: the Scheduler asks again when a reply is lost. A Scheduler has at most one Take of a lane under way, and
// corrects and settles before that what it knew before: a Ledger may keep both until then.
type Ledger interface {
	// Take charges the longest prefix of asks that fits, and says how long the rest has to wait. A reply that is older than
	// a permit may be must be an error instead.
	Take(ctx context.Context, asks Asks) (Reply, error)
	// Settle gives back what was reserved and not used, and the slot.
	Settle(ctx context.Context, s Settlement) error
	// Correct moves a budget to what the provider says of it, and the slots and the pause to what that means.
	Correct(ctx context.Context, c Correction) error
	// Watch has tell be called with what the ledger learns of a lane by itself, until stop returns. Awake says that a lane
	// that was told to wait should ask now.
	Watch(tell func(lane string, n News, awake bool)) (stop func())
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
func (r *remote) told(lane string, n News, awake bool) {
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
		r.poke()
	}
}

func (r *remote) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take asks until there is an answer, and gives it to the gate.
func (r *remote) take(a Asks) {
	var reply Reply
	if !r.insist(func(ctx context.Context) (err error) {
		reply, err = r.ledger.Take(ctx, a)
		return err
	}) {
		return
	}
	r.s.mu.Lock()
	r.taking--
	if r.closing {
		defer r.poke()
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
		timer := time.NewTimer(askAgain)
		select {
		case <-timer.C:
		case <-r.ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// close says what is pending and waits for all goroutines.
func (r *remote) close() {
	r.s.mu.Lock()
	r.closing = true
	r.s.mu.Unlock()
	r.poke()
	end := time.AfterFunc(lastWords, r.cancel)
	r.wg.Wait()
	r.stop()
	end.Stop()
	r.cancel()
}
