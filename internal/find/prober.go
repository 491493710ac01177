package find

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/provider"
)

const (
	tries       = 3           // of one request, in total
	firstPause  = time.Second // before the second try; it doubles
	longestWait = time.Minute // that a search makes because a provider asks for it

	// longestNothing is how long a search continues while every request is rejected. A window that fills once a minute
	// accepts some sooner, and a storm has ended.
	longestNothing = 4 * time.Minute
	longestWindow  = 2 * time.Minute // that a search waits for the end of an allowance for hours or days

	leastTimeout = 30 * time.Second // of a request that is not real
	hangs        = 30               // times the latency of real ones: the longest queue that a search makes is shorter

	leastBytes    = 4 << 20 // that are read of a response at most, as many are open at once,
	bytesPerToken = 256     // and for each token that it may have

	staysWarm   = 20 * time.Second // for which an idle connection is believed to stay open
	longestWarm = 10 * time.Second // for connections to open
	tellEvery   = 250 * time.Millisecond
)

var (
	errRefused = errors.New("every request was rejected for four minutes")
	errNoModel = errors.New("the response states neither its usage nor a finish reason, so it does not come from a model")
)

// prober sends requests past every scheduler, within the budget of the search. It is safe for concurrent use.
type prober struct {
	cfg   Config
	m     *measurements
	began time.Time
	stop  context.CancelCauseFunc // ends the search

	warmed   int // connections that were opened,
	warmedAt time.Time

	serial  atomic.Uint64
	telling sync.Mutex // held while Progress is called

	added provider.Added

	mu       sync.Mutex
	progress Progress
	told     time.Time // when Progress was called last
	cap      budget.Cap
	models   budget.Models // by kind: some models think for longer than they may
	passed   time.Time     // when a request was accepted last
}

// newProber returns a prober that reports to m, and the context of its requests, which is cancelled, with the reason as its
// cause, when the search has to end.
func newProber(ctx context.Context, cfg Config, m *measurements) (*prober, context.Context) {
	ctx, stop := context.WithCancelCause(ctx)
	now := time.Now()
	p := &prober{cfg: cfg, m: m, began: now, passed: now, stop: stop}
	if cfg.Budget.Tokens < math.MaxInt {
		p.cap.Limit[budget.Tokens] = float64(cfg.Budget.Tokens)
	}
	if cfg.Budget.priced() {
		p.progress.Spent.Cost = new(float64)
	}
	if cfg.Budget.MaxCost != nil {
		p.cap.Limit[budget.USD] = max(1, math.Round(*cfg.Budget.MaxCost*budget.Dollar))
	}
	return p, ctx
}

// reply is the end of one request.
type reply struct {
	sent, done time.Time
	outcome    sluice.Outcome
}

func (r *reply) took() time.Duration { return r.done.Sub(r.sent) }
func (r *reply) accepted() bool      { return !r.done.IsZero() && r.outcome.Kind == sluice.OK }

// refused reports whether the provider asked to slow down. A lack of capacity (503, 529) proves no limit.
func (r *reply) refused() bool {
	return r.outcome.Kind == sluice.RateLimit || r.outcome.Kind == sluice.UsageWindow
}

// once sends one request, of any outcome. It fails only when the search is over.
func (p *prober) once(ctx context.Context, s *shape) (reply, error) {
	if ctx.Err() != nil {
		return reply{}, context.Cause(ctx)
	}
	body := s.body(p.cfg.Provider, p.cfg.Target, nonce(p.cfg.Seed, p.serial.Add(1)))
	member, _ := p.cfg.Provider.Bound(p.cfg.Target.Endpoint)
	body, added := p.added.Complete(&p.cfg.Provider, p.cfg.Target.Endpoint, p.cfg.Target.Model, body, member, false)
	req, err := p.cfg.Provider.NewRequest(ctx, p.cfg.Target, body)
	var c held
	if err == nil {
		c, err = p.hold(s)
	}
	if err != nil {
		p.stop(err)
		return reply{}, err
	}
	a, o := provider.Exchange(ctx, p.cfg.Base, nil, req, provider.ExchangeConfig{
		Provider: p.cfg.Provider, Endpoint: p.cfg.Target.Endpoint, Timeout: p.timeout(s), Key: p.cfg.Target.Key,
		MaxBytes: leastBytes + bytesPerToken*int64(s.bound), Added: added,
	})
	p.added.Refused(p.cfg.Target.Model, &o)
	if o.Kind == sluice.OK && !o.HasUsage && a.FinishReason == "" { // such a server accepts anything, at any pace
		o.Kind, o.Err = sluice.BadRequest, errNoModel
	}
	r := reply{sent: c.at, done: time.Now(), outcome: o}
	if err := cmp.Or(p.settle(&c, &r), p.m.hear(s.kind == realCall, &r)); err != nil {
		p.stop(err)
	}
	p.tell(false)
	if o.Amended {
		return p.once(ctx, s)
	}
	return r, context.Cause(ctx)
}

