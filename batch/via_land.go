package batch

import (
	"bytes"
	"errors"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/parts"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// merging is a part that ended.
type merging struct {
	part   *parts.Part
	status parts.Status
	left   int // of its answers, those that are not safe in the journal yet; guarded by the via's mu
}

// land takes in what came of a part.
func (f *viaFeed) land(p *parts.Part) error {
	m := &merging{part: p, status: p.Status()}
	if m.status.State == parts.Refused {
		f.refused = f.refused.add(&m.status)
		f.batch.log.Warn("the provider rejected a whole batch part",
			"provider", m.status.Account, "requests", m.status.Requests, "problem", f.refused.Message)
	}
	for r, err := range p.Results() {
		if err == nil {
			err = f.take(m, &r)
		}
		if err != nil {
			return err
		}
		if f.ctx.Err() != nil {
			return errHalted
		}
	}
	f.looked, f.starved = time.Time{}, false
	f.landed = append(f.landed, m)
	f.mu.Lock()
	f.sums.Parts++
	f.mu.Unlock()
	return nil
}

// take takes in what came of a request.
func (f *viaFeed) take(m *merging, r *parts.Result) error {
	number, ok := f.lineOf(m.part, &r.Member)
	if !ok {
		return nil
	}
	line := &f.lines[number]
	item, err := f.again(int64(number)+1, line.ref)
	if err != nil {
		return err
	}
	c, ok := item.Data.(*call)
	if !ok || item.Hash != r.Member.Hash && f.batch.cfg.Changed != ChangedKeep {
		return nil // only half of its hash is the line's
	}
	held := line.held
	line.held, line.at = nil, over
	if r.Fate != batchapi.Answered {
		f.settle(held, &item, 0, nil)
		return f.notRun(&item)
	}
	result, o := f.judge(&item, c, r, line.other)
	if o.Usage.Service = limits.ServiceBatch; o.HasUsage {
		f.batch.learn(&item, item.Cost, o.Usage)
	}
	f.settle(held, &item, result.Status, &o)
	return f.judged(m, &item, r.Member.Hash, c, result, &o)
}

// judge says what an answer means, as for a live one.
func (f *viaFeed) judge(item *work.Item, c *call, r *parts.Result, other bool) (work.Result, sluice.Outcome) {
	a, status := c.account, r.Status
	if status == 0 && len(r.Body) > 0 {
		status = 200 // nobody says: what the body says counts
	}
	cfg := provider.ExchangeConfig{Provider: a.provider, Endpoint: batchEndpoint(c.endpoint), Key: a.target.Key}
	if c.bound != "" && c.endpoint == provider.ChatCompletions {
		name, _ := a.provider.Bound(c.endpoint)
		if other {
			name = provider.OtherBound(name)
		}
		cfg.Added = []string{name}
	}
	answer, o := cfg.Judge(a.target.Header, status, r.RequestID, bytes.Clone(r.Body))
	if o.Kind != sluice.OK {
		answer.Status = r.Status
	}
	a.added.Refused(item.Lane, &o)
	c.check(item.ID, answer.Body, &o)
	return work.Result{
		Status: answer.Status, RequestID: answer.RequestID, Payload: answer.Body, FinishReason: answer.FinishReason,
	}, o
}

// notRun is for a request that was not run, at no cost.
func (f *viaFeed) notRun(item *work.Item) error {
	switch {
	case f.finished || f.batch.cfg.Batches.Cancel:
		return nil // left to do
	case f.auto:
		return f.callLive(item)
	}
	return f.retry(item, nil)
}

// judged has an answer recorded, or another try made.
func (f *viaFeed) judged(m *merging, item *work.Item, sent work.Hash, c *call, result work.Result, o *sluice.Outcome) error {
	tally := f.count(m, item, o)
	if o.Kind.Fatal() { // no other call would do better: what is recorded of it would say that of the line
		f.finished = true
		if f.ended == nil {
			f.ended = &work.StoppedError{Kind: o.Kind, ID: item.ID, Err: o.Err}
		}
		return nil
	}
	if (o.Amended || o.Kind.Transient() || o.Kind.Throttle() && !o.TooLarge) && !o.Final {
		switch {
		case f.finished || f.batch.cfg.Batches.Cancel:
			return nil
		case o.Amended && f.auto:
			return f.callLive(item)
		case o.Amended:
			return f.retry(item, c.body)
		case f.auto && tally.Attempts < f.batch.cfg.Budget.Attempts:
			return f.callLive(item)
		case f.auto: // it failed as often as it may
		case tally.Tries() < f.batch.cfg.Budget.Attempts:
			if c.line != nil { // corrected
				return f.retry(item, c.body)
			}
			return f.retry(item, nil)
		}
	}
	f.mu.Lock()
	delete(f.tried, item.Seq)
	m.left++
	f.mu.Unlock()
	result.Tally = tally
	if p := c.account.price(item.Lane); p != nil && !o.HasUsage && mayCost(result.Status, o) {
		var bill bill
		bill.estimate(f.batch.estimateAt(item, item.Cost, 1, p, together))
		bill.complete(&result)
	}
	item.Hash = sent
	g := &given{result: result, merging: m, size: len(result.Payload) + item.Size}
	g.result.Data = &Batched{Batch: m.status.Batch, account: c.account}
	if o.Kind != sluice.OK {
		g.err = &sluice.CallError{Outcome: *o, Tally: tally}
	}
	if f.batch.cache != nil && o.Kind == sluice.OK && result.Status/100 == 2 {
		if c.line != nil {
			item.Data = c.line
		}
		g.keep = f.cachedBy(c.account).key(item)
	}
	return f.give(item, g)
}

// count adds a try to those of a line, and returns them all.
func (f *viaFeed) count(m *merging, item *work.Item, o *sluice.Outcome) sluice.Tally {
	next := sluice.Tally{Usage: o.Usage, HasUsage: o.HasUsage}
	if s := &m.status; !s.MadeAt.IsZero() && s.EndedAt.After(s.MadeAt) {
		next.Queued = s.EndedAt.Sub(s.MadeAt)
	}
	if o.Kind.Throttle() && !o.TooLarge {
		next.Throttles = 1
	} else {
		next.Attempts = 1
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tried[item.Seq] = f.tried[item.Seq].Add(next)
	return f.tried[item.Seq]
}

// retry has a line's request sent again, by a later part. What was corrected is sent at once if it can be, since it is kept nowhere
// else.
func (f *viaFeed) retry(item *work.Item, body []byte) error {
	if body != nil && !f.starved {
		return f.hand(item, body)
	}
	f.errands = append(f.errands, errand{item.Seq, item.Ref, body})
	return nil
}

// errNoResult is the error of a line whose part came back without it.
var errNoResult = errors.New("the batch finished without a result for this request")

// sweep sends lines on of which nothing can come any more, although they were in parts: those that were called off before they
// were submitted, and those of parts that were refused or that have no result for them. It says how many are under way again.
func (f *viaFeed) sweep() (moved int, err error) {
	for number := range f.lines {
		line := &f.lines[number]
		if line.at != inPart {
			continue
		}
		line.at = over
		item, err := f.again(int64(number)+1, line.ref)
		if err != nil {
			return moved, err
		}
		c := item.Data.(*call)
		f.settle(line.held, &item, 0, nil)
		line.held = nil
		switch {
		case f.finished || f.batch.cfg.Batches.Cancel || f.refused != nil && !f.auto:
		case f.auto:
			moved++
			err = f.callLive(&item)
		default:
			moved++
			o := &sluice.Outcome{Kind: sluice.ServerError, Err: errNoResult, Unsent: true}
			err = f.judged(&merging{}, &item, item.Hash, c, work.Result{}, o)
		}
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// runError is what a run ends with whose Desk can do no more.
func runError(cause error) error {
	if lost := lostError(cause); lost != nil {
		return lost
	}
	if refused, ok := errors.AsType[*sluice.CallError](cause); ok && refused.Kind.Fatal() {
		return &work.StoppedError{Kind: refused.Kind, Err: cause}
	}
	return cause
}
