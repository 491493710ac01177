package stress_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/stress"
	"github.com/sluice-llm/sluice/internal/suite"
)

func TestMain(m *testing.M) {
	suite.InMemory()
	m.Run()
}

// shown logs what a run came to.
func shown(t *testing.T, res *stress.Result) {
	t.Helper()
	for _, row := range res.Rows {
		value := "-"
		if row.Value != nil {
			value = quantity(*row.Value)
		}
		t.Logf("%-20s %10s%s %v %v %s", row.Name, value, row.Unit, row.Threshold, row.OK, row.Note)
	}
	for _, p := range res.Parts {
		t.Logf("%+v", p)
	}
	t.Log(res.LeftOut, res.FirstFailure, res.Panic, res.Deadlock)
}

func quantity(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }

func TestEveryLevelPassesInVirtualTime(t *testing.T) {
	for _, level := range stress.Levels() {
		d := suite.Size(20*time.Second, map[string]time.Duration{
			"conservative": 5 * time.Minute, "aggressive": 10 * time.Minute, "hybrid": 20 * time.Minute,
		}[level])
		if level == "chaos" { // which saves all the time
			d = suite.Size(5*time.Second, time.Minute)
		}
		t.Run(level, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				res, err := stress.Run(t.Context(), stress.Config{Level: level, Duration: d, Seed: 1})
				if err != nil {
					t.Fatal(err)
				}
				shown(t, res)
				if missed := res.Missed; len(missed) > 0 {
					t.Errorf("missed: %v", missed)
				}
				if took := time.Since(start); took > d+5*time.Second {
					t.Errorf("it took %v", took)
				}
				if res.Seen < 100 {
					t.Errorf("%d calls are no load", res.Seen)
				}
			})
		})
	}
}
