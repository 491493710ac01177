package batch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// live makes requests here. It makes the attempts of a run whose requests are live, and of a Worker.
type live struct {
	cfg    *Config
	log    *slog.Logger
	guard  *budget.Guard
	models budget.Models
	runner *work.Runner            // set before the first request
	opened func(*sluice.Scheduler) // is called with each Scheduler; nil: none

	mu     sync.Mutex
	routes map[string]*route // by provider; with Upstreams, the only one is at ""
}

// route is where requests go: to one account at a provider, or to the Upstreams, which choose one for each attempt.
type route struct {
	one       *account // nil with Upstreams
	accounts  map[string]*account
	upstreams *provider.Upstreams // nil if requests are made by workers
}

// account is an account at a provider, or an upstream.
type account struct {
	name      string
	provider  provider.Provider
	target    provider.Target // of every request, but for endpoint and model
	answered  atomic.Bool     // with any answer
	misses    atomic.Int32    // requests that were not sent, before that
	prices    sync.Map        // *provider.Price by model
	price     func(p provider.Provider, model string) *provider.Price
	added     provider.Added
	deadlines provider.Deadlines
}

// upstreamPrefix begins the names of accounts that are upstreams.
const upstreamPrefix = "upstream "

// mostMisses is the number of requests in a row that could not be sent after which a provider that never answered is not there.
const mostMisses = 5

func newLive(cfg *Config) *live {
	l := &live{cfg: cfg, log: cfg.Logger, routes: make(map[string]*route)}
	if u := cfg.Upstreams; u != nil {
		r := &route{upstreams: u, accounts: make(map[string]*account)}
		for _, up := range u.All() {
			r.accounts[up.Name] = l.newAccount(upstreamPrefix+up.Name, up.Provider, up.BaseURL)
		}
		l.routes[""] = r
	}
	return l
}

func (l *live) newAccount(name string, p provider.Provider, baseURL string) *account {
	return &account{name: name, provider: p, price: l.cfg.Price, target: provider.Target{BaseURL: baseURL, Header: l.cfg.ExtraHeader}}
}

