package work

import (
	"context"

	"github.com/sluice-llm/sluice"
)

// Ration holds back items that the Scheduler would let through, such as those that a spending cap has no room for. It must be
// safe for concurrent use.
type Ration interface {
	Turn(item *Item) Turn // begins an item
}

// Turn is how a Ration treats one item. Its methods are called one after the other.
type Turn interface {
	// Enter returns when the item may be sent, with the context to wait for permits under: cancelling it ends the item's attempts after
	// the present one. No permit is held while Enter waits, and ctx ends when the run drains. Its error is the item's.
	Enter(ctx context.Context) (context.Context, error)

	// Send is asked at the instant of sending, with the permit of each attempt. If it returns false, the attempt is not made.
	Send() bool

	// Sent counts an attempt that was made. It may complete the outcome.
	Sent(result *Result, o *sluice.Outcome)

	// Leave is called when the item's attempts are over, also when its goroutine ended. If it returns true, the item enters once more,
	// since its last attempt was not made.
	Leave() (again bool)
}

// Rationed has a Ration let in, one by one, the calls of a Handler that Calls or Routed returned. It panics for another.
func Rationed(h Handler, ration Ration) Handler {
	c, ok := h.(*calls)
	if !ok {
		panic("work: Rationed needs a handler that Calls or Routed returned")
	}
	c.ration = ration
	return c
}

// rationed is do for calls that a Ration lets in.
func (c *calls) rationed(wait context.Context, st *callState) (all sluice.Tally, _ error) {
	st.turn = c.ration.Turn(&st.item)
	for {
		ctx, err := st.turn.Enter(wait)
		if err != nil {
			return all, err
		}
		tally, again, err := c.enter(ctx, st)
		if again {
			tally.Attempts = max(0, tally.Attempts-1)
		}
		if all = all.Add(tally); !again {
			return all, err
		}
		if st.worker != nil {
			st.worker.settle() // those that it waits for may wait for it
		}
	}
}

// enter makes a call that the Ration let in.
func (c *calls) enter(ctx context.Context, st *callState) (tally sluice.Tally, again bool, err error) {
	left := false
	defer func() {
		if !left { // the attempt ended the goroutine
			st.turn.Leave()
		}
	}()
	tally, err = c.do(ctx, st)
	left = true
	return tally, st.turn.Leave(), err
}
