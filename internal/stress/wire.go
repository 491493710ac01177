package stress

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// Endpoint is the receiver of calls.
type Endpoint struct {
	Provider  provider.Provider
	Target    provider.Target // with Model, and Endpoint
	Base      http.RoundTripper
	Scheduler func(sluice.Observer) (*sluice.Scheduler, error) // with the configured slots
}

// roundTripper is a function as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// backend is a provider that receives calls for a time.
type backend struct {
	http.RoundTripper
	handed atomic.Int64                  // calls
	stats  func() (seen int64, peak int) // its own counts: calls, and the most at once. Nil: it has none
}

// seen returns how many calls have reached the backend, and the most that were open at once, 0 if that is unknown.
func (b *backend) seen() (n int64, peak int) {
	if b.stats == nil {
		return b.handed.Load(), 0
	}
	return b.stats()
}

// wire is the way to one backend after another. It counts calls.
type wire struct {
	open atomic.Int64
	sent atomic.Int64

	mu  sync.Mutex
	now *backend
	all []*backend
}

// to sends calls to b from now on.
func (w *wire) to(b *backend) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = b
	if !slices.Contains(w.all, b) {
		w.all = append(w.all, b)
	}
}

// RoundTrip passes a call on.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	b := w.now
	w.mu.Unlock()
	b.handed.Add(1)
	w.sent.Add(1)
	w.open.Add(1)
	defer w.open.Add(-1)
	return b.RoundTripper.RoundTrip(r)
}

// seen returns how many calls the backends saw, and the most that were open at once at one of them.
func (w *wire) seen() (n int64, peak int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.all {
		m, p := b.seen()
		n, peak = n+m, max(peak, p)
	}
	return n, peak
}

// simulator returns a provider in the same process.
func simulator(c sim.Config) (*backend, error) {
	c.NoStats = true
	server, err := sim.New(c)
	if err != nil {
		return nil, err
	}
	base := server.Transport()
	return &backend{
		// A call that has left cannot be taken back: it is seen, even if its context ends on the way.
		RoundTripper: roundTripper(func(r *http.Request) (*http.Response, error) {
			return base.RoundTrip(r.WithContext(&departed{Context: r.Context()}))
		}),
		stats: func() (int64, int) {
			stats := server.Stats()
			return int64(stats.Requests + stats.Invalid), stats.Peak
		},
	}, nil
}

// departed is a context that was not over when it was first asked.
type departed struct {
	context.Context
	asked atomic.Bool
}

// Err is nil at first.
func (d *departed) Err() error {
	if !d.asked.Swap(true) {
		return nil
	}
	return d.Context.Err()
}

// startWithin is the time in which a provider of our own has to tell its address, and its counts.
const startWithin = 10 * time.Second

// child is a provider in a process of its own, which can be stopped as a whole.
type child struct {
	backend
	address *url.URL
	base    http.RoundTripper
	process *os.Process
	cancel  context.CancelFunc
	ended   chan struct{}
}

// startChild starts a `sluice sim`.
func (r *run) startChild() (*child, error) {
	ctx, cancel := context.WithCancel(r.ctx)
	c := &child{base: provider.NewBase(2 * r.cfg.Slots), cancel: cancel, ended: make(chan struct{})}
	c.RoundTripper = roundTripper(func(r *http.Request) (*http.Response, error) { // whatever its address is
		there, at := *r, *r.URL
		at.Scheme, at.Host = c.address.Scheme, c.address.Host
		there.URL, there.Host = &at, ""
		return c.base.RoundTrip(&there)
	})
	out, said := io.Pipe()
	started := make(chan *os.Process, 1)
	go func() {
		defer close(c.ended)
		_, err := command.Run(ctx, command.Spec{
			Args: []string{r.cfg.Program, "sim", "--listen", "127.0.0.1:0", "--latency", r.cfg.Latency.String(), "--jitter", "0.2",
				"--output-tokens", "16", "--seed", fmt.Sprint(r.cfg.Seed)},
			Env: provider.WithoutAdminKeys(os.Environ()), Stdout: said, Started: func(p *os.Process) { started <- p },
		})
		said.CloseWithError(cmp.Or(err, errors.New("the process exited immediately")))
	}()
	late := time.AfterFunc(startWithin, func() { said.CloseWithError(errors.New("the process did not print its address")) })
	defer late.Stop()
	lines := bufio.NewScanner(out)
	if lines.Scan() {
		c.process = <-started
		go io.Copy(io.Discard, out)
		var err error
		if c.address, err = url.Parse(lines.Text()); err == nil && c.address.Host != "" {
			return c, nil
		}
	}
	c.end()
	return nil, cmp.Or(lines.Err(), fmt.Errorf("the process printed the unexpected line %q", lines.Text()))
}

// count takes the number of calls from the process, when all have ended.
func (c *child) count(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address.JoinPath("stats").String(), nil)
	if err != nil {
		return err
	}
	resp, err := c.base.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var stats struct{ Requests, Invalid int64 }
	if err := json.NewDecoder(resp.Body).Decode(&stats); err != nil {
		return err
	}
	c.handed.Store(stats.Requests + stats.Invalid)
	return nil
}

// end ends the process.
func (c *child) end() {
	if c.process != nil {
		c.resume() // else it would not see that it is to end
	}
	c.cancel()
	<-c.ended
	if t, ok := c.base.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}
