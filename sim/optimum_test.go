package sim_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/sim"
)

// Workloads so small that their optimum can be worked out by hand.
func TestOptimum(t *testing.T) {
	const ms = time.Millisecond
	calls := func(n int, r sim.Request) sim.Workload {
		w := make(sim.Workload, n)
		for i := range w {
			w[i] = r
		}
		return w
	}
	one := sim.Request{Input: 10, MaxTokens: 100}
	for name, test := range map[string]struct {
		config sim.Config
		work   sim.Workload
		want   time.Duration
	}{
		"nothing":         {sim.Config{RPM: 1}, nil, 0},
		"no limits":       {sim.Config{}, calls(1000, one), 200 * ms},
		"output":          {sim.Config{PerToken: ms}, calls(3, sim.Request{Output: 50}), 250 * ms},
		"usual output":    {sim.Config{PerToken: ms, OutputTokens: 30}, calls(3, one), 230 * ms},
		"no output":       {sim.Config{PerToken: ms}, calls(3, sim.Request{Output: -1}), 200 * ms},
		"the burst only":  {sim.Config{RPM: 60}, calls(60, one), 200 * ms},
		"one beyond":      {sim.Config{RPM: 60}, calls(61, one), 1200 * ms},
		"small burst":     {sim.Config{RPM: 60, Burst: ms}, calls(11, one), 10200 * ms},
		"declared tokens": {sim.Config{TPM: 600}, calls(8, one), 20200 * ms},
		"actual tokens":   {sim.Config{TPM: 600, Charge: limits.ChargeActual, OutputTokens: 80}, calls(8, one), 200 * ms},
		// 200 ms for the first, whose 90 tokens leave a debt of 90 - 60 - 2.
		"debt":                      {sim.Config{OTPM: 60, Concurrency: 1, Charge: limits.ChargeActual, OutputTokens: 90}, calls(2, one), 200*ms + 31000*ms + 200*ms},
		"concurrency":               {sim.Config{Concurrency: 2}, calls(5, one), 600 * ms},
		"silent queue":              {sim.Config{Queue: 2}, calls(5, one), 600 * ms},
		"both":                      {sim.Config{Queue: 2, Concurrency: 3}, calls(5, one), 600 * ms},
		"contention":                {sim.Config{Contention: 2}, calls(5, one), 600 * ms},
		"contention behind a queue": {sim.Config{Queue: 3, Contention: 2}, calls(5, one), 600 * ms},
		"storm": {sim.Config{RPM: 60, Burst: ms, Storms: []sim.Storm{{From: 1500 * ms, To: 4 * time.Second}}},
			calls(4, one), 5200 * ms}, // at 0, 1, 4 and 5 s
		"slower": {sim.Config{RPM: 60, Burst: ms, Changes: []sim.Change{{At: 1500 * ms, Factor: 0.1}}},
			calls(3, one), 6700 * ms}, // at 0, 1, and half a second and half of ten seconds later
		"faster": {sim.Config{RPM: 1, Burst: ms, Changes: []sim.Change{{At: 30 * time.Second, Factor: 60}}},
			calls(2, one), 30700 * ms},
		"drained":        {sim.Config{RPM: 60, RPD: 10, Drained: true}, calls(5, one), 5200 * ms},
		"drained window": {sim.Config{RPM: 60, Burst: 10 * time.Second, FixedWindow: true, Drained: true}, calls(10, one), 10200 * ms},
		"too large":      {sim.Config{TPM: 600}, sim.Workload{one, {Input: 601}, one}, 200 * ms},
		"stated window":  {sim.Config{Requests: limits.Window{N: 10, Period: 10 * time.Second}}, calls(31, one), 30200 * ms},
		"windows":        {sim.Config{RPM: 60, Burst: 10 * time.Second, FixedWindow: true}, calls(31, one), 30200 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			if test.config.OutputTokens == 0 {
				test.config.OutputTokens = 1
			}
			got := test.config.Optimum(test.work)
			if d := got - test.want; d < -time.Microsecond || d > time.Microsecond {
				t.Errorf("Optimum = %v, want %v", got, test.want)
			}
		})
	}
}

func TestOptimumRepeatsWhatFails(t *testing.T) {
	// A request a second: every failure costs one more.
	c := sim.Config{RPM: 60, Burst: time.Millisecond, Faults: sim.Faults{Overloaded: 0.3}}
	bodies := chatBodies(100, 10, 20)
	w := c.Workload(chatPath, bodies...)
	attempts := 1 + (c.Optimum(w) - 200*time.Millisecond).Seconds()
	if attempts < 125 || attempts > 165 {
		t.Errorf("%.1f attempts for 100 items of which 30 %% fail", attempts)
	}
	c.Faults = sim.Faults{BadRequest: 0.5}
	if n := len(c.Workload(chatPath, bodies...)); n < 30 || n > 70 {
		t.Errorf("%d of 100 are not bad", n)
	}
}
