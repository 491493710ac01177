package gateway

import (
	"cmp"
	"errors"
	"sync/atomic"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// state is what calls are served with. It does not change: Swap puts another in its place, and calls end on the one that they
// began on.
type state struct {
	cfg     Config
	guard   guard
	forward *provider.Forwarder
	listed  map[string]bool // models that the settings name

	users atomic.Int64  // calls, and the Gateway while this is its state
	over  chan struct{} // closed when there are none
}

// newState completes cfg, or names the field of it that is wrong.
func newState(cfg Config) (*state, error) {
	if cfg.Upstreams == nil {
		return nil, errors.New("gateway: Upstreams is nil")
	}
	d := &cfg.Deadlines
	if d.Queue < 0 || d.FirstByte < 0 || d.Idle < 0 || d.Total < 0 {
		return nil, errors.New("gateway: a deadline is negative")
	}
	if cfg.Early < 0 {
		return nil, errors.New("gateway: Early is negative")
	}
	if cfg.MaxBodyMemory < 0 {
		return nil, errors.New("gateway: MaxBodyMemory is negative")
	}
	d.Queue, d.FirstByte = cmp.Or(d.Queue, usualQueue), cmp.Or(d.FirstByte, usualFirstByte)
	d.Idle, cfg.MaxBodyMemory = cmp.Or(d.Idle, usualIdle), cmp.Or(cfg.MaxBodyMemory, defaultMaxBodyMemory)
	if err := checkPassthrough(&cfg); err != nil {
		return nil, err
	}
	s := &state{cfg: cfg, guard: newGuard(cfg.Hosts), over: make(chan struct{}), listed: make(map[string]bool)}
	s.users.Store(1)
	for _, name := range s.models() {
		s.listed[name] = true
	}
	for _, name := range cfg.Models {
		s.listed[name] = true
		cfg.Upstreams.AddModels(name)
	}
	var err error
	s.forward, err = provider.NewForwarder(provider.ForwarderConfig{
		Upstreams: cfg.Upstreams, Base: cfg.Base, Header: cfg.Header, FirstByte: d.FirstByte, Idle: d.Idle, Total: d.Total,
	})
	return s, err
}

// Swap replaces the Config for new requests. Swap ignores cfg.Logger and cfg.Tenants. If cfg.Traffic is nil, Swap keeps the old
// Traffic. Requests in progress keep the old Config. When the last request with the old Config finishes, over is closed. If a field
// of cfg is invalid, the error names the field, and the old Config stays in use.
func (g *Gateway) Swap(cfg Config) (over <-chan struct{}, err error) {
	cfg.Traffic = cmp.Or(cfg.Traffic, g.now.Load().cfg.Traffic)
	s, err := newState(cfg)
	if err != nil {
		return nil, err
	}
	g.weigh(s)
	before := g.now.Swap(s)
	before.done()
	return before.over, nil
}

// weigh has the Schedulers of a state know the tenants' weights.
func (g *Gateway) weigh(s *state) {
	var schedulers []*sluice.Scheduler
	for _, up := range s.cfg.Upstreams.All() {
		schedulers = append(schedulers, up.Scheduler)
	}
	g.tenants.weigh(schedulers)
}

// take returns the state of a call that comes now; the call is to be done with it.
func (g *Gateway) take() *state {
	for {
		s := g.now.Load()
		// One that nobody uses any more was swapped since, and those who wait for its end know so.
		for n := s.users.Load(); n > 0; n = s.users.Load() {
			if s.users.CompareAndSwap(n, n+1) {
				return s
			}
		}
	}
}

func (s *state) done() {
	if s.users.Add(-1) == 0 {
		close(s.over)
	}
}
