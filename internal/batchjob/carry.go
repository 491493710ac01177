package batchjob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/provider"
)

// carry takes a part from state to state until it has ended, or is stuck.
func (t *Table) carry(ctx context.Context, p *Part) {
	for ctx.Err() == nil {
		step := t.step(p)
		if step == nil {
			return
		}
		if err := step(ctx, p); err != nil && ctx.Err() == nil {
			t.halt(p, err)
			return
		}
	}
}

// step returns the next step of a part; nil if there is none.
func (t *Table) step(p *Part) func(context.Context, *Part) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch r := &p.row; {
	case p.stuck != nil || r.State == Ended || r.State == Recorded:
		return nil
	case r.State == New:
		return t.submit
	case r.Batch == "":
		return t.find
	case p.seen == nil || !p.seen.Status.Ended():
		return t.poll
	}
	return t.collect
}

// halt ends the work on a part after an error, or on all parts if no request can succeed any more.
func (t *Table) halt(p *Part, err error) {
	if outcome(err).Kind.Fatal() || errors.Is(err, errFiles) {
		t.fail(err)
		return
	}
	t.cfg.Logger.Warn("a batch part is delayed", "part", p.row.Tag, "err", err)
	_ = t.update(p, func(r *Row) { p.stuck = fmt.Errorf("part %s: %w", r.Tag, err) }) // it fails the table
}

// delayed records why a part is delayed. Its first problem is a warning.
func (t *Table) delayed(p *Part, what string, err error) error {
	log := t.cfg.Logger.Info
	if p.row.Problem == nil {
		log = t.cfg.Logger.Warn
	}
	log(what, "part", p.row.Tag, "batch", p.row.Batch, "err", err)
	return t.update(p, func(r *Row) { r.Problem = &Problem{Kind: Broken, Message: provider.Redact(err.Error())} })
}

// finish ends a part without results, for a reason or none.
func (t *Table) finish(p *Part, why *Problem) error {
	return t.update(p, func(r *Row) { r.State, r.Lost, r.Problem = Ended, false, why })
}

// isCancelled reports whether nothing more is to be submitted.
func (t *Table) isCancelled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cancelled
}

// submit uploads a new part and creates its batch, once there is room.
func (t *Table) submit(ctx context.Context, p *Part) error {
	if !t.admit(ctx, p) {
		return nil
	}
	var unreadable error
	file := p.file(&unreadable)
	err := t.upload(ctx, p, file)
	if err == nil && t.isCancelled() {
		return t.finish(p, nil)
	}
	var b Batch
	if err == nil {
		b, err = call(ctx, p.account, "create "+p.row.Tag, false, func(ctx context.Context) (Batch, error) {
			err := t.update(p, func(r *Row) {
				if r.State, r.SentAt = Sent, time.Now().UTC(); r.BegunAt.IsZero() {
					r.BegunAt = r.SentAt
				}
			})
			if err != nil {
				return Batch{}, err
			}
			return p.account.api.Create(ctx, file, p.row.File)
		})
	}
	switch {
	case unreadable != nil:
		return filesError(unreadable)
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return t.notCreated(ctx, p, err)
	}
	return t.update(p, func(r *Row) { t.adoptLocked(p, &b, false) })
}

// upload uploads the file of a part, if the provider does not have it.
func (t *Table) upload(ctx context.Context, p *Part, file *File) error {
	if p.row.File != "" {
		return nil
	}
	id, err := call(ctx, p.account, "upload "+p.row.Tag, true, func(ctx context.Context) (string, error) {
		return p.account.api.Upload(ctx, file)
	})
	if err != nil || id == "" {
		return err
	}
	p.fresh = true
	return t.update(p, func(r *Row) { r.File = id })
}

// adoptLocked records the batch of a part, or one that may be its batch.
func (t *Table) adoptLocked(p *Part, b *Batch, guess bool) {
	p.row.Batch, p.row.Guess, p.row.MadeAt = b.ID, guess, cmp.Or(b.Created, time.Now().UTC())
	t.lookLocked(p, b)
}

