package batchjob

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/provider"
)

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
	o, ok := outcome(err)
	why := &Problem{Kind: Invalid, Message: provider.Redact(err.Error())}
	if of, ok := errors.AsType[*ProblemError](err); ok {
		why = &of.Problem
	} else if o.TooLarge {
		why.Kind = TooLarge
	}
	if ok && !o.Kind.Fatal() && (why.Kind != Invalid || !passes(err)) {
		return t.reject(p, why)
	}
	if failed := t.release(p, New); failed != nil {
		return failed
	}
	switch {
	case !ok || o.Kind.Fatal():
		return err
	case o.Kind.Throttle():
		t.mu.Lock()
		a := p.account
		a.refusals++
		a.until = later(time.Now().Add(max(o.Wait, a.refusalWait())), o.Until)
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
	if why == nil {
		why = &Problem{Kind: Broken, Message: "the batch failed, and the provider gives no reason"}
	}
	t.log.Info("the provider rejected a batch part", "part", p.row.Tag, "batch", p.row.Batch, "kind", why.Kind, "message", why.Message)
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
		p.account.until = later(p.account.until, time.Now().Add(wake.Jitter(firstPoll<<p.breaks)))
		t.mu.Unlock()
		return t.release(p, New)
	case why.Kind == Invalid && p.row.File != "" && !p.fresh && !t.isCancelled(): // the provider may have deleted the file
		t.log.Info("a batch part is uploaded again", "part", p.row.Tag, "file", p.row.File)
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
