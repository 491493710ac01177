package sim_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

// BenchmarkTransport is a whole call in process, without latency.
func BenchmarkTransport(b *testing.B) {
	for _, input := range []int{50, 1000} {
		b.Run(fmt.Sprintf("%d tokens", input), func(b *testing.B) {
			s := serve(b, quick(sim.Config{RPM: 1e9, TPM: 1e12, NoStats: true}))
			transport := s.Transport()
			body := []byte(chatBody("a", input, 100))
			b.ReportAllocs()
			for b.Loop() {
				r, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, baseURL+chatPath, bytes.NewReader(body))
				response, err := transport.RoundTrip(r)
				if err != nil || response.StatusCode != 200 {
					b.Fatal(response, err)
				}
				io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}

func BenchmarkOptimum(b *testing.B) {
	config := sim.Config{RPM: 60000, TPM: 3e6, Burst: time.Second, Concurrency: 200, Faults: sim.Faults{ServerError: 0.05}}
	w := make(sim.Workload, 100000)
	for i := range w {
		w[i] = sim.Request{Input: 50, MaxTokens: 100}
	}
	for b.Loop() {
		config.Optimum(w)
	}
}
