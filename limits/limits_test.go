package limits_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

func TestEveryDimensionHasANameAFieldAndAWindow(t *testing.T) {
	l := limits.Limits{RPM: 2, TPM: 3, ITPM: 4, OTPM: 5, RPD: 6, TPD: 7, Concurrency: 1}
	for d := limits.Concurrency; d < limits.NumDimensions; d++ {
		var read limits.Dimension
		if err := read.UnmarshalText([]byte(d.String())); err != nil || read != d || *l.At(d) != int(d) {
			t.Errorf("%d is %q, read as %d (%v), and has the limit %d", d, d, read, err, *l.At(d))
		}
	}
	if w := limits.Concurrency.Window(); w != 0 {
		t.Errorf("the window of concurrency is %v", w)
	}
}

func TestNamesOfDurationsInJSONEndInTheirUnit(t *testing.T) {
	b, err := json.Marshal(struct {
		limits.Limits
		Latency limits.Millis `json:"latency_ms"`
	}{limits.Limits{RPM: 60, Burst: 2 * time.Second}, limits.Millis{Duration: 2500 * time.Microsecond}})
	if want := `{"rpm":60,"burst_ns":2000000000,"latency_ms":2.5}`; err != nil || string(b) != want {
		t.Errorf("%s, want %s (%v)", b, want, err)
	}
}

func TestDimensionsThatCountTheSameThings(t *testing.T) {
	for _, c := range []struct{ of, minute, day limits.Dimension }{
		{limits.Requests, limits.Requests, limits.RequestsPerDay},
		{limits.TokensPerDay, limits.Tokens, limits.TokensPerDay},
		{limits.InputTokens, limits.InputTokens, limits.InputTokens},
		{limits.Concurrency, limits.Concurrency, limits.Concurrency},
		{limits.AnyDimension, limits.AnyDimension, limits.AnyDimension},
	} {
		if minute, day := c.of.Per(time.Minute), c.of.Per(24*time.Hour); minute != c.minute || day != c.day {
			t.Errorf("%s: %s per minute and %s per day", c.of, minute, day)
		}
	}
}

func TestUsageCountsAgainstLimits(t *testing.T) {
	u := limits.Usage{Input: 10, CachedInput: 4, Output: 5}
	for d, want := range [limits.NumDimensions]int{0, 0, 1, 15, 10, 5, 1, 15} {
		if got := u.Amount(limits.Dimension(d)); got != want {
			t.Errorf("%s: %d, want %d", limits.Dimension(d), got, want)
		}
	}
}

func TestCheckRefusesLimitsThatCouldOverflow(t *testing.T) {
	for _, l := range []limits.Limits{
		{Concurrency: limits.MaxLimit + 1}, {TPD: limits.MaxLimit + 1}, {Requests: limits.Window{N: limits.MaxLimit + 1, Period: time.Second}},
	} {
		if err := l.Check(); err == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
	if err := (limits.Limits{RPM: limits.MaxLimit}).Check(); err != nil {
		t.Error(err)
	}
}
