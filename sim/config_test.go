package sim_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

func TestNewNamesTheBadField(t *testing.T) {
	for field, c := range map[string]sim.Config{
		"RPM":              {RPM: -1},
		"OTPM":             {OTPM: -5},
		"Queue":            {Queue: -1},
		"Contention":       {Contention: -1},
		"Burst":            {Burst: -time.Second},
		"PerToken":         {PerToken: -1},
		"Jitter":           {Jitter: math.NaN()},
		"OutputSigma":      {OutputSigma: -1},
		"Charge":           {Charge: 7},
		"RetryAfter":       {RetryAfter: -1},
		"DailyHeaders":     {DailyHeaders: true},
		"Faults.Hang":      {Faults: sim.Faults{Hang: 1.5}},
		"Faults.Cut":       {Faults: sim.Faults{Cut: math.NaN()}},
		"Faults.Throttled": {Faults: sim.Faults{Throttled: -0.1}},
		"Faults":           {Faults: sim.Faults{Reset: 0.6, Cut: 0.6}},
		"Storms[1]":        {Storms: []sim.Storm{{To: 1}, {From: 2, To: 2}}},
		"Storms[0].Status": {Storms: []sim.Storm{{To: 1, Status: 500}}},
		"Changes[0]":       {Changes: []sim.Change{{At: time.Second}}},
	} {
		_, err := sim.New(c)
		if err == nil || !strings.Contains(err.Error(), "Config."+field) {
			t.Errorf("New with a bad %s: %v", field, err)
		}
	}
	if _, err := sim.New(sim.Config{Latency: -1, RefusalLatency: -1}); err != nil {
		t.Errorf("New without latency: %v", err)
	}
}

func TestDrainedBucketsStartEmpty(t *testing.T) {
	c := sim.Config{RPM: 60, RPD: 10, Drained: true}
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, c)
		equal(t, "status at once", send(ctx, s, chatPath, chatBody("a", 1, 1)).status, 429)
		time.Sleep(time.Second)
		r := send(ctx, s, chatPath, chatBody("a", 1, 1))
		equal(t, "status a second later", r.status, 200)
		equal(t, "remaining", r.header.Get("x-ratelimit-remaining-requests"), "0")
	})
	if _, err := (sim.Oracle{Config: c}).Run(t.Context(), nil, "", nil); err == nil || !strings.Contains(err.Error(), "Config.Drained") {
		t.Errorf("an oracle runs against drained buckets: %v", err)
	}
}
