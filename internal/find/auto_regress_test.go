package find_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/sim"
)

// finds makes a search at the row's provider, with what change makes of its Config.
func (r row) finds(t *testing.T, change func(*find.Config)) (found *find.Result, err error) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := r.search(t, 1)
		if change != nil {
			change(&c)
		}
		found, err = find.Auto(t.Context(), c)
	})
	return found, err
}

// near reports whether an answer is what is true, or a little less.
func (r row) near(found *find.Result) bool {
	exact, _, _ := r.truth()
	return found.Workers <= r.whole() && float64(found.Workers) >= min(0.9*exact, float64(r.whole()-1))
}

func TestABucketThatNeverHoldsAWholeMinuteIsNotInUse(t *testing.T) {
	r := row{latency: time.Second, stated: true, sim: sim.Config{TPM: 60_000, Burst: 50 * time.Second, Charge: limits.ChargeActual}}
	found, err := r.finds(t, nil)
	if err != nil || found.Findings.Charge != limits.ChargeActual || found.Findings.ChargeFrom != limits.SourceHeader {
		t.Errorf("%s, by %s: %v", found.Findings.Charge, found.Findings.ChargeFrom, err)
	}
	if text := strings.Join(found.Notes, "; "); strings.Contains(text, "other processes use the same limit") {
		t.Error(text)
	}
}

func TestHeadersOfAWindowAreNotOfADay(t *testing.T) {
	for _, rpm := range []int{120, 500, 4000} {
		r := row{stated: true, latency: time.Second, sim: sim.Config{RPM: rpm, FixedWindow: true}}
		found, err := r.finds(t, nil)
		if err != nil || found.Findings.Limits[limits.RequestsPerDay].Known() || found.Findings.Limits[limits.Requests].Value != float64(rpm) || !r.near(found) {
			t.Errorf("rpm %d: %d workers: %v: %s", rpm, found.Workers, err, belief(found))
		}
	}
}

func TestRefusalsThatNameALimitOfInputMeasureNoOther(t *testing.T) {
	r := row{stated: true, sim: sim.Config{ITPM: 6000, Burst: 12 * time.Second, NoHeaders: true}}
	found, err := r.finds(t, nil)
	for _, d := range []limits.Dimension{limits.Requests, limits.Tokens} {
		if f := found.Findings.Limits[d]; f.Source == limits.SourceMeasured {
			t.Errorf("%v: %.0f", d, f.Value)
		}
	}
	if found.Findings.Limits[limits.InputTokens].Value != 6000 || !r.near(found) || err != nil {
		t.Errorf("%d workers: %v: %s", found.Workers, err, belief(found))
	}
}

func TestTinyCallsThatMeetALimitOfTokensSetNoneOfRequests(t *testing.T) {
	r := row{stated: true, sim: sim.Config{TPM: 12_000, Burst: 6 * time.Second, NoHeaders: true}, latency: 6 * time.Second}
	found, err := r.finds(t, nil)
	if err != nil || found.Findings.Limits[limits.Tokens].Value != 12_000 || found.Findings.Limits[limits.Requests].Source == limits.SourceMeasured {
		t.Errorf("told: %d workers: %v: %s", found.Workers, err, belief(found))
	}
	r.stated = false
	found, err = r.finds(t, nil)
	if err != nil || found.Findings.Limits[limits.Requests].Source == limits.SourceMeasured || found.Findings.Limits[limits.Tokens].Source != limits.SourceMeasured {
		t.Errorf("%d workers: %v: %s", found.Workers, err, belief(found))
	}
}

func TestNoMoreCallsAreOpenThanWorkersAreAskedFor(t *testing.T) {
	for _, most := range suite.Size([]int{2}, []int{1, 2, 3}) {
		synctest.Test(t, func(t *testing.T) {
			c, _ := row{}.search(t, 1)
			server, err := sim.New(sim.Config{
				Latency: 2 * time.Second, Jitter: 0.1, OutputTokens: realTokens, Concurrency: 3, NoHeaders: true, VagueBodies: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			c.Base, c.MaxWorkers = server.Transport(), most
			found, err := find.Auto(t.Context(), c)
			peak := server.Stats().Peak
			if err != nil || found.Workers != most || peak > most || found.Findings.Limits[limits.Requests].Source == limits.SourceMeasured {
				t.Errorf("%d workers of %d, %d open: %v: %s", found.Workers, most, peak, err, belief(found))
			}
		})
	}
}

func TestARefusalTellsHowTokensAreCounted(t *testing.T) {
	r := row{stated: true, latency: 5 * time.Second, sim: sim.Config{TPM: 60_000, NoHeaders: true}}
	found, err := r.finds(t, nil)
	if err != nil || found.Findings.Charge != limits.ChargeDeclared || found.Findings.ChargeFrom == find.SourceUnknown || !r.near(found) {
		t.Errorf("%s, by %s, %d workers: %v: %s", found.Findings.Charge, found.Findings.ChargeFrom, found.Workers, err, belief(found))
	}
}

func TestASpentBudgetIsOneError(t *testing.T) {
	r := row{sim: sim.Config{}}
	_, err := r.finds(t, func(c *find.Config) { c.Budget.Tokens = 3000 })
	if !errors.Is(err, find.ErrTokenBudget) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%q", err)
	}
}
