package stress

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// Endpoint is whom calls go to.
type Endpoint struct {
	Provider  provider.Provider
	Target    provider.Target // with Model, and Endpoint
	Base      http.RoundTripper
	Scheduler func(sluice.Observer) (*sluice.Scheduler, error) // of so many slots
}

// backend is a provider that calls go to for a time.
type backend interface {
	http.RoundTripper
	// seen is how many calls have reached it: by its own word, or else how many were handed over to it.
	seen() int64
	// peak is the most that were open at once there; 0 where it does not tell.
	peak() int
}

// wire is the way to the provider: to one backend after another. It counts what goes through.
type wire struct {
	open atomic.Int64
	sent atomic.Int64

	mu  sync.Mutex
	now backend
	all []backend
}

// to sends calls to b from now on.
func (w *wire) to(b backend) {
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
	w.sent.Add(1)
	w.open.Add(1)
	defer w.open.Add(-1)
	return b.RoundTrip(r)
}

// seen is how many calls the providers saw.
func (w *wire) seen() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var n int64
	for _, b := range w.all {
		n += b.seen()
	}
	return n
}

// peak is the most calls that were open at once at a provider.
func (w *wire) peak() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.all {
		n = max(n, b.peak())
	}
	return n
}

// imitation is a provider in the same process.
type imitation struct {
	server *sim.Server
	base   http.RoundTripper
}

func newImitation(c sim.Config) (*imitation, error) {
	c.NoStats = true
	server, err := sim.New(c)
	if err != nil {
		return nil, err
	}
	return &imitation{server, server.Transport()}, nil
}

// RoundTrip hands a call over. One that has left cannot be taken back: it is seen, though its context ended on the way.
func (m *imitation) RoundTrip(r *http.Request) (*http.Response, error) {
	return m.base.RoundTrip(r.WithContext(&departed{Context: r.Context()}))
}

func (m *imitation) seen() int64 {
	stats := m.server.Stats()
	return int64(stats.Requests + stats.Invalid)
}

func (m *imitation) peak() int { return m.server.Stats().Peak }

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

// remote is a provider elsewhere, which tells nothing of itself: what was handed over to it counts.
type remote struct {
	base http.RoundTripper
	n    atomic.Int64
}

// RoundTrip counts a call and hands it over.
func (m *remote) RoundTrip(r *http.Request) (*http.Response, error) {
	m.n.Add(1)
	return m.base.RoundTrip(r)
}

func (m *remote) seen() int64 { return m.n.Load() }
func (m *remote) peak() int   { return 0 }