// notCreated handles an error of an upload or a create.
func (t *Table) notCreated(ctx context.Context, p *Part, err error) error {
	t.mu.Lock()
	failed, sent := t.err, p.row.State == Sent
	t.mu.Unlock()
	if failed != nil {
		return err
	}
	if sent && !hadNoEffect(err) {
		return t.delayed(p, "Sluice does not know whether the provider created a batch", err)
	}
	o := outcome(err)
	why := &Problem{Kind: Invalid, Message: provider.Redact(err.Error())}
	if of, ok := errors.AsType[*ProblemError](err); ok {
		why = &of.Problem
	} else if o.TooLarge {
		why.Kind = TooLarge
	}
	if o.Kind != sluice.OK && !o.Kind.Fatal() && (why.Kind != Invalid || !passes(err)) {
		return t.reject(p, why)
	}
	if failed := t.release(p, New); failed != nil {
		return failed
	}
	switch {
	case o.Kind == sluice.OK || o.Kind.Fatal():
		return err
	case o.Kind.Throttle():
		t.mu.Lock()
		p.account.refusedLocked(o)
		t.mu.Unlock()
		return t.delayed(p, "the provider does not accept a batch part yet", err)
	}
	err = t.delayed(p, "a batch part cannot be submitted", err)
	_ = wake.In(ctx, wake.Jitter(maxRefusal/5), nil)
	return err
}

// maxBreaks is the number of times that a part is submitted whose batches fail by the provider's fault.
const maxBreaks = 3

// reject handles the rejection of a whole part, by a create or a batch that failed.
func (t *Table) reject(p *Part, why *Problem) error {
	t.cfg.Logger.Info("the provider rejected a batch part", "part", p.row.Tag, "batch", p.row.Batch, "kind", why.Kind, "message", why.Message)
	short := &Problem{Kind: why.Kind, Code: why.Code, Message: why.Message}
	maps.DeleteFunc(why.Lines, func(position int, _ string) bool { return position >= p.row.Requests })
	switch {
	case t.isCancelled() && why.Kind != Invalid:
		return t.finish(p, nil)
	case why.Kind == NoRoom:
		never, alone := t.learnRoom(p, why.Tokens)
		if never { // smaller parts get its requests
			return t.finish(p, short)
		}
		if alone {
			err := t.delayed(p, "the provider rejects every batch part, although this run has no pending batch part", errors.New(why.Message))
			if err != nil {
				return err
			}
		}
		p.fresh = false // until there is room, the provider may delete the file
		return t.release(p, New)
	case why.Kind == TooLarge && p.row.Requests > 1:
		t.mu.Lock()
		p.account.requests = (p.row.Requests + 1) / 2
		t.mu.Unlock()
		return t.finish(p, short)
	case why.Kind == Invalid && len(why.Lines) > 0:
		if err := p.storeRejected(why); err != nil {
			return err
		}
		return t.update(p, func(r *Row) { r.State, r.Results, r.Problem = Ended, true, nil })
	case why.Kind == Broken && p.breaks+1 < maxBreaks:
		p.breaks++
		t.mu.Lock()
		p.account.refusedLocked(sluice.Outcome{})
		t.mu.Unlock()
		return t.release(p, New)
	case why.Kind == Invalid && p.row.File != "" && !p.fresh && !t.isCancelled(): // the provider may have deleted the file
		t.cfg.Logger.Info("a batch part is uploaded again", "part", p.row.Tag, "file", p.row.File)
		p.fresh = true
		if err := t.update(p, func(r *Row) { r.File = "" }); err != nil {
			return err
		}
		return t.release(p, New)
	case why.Kind == TooLarge:
		short.Kind = Invalid // a part of one request
	}
	return t.finish(p, short)
}

// repeat makes attempts until one is the last, and records their errors. A part is lost if the provider does not know its batch or results
// for the time of Grace: before, not all servers of the provider may have them.
func (t *Table) repeat(ctx context.Context, p *Part, wait time.Duration, what string, attempt func() (last bool, err error)) error {
	backoff := wake.Backoff{Min: wait, Max: t.cfg.Poll}
	var unknown time.Time
	for {
		last, err := attempt()
		switch {
		case last || ctx.Err() != nil:
			return err
		case errors.Is(err, ErrUnknown), errors.Is(err, ErrGone):
			if unknown.IsZero() {
				unknown = time.Now()
			}
			if time.Since(unknown) >= t.cfg.Grace {
				return t.lose(p)
			}
		case err == nil:
			unknown = time.Time{}
		}
		if err != nil {
			if err := t.delayed(p, what, err); err != nil {
				return err
			}
		}
		t.pause(ctx, p, backoff.Next())
	}
}

