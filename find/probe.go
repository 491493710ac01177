package find

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// prober makes calls past every scheduler, and keeps the account of them. It is safe for concurrent use.
type prober struct {
	cfg   Config
	began time.Time
	stop  context.CancelCauseFunc // ends the search

	warmed   int // connections that were opened,
	warmedAt time.Time

	telling sync.Mutex // held while Progress is called

	mu       sync.Mutex
	progress Progress
	told     time.Time // when Progress was called last
	serial   uint64
	open     int
	spent    Spent // open calls counted with all that they may use
	probes   []Probe
	heard    map[sluice.Dimension]evidence // what answers said of limits
	lastSent time.Time
	passed   time.Time      // when a call was accepted last
	real     time.Duration  // the longest that a real call took
	dayLeft  int64          // the most requests that were left of a day
	longest  map[string]int // tokens of the longest answer to a shape: some models think for longer than they may
}

// newProber returns a prober and the context under which its calls are made. It is cancelled, with the reason as its
// cause, when there is no point in going on.
func newProber(ctx context.Context, cfg Config) (*prober, context.Context) {
	ctx, stop := context.WithCancelCause(ctx)
	now := time.Now()
	p := &prober{cfg: cfg, began: now, passed: now, stop: stop, heard: make(map[sluice.Dimension]evidence), longest: make(map[string]int)}
	if cfg.PriceIn != nil && cfg.PriceOut != nil {
		p.spent.Cost = new(float64)
	}
	return p, ctx
}

// reply is what became of one call.
type reply struct {
	sent, done time.Time
	outcome    sluice.Outcome
}

func (r *reply) took() time.Duration { return r.done.Sub(r.sent) }
func (r *reply) accepted() bool      { return !r.done.IsZero() && r.outcome.Kind == sluice.OK }

// refused reports whether the provider asked to slow down. What it has no capacity for (503, 529) is no limit's doing.
func (r *reply) refused() bool {
	return r.outcome.Kind == sluice.RateLimit || r.outcome.Kind == sluice.UsageWindow
}

// once makes one call, of any outcome. It fails only when the search is over.
func (p *prober) once(ctx context.Context, s *shape) (reply, error) {
	req, started, err := p.begin(ctx, s)
	if err != nil {
		return reply{}, err
	}
	a, o := provider.Exchange(ctx, p.cfg.Base, nil, req, provider.ExchangeConfig{
		Provider: p.cfg.Provider, Endpoint: p.cfg.Target.Endpoint, Timeout: p.timeout(s), Key: p.cfg.Target.Key,
		MaxBytes: leastBytes + bytesPerToken*int64(s.bound),
	})
	if o.Kind == sluice.OK && !o.HasUsage && a.FinishReason == "" { // whoever answers so answers anything, at any pace
		o.Kind, o.Err = sluice.BadRequest, errNoModel
	}
	r := reply{sent: started.sent, done: time.Now(), outcome: o}
	p.end(s, started, &r)
	p.tell(false)
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	return r, nil
}

// errNoModel is the error of a good answer that none of a model's looks like.
var errNoModel = errors.New("the answer says neither what it used nor why it ended: it is not a model's")

// What is read of an answer at most: many calls are open at once.
const (
	leastBytes    = 4 << 20
	bytesPerToken = 256
)

// start is a call that is open.
type start struct {
	sent     time.Time
	inFlight int
	phase    Phase
	in, out  int // reserved
}

