package batch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/batch"
)

// TestWaitersMayGiveUp has calls come at random instants, fail at random, and give up while they wait, also at the very
// instant at which it is their turn.
func TestWaitersMayGiveUp(t *testing.T) {
	eachSeed(t, 100, giveUp)
}

func giveUp(_ *testing.T, luck *rand.Rand) error {
	var (
		w     batch.Warmth
		calls sync.WaitGroup
		mu    sync.Mutex
		wrong error
		open  = map[string]int{}
		alone = map[string]bool{}
		warm  = map[string]time.Time{}
	)
	step := func(n int) time.Duration { return time.Duration(luck.IntN(n)) * 100 * time.Millisecond }
	for range luck.IntN(60) + 1 {
		prefix := fmt.Sprint(luck.IntN(3))
		comes, takes, patience, answered := step(30), step(8), step(40)+100*time.Millisecond, luck.IntN(3) > 0
		calls.Go(func() {
			time.Sleep(comes)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			leads, leave, err := w.Enter(ctx, prefix)
			if err != nil {
				return
			}
			mu.Lock()
			switch {
			case alone[prefix]:
				wrong = fmt.Errorf("a call of %s went beside one that goes alone", prefix)
			case !leads && !time.Now().Before(warm[prefix]):
				wrong = fmt.Errorf("a call of %s went while it was cold", prefix)
			}
			alone[prefix] = leads
			open[prefix]++
			mu.Unlock()
			time.Sleep(takes)
			mu.Lock()
			open[prefix]--
			if leads {
				alone[prefix] = false
			}
			if answered {
				warm[prefix] = time.Now().Add(5 * time.Minute)
			}
			mu.Unlock()
			leave(answered)
		})
	}
	calls.Wait()
	if n := w.Cold(); wrong == nil && n > 0 {
		wrong = fmt.Errorf("%d prefixes are still waited for", n)
	}
	return wrong
}

// hooked is a context that has ended, and does something when it is first looked at.
type hooked struct {
	context.Context
	hook func()
}

func (h *hooked) Done() <-chan struct{} {
	hook := h.hook
	if h.hook = nil; hook != nil {
		hook()
	}
	return h.Context.Done()
}

func TestATurnThatCameTooLateIsPassedOn(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for range 50 {
		var w batch.Warmth
		_, leave, err := w.Enter(context.Background(), "a")
		if err != nil {
			t.Fatal(err)
		}
		// It is the waiter's turn just as it gives up: which of the two it sees is left to chance.
		_, leaveToo, err := w.Enter(&hooked{ended, func() { leave(false) }}, "a")
		if err == nil {
			leaveToo(false)
		}
		if w.Cold() != 0 {
			t.Fatalf("the prefix is waited for in vain, after %v", err)
		}
	}
}
