package sluice

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// Vector holds an amount per Dimension: a number of requests or tokens, or of slots.
type Vector = gate.Vector

// Asks are calls of one lane that want to go, in their order.
//
//	Lane string
//	Waiting int  // calls of the lane that wait in this process, these included: the weight of its turn
//	Calls []Ask
type Asks = gate.Asks

// Ask is one call that wants its cost from a Ledger.
//
//	ID uint64    // the permit's: asking again with the same ID takes nothing twice
//	Cost Vector
type Ask = gate.Ask

// Reply is a Ledger's answer to Asks: the first Granted of them fit, the others have to wait.
//
//	Granted int
//	Marks []Vector      // for each granted call: all that was ever spent on its lane, it included
//	Before Vector       // the part of Marks[0] that was spent before the last 50 to 100 ms
//	Wait time.Duration  // until the first that did not fit may fit
//	Bound Dimension     // what it waits for
//	News News
type Reply = gate.Reply

// News is what the members of a Ledger share of a lane beside its budgets. The zero value says nothing.
//
//	Open int         // calls that are open, of all members
//	Pause Pause
//	Slots SlotLimit
type News = gate.News

// Pause is the pause of a lane, and what follows it: a few unproven calls at a time, until they are answered.
//
//	Epoch uint64        // counts the pauses: a refusal of a call of an earlier epoch begins none
//	Left time.Duration  // until calls are sent again; 0 or less: they are
//	Age time.Duration   // since the first pause of those that follow each other began
//	Probing bool        // unproven calls are few
//	Ramp int            // how many of them may be open
//	Cause Kind          // why it pauses
type Pause = gate.Pause

// SlotLimit is how many calls may be open at once, and what is known of more.
//
//	Version uint64      // counts the changes
//	Limit float64       // 0 is none
//	Bad int             // so many were refused once; 0 is not known
//	Refused bool        // a refusal has set Limit
//	Hold time.Duration  // how long Bad is believed
//	Left time.Duration  // how much of Hold is left
type SlotLimit = gate.SlotLimit

// Settlement gives back what a permit reserved and did not use, and the permit's slot.
//
//	ID uint64      // the permit's
//	Lane string
//	Refund Vector  // below zero: it used more
//	Proven bool    // the provider took the call
//	Open bool      // it goes on, and keeps its slot
type Settlement = gate.Settlement

// Correction moves what a Ledger knows of a lane to what the provider says of it. Of a budget, Lo and Hi bound its level at
// the instant when Mark had been spent; what was spent since is subtracted from both.
//
//	ID uint64
//	Lane string
//	Account bool             // it is of all lanes together; Lane only says with whose asks it goes
//	Dimension Dimension      // Concurrency: only Slots counts. AnyDimension: only Pause does
//	Mark, Lo, Hi float64
//	Rate float64             // of the budget's refill, per second
//	Cap float64              // the most that it holds
//	Start float64            // the level of a budget that is new
//	Slots SlotLimit          // counts if there is none of a later Version than its own
//	Pause Pause              // its Epoch is that of the pause; a pause is never shortened
type Correction = gate.Correction

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
