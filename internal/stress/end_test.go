package stress_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/stress"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// roundTripper makes an http.RoundTripper of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// endpoint is one of five slots behind base.
func endpoint(base http.RoundTripper) *stress.Endpoint {
	p, _ := provider.Lookup("sim")
	return &stress.Endpoint{
		Provider: p, Target: provider.Target{Model: "m", Endpoint: p.PromptEndpoint("m")}, Base: base,
		Scheduler: func(o sluice.Observer) (*sluice.Scheduler, error) {
			return sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 5}, Observer: o})
		},
	}
}

func imitation(t *testing.T) http.RoundTripper {
	t.Helper()
	server, err := sim.New(sim.Config{Latency: 100 * time.Millisecond, Jitter: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	return server.Transport()
}

// row is the row of that name.
func row(t *testing.T, res *stress.Result, name string) stress.Row {
	t.Helper()
	for _, row := range res.Rows {
		if row.Name == name {
			return row
		}
	}
	t.Fatalf("there is no row %q", name)
	return stress.Row{}
}

func TestAnInterruptedRunTellsWhatItHad(t *testing.T) {
	for _, level := range stress.Levels() {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
			defer cancel()
			start := time.Now()
			res, err := stress.Run(ctx, stress.Config{Level: level, Duration: 15 * time.Second})
			if !errors.Is(err, stress.ErrInterrupted) || res == nil {
				t.Fatalf("%v, %v", res, err)
			}
			if missed := res.Missed; len(missed) > 0 || res.Seen == 0 {
				shown(t, res)
				t.Errorf("%s: missed %v of %d calls", level, missed, res.Seen)
			}
			if took := time.Since(start); took > 9*time.Second {
				t.Errorf("%s took %v", level, took)
			}
		})
	}
}

func TestAnEndpointIsPutUnderLoadAsWell(t *testing.T) {
	for _, level := range stress.Levels() {
		synctest.Test(t, func(t *testing.T) {
			res, err := stress.Run(t.Context(), stress.Config{Level: level, Duration: 10 * time.Second, Endpoint: endpoint(imitation(t))})
			if err != nil {
				t.Fatal(err)
			}
			if missed := res.Missed; len(missed) > 0 {
				shown(t, res)
				t.Errorf("%s: missed %v", level, missed)
			}
			if left := len(res.LeftOut); left != 0 && level != "chaos" {
				t.Errorf("%s left out %v", level, res.LeftOut)
			}
		})
	}
}

func TestWithoutAProviderNoLoadIsPutOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		refused := errors.New("nobody is there")
		res, err := stress.Run(t.Context(), stress.Config{Level: "hybrid", Endpoint: endpoint(roundTripper(func(*http.Request) (*http.Response, error) {
			calls.Add(1)
			return nil, refused
		}))})
		if fault.Of(err).Code != fault.Unreachable || !strings.Contains(err.Error(), refused.Error()) || res != nil {
			t.Errorf("%v, %v", res, err)
		}
		if n := calls.Load(); n != 3 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestARunEndsThoughItsCallsDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, end := imitation(t), make(chan struct{})
		var calls atomic.Int64
		start := time.Now()
		res, err := stress.Run(t.Context(), stress.Config{Level: "aggressive", Duration: 10 * time.Second,
			Endpoint: endpoint(roundTripper(func(r *http.Request) (*http.Response, error) {
				if calls.Add(1) > 50 {
					<-end // whatever its context says
				}
				return good.RoundTrip(r)
			}))})
		if err != nil {
			t.Fatal(err)
		}
		if r := row(t, res, "deadlocks"); r.OK || res.Deadlock == "" {
			t.Errorf("%+v", r)
		}
		if r := row(t, res, "slot_leaks"); r.OK || *r.Value != 5 {
			t.Errorf("%+v", r)
		}
		if took := time.Since(start); took > 3*time.Minute {
			t.Errorf("it took %v", took)
		}
		close(end)
		synctest.Wait()
	})
}

func TestAnObserverThatBlocksForEverIsADeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		var events atomic.Int64
		start := time.Now()
		res, err := stress.Run(t.Context(), stress.Config{Level: "aggressive", Duration: time.Minute,
			Observer: sluice.ObserverFunc(func(sluice.Event) {
				if events.Add(1) > 500 {
					<-end
				}
			})})
		if err != nil {
			t.Fatal(err)
		}
		if r := row(t, res, "deadlocks"); r.OK {
			shown(t, res)
			t.Errorf("%+v", r)
		}
		if took := time.Since(start); took > 3*time.Minute {
			t.Errorf("it took %v", took)
		}
		close(end)
		synctest.Wait()
	})
}

func TestAPanicThatNobodyPlannedIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := imitation(t)
		var calls atomic.Int64
		res, err := stress.Run(t.Context(), stress.Config{Level: "conservative", Duration: 10 * time.Second,
			Endpoint: endpoint(roundTripper(func(r *http.Request) (*http.Response, error) {
				if calls.Add(1) == 20 {
					panic("not planned")
				}
				return good.RoundTrip(r)
			}))})
		if err != nil {
			t.Fatal(err)
		}
		if r := row(t, res, "panics"); r.OK || *r.Value != 1 || !strings.Contains(res.Panic, "not planned") {
			t.Errorf("%+v %s", r, res.Panic)
		}
		if missed := res.Missed; len(missed) != 2 || !slices.Contains(missed, "completion") {
			t.Errorf("missed: %v", missed)
		}
	})
}

func TestArrivalsThatFindNoWorkerAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		res, err := stress.Run(t.Context(), stress.Config{Level: "chaos", Duration: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		p := res.Parts[1]
		if p.Name != "spawned and cancelled" || p.Dropped == 0 || p.Dropped >= p.Arrived {
			t.Errorf("%d of %d were dropped: %+v", p.Dropped, p.Arrived, p)
		}
		if r := row(t, res, "dropped_arrivals"); int(*r.Value) != p.Dropped {
			t.Errorf("%+v", r)
		}
	})
}

func TestWhatIsWrongInAConfigIsNamed(t *testing.T) {
	for field, cfg := range map[string]stress.Config{
		"Level":    {Level: "mild"},
		"Slots":    {Level: "chaos", Slots: -1},
		"Duration": {Level: "chaos", Duration: time.Millisecond},
		"Latency":  {Level: "chaos", Latency: -1},
		"Timeout":  {Level: "chaos", Timeout: -1},
	} {
		_, err := stress.Run(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), "Config."+field+": ") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestFairnessAndStarvation(t *testing.T) {
	for want, got := range map[float64][]float64{1: {7, 7, 7}, 0.25: {9, 0, 0, 0}, 0.9: {2, 1}} {
		if x := stress.Jain(got); x < want-1e-9 || x > want+1e-9 {
			t.Errorf("Jain(%v) = %v, want %v", got, x, want)
		}
	}
	if stress.Starvation(make([]time.Duration, 19)) != nil {
		t.Error("so few waits say nothing")
	}
	waits := []time.Duration{30 * time.Second}
	for range 30 {
		waits = append(waits, time.Second)
	}
	if x := stress.Starvation(waits); x == nil || *x != 30 {
		t.Error(x)
	}
}

// Each part waits for the calls that are open behind its time, but not each part for a provider that is gone.
func TestARunAgainstAProviderThatDiesEndsSoon(t *testing.T) {
	for _, level := range stress.Levels() {
		synctest.Test(t, func(t *testing.T) {
			good, start := imitation(t), time.Now()
			res, err := stress.Run(t.Context(), stress.Config{Level: level, Duration: 10 * time.Second,
				Endpoint: endpoint(roundTripper(func(r *http.Request) (*http.Response, error) {
					if time.Since(start) > 2*time.Second {
						return nil, errors.New("connection refused")
					}
					return good.RoundTrip(r)
				}))})
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(start)
			t.Logf("%s took %v: %v", level, took, res.Missed)
			if took > 4*time.Minute { // three rounds of at most a minute, and the load
				t.Errorf("%s took %v", level, took)
			}
			if errors.Is(res.Failure, context.Canceled) {
				t.Errorf("%s: nobody cancelled a call but the run, which says no more than: %v", level, res.Failure)
			}
			if r := row(t, res, "completion"); r.OK || res.Failure == nil {
				t.Errorf("%s: %+v %v", level, r, res.Failure)
			}
			if r := row(t, res, "deadlocks"); !r.OK {
				t.Errorf("%s: %s", level, res.Deadlock)
			}
			for _, name := range map[string][]string{
				"chaos": {"recovery_round"}, "hybrid": {"phases_advanced", "reviews_finished"},
			}[level] {
				if r := row(t, res, name); r.OK {
					t.Errorf("%s: %+v", level, r)
				}
			}
		})
	}
}