// call sends one request like once, and sends it again where that may help: when the network or the server failed, and when
// the provider had no capacity. Only the last try counts. A rejection is evidence and is never tried again.
func (p *prober) call(ctx context.Context, s *shape) (reply, error) {
	return p.retry(ctx, s, func(kind sluice.Kind) bool { return kind.Transient() || kind == sluice.Overloaded })
}

// probe is call where a lack of capacity counts as well.
func (p *prober) probe(ctx context.Context, s *shape) (reply, error) {
	return p.retry(ctx, s, sluice.Kind.Transient)
}

func (p *prober) retry(ctx context.Context, s *shape, helps func(sluice.Kind) bool) (reply, error) {
	for try := 1; ; try++ {
		r, err := p.once(ctx, s)
		// An earlier try than the provider asks for is of no use, and a much later one holds up the whole search.
		wait := cmp.Or(r.outcome.Wait, firstPause<<(try-1))
		if err != nil || try == tries || !helps(r.outcome.Kind) || wait > longestWait {
			return r, err
		}
		if err := wake.In(ctx, wait, nil); err != nil {
			return r, err
		}
	}
}

// held is an open request and the amount that it may use.
type held struct {
	at       time.Time
	cost     sluice.Cost
	estimate budget.Estimate
}

// hold reserves the amount that a request may use. It fails when the budget does not suffice.
func (p *prober) hold(s *shape) (held, error) {
	in, out := s.reserve()
	h := held{
		cost:     sluice.Cost{Input: in, MaxOutput: out},
		estimate: budget.Estimate{Model: p.models.Of(s.kind, 0), Input: p.cfg.Budget.amount(in, 0), Declared: p.cfg.Budget.amount(0, out)},
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.fitsLocked(h.estimate.Amount()); err != nil {
		return h, err
	}
	p.cap.Open(&h.estimate)
	p.progress.Spent.Requests++
	h.at = time.Now()
	return h, nil
}

// fits fails when tokens exceed the budget, beside the open requests.
func (p *prober) fits(in, out int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fitsLocked(p.cfg.Budget.amount(in, out))
}

func (p *prober) fitsLocked(more budget.Amount) error {
	switch p.cap.Exceeded(p.cap.Held().Plus(1, more)) {
	case budget.Tokens:
		return ErrTokenBudget
	case budget.USD:
		return ErrMaxCost
	}
	return nil
}

// settle replaces the reserved amount of a request by the amount that it used. The error is why the search is over.
func (p *prober) settle(h *held, r *reply) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	spent, o := &p.progress.Spent, &r.outcome
	in, out := 0, 0 // a rejected or unsent request is not billed
	switch {
	case o.HasUsage && o.Usage.Input+o.Usage.Output > 0:
		in, out = o.Usage.Input, o.Usage.Output
		h.estimate.Model.Learn(h.cost, float64(in), float64(out))
	case r.accepted() || o.Kind == sluice.Timeout && !o.Unsent: // it may be billed, and nothing states the usage
		in, out = h.cost.Input, h.cost.MaxOutput
		spent.Estimated += in + out
	}
	p.cap.Close(&h.estimate, p.cfg.Budget.amount(in, out))
	spent.Input += in
	spent.Output += out
	if spent.Cost != nil {
		spent.Cost = new(p.cap.Used[budget.USD] / budget.Dollar)
	}
	switch {
	case r.accepted():
		spent.Accepted++
		p.passed = r.done
	case r.refused():
		spent.Rejected++
		if r.done.Sub(p.passed) > longestNothing {
			return fmt.Errorf("%w: %w", errRefused, o.Err)
		}
	default:
		spent.Failed++
	}
	if o.Kind.Fatal() || o.Kind == sluice.UsageWindow && o.Until.After(r.done.Add(longestWindow)) {
		return o.Err
	}
	return nil
}

