package parts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/wake"
)

// mostBreaks is how often a part is submitted whose batches fail by the provider's fault.
const mostBreaks = 3

// countsEvery is how often counts alone are saved.
const countsEvery = 5 * time.Second

// follow looks at a part's batch until it ended.
func (d *Desk) follow(ctx context.Context, p *Part) error {
	wait := wake.Backoff{Min: firstLook, Max: d.cfg.Terms.Poll}
	var unknown time.Time
	fresh := time.Since(p.e.MadeAt) < firstLook // there is nothing to see yet
	for ctx.Err() == nil {
		d.mu.Lock()
		bell, off := d.bell, d.calloff && !p.asked && !p.e.Guess
		d.mu.Unlock()
		if fresh && !off {
			if d.waitAsked(ctx, p, wait.Next(), bell); ctx.Err() != nil {
				return nil
			}
		}
		fresh = true
		if err := d.callOff(ctx, p); err != nil {
			return err
		}
		b, err := p.ask(ctx)
		switch {
		case errors.Is(err, batchapi.ErrUnknown):
			if unknown.IsZero() {
				unknown = time.Now()
			}
			// What is new may not be known to all of the provider yet. Its clock may be wrong by hours, which ours tells.
			if max(time.Since(unknown), time.Since(later(p.e.MadeAt, p.heardOf))) < d.cfg.Terms.Grace {
				continue
			}
			return d.lose(p)
		case err != nil && passes(err):
			if err := d.troubled(p, "the status of a batch cannot be read", err); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if err := d.look(p, &b); err != nil || b.State.Ended() {
			return err
		}
	}
	return nil
}

// ask asks how a part's batch stands.
func (p *Part) ask(ctx context.Context) (b batchapi.Batch, err error) {
	err = p.a.call(ctx, "read the status of "+p.e.Batch, func(ctx context.Context) (err error) {
		b, err = p.a.api.Get(ctx, p.e.Batch)
		return err
	})
	return b, err
}

// waitAsked waits, or until all is called off.
func (d *Desk) waitAsked(ctx context.Context, p *Part, wait time.Duration, bell <-chan struct{}) {
	end := time.Now().Add(wait)
	for left := wait; left > 0 && ctx.Err() == nil; left = time.Until(end) {
		_ = wake.In(ctx, left, bell)
		d.mu.Lock()
		off := d.calloff && !p.asked && !p.e.Guess
		bell = d.bell
		d.mu.Unlock()
		if off {
			return
		}
	}
}

// callOff asks the provider to cancel a batch, once, if all is called off. One that may be another's is let run.
func (d *Desk) callOff(ctx context.Context, p *Part) error {
	if !d.calledOff() || p.asked {
		return nil
	}
	if p.e.Guess {
		p.asked = true
		d.cfg.Logger.Warn("a batch is not cancelled, because the batch may belong to another run: its results will show the owner", "batch", p.e.Batch)
		return nil
	}
	err := p.a.call(ctx, "cancel "+p.e.Batch, func(ctx context.Context) error {
		return p.a.api.Cancel(ctx, p.e.Batch)
	})
	if o, ok := kindOf(err); ok && o.Kind.Fatal() {
		return err
	}
	if err != nil { // it may have ended, which the next look tells
		d.cfg.Logger.Info("a batch cannot be cancelled", "batch", p.e.Batch, "err", err)
	}
	p.asked = err == nil || !passes(err)
	return nil
}

// look takes in how a batch stands.
func (d *Desk) look(p *Part, b *batchapi.Batch) error {
	d.mu.Lock()
	e := &p.e
	was := e.Status
	e.State, e.Succeeded, e.Failed = stateOf(b.State), max(0, b.Succeeded), max(0, b.Failed)
	if !b.Ended.IsZero() {
		e.EndedAt = b.Ended
	} else if b.State.Ended() && e.EndedAt.IsZero() {
		e.EndedAt = time.Now().UTC()
	}
	if !b.Expires.IsZero() {
		e.ExpiresAt = b.Expires
	}
	if e.File == "" {
		e.File = b.File
	}
	if b.State.Ended() {
		e.End = b.State
		p.a.full = false
	}
	if b.State != batchapi.Failed && b.State != batchapi.Validating {
		p.a.refusals, p.trouble = 0, trouble{}
	}
	p.seen, e.Problem = b, nil
	news := was.State != e.State || was.Problem != nil
	counts := was.Succeeded != e.Succeeded || was.Failed != e.Failed
	d.ringLocked()
	d.mu.Unlock()
	if !news && !counts {
		return nil
	}
	d.announce()
	if !news && d.savedLately() {
		return nil
	}
	return d.save()
}

func (d *Desk) savedLately() bool {
	d.saving.Lock()
	defer d.saving.Unlock()
	return time.Since(d.savedAt) < countsEvery
}

// lose says that the provider no longer has a part's batch or results. Only who asks for it has it submitted again.
func (d *Desk) lose(p *Part) error {
	switch {
	case d.cfg.Resubmit && d.calledOff(): // it may be paid for again, but not by a batch
		return d.drop(p)
	case d.cfg.Resubmit:
		return d.resubmit(p)
	}
	// Both at once: whoever finds nothing open any more is to be told of what is lost.
	return d.update(p, func(e *entry) { p.stuck, e.State = true, Lost })
}

func (d *Desk) resubmit(p *Part) error {
	state := Waiting
	d.mu.Lock()
	if p.e.File = ""; p.e.Guess { // the part's own may be another
		state = Submitting
	}
	d.mu.Unlock()
	return d.giveUp(p, state)
}

// judge says what is to be done about a batch that failed as a whole.
func (d *Desk) judge(ctx context.Context, p *Part) error {
	if p.e.Guess { // nothing of it ran, whosever it is
		return d.giveUp(p, Submitting)
	}
	return d.refuse(ctx, p, p.seen.Problem)
}

// refuse takes in why a part was not run.
func (d *Desk) refuse(ctx context.Context, p *Part, why *batchapi.Problem) error {
	if why == nil {
		why = &batchapi.Problem{Kind: batchapi.Broken, Message: "the batch failed, and the provider gives no reason"}
	}
	d.cfg.Logger.Info("the provider rejected a batch part", "part", p.e.Tag, "batch", p.e.Batch, "kind", why.Kind, "message", why.Message)
	switch why.Kind {
	case batchapi.NoRoom, batchapi.TooLarge, batchapi.Broken:
		if d.calledOff() {
			return d.drop(p)
		}
	}
	switch {
	case why.Kind == batchapi.NoRoom:
		return d.noRoom(p, why)
	case why.Kind == batchapi.TooLarge && p.e.Requests > 1:
		return d.split(p)
	case why.Kind == batchapi.Invalid && len(why.Lines) > 0:
		return d.sift(p, why)
	case why.Kind == batchapi.Broken && p.e.Breaks+1 < mostBreaks:
		d.mu.Lock()
		p.e.Breaks++
		p.a.until = later(p.a.until, time.Now().Add(wake.Jitter(firstPoll<<p.e.Breaks)))
		d.mu.Unlock()
		return d.giveUp(p, Waiting)
	case why.Kind == batchapi.Invalid && d.fileGone(ctx, p):
		d.cfg.Logger.Info("the provider deleted the file of a part: uploading it again", "part", p.e.Tag, "file", p.e.File)
		d.mu.Lock()
		p.e.File = ""
		d.mu.Unlock()
		return d.giveUp(p, Waiting)
	}
	if ctx.Err() != nil { // it is not known whether its file is there
		return nil
	}
	return d.update(p, func(e *entry) {
		e.State = Refused
		e.Problem = &batchapi.Problem{Kind: why.Kind, Code: why.Code, Message: why.Message}
	})
}

// fileGone reports whether a part may have been refused only because the provider let its file expire, while it waited. That is
// asked once, as lists may be behind.
func (d *Desk) fileGone(ctx context.Context, p *Part) bool {
	if p.e.File == "" || p.renewed || d.calledOff() {
		return false
	}
	file := ""
	err := p.a.call(ctx, "find the file of "+p.e.Tag, func(ctx context.Context) (err error) {
		file, err = p.a.api.FindFile(ctx, p.e.Tag)
		return err
	})
	if err != nil {
		return false // whatever it is, the refusal stands
	}
	p.renewed = true
	return file == ""
}

// mostCuts is how often results that are not whole are fetched, with waits in between.
const mostCuts = 6

// fetch brings a batch's results here.
func (d *Desk) fetch(ctx context.Context, p *Part) error {
	wait := wake.Backoff{Min: firstPoll, Max: d.cfg.Terms.Poll}
	var gone time.Time
	for cuts := 0; ctx.Err() == nil; {
		mine, err := d.fetchAll(ctx, p, cuts+1 < mostCuts)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && !mine:
			d.cfg.Logger.Info("a batch belongs to another run", "batch", p.e.Batch, "part", p.e.Tag)
			return d.giveUp(p, Submitting)
		case err == nil:
			files, end := len(p.seen.Results), p.seen.State
			return d.update(p, func(e *entry) {
				e.State, e.End, e.Files, e.Guess, e.TriedAt, e.Problem = Fetched, end, files, false, time.Time{}, nil
			})
		case errors.Is(err, batchapi.ErrGone), errors.Is(err, batchapi.ErrUnknown):
			if gone.IsZero() {
				gone = time.Now()
			}
			if time.Since(gone) >= d.cfg.Terms.Grace { // before, it may be so new that not all of the provider has it
				return d.lose(p)
			}
		case errors.Is(err, errDamaged):
			return err
		case passes(err):
		default:
			if cuts++; cuts >= mostCuts {
				return fmt.Errorf("the results of batch %s are incomplete after %d downloads; the next run downloads them again "+
					"from the provider: %w", p.e.Batch, cuts, err)
			}
		}
		if err := d.troubled(p, "results are fetched again", err); err != nil {
			return err
		}
		_ = wake.In(ctx, wait.Next(), nil)
		if b, err := p.ask(ctx); err == nil && b.State.Ended() {
			d.mu.Lock()
			p.seen = &b
			d.mu.Unlock()
		}
	}
	return nil
}