// route returns the route of requests to a provider, and makes it at first.
func (l *live) route(p provider.Provider) (_ *route, err error) {
	var scheduler *sluice.Scheduler
	defer func() { // without the lock, because observers are called
		if scheduler != nil && err == nil && l.opened != nil {
			l.opened(scheduler)
		}
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := cmp.Or(l.routes[""], l.routes[p.Name]); r != nil {
		return r, nil
	}
	at := l.newAccount(p.Name, p, l.cfg.BaseURL)
	if l.cfg.Key != nil {
		if at.target.Key, err = l.cfg.Key(p); err != nil {
			return nil, err
		}
	}
	if scheduler, err = l.cfg.Scheduler(p); err != nil {
		return nil, err
	}
	// An error in the address shows now, not at the first request.
	if err := p.Check(at.target); err != nil {
		return nil, &FieldError{Field: "BaseURL", Err: err}
	}
	r := &route{one: at, accounts: map[string]*account{p.Name: at}}
	up := provider.Upstream{Name: p.Name, Provider: p, BaseURL: at.target.BaseURL, Scheduler: scheduler, Price: at.priceOf}
	up.Provider.Models = nil // it serves all models
	if at.target.Key != "" {
		up.Keys = []provider.Key{{Value: at.target.Key}}
	}
	if r.upstreams, err = provider.NewUpstreams(provider.UpstreamsConfig{Upstreams: []provider.Upstream{up}}); err != nil {
		return nil, err
	}
	l.routes[p.Name] = r
	return r, nil
}

// routeTo returns a route that was made before.
func (l *live) routeTo(provider string) *route {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.routes[provider]
}

// silent returns an account if none ever answered; else nil.
func (l *live) silent() (found *account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.routes {
		for _, at := range r.accounts {
			if found = at; at.answered.Load() {
				return nil
			}
		}
	}
	return found
}

// price returns the highest price that a request may have; nil is unknown.
func (r *route) price(model string, e provider.Endpoint) *provider.Price {
	if r.one != nil {
		return r.one.priceOf(model)
	}
	return r.upstreams.Price(model, e)
}

// identity returns the providers and addresses whose responses a cache has.
func (r *route) identity(model string, e provider.Endpoint) []string {
	if r.one != nil {
		return []string{r.one.provider.Name, r.one.baseURL()}
	}
	return r.upstreams.Identity(model, e)
}

// answered reports whether any account ever answered.
func (r *route) answered() bool {
	for _, at := range r.accounts {
		if at.answered.Load() {
			return true
		}
	}
	return false
}

// unreached reports whether requests to all accounts that may serve such an item could not be sent, and none ever answered.
func (r *route) unreached(model string, e provider.Endpoint) bool {
	for _, up := range r.upstreams.Open(model, e) {
		if at := r.accounts[up.Name]; at.answered.Load() || at.misses.Load() < mostMisses {
			return false
		}
	}
	return true
}

func (p *account) baseURL() string { return cmp.Or(p.target.BaseURL, p.provider.BaseURL) }

func (p *account) unreachable(cause error) *UnreachableError {
	return &UnreachableError{Provider: p.name, BaseURL: p.baseURL(), Err: cause}
}

// priceOf returns what a model costs; nil is unknown.
func (p *account) priceOf(model string) *provider.Price {
	if p.price == nil {
		return nil
	}
	if known, ok := p.prices.Load(model); ok {
		return known.(*provider.Price)
	}
	price := p.price(p.provider, model).WithBatch(p.provider.Batches.Price)
	p.prices.Store(model, price)
	return price
}

// outOfFiles reports whether it was this host that had no room for a connection, which says nothing of the provider.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// call is what an attempt needs of an item's request.
type call struct {
	endpoint provider.Endpoint
	stream   bool
	body     []byte
	bound    string // the member of the body that bounds the output, if Sluice added it; else ""
	line     *call  // as the line has it, once an attempt has another body
	route    *route
	terms    *Terms

	via     provider.Destination // of the last attempt
	sent    sluice.Cost          // of the last attempt
	charged budget.Amount        // by the last attempt
	bill    bill                 // of all attempts

	unmetered int // attempts that may be billed, and whose responses state no usage

	before *attempts // in batches; nil: none

	halted <-chan struct{} // at a Remote: closed when the run makes no more calls,
	answer *Answer         // and its answer
}

// send has the upstreams of an item's route choose the ways of its attempts.
func (l *live) send(ctx context.Context, item work.Item, one sluice.Call, try func(context.Context, *sluice.Permit) sluice.Outcome) (sluice.Tally, error) {
	c := item.Data.(*call)
	one.Attempts, one.MaxThrottles = c.terms.Attempts, c.terms.Throttles
	if c.before != nil {
		one.Attempts = max(1, l.cfg.Budget.Attempts-c.before.tally.Attempts)
	}
	tally, err := c.route.upstreams.Do(ctx, one, c.endpoint, func(ctx context.Context, permit *sluice.Permit, via provider.Destination) sluice.Outcome {
		c.via = via
		return try(ctx, permit)
	})
	if none, ok := errors.AsType[*provider.NoUpstreamError](err); ok && c.route.one != nil {
		refused, _ := errors.AsType[*sluice.CallError](err)
		err = &sluice.CallError{Outcome: sluice.Outcome{Kind: refused.Kind, Err: none.Unwrap()}, Tally: tally}
	}
	return tally, err
}

// attempt is one exchange of an item.
func (l *live) attempt(ctx context.Context, permit *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
	c := item.Data.(*call)
	at := c.route.accounts[c.via.Upstream.Name]
	c.charged = budget.Amount{}
	c.sent = c.cost(item.Cost)
	exchange := at.exchange
	if l.cfg.Handler != nil {
		exchange = handled
	}
	answer, o := exchange(ctx, l.cfg, permit, &item)
	if answer.Status != 0 && !at.answered.Load() {
		at.answered.Store(true)
	}
	if o.Kind == sluice.Network && o.Unsent && ctx.Err() == nil && !outOfFiles(o.Err) && !at.answered.Load() && at.misses.Add(1) >= mostMisses &&
		c.route.unreached(item.Lane, c.endpoint) {
		l.runner.Stop(at.unreachable(o.Err))
	}
	c.check(item.ID, answer.Body, &o)
	if o.HasUsage {
		l.learn(&item, c.sent, o.Usage)
	}
	l.charge(&item, c.sent, c.via.Price, sluice.Usage{}, answer.Status, &o)
	return work.Result{Data: c, Response: responseOf(&answer)}, o
}

// exchange makes an attempt over HTTP.
func (p *account) exchange(ctx context.Context, cfg *Config, permit *sluice.Permit, item *work.Item) (provider.Answer, sluice.Outcome) {
	c, to := item.Data.(*call), p.target
	to.Key, to.Model, to.Endpoint = c.via.Key, c.via.Model, c.endpoint
	body := c.body
	if to.Model != item.Lane {
		body = provider.WithModel(body, to.Model)
	}
	body, added := p.added.Complete(&p.provider, c.endpoint, to.Model, body, c.bound, c.stream)
	req, err := p.provider.NewRequest(ctx, to, body)
	if err != nil {
		return provider.Answer{}, sluice.Outcome{Kind: sluice.BadRequest, Err: err, Unsent: true}
	}
	var deadline func() time.Duration
	if c.terms.Timeout == 0 { // it is not used for a stream
		deadline = func() time.Duration { return p.deadlines.Of(to.Model) }
	}
	began := time.Now()
	answer, o := provider.Exchange(ctx, cfg.Transport, permit, req, provider.ExchangeConfig{
		Provider: p.provider, Endpoint: c.endpoint, Stream: c.stream, Timeout: c.terms.Timeout, Deadline: deadline, Key: to.Key,
		Cost: c.sent, Added: added,
	})
	p.added.Refused(to.Model, &o)
	if o.Kind == sluice.OK && !c.stream {
		p.deadlines.Observe(to.Model, time.Since(began))
	}
	return answer, o
}

// handled makes an attempt by the Handler of a Config.
func handled(ctx context.Context, cfg *Config, permit *sluice.Permit, item *work.Item) (provider.Answer, sluice.Outcome) {
	c := item.Data.(*call)
	answer, o := cfg.Handler.Handle(ctx, permit, HandlerRequest{ID: item.ID, Model: item.Lane, Endpoint: c.endpoint, Body: c.body, Metadata: item.Note})
	if o.Kind == sluice.OK {
		answer.Status = cmp.Or(answer.Status, 200)
	}
	return answer, o
}

// check refuses a good answer that the run does not accept, and has the next attempt say so.
func (c *call) check(id string, body []byte, o *sluice.Outcome) {
	if o.Kind != sluice.OK || c.terms.check == nil {
		return
	}
	if err := c.terms.check(id, c.endpoint, body); err != nil {
		o.Kind, o.Err = sluice.InvalidOutput, err
		if c.terms.Feedback {
			c.correct(body, err)
		}
	}
}

// accept completes a result by its cost. It refuses a result that only says that the provider is not there, as long as none says that it is,
// and one that says that this host could not call it.
func (l *live) accept(r *work.Result) error {
	if r.Cached {
		r.HasCost = true // whatever the price is, nothing was paid
	}
	c, ok := r.Data.(*call)
	if !ok {
		return nil
	}
	r.Data = nil
	if c.bill.complete(r); c.before != nil {
		r.Tally = c.before.tally.Add(r.Tally)
		c.before.bill.complete(r)
	}
	if c.route.one == nil {
		r.Upstream = c.via.Upstream.Name
	}
	if r.Kind == sluice.Network && (outOfFiles(r.Err) || !c.route.answered() && l.runner.Report().Done == 0) {
		return c.route.accounts[c.via.Upstream.Name].unreachable(r.Err)
	}
	return nil
}