// begin reserves what a call may use and makes its request. It fails, and ends the search, when the budget is used up.
func (p *prober) begin(ctx context.Context, s *shape) (*http.Request, start, error) {
	if ctx.Err() != nil {
		return nil, start{}, context.Cause(ctx)
	}
	in, out := s.reserve()
	p.mu.Lock()
	out = max(out, p.longest[s.name])
	err := p.affordLocked(in, out)
	if err != nil {
		p.mu.Unlock()
		p.stop(err)
		return nil, start{}, err
	}
	p.serial++
	id := nonce(p.cfg.Seed, p.serial)
	p.open++
	p.spendLocked(in, out)
	p.spent.Calls++
	p.lastSent = time.Now()
	st := start{sent: p.lastSent, inFlight: p.open, phase: p.progress.Phase, in: in, out: out}
	p.mu.Unlock()

	req, err := p.cfg.Provider.NewRequest(ctx, p.cfg.Target, s.body(p.cfg.Provider, p.cfg.Target, id))
	if err != nil { // it was no call
		p.mu.Lock()
		p.open--
		p.spendLocked(-in, -out)
		p.spent.Calls--
		p.mu.Unlock()
		p.stop(err)
	}
	return req, st, err
}

// affordLocked fails when a call of so many tokens would go beyond what the search may cost.
func (p *prober) affordLocked(in, out int) error {
	if p.spent.Tokens()+in+out > p.cfg.TokenBudget {
		return ErrTokenBudget
	}
	if most := p.cfg.MaxCost; most != nil && *p.spent.Cost+p.price(in, out) > *most {
		return ErrMaxCost
	}
	return nil
}

func (p *prober) spendLocked(in, out int) {
	p.spent.Input += in
	p.spent.Output += out
	if p.spent.Cost != nil {
		cost := *p.spent.Cost + p.price(in, out)
		p.spent.Cost = &cost
	}
}

func (p *prober) price(in, out int) float64 {
	return (float64(in)**p.cfg.PriceIn + float64(out)**p.cfg.PriceOut) / 1e6
}

// end settles a call.
func (p *prober) end(s *shape, st start, r *reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	in, out := 0, 0 // a call that was not answered is not billed
	switch {
	case r.outcome.HasUsage && r.outcome.Usage.Input+r.outcome.Usage.Output > 0:
		in, out = r.outcome.Usage.Input, r.outcome.Usage.Output
		p.longest[s.name] = max(p.longest[s.name], out)
	case r.accepted(): // an answer that does not say what it used
		in, out = st.in, st.out
	}
	p.spendLocked(in-st.in, out-st.out)
	switch {
	case r.accepted():
		p.spent.Accepted++
		p.passed = r.done
		if s.real {
			p.real = max(p.real, r.took())
		}
	case r.refused():
		p.spent.Refused++
		if r.done.Sub(p.passed) > longestNothing {
			p.stop(fmt.Errorf("%w: %w", errRefused, r.outcome.Err))
		}
	default:
		p.spent.Failed++
	}
	if r.accepted() || r.refused() {
		p.probes = append(p.probes, Probe{
			Phase: st.phase, At: st.sent.Sub(p.began), Latency: r.took(), InFlight: st.inFlight, Real: s.real, Refused: r.refused(),
		})
	}
	p.hearLocked(r)
	switch r.outcome.Kind {
	case sluice.QuotaExhausted, sluice.Auth:
		p.stop(r.outcome.Err)
	case sluice.UsageWindow:
		if until := r.outcome.Until; until.After(r.done.Add(longestWindow)) {
			p.stop(r.outcome.Err)
		}
	}
}

// longestNothing is how long a search goes on while every call is refused. A window that fills once a minute lets some in
// sooner, and a storm has ended.
const longestNothing = 4 * time.Minute

var errRefused = errors.New("every call was refused for four minutes")

// timeout is how long a call may take. A tiny one that takes many times as long as real ones did hangs: the longest queue
// that a search makes is shorter.
func (p *prober) timeout(s *shape) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.real || p.real == 0 {
		return p.cfg.Timeout
	}
	return min(p.cfg.Timeout, max(leastTimeout, hangs*p.real))
}

const (
	leastTimeout = 30 * time.Second
	hangs        = 30
)

// longestWindow is how long a search waits for the end of an hour's or a day's allowance.
const longestWindow = 2 * time.Minute

