package cluster_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

func near(d []demand) []region { return []region{{lan, d}} }

// fullScales are the cases of BenchmarkScale.
func fullScales() []scale {
	big := limits.Limits{RPM: 30_000, Concurrency: 500}
	small := limits.Limits{RPM: 50, Concurrency: 5}
	far := 80 * time.Millisecond
	minute := time.Minute
	third := func(d demand) []demand { return alike(30, d) }
	regional := func(name string, a, b, c demand) scale {
		return scale{Name: "3 cells at 80 ms, " + name, Cells: true, Regions: []region{{lan, third(a)}, {far, third(b)}, {far, third(c)}}, Limits: big, Told: big,
			Latency: 600 * time.Millisecond, Warm: 10 * time.Second, For: minute}
	}
	dies := regional("one dies", demand{Workers: 25}, demand{Workers: 25}, demand{Workers: 25, Dies: 30 * time.Second})
	dies.CellDies = 30 * time.Second
	return []scale{
		regional("even", demand{Workers: 25}, demand{Workers: 25}, demand{Workers: 25}),
		regional("32:4:1", demand{Workers: 64}, demand{Workers: 8}, demand{Workers: 2}),
		regional("80 % load", demand{Rate: 4.4}, demand{Rate: 4.4}, demand{Rate: 4.4}),
		regional("demand moves", demand{Workers: 50, Until: 40 * time.Second}, demand{Workers: 50, From: 40 * time.Second}, demand{Workers: 2}),
		dies,
		{Name: "4 members, 30,000 RPM, even", Regions: near(alike(4, demand{Workers: 250})), Limits: big, Told: big, Latency: 600 * time.Millisecond, Warm: 5 * time.Second, For: minute},
		{Name: "4 members, 30,000 RPM, 80 % load", Regions: near(alike(4, demand{Rate: 100})), Limits: big, Told: big, Latency: 600 * time.Millisecond, Warm: 5 * time.Second, For: minute},
		{Name: "4 members, 30,000 RPM, 32:1:0:0", Regions: near([]demand{{Workers: 960}, {Workers: 30}, {}, {}}), Limits: big, Told: big, Latency: 600 * time.Millisecond, Warm: 5 * time.Second, For: minute},
		{Name: "4 members, 50 RPM + 5 slots, even", Regions: near(alike(4, demand{Workers: 5})), Limits: small, Told: small, Latency: 3 * time.Second, Warm: 5 * time.Second, For: 10 * minute},
		{Name: "4 members, 50 RPM + 5 slots, 32:1:0:0", Regions: near([]demand{{Workers: 64}, {Workers: 2}, {}, {}}), Limits: small, Told: small, Latency: 3 * time.Second, Warm: 5 * time.Second, For: 10 * minute},
		{Name: "4 members, 5 slots alone, 0.3 s", Regions: near(alike(4, demand{Workers: 5})), Limits: limits.Limits{RPM: 60_000, Concurrency: 5}, Told: limits.Limits{Concurrency: 5}, Latency: 300 * time.Millisecond, Warm: 5 * time.Second, For: minute},
		{Name: "4 members, 500 slots alone, 2 s", Regions: near(alike(4, demand{Workers: 250})), Limits: limits.Limits{RPM: 60_000, Concurrency: 500}, Told: limits.Limits{Concurrency: 500}, Latency: 2 * time.Second, Warm: 5 * time.Second, For: minute},
		{Name: "1,000 members, 30,000 RPM, even", Regions: near(alike(1000, demand{Workers: 4})), Limits: big, Told: big, Latency: 600 * time.Millisecond, Warm: 10 * time.Second, For: minute},
		{Name: "1,000 members, 30,000 RPM, 80 % load", Regions: near(alike(1000, demand{Rate: 0.4})), Limits: big, Told: big, Latency: 600 * time.Millisecond, Warm: 5 * time.Second, For: minute},
		{Name: "1,000 members, 30,000 RPM, Zipf", Regions: near(zipf(1000, 8000)), Limits: big, Told: big, Latency: 600 * time.Millisecond, Warm: 10 * time.Second, For: minute},
		{Name: "1,000 members, 500 slots alone, 2 s", Regions: near(alike(1000, demand{Workers: 4})), Limits: limits.Limits{RPM: 60_000, Concurrency: 500}, Told: limits.Limits{Concurrency: 500}, Latency: 2 * time.Second, Warm: 10 * time.Second, For: minute},
		{Name: "3 regions at 80 ms, one ledger", Regions: []region{{lan, alike(30, demand{Workers: 25})}, {far, alike(30, demand{Workers: 25})}, {far, alike(30, demand{Workers: 25})}}, Limits: big, Told: big, Latency: 600 * time.Millisecond, Warm: 10 * time.Second, For: minute},
		{Name: "3 regions at 80 ms, one ledger, 80 %", Regions: []region{{lan, alike(30, demand{Rate: 4.4})}, {far, alike(30, demand{Rate: 4.4})}, {far, alike(30, demand{Rate: 4.4})}}, Limits: big, Told: big, Latency: 600 * time.Millisecond, Warm: 10 * time.Second, For: minute},
		{Name: "1,000 members, 30,000 RPM, slots unknown", Regions: near(alike(1000, demand{Workers: 4})), Limits: big, Told: limits.Limits{RPM: 30000}, Latency: 600 * time.Millisecond, Warm: 20 * time.Second, For: minute},
		{Name: "4 members, 500 slots alone, 0.3 s", Regions: near(alike(4, demand{Workers: 250})), Limits: limits.Limits{RPM: 600_000, Concurrency: 500}, Told: limits.Limits{Concurrency: 500}, Latency: 300 * time.Millisecond, Warm: 5 * time.Second, For: minute},
		{Name: "3 regions, 50 RPM + 5 slots, bucket of 10 s", Burst: 10 * time.Second, Regions: []region{{lan, alike(2, demand{Workers: 3})}, {far, alike(2, demand{Workers: 3})}, {far, alike(2, demand{Workers: 3})}}, Limits: small, Told: small, Latency: 3 * time.Second, Warm: 10 * time.Second, For: 10 * minute},
		{Name: "3 regions, 5 slots alone, 3 s", Burst: 10 * time.Second, Regions: []region{{lan, alike(2, demand{Workers: 3})}, {far, alike(2, demand{Workers: 3})}, {far, alike(2, demand{Workers: 3})}}, Limits: limits.Limits{RPM: 60000, Concurrency: 5}, Told: limits.Limits{Concurrency: 5}, Latency: 3 * time.Second, Warm: 10 * time.Second, For: 10 * minute},
		{Name: "4 members, 30,000 RPM, headers", Headers: true, Regions: near(alike(4, demand{Workers: 250})), Limits: big, Told: big, Latency: 600 * time.Millisecond, Warm: 5 * time.Second, For: minute},
		{Name: "3 regions at 80 ms, headers", Headers: true, Regions: []region{{lan, alike(30, demand{Workers: 25})}, {far, alike(30, demand{Workers: 25})}, {far, alike(30, demand{Workers: 25})}}, Limits: big, Told: limits.Limits{Concurrency: 500}, Latency: 600 * time.Millisecond, Warm: 10 * time.Second, For: minute},
		{Name: "1,000 members, storm of 5 s", Storm: 20 * time.Second, Regions: near(alike(1000, demand{Workers: 4})), Limits: big, Told: big, Latency: 600 * time.Millisecond, Warm: 10 * time.Second, For: minute},
		{Name: "1,000 members, 200 die at once", Regions: near(append(alike(800, demand{Workers: 4}), alike(200, demand{Workers: 4, Dies: 20 * time.Second})...)), Limits: big, Told: big, Latency: 600 * time.Millisecond, Warm: 10 * time.Second, For: minute},
		{Name: "4 members, 50 RPM + 5 slots, one dies", Regions: near(append(alike(3, demand{Workers: 5}), demand{Workers: 5, Dies: time.Minute})), Limits: small, Told: small, Latency: 3 * time.Second, Warm: 5 * time.Second, For: 10 * minute},
		{Name: "3 regions at 80 ms, 50 RPM + 5 slots", Regions: []region{{lan, alike(2, demand{Workers: 3})}, {far, alike(2, demand{Workers: 3})}, {far, alike(2, demand{Workers: 3})}}, Limits: small, Told: small, Latency: 3 * time.Second, Warm: 10 * time.Second, For: 10 * minute},
	}
}

// BenchmarkScale measures shared limits at scale, in virtual time: a minute or ten of each case after a warm-up.
//
//	go test ./cluster -run '^$' -bench Scale -benchtime 1x -timeout 1h
func BenchmarkScale(b *testing.B) {
	for _, s := range fullScales() {
		b.Run(s.Name, func(b *testing.B) {
			for b.Loop() {
				s.Seed = 1
				w := newWorld(s)
				w.run()
				b.Log(w.result())
			}
		})
	}
}
