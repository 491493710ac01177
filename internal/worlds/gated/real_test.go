package gated

import (
	"cmp"
	"context"
	"iter"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/internal/worlds"
	"github.com/sluice-llm/sluice/provider"
)

// play is a world played as sluice run would run it: by a Runner, a Scheduler and net/http.
type play struct {
	world     *worlds.World
	items     []*worlds.Item
	transport *http.Transport
	start     time.Time

	mu       sync.Mutex
	took     time.Duration // until the last item that can succeed had its result
	left     int           // items that can succeed and have no result
	failed   int           // of those that have one
	rejected int           // responses with 429
}

// playWorld plays a world until all items that can succeed have a result.
func playWorld(t *testing.T, w *worlds.World, l net.Listener, dial func(context.Context, string, string) (net.Conn, error)) *play {
	server := http.Server{Handler: worlds.NewServer(w)}
	p := &play{world: w, items: w.Items(), transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: w.Load.Items}, start: time.Now()}
	p.left = len(slices.DeleteFunc(w.Items(), (*worlds.Item).Odd))
	ctx, cancel := context.WithCancel(t.Context())
	var instances, serving sync.WaitGroup
	serving.Go(func() { server.Serve(l) })
	for i := range max(1, w.Procs.N) {
		instances.Go(func() {
			if err := p.instance(ctx, i, cancel); err != nil && ctx.Err() == nil {
				t.Errorf("seed %d: %v", w.Seed, err)
			}
		})
	}
	instances.Wait()
	cancel()
	p.transport.CloseIdleConnections()
	server.Close()
	serving.Wait()
	if p.left > 0 {
		t.Errorf("seed %d: %d items have no result", w.Seed, p.left)
	}
	return p
}

// instance runs the items of one instance of the client, and calls done after the last item that can succeed.
func (p *play) instance(ctx context.Context, instance int, done func()) error {
	cfg := sluice.Config{Attempts: p.world.Config.Attempts, Charge: charge(p.world), Limits: configured(p.world.Config)}
	if p.world.Config.Account {
		cfg.Account, cfg.Limits = cfg.Limits, sluice.Limits{}
	}
	scheduler, err := sluice.New(cfg)
	if err != nil {
		return err
	}
	defer scheduler.Close()
	runner, err := work.New(work.Config{
		Handler:  work.NewCalls(work.CallsConfig{Route: p.route(scheduler), Attempt: p.attempt}),
		Feed:     func(context.Context) iter.Seq2[work.Item, error] { return p.feed(instance) },
		OnResult: func(r *work.Result) { p.record(r, done) },
	})
	if err != nil {
		return err
	}
	_, err = runner.Run(ctx)
	return err
}

func (p *play) feed(instance int) iter.Seq2[work.Item, error] {
	return func(yield func(work.Item, error) bool) {
		for _, item := range p.items {
			if item.Instance != instance {
				continue
			}
			time.Sleep(time.Until(p.start.Add(item.At)))
			if !yield(work.Item{ID: strconv.Itoa(item.ID), Seq: int64(item.ID), Lane: item.LaneName() + "/" + strconv.Itoa(item.Tenant),
				Cost: sluice.Cost{Input: item.Input, MaxOutput: item.Max}}, nil) {
				return
			}
		}
	}
}

// route sends the calls of a tenant in its name.
func (p *play) route(scheduler *sluice.Scheduler) work.Route {
	return func(ctx context.Context, item work.Item, call sluice.Call, try func(context.Context, *sluice.Permit) sluice.Outcome) (sluice.Tally, error) {
		from := p.items[item.Seq]
		call.Lane, call.Tenant = from.LaneName(), strconv.Itoa(from.Tenant)
		return scheduler.Do(ctx, call, try)
	}
}

