package sluice

import (
	"context"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// unlockAndWait returns when t is granted, or when its call does not want it any more. It is called with mu held and returns
// without.
func (s *Scheduler) unlockAndWait(ctx context.Context, t *gate.Ticket, y *try, told *bool) error {
	ready := t.Ready
	var late <-chan time.Time
	if t.Call.MaxWait > 0 {
		timer := time.NewTimer(t.Call.MaxWait)
		defer timer.Stop()
		late = timer.C
	}
	s.unlockAndFlush()
	*told = true
	select {
	case <-ready:
	case <-ctx.Done():
	case <-t.Call.Withdrawn:
	case <-late:
		if err := s.late(t, y); err != nil {
			return err
		}
	case <-s.closed:
	}
	err := s.unwanted(ctx, t) // also where the grant came at the same time: who cancelled never has a permit
	if err != nil {
		s.cancel(t, y)
	}
	return err
}

// unwanted is why nobody waits for t any more, or nil.
func (s *Scheduler) unwanted(ctx context.Context, t *gate.Ticket) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-t.Call.Withdrawn:
		return ErrWithdrawn
	case <-s.closed:
		return ErrClosed
	default:
		return nil
	}
}

// late ends the wait of a call whose MaxWait is over, unless the grant came first.
func (s *Scheduler) late(t *gate.Ticket, y *try) error {
	s.mu.Lock()
	if t.Granted() {
		s.mu.Unlock()
		return nil
	}
	now := time.Now()
	err := &SlotTimeoutError{Call: t.Call.ID, Lane: t.Call.Lane, Member: t.Call.Member, Position: s.gate.Place(now, t)}
	s.cancelLocked(now, t, y)
	s.unlockAndFlush()
	err.Wait = y.waited + y.paused
	return err
}

// cancel takes a waiting call out of the queue, or gives its permit back where the grant came first.
func (s *Scheduler) cancel(t *gate.Ticket, y *try) {
	s.mu.Lock()
	s.cancelLocked(time.Now(), t, y)
	s.unlockAndFlush()
}

func (s *Scheduler) cancelLocked(now time.Time, t *gate.Ticket, y *try) {
	s.gate.Cancel(now, t)
	y.note(t)
	if t.Released() { // else a ledger's answer to it is still to come
		s.recycleLocked(t)
	}
}
