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
