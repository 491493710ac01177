package batch

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/work"
)

// account is where calls go: a key at a provider, with one Scheduler and the Handler that goes through it, or one upstream of
// several, for which the router chooses keys and has the Handler.
type account struct {
	batch    *Batch
	provider provider.Provider
	target   provider.Target // of every call, but for endpoint and model
	handler  work.Handler
	router   *router      // nil: it is no upstream, but the provider's only account
	upstream string       // which one it is; "" is none
	answered atomic.Bool  // by whatever answer
	misses   atomic.Int32 // calls that never left, before that
	prices   prices
}

// mostMisses is after how many calls in a row that could not be sent a provider that never answered is not there.
const mostMisses = 5

// account returns the account at a provider, making it at first.
func (b *Batch) account(p provider.Provider) (*account, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.accounts[p.Name]; a != nil {
		return a, nil
	}
	a := &account{batch: b, provider: p, target: provider.Target{BaseURL: b.cfg.BaseURL, Header: b.cfg.ExtraHeader}}
	if b.remote != nil {
		b.remote.account(a)
		b.accounts[p.Name] = a
		return a, nil
	}
	if b.cfg.Key != nil {
		key, err := b.cfg.Key(p)
		if err != nil {
			return nil, err
		}
		a.target.Key = key
	}
	scheduler, err := b.cfg.Scheduler(p)
	if err != nil {
		return nil, err
	}
	// Whatever is wrong with the address shows now, not at the first call.
	if err := p.Check(a.target); err != nil {
		return nil, &ConfigError{Field: "BaseURL", Err: err}
	}
	calls := work.Calls(scheduler, a.attempt)
	if b.ration != nil {
		calls = work.Rationed(calls, rationed{
			ration: b.ration, owner: a, price: func(item *work.Item) price { return a.price(item.Lane) }, most: b.cfg.Budget.Attempts,
		})
	}
	a.handler = b.layers(calls, a.who)
	b.accounts[p.Name] = a
	return a, nil
}

func (a *account) unreachable(cause error) *UnreachableError {
	return &UnreachableError{Provider: cmp.Or(a.upstream, a.provider.Name), BaseURL: a.baseURL(), Err: cause}
}

// outOfFiles reports whether it was this host that had no room for a connection, which says nothing of the provider.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// who says whose answers a cache has of it.
func (a *account) who(string, provider.Endpoint) []string {
	return []string{a.provider.Name, a.baseURL()}
}

func (a *account) baseURL() string { return cmp.Or(a.target.BaseURL, a.provider.BaseURL) }

// call is what an attempt needs of an item's request.
type call struct {
	endpoint provider.Endpoint
	stream   bool
	body     []byte
	line     *call    // as the line has it, once an attempt has another body
	account  *account // that the line is for; nil with upstreams
	trip     *trip    // nil without upstreams
	terms    *terms
	tries    tries
	far      *far // nil where calls are made here
}

// attempt is one exchange of an item.
func (a *account) attempt(ctx context.Context, permit *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
	to := a.target
	to.Model = item.Lane
	c := item.Data.(*call)
	result, o := a.exchange(ctx, permit, &item, c, c.body, to)
	result.Data = a
	return result, o
}

// exchange is one exchange with whom it is told.
func (a *account) exchange(ctx context.Context, permit *sluice.Permit, item *work.Item, c *call, body []byte, to provider.Target) (work.Result, sluice.Outcome) {
	cfg := &a.batch.cfg
	result := work.Result{}
	to.Endpoint = c.endpoint
	if c.stream && c.endpoint == provider.ChatCompletions && !a.provider.UsageUnasked {
		body = provider.WithUsage(body)
	}
	req, err := a.provider.NewRequest(ctx, to, body)
	if err != nil {
		return result, sluice.Outcome{Kind: sluice.BadRequest, Err: err, Unsent: true}
	}
	claim, cost := a.batch.ration.of(c), c.cost(item.Cost)
	if !claim.begin(cost) {
		return result, sluice.Outcome{Kind: sluice.Network, Err: errStarved, Unsent: true, Abandoned: true}
	}
	answer, o := provider.Exchange(ctx, cfg.Transport, permit, req, provider.ExchangeConfig{
		Provider: a.provider,
		Endpoint: c.endpoint,
		Stream:   c.stream,
		Timeout:  c.terms.timeout,
		Key:      to.Key,
		Cost:     cost,
	})
	if answer.Status != 0 && !a.answered.Load() {
		a.answered.Store(true)
	}
	if o.Kind == sluice.Network && o.Unsent && ctx.Err() == nil && !outOfFiles(o.Err) && !a.answered.Load() && a.misses.Add(1) >= mostMisses &&
		(a.router == nil || a.router.unreached(item.Lane, c.endpoint)) {
		a.batch.runner.Stop(a.unreachable(o.Err))
	}
	result.Status, result.RequestID = answer.Status, answer.RequestID
	result.Payload, result.FinishReason = answer.Body, answer.FinishReason
	c.check(item.ID, answer.Body, &o)
	claim.end(answer.Status, &o, c.trip.price())
	c.count(answer.Status, &o)
	a.batch.via.count(item.Seq, c, &o)
	return result, o
}

// check refuses a good answer that the run does not accept, and has the next attempt say so.
func (c *call) check(id string, body []byte, o *sluice.Outcome) {
	if o.Kind != sluice.OK || c.terms.check == nil {
		return
	}
	if err := c.terms.check(id, c.endpoint, body); err != nil {
		o.Kind, o.Err = sluice.InvalidOutput, err
		if c.terms.feedback {
			c.correct(body, err)
		}
	}
}

// handleInvalid handles a line that is no request: it fails for the reason in its Data, and nothing is sent.
func handleInvalid(_ context.Context, item work.Item) (work.Result, error) {
	bad := item.Data.(*problem)
	return work.Result{}, &sluice.CallError{Outcome: sluice.Outcome{Kind: sluice.BadRequest, Err: &lineError{bad.Text}}}
}

// lineError is the recorded error of a line that is no request.
type lineError struct{ text string }

// Error says what is wrong with the line.
func (e *lineError) Error() string { return e.text }