// find looks for the batch of a part that may have been created. After Grace without a batch, there is none: lists may be late, and a
// request may still be on its way.
func (t *Table) find(ctx context.Context, p *Part) error {
	until, file := time.Now().Add(t.cfg.Grace), p.file(new(error))
	return t.repeat(ctx, p, time.Second, "Sluice cannot determine whether the provider created a batch", func() (last bool, err error) {
		started := time.Now()
		found, err := call(ctx, p.account, "find "+p.row.Tag, true, func(ctx context.Context) ([]Batch, error) {
			return p.account.api.Find(ctx, file, p.row.BegunAt)
		})
		if err != nil {
			return !passes(err), err
		}
		var best *Batch
		guessed := false
		err = t.update(p, func(*Row) {
			if best, guessed = t.candidateLocked(p, found); best != nil {
				t.adoptLocked(p, best, best.Tag == "")
			}
		})
		if err == nil && best == nil && !guessed && !started.Before(until) {
			return true, t.release(p, New)
		}
		return err != nil || best != nil, err
	})
}

// candidateLocked returns the batch that most likely belongs to a part. guessed reports that other parts hold batches of which one may
// belong to it.
func (t *Table) candidateLocked(p *Part, found []Batch) (best *Batch, guessed bool) {
	distance := func(b *Batch) time.Duration { return b.Created.Sub(p.row.SentAt).Abs() }
	for i := range found {
		b := &found[i]
		if b.ID == "" || slices.Contains(p.row.Not, b.ID) || b.Tag != "" && b.Tag != p.row.Tag {
			continue
		}
		other := slices.IndexFunc(t.parts, func(q *Part) bool { return q != p && q.row.Batch == b.ID })
		switch {
		case other >= 0:
			guessed = guessed || t.parts[other].row.Guess && b.Tag == ""
		case best == nil || best.Tag == "" && b.Tag != "" || best.Tag == b.Tag && distance(b) < distance(best):
			best = b
		}
	}
	return best, guessed && best == nil
}

// firstLook is the time after which a new batch is looked at.
const firstLook = 500 * time.Millisecond

// poll asks for the status of a batch until it has ended.
func (t *Table) poll(ctx context.Context, p *Part) error {
	if time.Since(p.row.MadeAt) < firstLook {
		t.pause(ctx, p, firstLook)
	}
	return t.repeat(ctx, p, firstLook, "the status of a batch cannot be read", func() (last bool, err error) {
		if err := t.cancelBatch(ctx, p); err != nil || ctx.Err() != nil {
			return true, err
		}
		b, err := p.get(ctx)
		if err != nil {
			return !errors.Is(err, ErrUnknown) && !passes(err), err
		}
		t.mu.Lock()
		news := t.lookLocked(p, &b)
		t.mu.Unlock()
		err = t.save(news)
		return err != nil || b.Status.Ended(), err
	})
}

// get asks for the batch of a part.
func (p *Part) get(ctx context.Context) (Batch, error) {
	return call(ctx, p.account, "read the status of "+p.row.Batch, true, func(ctx context.Context) (Batch, error) {
		return p.account.api.Get(ctx, p.row.Batch)
	})
}

// pause waits, or until the batch is to be cancelled.
func (t *Table) pause(ctx context.Context, p *Part, d time.Duration) {
	for end := time.Now().Add(d); ctx.Err() == nil && time.Now().Before(end); {
		t.mu.Lock()
		changed, cancel := t.changing, t.cancelled && !p.asked && p.row.Batch != "" && (p.seen == nil || !p.seen.Status.Ended())
		t.mu.Unlock()
		if cancel {
			return
		}
		_ = wake.In(ctx, time.Until(end), changed)
	}
}