func (p *play) attempt(ctx context.Context, permit *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
	row, _ := provider.Lookup(providers[p.world.Show.Dialect])
	endpoint := map[provider.Dialect]provider.Endpoint{provider.OpenAI: provider.ChatCompletions, provider.Anthropic: provider.Messages,
		provider.Gemini: provider.GenerateContent}[row.Dialect]
	req, err := row.NewRequest(ctx, provider.Target{BaseURL: "http://provider.invalid", Key: "k", Endpoint: endpoint, Model: p.items[item.Seq].LaneName(),
		Header: http.Header{"Item": {item.ID}}}, []byte("{}"))
	if err != nil {
		return work.Result{}, sluice.Outcome{Kind: sluice.Internal, Err: err}
	}
	answered := roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := p.transport.RoundTrip(req)
		if err == nil && resp.StatusCode == http.StatusOK && p.world.Serve.Stream { // Exchange waits for the end of a body that is not an event stream
			permit.Answered(row.Readings(resp.Header, time.Now()))
		}
		return resp, err
	})
	a, o := provider.Exchange(ctx, answered, permit, req, provider.ExchangeConfig{Provider: row, Endpoint: endpoint, Cost: item.Cost,
		Timeout: time.Duration(float64(cmp.Or(p.world.Config.Deadline, 60)) * float64(time.Second))})
	if a.Status == http.StatusTooManyRequests {
		p.mu.Lock()
		p.rejected++
		p.mu.Unlock()
	}
	return work.Result{}, o
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func (p *play) record(r *work.Result, done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 || p.items[r.Seq].Odd() {
		return
	}
	p.took = time.Since(p.start)
	if r.Err != nil {
		p.failed++
	}
	if p.left--; p.left == 0 {
		done()
	}
}

// pipes are a network in virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return nil }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func playVirtual(t *testing.T, w *worlds.World) (p *play) {
	synctest.Test(t, func(t *testing.T) {
		network := pipes{make(chan net.Conn), make(chan struct{})}
		p = playWorld(t, w, network, network.dial)
	})
	return p
}

func playReal(t *testing.T, w *worlds.World) *play {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return playWorld(t, w, l, func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
	})
}

// In many worlds a millisecond or another random backoff changes which requests are rejected or fail, and with them the time of the
// world. So the time over sockets is compared with the median and with the range of several virtual times. Worlds with kills or a
// ledger are left out, since they need several processes, and worlds of rate limiters, which may take ten minutes.
func TestRealTimeAgreesWithVirtualTime(t *testing.T) {
	suite.FullOnly(t)
	const n, rounds = 50, 8
	type compared struct {
		world   *worlds.World
		real    *play
		virtual [rounds]*play // by time
	}
	var all []*compared
	for seed := uint64(1); len(all) < n; seed++ {
		if w := worlds.Basic(seed); !w.Procs.Ledger && len(w.Procs.Kills) == 0 {
			all = append(all, &compared{world: w})
		}
	}
	t.Run("virtual", func(t *testing.T) {
		for _, c := range all {
			t.Run(strconv.FormatUint(c.world.Seed, 10), func(t *testing.T) {
				t.Parallel()
				for i := range rounds {
					w := *c.world
					w.Serve.Up, w.Serve.Jitter = w.Serve.Up+worlds.Seconds(i)*0.0002, w.Serve.Jitter+worlds.Seconds(i)*0.0005 // as of sockets
					c.virtual[i] = playVirtual(t, &w)
				}
				slices.SortFunc(c.virtual[:], func(a, b *play) int { return cmp.Compare(a.took, b.took) })
			})
		}
	})
	slices.SortFunc(all, func(a, b *compared) int { return cmp.Compare(b.virtual[rounds-1].took, a.virtual[rounds-1].took) })
	var group sync.WaitGroup
	for i, c := range all { // one in each second, since most of the work is in the first second of a world
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // virtual time starts at a whole second, too
		group.Go(func() { all[i].real = playReal(t, c.world) })
	}
	group.Wait()
	var differences, outside []float64
	for _, c := range all {
		low, median, high := c.virtual[0].took.Seconds(), c.virtual[rounds/2], c.virtual[rounds-1].took.Seconds()
		took := c.real.took.Seconds()
		difference := took/median.took.Seconds() - 1
		differences = append(differences, math.Abs(difference))
		outside = append(outside, max(0, took/high-1, low/took-1))
		t.Logf("seed %d (%s): %.2f s, virtual %.2f s (%.2f to %.2f): %+.2f %%, outside %.2f %%; %d rejections, virtual %d; %d failed, virtual %d", c.world.Seed, c.world.Class(),
			took, median.took.Seconds(), low, high, 100*difference, 100*outside[len(outside)-1], c.real.rejected, median.rejected, c.real.failed, median.failed)
	}
	for name, values := range map[string][]float64{"|real - median of virtual| / virtual": differences, "outside the range of virtual times": outside} {
		slices.Sort(values)
		t.Logf("%s: p50 %.2f %%, p90 %.2f %%, max %.2f %%", name, 100*values[n/2], 100*values[n*9/10], 100*values[n-1])
	}
	if outside[n/2] > 0.25 {
		t.Errorf("half of the worlds differ by more than %.0f %%", 100*outside[n/2])
	}
}