// timeout returns the time that a request may take. One that is not real and takes many times as long as real ones hangs.
func (p *prober) timeout(s *shape) time.Duration {
	longest := p.m.longestReal()
	if s.kind == realCall || longest == 0 {
		return p.cfg.Timeout
	}
	return min(p.cfg.Timeout, max(leastTimeout, hangs*longest))
}

// spent returns the amounts that the search has used.
func (p *prober) spent() Spent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.progress.Spent
}

// affords returns the number of requests of a shape that the budget allows, less some real ones.
func (p *prober) affords(s *shape, reals int, real *shape) int {
	in, out := s.reserve()
	realIn, realOut := real.reserve()
	spent := p.spent()
	n := float64(p.cfg.Budget.Tokens-spent.Tokens()-reals*(realIn+realOut)) / float64(in+out)
	if most := p.cfg.Budget.MaxCost; most != nil {
		money := *most - *spent.Cost - float64(reals)*p.cfg.Budget.price(realIn, realOut)
		n = min(n, money/max(1e-12, p.cfg.Budget.price(in, out)))
	}
	return max(0, int(min(n, 1e9)))
}

// enter states what the search is doing, and reports it, at once if now is set.
func (p *prober) enter(phase Phase, doing string, low, high int, now bool) {
	p.mu.Lock()
	p.progress.Phase, p.progress.Doing, p.progress.Low, p.progress.High = phase, doing, low, high
	p.mu.Unlock()
	p.tell(now)
}

// tell reports the progress if it is due. It never runs twice at the same time.
func (p *prober) tell(now bool) {
	if p.cfg.Progress == nil {
		return
	}
	p.telling.Lock()
	defer p.telling.Unlock()
	p.mu.Lock()
	due := now || time.Since(p.told) >= tellEvery
	if due {
		p.told = time.Now()
		p.progress.Elapsed = time.Since(p.began)
		p.progress.ElapsedMS = p.progress.Elapsed.Milliseconds()
	}
	progress := p.progress
	p.mu.Unlock()
	if due {
		p.cfg.Progress(progress)
	}
}

// log logs a step of the search.
func (p *prober) log(format string, args ...any) {
	if p.cfg.Log != nil {
		p.cfg.Log(fmt.Sprintf(format, args...))
	}
}

// warm opens connections, so that the first requests of a burst do not wait for them.
func (p *prober) warm(ctx context.Context, n int) {
	base, ok := p.cfg.Base.(*http.Transport)
	if !ok || n <= p.warmed && time.Since(p.warmedAt) < staysWarm {
		return // no connections that can be opened ahead, or enough
	}
	p.warmed, p.warmedAt = n, time.Now()
	ctx, cancel := context.WithTimeout(ctx, min(longestWarm, p.cfg.Timeout)) // a server that never answers has connected
	defer cancel()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			req, err := p.cfg.Provider.NewRequest(ctx, p.cfg.Target, nil)
			if err != nil {
				return
			}
			// The list of models costs nothing, and only the head of the response is asked for.
			req.Method, req.Body, req.GetBody, req.ContentLength = http.MethodHead, nil, nil, 0
			req.URL.Path, req.URL.RawPath = modelsPath(req.URL.Path), ""
			if resp, err := base.RoundTrip(req); err == nil {
				_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
				resp.Body.Close()
			}
		})
	}
	wg.Wait()
}

// modelsPath returns the path of the list of models for the path of an endpoint.
func modelsPath(endpoint string) string {
	for _, end := range []string{"/models/", "/chat/completions", "/completions", "/messages", "/embeddings", "/responses"} {
		if i := strings.LastIndex(endpoint, end); i >= 0 {
			return endpoint[:i] + "/models"
		}
	}
	return endpoint
}
