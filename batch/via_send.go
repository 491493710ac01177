package batch

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/parts"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// hand puts an item's request into a part, with that body if it is another than the line's, unless the item needs no batch: then
// the Runner has it at once.
func (f *viaFeed) hand(item *work.Item, body []byte) error {
	c, ok := item.Data.(*call)
	if !ok { // it is no request
		return f.callLive(item)
	}
	if body == nil {
		if result, ok := f.answered(item, c); ok {
			return f.give(item, &given{result: result})
		}
		if f.live > 0 {
			f.live--
			return f.callLive(item)
		}
		if first, ok := f.sent[item.Hash]; ok && f.lines[first].at == inPart { // its answer will be in the cache
			f.passed, f.lines[item.Seq-1].at = true, unseen
			return nil
		}
	}
	api := f.apis[c.account.provider.Name]
	if f.allLive || api == nil {
		return f.callLive(item)
	}
	text, cost := c.body, item.Cost
	if body != nil {
		text = body
		if est, err := provider.Estimate(c.endpoint, body); err == nil {
			cost = est.Cost
		}
	}
	text, added := c.account.added.Complete(&c.account.provider, c.endpoint, item.Lane, text, c.bound, false)
	request := &batchapi.Request{Model: item.Lane, Endpoint: batchEndpoint(c.endpoint), Body: text}
	if known := api.Bounds().Endpoints; len(known) > 0 && !slices.Contains(known, request.Endpoint) {
		return f.unfit(item, fmt.Errorf("the Batch API of %s does not support %s: send the request live", c.account.provider.Name, request.Endpoint))
	}
	held, err := f.hold(item, cost, false)
	switch {
	case err != nil: // nothing is open that could give room back: the run is at its end
		f.finished, f.ended = true, &work.StoppedError{Err: err}
		return nil
	case held == nil:
		f.starved = true
		f.errands = slices.Insert(f.errands, 0, errand{item.Seq, item.Ref, body})
		return nil
	}
	p, err := f.desk.Add(c.account.provider.Name, parts.Member{ID: item.ID, Hash: item.Hash, Tokens: cost.Input}, request)
	if err != nil {
		f.settle(held, item, 0, nil)
		if large, ok := errors.AsType[*parts.TooLargeError](err); ok {
			return f.unfit(item, large)
		}
		return err
	}
	f.put(item, p, held)
	name, _ := c.account.provider.Bound(c.endpoint)
	f.lines[item.Seq-1].other = len(added) > 0 && added[0] != name
	return nil
}

// batchEndpoint is the endpoint that a request has in a batch, where there are no streams.
func batchEndpoint(e provider.Endpoint) provider.Endpoint {
	if e == provider.StreamGenerateContent {
		return provider.GenerateContent
	}
	return e
}

// put notes where an item's request is.
func (f *viaFeed) put(item *work.Item, p *parts.Part, held *budget.Estimate) {
	f.filling[p] = true
	n := len(f.parts)
	if n == 0 || f.parts[n-1] != p {
		f.parts = append(f.parts, p)
		n++
	}
	f.lines[item.Seq-1] = viaLine{ref: item.Ref, held: held, part: int32(n - 1), at: inPart}
	if f.batch.cache != nil {
		f.sent[item.Hash] = int(item.Seq - 1)
	}
}

// unfit is for a request that no batch takes.
func (f *viaFeed) unfit(item *work.Item, why error) error {
	if f.auto {
		return f.callLive(item)
	}
	return f.give(item, &given{err: &sluice.CallError{Outcome: sluice.Outcome{Kind: sluice.BadRequest, Err: why, Unsent: true}}})
}

// answered returns the answer that an item has in the cache.
func (f *viaFeed) answered(item *work.Item, c *call) (work.Result, bool) {
	b := f.batch
	if b.cache == nil {
		return work.Result{}, false
	}
	kept := f.cachedBy(c.account)
	if result, ok := b.cache.load(kept.key(item)); ok && kept.accepts(item, result.Payload) {
		b.cache.hits.Add(1)
		return result, true
	}
	if !f.allLive && f.live == 0 { // else the layer around the call counts it
		b.cache.misses.Add(1)
	}
	return work.Result{}, false
}

// cachedBy returns what finds an account's answers in the cache.
func (f *viaFeed) cachedBy(a *account) *cachedCalls {
	return &cachedCalls{batch: f.batch, cache: f.batch.cache, who: a.who}
}
