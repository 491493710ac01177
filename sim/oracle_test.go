package sim_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/sim"
)

func chatBodies(n, input, maxTokens int) [][]byte {
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = []byte(chatBody(fmt.Sprintf("%d ", i), input, maxTokens))
	}
	return bodies
}

func TestOracleReachesTheOptimum(t *testing.T) {
	for name, test := range map[string]struct {
		config sim.Config
		bodies [][]byte
	}{
		"bound by requests": {
			sim.Config{RPM: 900, Burst: 15 * time.Second, Concurrency: 30},
			chatBodies(400, 10, 20)},
		"bound by tokens": {
			sim.Config{TPM: 60000, Burst: 10 * time.Second, Jitter: 0.5, OutputTokens: 100, OutputSigma: 0.7, PerToken: time.Millisecond},
			chatBodies(300, 50, 200)},
		"bound by output": {
			sim.Config{RPM: 6000, ITPM: 60000, OTPM: 30000, Charge: limits.ChargeActual, Burst: 5 * time.Second, OutputTokens: 100, OutputSigma: 0.5},
			chatBodies(300, 40, 1000)},
		"bound by concurrency": {
			sim.Config{Concurrency: 7, Jitter: 0.4},
			chatBodies(300, 10, 20)},
		"silent queue": {
			sim.Config{Queue: 6, Jitter: 0.3},
			chatBodies(300, 10, 20)},
		"contention": {
			sim.Config{Contention: 6, Jitter: 0.3},
			chatBodies(300, 10, 20)},
		"storm": {
			sim.Config{RPM: 1200, Burst: 2 * time.Second, Storms: []sim.Storm{{From: 3 * time.Second, To: 8 * time.Second}}},
			chatBodies(300, 10, 20)},
		"faults": {
			sim.Config{RPM: 1200, Burst: time.Second, Faults: sim.Faults{ServerError: 0.05, Overloaded: 0.03, Reset: 0.03, Cut: 0.03}},
			chatBodies(300, 10, 20)},
		"limits that change": {
			sim.Config{RPM: 600, TPM: 60000, Burst: 3 * time.Second, Changes: []sim.Change{{At: 5 * time.Second, Factor: 0.5}, {At: 15 * time.Second, Factor: 2}}},
			chatBodies(300, 40, 90)},
		"fixed windows": {
			sim.Config{RPM: 600, Burst: 4 * time.Second, FixedWindow: true},
			chatBodies(300, 10, 20)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := serve(t, test.config)
				best := test.config.Optimum(test.config.Workload(chatPath, test.bodies...))
				oracle := sim.Oracle{Config: test.config, Margin: -1}
				report, err := oracle.Run(ctx, &http.Client{Transport: s.Transport()}, baseURL, test.bodies)
				if err != nil {
					t.Fatal(err)
				}
				ratio := report.Elapsed.Seconds() / best.Seconds()
				t.Logf("%v of %v: %.4f; %+v", report.Elapsed, best, ratio, report)
				if ratio < 0.98 || ratio > 1.04 {
					t.Errorf("the oracle took %.3f of the optimum", ratio)
				}
				equal(t, "answered", report.Answered, len(test.bodies))
				if report.Throttled > 3 {
					t.Errorf("throttled %d times", report.Throttled)
				}
				for hash, n := range s.Stats().Paid {
					if n != 1 {
						t.Errorf("%s was paid for %d times", hash, n)
					}
				}
			})
		})
	}
}

// BenchmarkOracle goes over real sockets.
func BenchmarkOracle(b *testing.B) {
	config := sim.Config{RPM: 6000, Burst: time.Second, Concurrency: 50}
	bodies := chatBodies(400, 10, 20)
	best := config.Optimum(config.Workload(chatPath, bodies...))
	transport := &http.Transport{MaxIdleConnsPerHost: 100, DialContext: (&net.Dialer{}).DialContext}
	defer transport.CloseIdleConnections()
	var total time.Duration
	throttled := 0
	for b.Loop() {
		web := httptest.NewServer(serve(b, config))
		report, err := sim.Oracle{Config: config}.Run(b.Context(), &http.Client{Transport: transport}, web.URL, bodies)
		web.Close()
		if err != nil || report.Answered != len(bodies) {
			b.Fatal(report, err)
		}
		total += report.Elapsed
		throttled += report.Throttled
	}
	b.ReportMetric(total.Seconds()/float64(b.N)/best.Seconds(), "ratio-to-optimum")
	b.ReportMetric(float64(throttled)/float64(b.N), "throttles")
}
