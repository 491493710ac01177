package telemetry_test

import (
	"testing"

	"github.com/sluice-llm/sluice/gateway"
)

func BenchmarkRequestOfAGateway(b *testing.B) {
	g := gatewayOf(gateway.TrafficSnapshot{})
	b.ReportAllocs()
	for b.Loop() {
		g.Ended(&answered)
	}
}
