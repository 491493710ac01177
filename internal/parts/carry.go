package parts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/provider"
)

// carry takes a part from state to state until what came of it is here, or nothing will in this process.
func (d *Desk) carry(ctx context.Context, p *Part) {
	for ctx.Err() == nil {
		step := d.step(p)
		if step == nil {
			return
		}
		if err := step(ctx, p); err != nil && ctx.Err() == nil {
			d.halt(p, err)
			return
		}
	}
}

// step is what is to be done about a part; nil is nothing.
func (d *Desk) step(p *Part) func(context.Context, *Part) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := &p.e
	switch {
	case e.Over() || e.ready() || p.stuck:
		return nil
	case p.bare:
		return d.forsake
	case e.State == Waiting:
		return d.admit
	case e.State == Submitting && e.TriedAt.IsZero():
		return d.make
	case e.State == Submitting:
		return d.resolve
	case p.seen == nil || !p.seen.State.Ended():
		return d.follow
	case p.seen.State == batchapi.Failed:
		return d.judge
	}
	return d.fetch
}

// halt ends what is done for a part, or for all where no call of the account can succeed.
func (d *Desk) halt(p *Part, err error) {
	if o, ok := kindOf(err); ok && o.Kind.Fatal() || errors.Is(err, errDamaged) {
		d.fail(err)
		return
	}
	d.cfg.Logger.Warn("a batch part is delayed", "part", p.e.Tag, "err", err)
	d.mu.Lock()
	p.stuck = true
	d.stuck = append(d.stuck, fmt.Errorf("part %s: %w", p.e.Tag, err))
	d.ringLocked()
	d.mu.Unlock()
	d.announce()
}

// errDamaged is wrapped by the errors of files.
var errDamaged = errors.New("files of batch parts")

// update changes a part's entry, and has it saved before it returns.
func (d *Desk) update(p *Part, change func(e *entry)) error {
	d.mu.Lock()
	change(&p.e)
	d.ringLocked()
	d.mu.Unlock()
	err := d.save()
	d.announce()
	return err
}

// calledOff reports whether nothing more is to be submitted.
func (d *Desk) calledOff() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calloff
}

// drop ends a part of which nothing ran.
func (d *Desk) drop(p *Part) error {
	d.mu.Lock()
	e := p.e
	d.mu.Unlock()
	if err := d.update(p, func(*entry) { p.dropLocked() }); err != nil {
		return err
	}
	d.dir.remove(&e)
	return nil
}

// make submits a part of which the provider knows nothing yet, but for its file perhaps.
func (d *Desk) make(ctx context.Context, p *Part) error {
	if d.calledOff() {
		return d.drop(p)
	}
	var unreadable error
	part := d.dir.describe(p, func(err error) { unreadable = err })
	err := d.upload(ctx, p, part)
	if err == nil && d.calledOff() {
		return d.drop(p)
	}
	var b batchapi.Batch
	if err == nil {
		b, err = d.create(ctx, p, part)
	}
	switch {
	case unreadable != nil:
		return fmt.Errorf("%w: %w", errDamaged, unreadable)
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return d.notMade(ctx, p, err)
	case b.ID == "" && b.State == batchapi.Failed: // it said so at once
		if err := d.update(p, func(e *entry) { e.TriedAt = time.Time{} }); err != nil {
			return err
		}
		return d.refuse(ctx, p, b.Problem)
	case b.ID == "":
		return nil // an answer without an id is no answer: it is looked for
	}
	return d.update(p, func(*entry) { p.adoptLocked(&b, false) })
}

// upload hands over the file, unless the provider has it already.
func (d *Desk) upload(ctx context.Context, p *Part, part *batchapi.Part) error {
	if p.e.File != "" {
		return nil
	}
	file := ""
	err := p.a.call(ctx, "upload "+p.e.Tag, func(ctx context.Context) error {
		var err error
		if p.known {
			if file, err = p.a.api.FindFile(ctx, p.e.Tag); err != nil || file != "" {
				return err
			}
		}
		p.known = true
		file, err = p.a.api.Upload(ctx, part)
		return err
	})
	if err != nil || file == "" {
		return err
	}
	return d.update(p, func(e *entry) { e.File = file })
}

