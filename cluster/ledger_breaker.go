package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-llm/sluice/internal/wake"
)

// await returns once so is true, which is asked with mu held. It returns an error when ctx or the Ledger ends before.
func (l *Ledger) await(ctx context.Context, so func() bool) error {
	for {
		l.mu.Lock()
		done, closing, turned := so(), l.closing, l.turned
		l.mu.Unlock()
		if closing {
			return ErrClosed
		}
		if done {
			return nil
		}
		select {
		case <-turned:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.ctx.Done():
			return ErrClosed
		}
	}
}

// answersLocked reports whether the engine answers.
func (l *Ledger) answersLocked() bool { return !l.gone }

// grantsLocked reports whether calls can be granted, by the engine or without it.
func (l *Ledger) grantsLocked() bool { return !l.gone || l.alone != nil && !l.returning }

// turnLocked wakes those that wait for a change.
func (l *Ledger) turnLocked() {
	close(l.turned)
	l.turned = make(chan struct{})
}

// lose notes that the engine does not answer, or not as it should. From then on it is asked by heal alone.
func (l *Ledger) lose(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone || l.closing {
		return
	}
	l.gone = true
	l.lost.Add(1)
	l.alone, l.returning = l.aloneLocked(), false
	l.wg.Go(func() { l.heal(err) })
}

// heal tries until the engine has heard of every lane what was granted and what is open; then others may ask again. It tries at
// once: one answer that came too late is no matter, and nothing is said of it.
func (l *Ledger) heal(err error) {
	defer l.lost.Add(-1)
	began, said := time.Now(), false
	if isForeign(err) { // the next answer may be good, and the one after it as this one: without a pause that goes round and round
		if !l.foreign {
			l.sayGone(err)
		}
		l.foreign = true
		if wake.In(l.ctx, lastBackoff, nil) != nil {
			return
		}
	}
	for backoff := (wake.Backoff{Min: firstBackoff, Max: lastBackoff}); l.reenter() != nil || l.cease() != nil; {
		if !said && !isForeign(err) {
			l.sayGone(err)
		}
		said = true
		if wake.In(l.ctx, backoff.Next(), nil) != nil {
			return
		}
	}
	l.mu.Lock()
	l.gone, l.alone = false, nil
	l.turnLocked()
	l.mu.Unlock()
	if said { // at the level of the warning that it ends: who reads the one waits for the other
		l.log.Warn("Redis is reachable again: the limits are shared", "after", time.Since(began).Round(time.Millisecond))
	}
}

func (l *Ledger) sayGone(err error) {
	l.mu.Lock()
	a := l.alone
	l.mu.Unlock()
	about := []any{"error", err}
	if refused, ok := errors.AsType[*Error](l.at.refused(l.ctx, err)); ok { // it is there, and somebody has to do something about it
		about = []any{"error", refused.Err, "hint", refused.hint}
	}
	if a == nil {
		l.log.Warn("Redis is unreachable: requests wait until it responds", about...)
		return
	}
	l.log.Warn("Redis is unreachable: this instance uses its share of the limits until Redis responds",
		append([]any{"part", a.part, "members", a.members}, about...)...)
}

// cease has the member grant nothing more by itself, and tells the engine what it did since it heard of that.
func (l *Ledger) cease() error {
	l.mu.Lock()
	none := l.alone == nil
	l.returning = true
	l.mu.Unlock()
	if none {
		return nil
	}
	err := l.reenter()
	if err != nil {
		l.mu.Lock()
		l.returning = false
		l.turnLocked() // a call that came meanwhile is granted here after all
		l.mu.Unlock()
	}
	return err
}

// reenter tells the engine all that it has to know before it grants anything new.
func (l *Ledger) reenter() error {
	l.mu.Lock()
	lanes := l.sortedLocked()
	l.mu.Unlock()
	for _, ln := range lanes {
		if err := ln.hold(l.ctx); err != nil {
			return err
		}
		l.mu.Lock()
		ln.renewed, ln.renewing = time.Time{}, nil // all leases are renewed; a message that renews some may have been under way before
		l.mu.Unlock()
		_, err := l.exchange(l.ctx, ln, nil)
		ln.free()
		if err != nil {
			return err
		}
	}
	return nil
}
