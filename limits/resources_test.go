package limits_test

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

func TestALimitIsUnlimitedExceededOrNearlyReached(t *testing.T) {
	for _, c := range []struct {
		name      string
		limit     *int64
		threshold float64
		used      int64
		want      limits.ResourceStatus
	}{
		{"no limit", nil, 0, math.MaxInt64, limits.ResourceOK},
		{"a limit of zero is exceeded by nothing", new(int64(0)), 0, 0, limits.ResourceExceeded},
		{"a limit of zero is exceeded by one", new(int64(0)), 0, 1, limits.ResourceExceeded},
		{"a limit below zero", new(int64(-1)), 0, 0, limits.ResourceExceeded},
		{"nothing used", new(int64(100)), 0, 0, limits.ResourceOK},
		{"just below the threshold", new(int64(100)), 0, 79, limits.ResourceOK},
		{"at the threshold", new(int64(100)), 0, 80, limits.ResourceWarning},
		{"the whole limit is a warning", new(int64(100)), 0, 100, limits.ResourceWarning},
		{"above the limit", new(int64(100)), 0, 101, limits.ResourceExceeded},
		{"an early threshold", new(int64(100)), 0.7, 70, limits.ResourceWarning},
		{"a threshold that is never reached", new(int64(100)), 1.5, 100, limits.ResourceOK},
		{"a threshold that is no number", new(int64(100)), math.NaN(), 80, limits.ResourceWarning},
		{"a threshold below zero", new(int64(100)), -1, 0, limits.ResourceOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := limits.ResourceLimits{Tokens: c.limit, WarningThreshold: c.threshold}
			got := l.Check(limits.ResourceTokens, limits.ResourceUsage{Tokens: c.used})
			if got.Status != c.want {
				t.Errorf("%d is %s, want %s", c.used, got.Status, c.want)
			}
			if math.IsNaN(got.Share) || math.IsInf(got.Share, 0) {
				t.Errorf("share is %v", got.Share)
			}
		})
	}
}

func TestEachResourceIsCheckedAgainstItsOwnLimit(t *testing.T) {
	one, second := new(int64(10)), new(10*time.Nanosecond)
	bounds := limits.ResourceLimits{
		Memory: one, Time: second, Tokens: one, ConcurrentNodes: one, ConcurrentCalls: one, LLMCalls: one,
	}
	for r, u := range map[limits.Resource]limits.ResourceUsage{
		limits.ResourceMemory:          {Memory: 11},
		limits.ResourceTime:            {Time: 11},
		limits.ResourceTokens:          {Tokens: 11},
		limits.ResourceConcurrentNodes: {ConcurrentNodes: 11},
		limits.ResourceConcurrentCalls: {ConcurrentCalls: 11},
		limits.ResourceLLMCalls:        {LLMCalls: 11},
	} {
		for _, c := range bounds.CheckAll(u) {
			if exceeded := c.Status == limits.ResourceExceeded; exceeded != (c.Resource == r) {
				t.Errorf("usage of %s: %s", r, c)
			}
		}
		if got := bounds.Check(r, u).Status; got != limits.ResourceExceeded {
			t.Errorf("%s is %s", r, got)
		}
	}
	if got := bounds.Check("patience", limits.ResourceUsage{}).Status; got != limits.ResourceOK {
		t.Errorf("an unknown resource is %s", got)
	}
}

func TestCheckAllNamesOnlyWhatIsLimited(t *testing.T) {
	bounds := limits.ResourceLimits{Tokens: new(int64(100)), LLMCalls: new(int64(0))}
	checks := bounds.CheckAll(limits.ResourceUsage{Tokens: 90, Memory: 1 << 40})
	if len(checks) != 2 || !checks.AnyWarning() || !checks.AnyExceeded() {
		t.Errorf("%v", checks)
	}
	none := limits.UnlimitedResources().CheckAll(limits.ResourceUsage{Tokens: math.MaxInt64})
	if len(none) != 0 || none.AnyWarning() || none.AnyExceeded() || none.Summary() != "no resource is limited" {
		t.Errorf("unlimited: %v, %s", none, none.Summary())
	}
}

func TestPresetsAreWhatTheySay(t *testing.T) {
	for _, c := range []struct {
		name                         string
		l                            limits.ResourceLimits
		memory, tokens, nodes, calls int64
		time                         time.Duration
		threshold                    float64
	}{
		{"development", limits.DevelopmentLimits(), 1e9, 50_000, 2, 10, 2 * time.Minute, 0.8},
		{"production", limits.ProductionLimits(), 2e9, 200_000, 3, 20, 10 * time.Minute, 0.8},
		{"strict", limits.StrictLimits(), 5e8, 20_000, 1, 5, time.Minute, 0.7},
	} {
		l := c.l
		if *l.Memory != c.memory || *l.Tokens != c.tokens || *l.ConcurrentNodes != c.nodes || *l.LLMCalls != c.calls ||
			*l.Time != c.time || l.WarningThreshold != c.threshold || l.ConcurrentCalls != nil {
			t.Errorf("%s: %+v", c.name, l)
		}
		if named, err := limits.ResourcePreset(c.name); err != nil || !reflect.DeepEqual(named, l) {
			t.Errorf("%s by its name: %+v, %v", c.name, named, err)
		}
	}
	if l, err := limits.ResourcePreset("unlimited"); err != nil || !reflect.DeepEqual(l, limits.UnlimitedResources()) {
		t.Errorf("unlimited: %+v, %v", l, err)
	}
	if _, err := limits.ResourcePreset("lax"); err == nil || !strings.Contains(err.Error(), `"lax"`) {
		t.Errorf("an unknown name: %v", err)
	}
}

func ExampleResourceLimits() {
	bounds := limits.DevelopmentLimits()
	checks := bounds.CheckAll(limits.ResourceUsage{Time: 90 * time.Second, Tokens: 41_000, LLMCalls: 11})
	fmt.Println(checks.Summary())
	// Output:
	// memory_bytes: 0 of 1000000000 (0.0 %): ok
	// time: 1m30s of 2m0s (75.0 %): ok
	// tokens: 41000 of 50000 (82.0 %): warning
	// concurrent_nodes: 0 of 2 (0.0 %): ok
	// llm_calls: 11 of 10 (110.0 %): exceeded
	// a limit is exceeded
}

func TestSummaryEndsWithTheWorst(t *testing.T) {
	l := limits.ResourceLimits{Tokens: new(int64(10))}
	for used, want := range map[int64]string{0: "all resources are within their limits", 9: "nearly reached", 11: "is exceeded"} {
		if s := l.CheckAll(limits.ResourceUsage{Tokens: used}).Summary(); !strings.HasSuffix(s, want) {
			t.Errorf("%d used: %s", used, s)
		}
	}
}
