package sim_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

// BenchmarkBatches hands over three batches of 40,000 lines, and fetches their results.
func BenchmarkBatches(b *testing.B) {
	lines := openaiLines(40_000)
	for b.Loop() {
		c := batchesOf(b, sim.Config{Batches: sim.Batches{Latency: -1, Fail: 0.01}})
		begun := time.Now()
		var results []string
		for range 3 {
			id := c.createOpenAI(c.upload(lines).text("id")).text("id")
			results = append(results, c.ok("GET", "/v1/batches/"+id, "").text("output_file_id"))
		}
		b.ReportMetric(time.Since(begun).Seconds()/3, "s/create")
		begun = time.Now()
		size := 0
		for _, file := range results {
			size += len(c.do("GET", "/v1/files/"+file+"/content", "").body)
		}
		b.ReportMetric(time.Since(begun).Seconds()/3, "s/download")
		b.ReportMetric(float64(size)/1e6/3, "MB/download")
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapAlloc)/1e6, "MB-kept")
		runtime.KeepAlive(c)
	}
}
