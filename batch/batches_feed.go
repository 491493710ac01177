package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// recorders is the number of goroutines that record results: they wait only for the disk.
const recorders = 64

// batchFeed feeds the Runner in rounds. A round adds the requests of all remaining items to parts, or sends them live, and waits until all
// parts have ended. Each part that ends gives the results of its items. Items without a final result remain for the next round.
type batchFeed struct {
	*batchRun
	ctx     context.Context
	yield   func(work.Item, error) bool
	live    bool          // requests do not go into parts any more
	freed   bool          // items of parts remain
	looked  time.Time     // at the remaining time
	landed  bool          // a part ended in this round
	waiting bool          // items wait for the results of equal requests in parts
	refused *RefusedError // parts that were rejected
}

// errHalted ends the feed of a run that stops.
var errHalted = errors.New("the run is stopping")

// feed gives the items.
func (v *batchRun) feed(ctx context.Context) iter.Seq2[work.Item, error] {
	return func(yield func(work.Item, error) bool) {
		f := &batchFeed{batchRun: v, ctx: ctx, yield: yield}
		if err := f.run(); err != nil && !errors.Is(err, errHalted) && ctx.Err() == nil {
			yield(work.Item{}, err)
		}
	}
}

func (f *batchFeed) run() error {
	done := f.cfg.Batches.Cancel
	if done {
		if err := f.table.Cancel(); err != nil {
			return err
		}
	}
	f.table.Start(f.ctx)
	for more := true; more; more = (f.freed || f.waiting && f.landed) && f.ended == nil && !done {
		f.freed, f.waiting, f.landed = false, false, false
		if err := f.checkTime(); err != nil {
			return err
		}
		if !done {
			if err := f.place(); err != nil {
				return err
			}
		}
		for f.ended == nil && f.table.Pending() > 0 && !(f.live && f.freed) {
			if err := f.wait(); err != nil {
				return err
			}
		}
	}
	if f.ended = cmp.Or(f.ended, f.problem()); f.ended == nil && f.refused != nil {
		f.ended = f.refused
	}
	if spent, ok := errors.AsType[*BudgetError](f.ended); ok {
		f.batch.Stop(spent) // live requests that wait for room get none
	}
	return nil
}

// place adds the requests of all remaining items to parts, or sends them live.
func (f *batchFeed) place() error {
	in, newest := f.batch.input, int32(0)
	for row, err := range in.rest() {
		if err != nil {
			return err
		}
		if f.parts[row.Number-1] != 0 {
			continue
		}
		item, err := f.batch.again(row)
		if err == nil {
			err = f.add(&item)
		}
		if err != nil {
			return err
		}
		began := f.parts[row.Number-1] > newest // a part, so that the one before may be full
		newest = max(newest, f.parts[row.Number-1])
		for began && f.ended == nil && !f.live && f.table.Full() {
			if err := f.wait(); err != nil {
				return err
			}
		}
		if f.ended != nil {
			return nil
		}
	}
	f.batch.warnOfChange()
	return f.table.Flush()
}

// wait records the results of a part that ended, or waits for a change.
func (f *batchFeed) wait() error {
	if p := f.table.Ended(); p != nil {
		return f.land(p)
	}
	if f.ended = f.problem(); f.ended != nil {
		return nil
	}
	if err := f.checkTime(); err != nil {
		return err
	}
	return f.await()
}

// await waits for a change.
func (f *batchFeed) await() error {
	if f.cfg.mayGoLive() && !f.live {
		defer time.AfterFunc(lookEvery, func() { wake.Up(f.kick) }).Stop()
	}
	err := work.Await(f.ctx, f.kick)
	if f.ctx.Err() != nil {
		return errHalted
	}
	return err
}

// add adds the request of an item to a part, or gives the item to the Runner if it needs none.
func (f *batchFeed) add(item *work.Item) error {
	c, number := item.Data.(*call), int(item.Seq-1)
	key, cache := "", f.batch.handler.cache
	if cache != nil {
		key = cache.key(item)
		if result, ok := cache.find(key, item); ok {
			f.parts[number] = finished
			return f.give(item, result, nil)
		}
		if other, ok := f.sent[item.Hash]; ok && f.parts[other] > 0 {
			f.waiting = true
			return nil
		}
	}
	if f.live {
		return f.sendLive(item)
	}
	at, endpoint := c.route.one, batchEndpoint(c.endpoint)
	account := at.provider.Name
	if !f.table.Supports(account, endpoint) {
		return f.unfit(item, fmt.Errorf("the Batch API of %s does not support %s: send the request live", account, endpoint))
	}
	body, added := at.added.Complete(&at.provider, c.endpoint, item.Lane, c.body, c.bound, false)
	r := batchjob.Request{Account: account, Model: item.Lane, Endpoint: endpoint, Cost: item.Cost,
		Item: batchjob.Item{ID: item.ID, Hash: item.Hash.String(), Note: item.Note, Key: key, Body: body}}
	if len(added) > 0 {
		r.Item.Added = added[0]
	}
	held, err := f.hold(item, c.route, &r)
	if err != nil || f.ended != nil {
		return err
	}
	if f.live { // since it waited
		return f.sendLive(item)
	}
	p, err := f.table.Add(&r)
	if tooLarge, ok := errors.AsType[*batchjob.TooLargeError](err); ok {
		f.release(held, 1, budget.Amount{})
		return f.unfit(item, tooLarge)
	}
	if err != nil {
		return err
	}
	if key != "" {
		cache.misses.Add(1)
		f.sent[item.Hash] = number
	}
	f.parts[number] = p.Number
	if of := f.held[p.Number]; of == nil {
		f.held[p.Number] = held
	} else if held != nil {
		of.Plus(1, held)
	}
	return nil
}

