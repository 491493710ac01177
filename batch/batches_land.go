package batch

import (
	"bytes"
	"errors"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// errNoResult is the error of a request that a complete batch has no result of.
var errNoResult = errors.New("the batch finished without a result for this request")

// land records the results of a part.
func (f *batchFeed) land(p *batchjob.Part) error {
	row, used := p.Row(), budget.Amount{}
	f.landed = true
	if row.Refused() {
		f.refused = f.refused.add(&row)
		f.log.Warn("the provider rejected a whole batch part",
			"provider", row.Account, "requests", row.Requests, "problem", f.refused.Message)
	}
	for r, err := range p.Results() {
		if err == nil {
			err = f.take(p, &row, &r, &used)
		}
		if err != nil {
			return err
		}
	}
	for f.unrecorded() > 0 {
		if err := f.await(); err != nil {
			return err
		}
	}
	if err := f.batch.journal.Flush(); err != nil {
		return err
	}
	f.release(f.held[p.Number], row.Requests, used)
	delete(f.held, p.Number)
	f.mu.Lock()
	f.sums.Parts++
	f.mu.Unlock()
	if err := f.table.Recorded(p); err != nil {
		return err
	}
	if row.Refused() && f.cfg.mayGoLive() {
		if f.refused = nil; !f.live {
			return f.goLive()
		}
	}
	return nil
}

// take handles the result of a request.
func (f *batchFeed) take(p *batchjob.Part, row *Part, r *batchjob.ItemResult, used *budget.Amount) error {
	b, in := f.batch, f.batch.input
	number, ok := in.index.Find([]byte(r.Item.ID))
	if !ok || f.parts[number] != p.Number {
		return nil
	}
	if in.index.Done().Has(number) { // by a run that was killed
		f.parts[number] = finished
		return nil
	}
	f.parts[number] = 0
	if r.Fate != batchjob.Answered && r.Fate != batchjob.Missing {
		if f.freed = true; row.Refused() && !b.cfg.mayGoLive() {
			f.parts[number] = finished
		}
		return nil
	}
	item, c, err := f.itemOf(p, row, number, r)
	if err != nil {
		return err
	}
	result, o := work.Result{}, sluice.Outcome{Kind: sluice.ServerError, Err: errNoResult, Unsent: true}
	if r.Fate == batchjob.Answered {
		result, o = f.judge(item, c, r)
	}
	result.Lane = item.Lane
	if o.Usage.Service = limits.ServiceBatch; o.HasUsage {
		f.learn(item, item.Cost, o.Usage)
	}
	f.charge(item, item.Cost, c.route.one.priceOf(item.Lane), together, result.Status, &o)
	*used = used.Plus(1, c.charged)
	return f.settle(row, item, r.Key, &result, &o)
}

// itemOf makes the item of a request in a part.
func (f *batchFeed) itemOf(p *batchjob.Part, row *Part, number int, r *batchjob.ItemResult) (*work.Item, *call, error) {
	hash, err := work.ParseHash([]byte(r.Hash))
	if err != nil {
		return nil, nil, err
	}
	c := &call{route: f.routeTo(row.Account), terms: f.batch.terms, endpoint: p.Endpoint, body: r.Item.Body, bound: r.Added}
	item := &work.Item{ID: r.Item.ID, Seq: int64(number + 1), Lane: row.Model, Hash: hash, Note: bytes.Clone(r.Note), Data: c}
	if est, err := provider.Estimate(c.endpoint, c.body); err == nil {
		item.Cost = est.Cost
	}
	return item, c, nil
}

// judge returns the result and the outcome of a response, as of a live one.
func (f *batchFeed) judge(item *work.Item, c *call, r *batchjob.ItemResult) (work.Result, sluice.Outcome) {
	at, status := c.route.one, r.Status
	if status == 0 && len(r.Result.Body) > 0 {
		status = 200 // it is unknown: the body decides
	}
	cfg := provider.ExchangeConfig{Provider: at.provider, Endpoint: c.endpoint, Key: at.target.Key}
	if c.bound != "" {
		cfg.Added = []string{c.bound}
	}
	answer, o := cfg.Judge(at.target.Header, status, r.RequestID, bytes.Clone(r.Result.Body))
	if o.Kind != sluice.OK {
		answer.Status = r.Status
	}
	at.added.Refused(item.Lane, &o)
	if check := c.terms.check; o.Kind == sluice.OK && check != nil {
		if err := check(item.ID, c.endpoint, answer.Body); err != nil {
			o.Kind, o.Err = sluice.InvalidOutput, err
		}
	}
	return work.Result{Response: responseOf(&answer)}, o
}

// settle records a result, or leaves the item for another attempt.
func (f *batchFeed) settle(row *Part, item *work.Item, key string, result *work.Result, o *sluice.Outcome) error {
	t := f.count(row, item, result, o)
	if o.Kind.Fatal() { // further requests would fail, too, and the cause is not the item
		if f.ended == nil {
			f.ended = &work.StoppedError{Kind: o.Kind, ID: item.ID, Err: o.Err}
		}
		return nil
	}
	again := (o.Amended || o.Kind.Transient() || o.Kind.Throttle() && !o.TooLarge) && !o.Final
	tries := t.tally.Tries()
	if f.cfg.mayGoLive() {
		tries = t.tally.Attempts // live requests wait for rate limits
	}
	if again && (o.Amended || f.cfg.Batches.Cancel || tries < f.cfg.Budget.Attempts) {
		f.freed = true
		return nil
	}
	f.mu.Lock()
	f.given++
	f.mu.Unlock()
	f.parts[item.Seq-1] = finished
	result.Tally, result.Via, result.Batch = t.tally, "batch-api", row.Batch
	if t.bill.complete(result); result.HasCost {
		live := t.tally.Usage
		live.Service = limits.ServiceStandard
		t.liveCost = item.Data.(*call).route.one.priceOf(item.Lane).Cost(live).USD + result.Estimated // an estimate saves nothing
	}
	var err error
	if o.Kind != sluice.OK {
		err = &sluice.CallError{Outcome: *o, Tally: t.tally}
	} else if cache := f.batch.handler.cache; key != "" && cache != nil && result.Status/100 == 2 {
		cache.store(key, &result.Response)
	}
	return f.give(item, *result, err)
}

// maxAnswers limits the bytes of rejected answers that are kept for the next attempts of their items.
const maxAnswers = 64 << 20

// count adds an attempt of an item, and returns all of its attempts.
func (f *batchFeed) count(row *Part, item *work.Item, result *work.Result, o *sluice.Outcome) *attempts {
	next := sluice.Tally{Usage: o.Usage, HasUsage: o.HasUsage}
	if !row.MadeAt.IsZero() && row.EndedAt.After(row.MadeAt) {
		next.Queued = row.EndedAt.Sub(row.MadeAt)
	}
	if o.Kind.Throttle() && !o.TooLarge {
		next.Throttles = 1
	} else {
		next.Attempts = 1
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tried[item.Seq]
	if t == nil {
		t = &attempts{}
		f.tried[item.Seq] = t
	}
	t.tally = t.tally.Add(next)
	t.bill.add(&item.Data.(*call).bill)
	f.answers -= len(t.answer)
	if t.answer = nil; o.Kind == sluice.InvalidOutput && f.batch.terms.Feedback && f.answers < maxAnswers {
		t.answer, t.wrong = result.Payload, o.Err
	}
	f.answers += len(t.answer)
	return t
}

// unrecorded is the number of results from batches that are not recorded.
func (v *batchRun) unrecorded() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.given
}

// recorded is called with each result that is in the journal.
func (v *batchRun) recorded(r *work.Result) {
	v.mu.Lock()
	t := v.tried[r.Seq]
	if t != nil {
		delete(v.tried, r.Seq)
		v.answers -= len(t.answer)
	}
	switch {
	case r.Via != "":
		v.given--
		v.sums.Lines++
		v.sums.Cost += r.Cost
		v.sums.LiveCost += t.liveCost
	case !r.Cached && r.Tally.Tries() > 0:
		v.sums.Live++
	}
	v.mu.Unlock()
	wake.Up(v.kick)
}

// runError returns the error of a run whose table can do no more.
func runError(cause error) error {
	if rejected, ok := errors.AsType[*sluice.CallError](cause); ok && rejected.Kind.Fatal() {
		return &work.StoppedError{Kind: rejected.Kind, Err: cause}
	}
	return cause
}
