package find_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/sim"
)

func TestSearchesStayWithinTheirForecasts(t *testing.T) {
	for _, r := range []row{
		{name: "a cap", sim: sim.Config{Concurrency: 20}},
		{name: "a rate", sim: sim.Config{RPM: 500, Burst: 10 * time.Second}},
		{name: "tokens", sim: sim.Config{TPM: 60_000, Charge: limits.ChargeActual}, latency: 5 * time.Second},
		{name: "no limit", sim: sim.Config{}},
	} {
		t.Run(r.name, func(t *testing.T) {
			if r.name == "no limit" {
				suite.FullOnly(t)
			}
			synctest.Test(t, func(t *testing.T) {
				c, _ := r.search(t, 1)
				forecast, err := find.Estimate(c)
				if err != nil {
					t.Fatal(err)
				}
				found, err := find.Auto(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				if most := forecast.Max; found.Spent.Accepted > most.Requests || found.Spent.Tokens() > most.Tokens {
					t.Errorf("%+v were spent, of %+v at most", found.Spent, most)
				}
				if usual := forecast.Typical; found.Spent.Tokens() > 10*usual.Tokens {
					t.Errorf("%+v were spent, and %+v are usual", found.Spent, usual)
				}
				t.Logf("%d calls, %d tokens; usually %+v", found.Spent.Accepted, found.Spent.Tokens(), forecast.Typical)

				swept, err := find.EstimateSweep(c)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour) // till the buckets are full
				s, err := find.Sweep(t.Context(), c)
				if most := swept.Max; err != nil || s.Spent.Accepted > most.Requests || s.Spent.Tokens() > most.Tokens {
					t.Errorf("%+v were spent by a sweep, of %+v at most: %v", s.Spent, most, err)
				}
			})
		})
	}
}
