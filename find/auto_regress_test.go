package find_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/find"
	"github.com/sluice-llm/sluice/sim"
)

// finds makes a search at the row's provider, with what change makes of its Config.
func (r row) finds(t *testing.T, change func(*find.Config)) (found *find.Result, stats sim.Stats, err error) {
	synctest.Test(t, func(t *testing.T) {
		c, server := r.search(t, 1)
		if change != nil {
			change(&c)
		}
		found, err = find.Auto(t.Context(), c)
		stats = server.Stats()
	})
	return found, stats, err
}

// near reports whether an answer is what is true, or a little less.
func (r row) near(found *find.Result) bool {
	exact, _, _ := r.truth()
	return found.Workers <= r.whole() && float64(found.Workers) >= min(0.9*exact, float64(r.whole()-1))
}

func TestABucketThatNeverHoldsAWholeMinuteIsNotInUse(t *testing.T) {
	r := row{latency: time.Second, stated: true, sim: sim.Config{TPM: 60_000, Burst: 50 * time.Second, Charge: sim.ChargeActual}}
	found, _, err := r.finds(t, nil)
	if err != nil || found.Charge != sluice.ChargeActual || found.ChargeFrom != sluice.SourceHeader {
		t.Errorf("%s, by %s: %v", found.Charge, found.ChargeFrom, err)
	}
	if text := strings.Join(found.Notes, "; "); strings.Contains(text, "others use the same limit") {
		t.Error(text)
	}
}

func TestHeadersOfAWindowAreNotOfADay(t *testing.T) {
	for _, rpm := range []int{120, 500, 4000} {
		r := row{stated: true, latency: time.Second, sim: sim.Config{RPM: rpm, FixedWindow: true}}
		found, _, err := r.finds(t, nil)
		if err != nil || found.Limits[sluice.RequestsPerDay].Known() || found.Limits[sluice.Requests].Value != float64(rpm) || !r.near(found) {
			t.Errorf("rpm %d: %d workers: %v: %s", rpm, found.Workers, err, belief(found))
		}
	}
}

func TestRefusalsThatNameALimitOfInputMeasureNoOther(t *testing.T) {
	r := row{stated: true, sim: sim.Config{ITPM: 6000, Burst: 12 * time.Second, NoHeaders: true}}
	found, _, err := r.finds(t, nil)
	for _, d := range []sluice.Dimension{sluice.Requests, sluice.Tokens} {
		if f := found.Limits[d]; f.Source == sluice.SourceMeasured {
			t.Errorf("%v: %.0f", d, f.Value)
		}
	}
	if found.Limits[sluice.InputTokens].Value != 6000 || !r.near(found) || err != nil {
		t.Errorf("%d workers: %v: %s", found.Workers, err, belief(found))
	}
}

func TestTinyCallsThatMeetALimitOfTokensSetNoneOfRequests(t *testing.T) {
	r := row{sim: sim.Config{TPM: 12_000, Burst: 20 * time.Second}, latency: 6 * time.Second}
	found, _, err := r.finds(t, nil)
	if err != nil || found.Limits[sluice.Requests].Source == sluice.SourceMeasured || found.Limits[sluice.Tokens].Source != sluice.SourceMeasured {
		t.Errorf("%d workers: %v: %s", found.Workers, err, belief(found))
	}
}

func TestNoMoreCallsAreOpenThanWorkersAreAskedFor(t *testing.T) {
	for _, most := range []int{1, 2, 3} {
		r := row{sim: sim.Config{Concurrent: 4}}
		found, stats, err := r.finds(t, func(c *find.Config) { c.MaxWorkers = most })
		if err != nil || found.Workers != most || stats.Peak > most || found.Limits[sluice.Requests].Source == sluice.SourceMeasured {
			t.Errorf("%d workers of %d, %d open: %v: %s", found.Workers, most, stats.Peak, err, belief(found))
		}
	}
}

func TestARefusalTellsHowTokensAreCounted(t *testing.T) {
	r := row{stated: true, latency: 5 * time.Second, sim: sim.Config{TPM: 60_000, NoHeaders: true}}
	found, _, err := r.finds(t, nil)
	if err != nil || found.Charge != sluice.ChargeDeclared || found.ChargeFrom == find.SourceUnknown || !r.near(found) {
		t.Errorf("%s, by %s, %d workers: %v: %s", found.Charge, found.ChargeFrom, found.Workers, err, belief(found))
	}
}

func TestASpentBudgetIsOneError(t *testing.T) {
	r := row{sim: sim.Config{}}
	_, _, err := r.finds(t, func(c *find.Config) { c.TokenBudget = 3000 })
	if !errors.Is(err, find.ErrTokenBudget) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%q", err)
	}
}
