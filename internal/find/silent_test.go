package find_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/sim"
)

// oneByOne lets calls through one after the other, as a network does: each takes a moment.
type oneByOne struct {
	base   http.RoundTripper
	moment time.Duration

	mu   sync.Mutex
	free time.Time
}

func (o *oneByOne) RoundTrip(r *http.Request) (*http.Response, error) {
	o.mu.Lock()
	now := time.Now()
	if o.free.Before(now) {
		o.free = now
	}
	o.free = o.free.Add(o.moment)
	wait := o.free.Sub(now)
	o.mu.Unlock()
	time.Sleep(wait)
	return o.base.RoundTrip(r)
}

func TestANetworkThatTakesItsTimeIsNoQueue(t *testing.T) {
	for _, moment := range suite.Size([]time.Duration{time.Millisecond}, []time.Duration{100 * time.Microsecond, time.Millisecond}) {
		for _, regular := range []bool{true, false} {
			r := row{sim: sim.Config{RPM: 600}}
			synctest.Test(t, func(t *testing.T) {
				c := r.config(1)
				if regular {
					c.Jitter = 0
				}
				server, err := sim.New(c)
				if err != nil {
					t.Fatal(err)
				}
				cfg, _ := r.search(t, 1)
				cfg.Base = &oneByOne{base: server.Transport(), moment: moment}
				found, err := find.Auto(t.Context(), cfg)
				if err != nil || found.Findings.Queue || !r.near(found) {
					t.Errorf("%v, regular %t: %d workers, queue %t of %.0f: %v", moment, regular, found.Workers, found.Findings.Queue, found.Findings.Limits[limits.Concurrency].Value, err)
				}
			})
		}
	}
}