// cancelBatch asks the provider to cancel a batch, once, if all are to be cancelled. A batch that may belong to another part continues.
func (t *Table) cancelBatch(ctx context.Context, p *Part) error {
	switch {
	case !t.isCancelled() || p.asked || p.row.Batch == "":
		return nil
	case p.row.Guess:
		p.asked = true
		t.cfg.Logger.Warn("a batch is not cancelled, because the batch may belong to another run: its results will show the owner",
			"batch", p.row.Batch)
		return nil
	}
	_, err := call(ctx, p.account, "cancel "+p.row.Batch, true, func(ctx context.Context) (bool, error) {
		return true, p.account.api.Cancel(ctx, p.row.Batch)
	})
	if outcome(err).Kind.Fatal() {
		return err
	}
	if err != nil { // it may have ended
		t.cfg.Logger.Info("a batch cannot be cancelled", "batch", p.row.Batch, "err", err)
	}
	p.asked = err == nil || !passes(err)
	return nil
}

// lookLocked records the status of a batch. It reports whether there is news.
func (t *Table) lookLocked(p *Part, b *Batch) (news bool) {
	r := &p.row
	news = r.Status != b.Status || r.Problem != nil || r.Lost
	r.Status, r.Succeeded, r.Failed, r.Problem, r.Lost = b.Status, b.Succeeded, b.Failed, nil, false
	if r.EndedAt = b.Ended; b.Status.Ended() && r.EndedAt.IsZero() {
		r.EndedAt = time.Now().UTC()
	}
	r.File, r.ExpiresAt = cmp.Or(r.File, b.File), b.Expires
	if b.Status != Failed && b.Status != Validating { // the provider had room
		p.account.refusals = 0
		p.account.full = p.account.full && !b.Status.Ended()
	}
	p.seen = b
	return news
}

// lose handles a part whose batch or results the provider does not have.
func (t *Table) lose(p *Part) error {
	switch {
	case !t.cfg.Resubmit:
		return t.update(p, func(r *Row) { p.stuck, r.Lost = errLost, true })
	case p.row.Guess && !t.isCancelled(): // its own batch may be another
		return t.release(p, Sent)
	}
	return t.finish(p, nil)
}

// release removes a batch that does not belong to the part, or not any more.
func (t *Table) release(p *Part, state State) error {
	p.seen, p.asked = nil, false
	return t.update(p, func(r *Row) {
		if r.Batch != "" {
			r.Not = append(r.Not[:len(r.Not):len(r.Not)], r.Batch)
		}
		p.admitted = false
		r.State, r.Batch, r.Guess, r.Status, r.Lost, r.Succeeded, r.Failed = state, "", false, "", false, 0, 0
		r.MadeAt, r.EndedAt, r.ExpiresAt = time.Time{}, time.Time{}, time.Time{}
	})
}

// maxCuts is the number of times that incomplete results are fetched.
const maxCuts = 6

// collect fetches the results of a batch that has ended.
func (t *Table) collect(ctx context.Context, p *Part) error {
	switch {
	case p.seen.Status == Failed && p.row.Guess: // nothing of it ran
		return t.release(p, Sent)
	case p.seen.Status == Failed:
		return t.reject(p, p.seen.Problem)
	}
	tries, cuts := 0, 0
	return t.repeat(ctx, p, firstPoll, "results are fetched again", func() (last bool, err error) {
		if tries++; tries > 1 { // the provider may have named the files late
			if b, err := p.get(ctx); err == nil && b.Status.Ended() {
				p.seen = &b
			}
		}
		own, err := t.fetchResults(ctx, p, cuts+1 < maxCuts)
		switch {
		case err == nil && !own:
			t.cfg.Logger.Info("a batch belongs to another run", "batch", p.row.Batch, "part", p.row.Tag)
			return true, t.release(p, Sent)
		case err == nil:
			return true, t.update(p, func(r *Row) {
				r.State, r.Status, r.Results, r.Guess, r.Problem = Ended, p.seen.Status, true, false, nil
			})
		case errors.Is(err, errFiles):
			return true, err
		case errors.Is(err, ErrGone), errors.Is(err, ErrUnknown), passes(err):
			return false, err
		}
		if cuts++; cuts >= maxCuts {
			err = fmt.Errorf("the results of batch %s are incomplete after %d downloads; the next run downloads them again "+
				"from the provider: %w", p.row.Batch, cuts, err)
		}
		return cuts >= maxCuts, err
	})
}
