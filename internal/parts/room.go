package parts

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/wake"
)

// admit waits until there is room for a part at its account, and says that it is being submitted. Parts of an account go in
// the order in which they were filled.
func (d *Desk) admit(ctx context.Context, p *Part) error {
	for ctx.Err() == nil {
		d.mu.Lock()
		if d.calloff {
			d.mu.Unlock()
			return d.drop(p)
		}
		bell := d.bell
		wait, ok := d.roomLocked(p, time.Now())
		if ok {
			p.e.State = Submitting
			if p.e.BegunAt.IsZero() {
				p.e.BegunAt = time.Now().UTC()
			}
			d.ringLocked()
		}
		d.mu.Unlock()
		if ok {
			err := d.save()
			d.announce()
			return err
		}
		_ = wake.In(ctx, wait, bell)
	}
	return nil
}

// aLongTime is a wait that the bell ends.
const aLongTime = time.Hour

// roomLocked reports whether a part may be submitted now, or when to look again.
func (d *Desk) roomLocked(p *Part, now time.Time) (time.Duration, bool) {
	a := p.a
	open, tokens, requests, before := 0, 0, 0, true
	for _, q := range d.parts {
		switch {
		case q.a != a:
		case q.e.Held() && !q.stuck:
			open, tokens, requests = open+1, tokens+q.e.Tokens, requests+q.e.Requests
		case q == p:
			before = false
		case before && q.e.State == Waiting && !q.stuck:
			return aLongTime, false
		}
	}
	if now.Before(a.until) {
		return a.until.Sub(now), false
	}
	room, pending := a.room, a.known.Pending
	if open > 0 &&
		(a.full || room > 0 && tokens+p.e.Tokens > room || pending > 0 && requests+p.e.Requests > pending) {
		return aLongTime, false
	}
	a.made = slices.DeleteFunc(a.made, func(at time.Time) bool { return now.Sub(at) >= time.Hour })
	if most := a.known.PerHour; most > 0 {
		begun := len(a.made)
		for _, q := range d.parts {
			if q.a == a && q.e.State == Submitting {
				begun++
			}
		}
		if begun >= most {
			if len(a.made) == 0 {
				return aLongTime, false
			}
			return a.made[0].Add(time.Hour).Sub(now), false
		}
	}
	return 0, true
}

// postpone has a part that was refused for now wait, and no other part of its account go before.
func (d *Desk) postpone(p *Part, wait time.Duration, until time.Time) error {
	d.mu.Lock()
	a := p.a
	a.refusals++
	a.until = later(time.Now().Add(max(wait, a.refusalWait())), until)
	d.mu.Unlock()
	return d.giveUp(p, Waiting)
}

// refusalWait is how long to wait after a refusal for which nobody says when to come again.
func (a *account) refusalWait() time.Duration {
	return wake.Jitter(min(firstPoll<<min(a.refusals-1, 10), longRefuse))
}

// mostAlone is how often an account may refuse what is all that it has of ours, until that is taken to be too large for it: its
// tokens are an estimate of ours, and the provider counts others. From then on, every such refusal halves a part.
const mostAlone = 3

// leastRoom is how many tokens, by our estimate, are never too many by themselves for an account with that limit; 0 is one that
// nobody told.
func leastRoom(limit int) int {
	if limit > 0 {
		return limit / 16
	}
	return 90_000 // what OpenAI gives in its first tier (https://platform.openai.com/docs/models/gpt-4o)
}

// noRoom learns from a refusal for lack of room, and has the part wait until one of ours ends, or, where there is none, until
// others may have left some.
func (d *Desk) noRoom(p *Part, why *batchapi.Problem) error {
	d.mu.Lock()
	a, tokens := p.a, why.Tokens
	if tokens > 0 {
		a.room = tokens
	}
	a.refusals++
	alone := true
	for _, q := range d.parts {
		alone = alone && !(q != p && q.a == a && q.e.Held() && !q.stuck)
	}
	a.full = !alone
	a.until = later(a.until, time.Now().Add(a.refusalWait()))
	split := p.e.Requests > 1 && (tokens > 0 && p.e.Tokens > tokens || alone && a.refusals >= mostAlone && p.e.Tokens > leastRoom(tokens))
	d.mu.Unlock()
	if split { // it would never fit
		return d.split(p)
	}
	if alone { // before it waits: from then on Cancel may end it
		if err := d.troubled(p, "the provider rejects every batch part, although this run has no pending batch part", errors.New(why.Message)); err != nil {
			return err
		}
	}
	return d.giveUp(p, Waiting)
}
