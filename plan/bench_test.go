package plan_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
)

// day is a lane of 10,000 requests per minute in full use.
func day(hours int) plan.Scenario {
	bounds := sluice.Limits{RPM: 10_000, TPM: 20_000_000, Burst: time.Second}
	s := plan.Scenario{
		Provider: plan.SimulatorConfig(bounds, limits.ChargeDeclared, 2*time.Second),
		Told:     bounds,
		Requests: hours * 60 * 10_000,
	}
	s.Provider.PerToken, s.Provider.Jitter = 10*time.Millisecond, 0.3
	for i := range 1000 {
		s.Calls = append(s.Calls, plan.Call{Input: 200 + i, MaxTokens: 500, Output: 50 + i%400})
	}
	return s
}

// BenchmarkSimulateDay foresees 24 hours of it, 14.4 million calls: run it with -benchtime 1x.
func BenchmarkSimulateDay(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		f, err := plan.Simulate(context.Background(), day(24))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(f.Completed), "calls")
		b.ReportMetric(f.Time.Hours(), "hours")
		b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(f.Completed), "ns/call")
	}
}

// BenchmarkSimulateHour foresees an hour of it.
func BenchmarkSimulateHour(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := plan.Simulate(context.Background(), day(1)); err != nil {
			b.Fatal(err)
		}
	}
}