// hold holds the estimate of a request, once it fits into the spending caps. It returns nil without a cap, and when the feed is at its end.
func (f *batchFeed) hold(item *work.Item, to *route, r *batchjob.Request) (*budget.Estimate, error) {
	if !f.guard.Caps() {
		return nil, nil
	}
	row := Part{Model: r.Model}
	row.Count(r)
	e := f.estimateRow(to, &row)
	for f.ended == nil && !f.live {
		ok, spent := f.guard.Open(item.ID, &e, 1, false)
		switch {
		case ok:
			return &e, nil
		case spent != nil:
			f.ended = &work.StoppedError{Err: spent}
			return nil, nil
		}
		if err := f.table.Flush(); err != nil { // what ends gives room back
			return nil, err
		}
		var err error
		if f.table.Pending() > 0 {
			err = f.wait()
		} else if !f.releaseStuck() { // live requests hold the room
			err = f.await()
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// releaseStuck releases the estimates of parts of which nothing comes in this run. It returns false if there are none.
func (f *batchFeed) releaseStuck() (any bool) {
	for _, p := range f.table.Parts() {
		if e := f.held[p.Number]; e != nil {
			f.release(e, p.Row().Requests, budget.Amount{})
			delete(f.held, p.Number)
			any = true
		}
	}
	return any
}

// release releases the estimate of n requests, and counts the amount that they used. A nil estimate is none.
func (l *live) release(e *budget.Estimate, n int, used budget.Amount) {
	if e != nil {
		l.guard.Close(e, n, used)
	}
}

// batchEndpoint is the endpoint that a request has in a batch, where there are no streams.
func batchEndpoint(e provider.Endpoint) provider.Endpoint {
	if e == provider.StreamGenerateContent {
		return provider.GenerateContent
	}
	return e
}

// carryOn continues the attempts of an item that a batch did not complete: its next request tells the model why the last answer was rejected.
func (v *batchRun) carryOn(item *work.Item) {
	v.mu.Lock()
	t := v.tried[item.Seq]
	v.mu.Unlock()
	if t == nil {
		return
	}
	c := item.Data.(*call)
	if c.before = t; t.answer != nil {
		c.correct(t.answer, t.wrong)
		item.Cost = c.cost(item.Cost)
	}
}

// sendLive gives an item to the Runner, whose request is sent live.
func (f *batchFeed) sendLive(item *work.Item) error {
	f.parts[item.Seq-1] = finished
	return f.out(*item)
}

// unfit handles an item whose request no batch takes.
func (f *batchFeed) unfit(item *work.Item, why error) error {
	if f.cfg.mayGoLive() {
		return f.sendLive(item)
	}
	f.parts[item.Seq-1] = finished
	return f.give(item, work.Result{}, &sluice.CallError{Outcome: sluice.Outcome{Kind: sluice.BadRequest, Err: why, Unsent: true}})
}

// give gives an item with its result to the Runner, which records it.
func (f *batchFeed) give(item *work.Item, result work.Result, err error) error {
	given := *item
	given.Data, given.Ref, given.Given = nil, -1, &work.Given{Result: result, Err: err}
	given.Size = len(result.Payload) + len(item.Note)
	return f.out(given)
}

// out gives an item to the Runner.
func (f *batchFeed) out(item work.Item) error {
	if !f.yield(item, nil) {
		return errHalted
	}
	return nil
}

// checkTime sends all remaining requests live once they need the time that is left before the deadline.
func (f *batchFeed) checkTime() error {
	if !f.cfg.mayGoLive() || f.live || time.Since(f.looked) < lookEvery {
		return nil
	}
	first := f.looked.IsZero()
	f.looked = time.Now()
	o, pending := f.outlook(), f.table.Pending() > 0
	if o.requests == 0 || o.window() >= leastWindow || pending && o.window() > 0 {
		if first {
			f.log.Info("all items go into batches; items that no batch finishes in time are sent live",
				"requests", o.requests, "live_from_in", o.window().Round(time.Second))
		}
		return nil
	}
	text := "all items are sent live, because no batch can finish before the deadline"
	if pending {
		text = "the pending batches are cancelled, and their remaining items are sent live to finish before the deadline"
	}
	f.log.Warn(text, "requests", o.requests, "deadline_in", o.left.Round(time.Second), "live_takes", o.liveTime().Round(time.Second))
	return f.goLive()
}

// goLive cancels all batches, and has all remaining requests sent live.
func (f *batchFeed) goLive() error {
	f.live = true
	return f.table.Cancel()
}

// outlook returns the remaining requests and time.
func (f *batchFeed) outlook() outlook {
	cfg, in := f.cfg, f.batch.input
	rep := f.batch.Progress()
	n := rep.Left()
	tokens := int(float64(in.tokens) * float64(n) / float64(max(1, rep.Total))) // they are taken to be alike
	return outlook{left: time.Until(cfg.Budget.Deadline.Round(0)), requests: n, tokens: tokens, live: cfg.Batches.LiveTime}
}