// hearLocked keeps what an answer says of limits.
func (p *prober) hearLocked(r *reply) {
	both := func(d sluice.Dimension) bool { // of a minute and of a day
		return slices.ContainsFunc(r.outcome.Readings, func(o sluice.Reading) bool { return o.Dimension != d && ofMinute(o.Dimension) == ofMinute(d) })
	}
	for _, reading := range r.outcome.Readings {
		of := reading.Dimension
		if !both(of) {
			reading.Dimension = ofMinute(of)
		}
		period := p.heard[reading.Dimension].period.narrowed(&reading, r.took())
		e := evidence{reading, sluice.SourceHeader, r.done, period, of != reading.Dimension}
		p.heard[reading.Dimension] = e
		if e.dimension() == sluice.RequestsPerDay && reading.Remaining >= 0 {
			p.dayLeft = max(p.dayLeft, reading.Remaining)
			if 2*reading.Remaining < p.dayLeft {
				p.stop(ErrDay)
			}
		}
	}
	o := &r.outcome
	if e, ok := p.heard[o.Dimension]; r.refused() && o.Limit > 0 && (!ok || e.source != sluice.SourceHeader) {
		p.heard[o.Dimension] = evidence{sluice.Reading{Dimension: o.Dimension, Limit: o.Limit}, sluice.SourceRefusal, r.done, e.period, false}
	}
}

// enter says what is being done, and tells of it at once or when it is time to.
func (p *prober) enter(phase Phase, doing string, low, high int, now bool) {
	p.mu.Lock()
	p.progress.Phase, p.progress.Doing, p.progress.Low, p.progress.High = phase, doing, low, high
	p.mu.Unlock()
	p.tell(now)
}

const tellEvery = 250 * time.Millisecond

// tell says how far the search is, if it is time to. Nobody tells two at once.
func (p *prober) tell(now bool) {
	if p.cfg.Progress == nil {
		return
	}
	p.telling.Lock()
	defer p.telling.Unlock()
	p.mu.Lock()
	if !now && time.Since(p.told) < tellEvery {
		p.mu.Unlock()
		return
	}
	p.told = time.Now()
	p.progress.Spent, p.progress.Elapsed = p.spent, time.Since(p.began)
	progress := p.progress
	p.mu.Unlock()
	p.cfg.Progress(progress)
}

// burst makes n calls at once and waits for all of them.
func (p *prober) burst(ctx context.Context, s *shape, n int) ([]reply, error) {
	replies, errs := make([]reply, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { replies[i], errs[i] = p.once(ctx, s) })
	}
	wg.Wait()
	return replies, cmp.Or(errs...)
}

// modelsPath is where the models are listed, by the path of an endpoint.
func modelsPath(endpoint string) string {
	for _, end := range []string{"/models/", "/chat/completions", "/messages", "/embeddings", "/responses"} {
		if i := strings.LastIndex(endpoint, end); i >= 0 {
			return endpoint[:i] + "/models"
		}
	}
	return endpoint
}

// staysWarm is how long an idle connection is believed to stay open.
const staysWarm = 20 * time.Second

// longestWarm is how long connections may take to open.
const longestWarm = 10 * time.Second

// warm opens connections, so that the first calls of a burst do not wait for them.
func (p *prober) warm(ctx context.Context, n int) {
	base, ok := p.cfg.Base.(*http.Transport)
	if !ok || n <= p.warmed && time.Since(p.warmedAt) < staysWarm {
		return // no connections that anybody knows of, or enough
	}
	p.warmed, p.warmedAt = n, time.Now()
	ctx, cancel := context.WithTimeout(ctx, min(longestWarm, p.cfg.Timeout)) // who never answers such a question has connected
	defer cancel()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			req, err := p.cfg.Provider.NewRequest(ctx, p.cfg.Target, nil)
			if err != nil {
				return
			}
			// The list of models costs nothing, and of its answer only the head is asked for.
			req.Method, req.Body, req.GetBody, req.ContentLength = http.MethodHead, nil, nil, 0
			req.URL.Path, req.URL.RawPath = modelsPath(req.URL.Path), ""
			resp, err := base.RoundTrip(req)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
			resp.Body.Close()
		})
	}
	wg.Wait()
}