// create has the batch made. That it is tried is saved before each try, and how it ended only by whoever acts on it.
func (d *Desk) create(ctx context.Context, p *Part, part *batchapi.Part) (b batchapi.Batch, err error) {
	err = p.a.callOnce(ctx, "create "+p.e.Tag, func(ctx context.Context) error {
		if err := d.update(p, func(e *entry) { e.TriedAt = time.Now().UTC() }); err != nil {
			return err
		}
		b, err = p.a.api.Create(ctx, part, p.e.File)
		return err
	})
	return b, err
}

// notMade takes in why a part was not submitted.
func (d *Desk) notMade(ctx context.Context, p *Part, err error) error {
	if d.failed() != nil {
		return err
	}
	certain := refused(err) || errors.Is(err, batchapi.ErrUnknown) || errors.Is(err, batchapi.ErrGone)
	d.mu.Lock()
	tried := !p.e.TriedAt.IsZero()
	d.mu.Unlock()
	if tried && !certain { // it is looked for
		return d.troubled(p, "Sluice does not know whether the provider created a batch", err)
	}
	o, ok := kindOf(err)
	if e := d.update(p, func(e *entry) {
		e.TriedAt = time.Time{}
		if tried && !ok { // the provider does not have the file any more
			e.File = ""
		}
	}); e != nil {
		return e
	}
	switch {
	case !ok && tried:
		_ = wake.In(ctx, firstPoll, nil)
		return nil
	case !ok:
		return err
	case o.Kind.Fatal():
		return err
	}
	if of, ok := errors.AsType[*batchapi.ProblemError](err); ok {
		return d.refuse(ctx, p, &of.Problem)
	}
	switch {
	case o.Kind.Throttle() && !o.TooLarge:
		return errors.Join(d.troubled(p, "the provider does not accept a batch part yet", err), d.postpone(p, o.Wait, o.Until))
	case o.Kind.Transient():
		err = d.troubled(p, "a batch part cannot be submitted", err)
		_ = wake.In(ctx, wake.Jitter(longRefuse/5), nil)
		return err
	case o.TooLarge:
		return d.refuse(ctx, p, &batchapi.Problem{Kind: batchapi.TooLarge, Message: provider.Redact(err.Error())})
	}
	return d.refuse(ctx, p, &batchapi.Problem{Kind: batchapi.Invalid, Message: provider.Redact(err.Error())})
}

// failed is why all ended.
func (d *Desk) failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// adoptLocked notes that a batch is a part's, or may be.
func (p *Part) adoptLocked(b *batchapi.Batch, guess bool) {
	p.seen, p.heardOf = nil, time.Now()
	e := &p.e
	e.Batch, e.Guess, e.State = b.ID, guess, string(batchapi.Validating)
	if !guess {
		e.TriedAt = time.Time{}
	}
	if known(b.State) && !b.State.Ended() { // what it says of its end is looked at first
		e.State = string(b.State)
	}
	if e.MadeAt = b.Created; e.MadeAt.IsZero() {
		e.MadeAt = time.Now().UTC()
	}
	if e.File == "" {
		e.File = b.File
	}
	e.ExpiresAt, e.Problem = b.Expires, nil
	p.a.made = append(p.a.made, time.Now())
}

// giveUp says that a batch is not a part's, or not any more, and sends the part back to a state.
func (d *Desk) giveUp(p *Part, state string) error {
	p.seen, p.asked = nil, false
	return d.update(p, func(e *entry) {
		if e.Batch != "" {
			e.Not = append(e.Not[:len(e.Not):len(e.Not)], e.Batch)
		}
		if state == Waiting || !e.Guess {
			e.TriedAt = time.Time{}
		}
		e.Batch, e.Guess, e.State, e.End = "", false, state, ""
		e.Succeeded, e.Failed, e.MadeAt, e.EndedAt, e.ExpiresAt = 0, 0, time.Time{}, time.Time{}, time.Time{}
	})
}
