package limits

import (
	"fmt"
	"strings"
	"time"
)

// Resource is one thing that ResourceLimits bound.
type Resource string

// Resources.
const (
	ResourceMemory          Resource = "memory_bytes"     // in bytes
	ResourceTime            Resource = "time"             // in nanoseconds, where it is a number
	ResourceTokens          Resource = "tokens"           // input and output
	ResourceConcurrentNodes Resource = "concurrent_nodes" // of a graph
	ResourceConcurrentCalls Resource = "concurrent_calls" // open at once
	ResourceLLMCalls        Resource = "llm_calls"        // in all
)

// usualWarning is the default of WarningThreshold.
const usualWarning = 0.8

// ResourceLimits are limits that a program sets itself, such as for each graph of an agent. Nil is unlimited; 0 allows
// nothing. Check and CheckAll compare a usage with them; nothing is enforced.
type ResourceLimits struct {
	Memory          *int64         `json:"memory_bytes,omitempty"`     // in bytes
	Time            *time.Duration `json:"time_ns,omitempty"`          // since the start of the bounded work
	Tokens          *int64         `json:"tokens,omitempty"`           // input and output, over all calls
	ConcurrentNodes *int64         `json:"concurrent_nodes,omitempty"` // nodes of a graph that run at once
	ConcurrentCalls *int64         `json:"concurrent_calls,omitempty"` // calls open at once
	LLMCalls        *int64         `json:"llm_calls,omitempty"`        // calls made in all: a guard against loops that never end

	// WarningThreshold is the share of a limit from which on its use is a warning. Zero, negative or NaN: 0.8. Above 1:
	// never warn.
	WarningThreshold float64 `json:"warning_threshold,omitempty"`
}

// DevelopmentLimits are for trying things out: 1 GB, two minutes, 50,000 tokens, 2 nodes at once, 10 calls. As in the other
// presets, the numbers are chosen, not measured.
func DevelopmentLimits() ResourceLimits {
	return ResourceLimits{
		Memory: new(int64(1_000_000_000)), Time: new(2 * time.Minute), Tokens: new(int64(50_000)),
		ConcurrentNodes: new(int64(2)), LLMCalls: new(int64(10)), WarningThreshold: usualWarning,
	}
}

// ProductionLimits are for one graph in a container of 2 GB that is stopped after ten minutes: besides these, 200,000 tokens,
// 3 nodes at once, 20 calls.
func ProductionLimits() ResourceLimits {
	return ResourceLimits{
		Memory: new(int64(2_000_000_000)), Time: new(10 * time.Minute), Tokens: new(int64(200_000)),
		ConcurrentNodes: new(int64(3)), LLMCalls: new(int64(20)), WarningThreshold: usualWarning,
	}
}

// StrictLimits keep costs down: 500 MB, one minute, 20,000 tokens, one node at a time, 5 calls, and a warning from 70 % on.
func StrictLimits() ResourceLimits {
	return ResourceLimits{
		Memory: new(int64(500_000_000)), Time: new(time.Minute), Tokens: new(int64(20_000)),
		ConcurrentNodes: new(int64(1)), LLMCalls: new(int64(5)), WarningThreshold: 0.7,
	}
}

// UnlimitedResources bound nothing.
func UnlimitedResources() ResourceLimits {
	return ResourceLimits{WarningThreshold: usualWarning}
}

// ResourcePreset returns the limits of a name: development, production, strict or unlimited. Any other name is an error.
func ResourcePreset(name string) (ResourceLimits, error) {
	switch name {
	case "development":
		return DevelopmentLimits(), nil
	case "production":
		return ProductionLimits(), nil
	case "strict":
		return StrictLimits(), nil
	case "unlimited":
		return UnlimitedResources(), nil
	}
	return ResourceLimits{}, fmt.Errorf("resource limits %q: want development, production, strict or unlimited", name)
}

// ResourceUsage is how much of each resource is in use, in the units of ResourceLimits.
type ResourceUsage struct {
	Memory          int64         `json:"memory_bytes"`     // in bytes
	Time            time.Duration `json:"time_ns"`          // passed so far
	Tokens          int64         `json:"tokens"`           // input and output, so far
	ConcurrentNodes int64         `json:"concurrent_nodes"` // that run now
	ConcurrentCalls int64         `json:"concurrent_calls"` // that are open now
	LLMCalls        int64         `json:"llm_calls"`        // made so far
}

// ResourceStatus is the result of comparing a usage with its limit.
type ResourceStatus string

// Statuses. A use equal to the limit is a warning. A greater use, or a limit of 0, is exceeded.
const (
	ResourceOK       ResourceStatus = "ok"
	ResourceWarning  ResourceStatus = "warning"
	ResourceExceeded ResourceStatus = "exceeded"
)

// ResourceCheck is how one resource stands. Times are in nanoseconds.
type ResourceCheck struct {
	Resource Resource       `json:"resource"`
	Status   ResourceStatus `json:"status"`
	Used     int64          `json:"used"`
	Limit    int64          `json:"limit"`             // 0 when there is none
	Share    float64        `json:"share"`             // Used / Limit; 0 when there is no such number
	Limited  bool           `json:"limited,omitempty"` // there is a limit
}

// Check says how the use of one resource stands to its limit. A resource that is none of the constants has no limit.
func (l ResourceLimits) Check(r Resource, u ResourceUsage) ResourceCheck {
	for _, row := range l.rows(u) {
		if row.resource == r {
			return l.check(row)
		}
	}
	return ResourceCheck{Resource: r, Status: ResourceOK}
}

// CheckAll says how the resources stand that have a limit.
func (l ResourceLimits) CheckAll(u ResourceUsage) ResourceChecks {
	var checks ResourceChecks
	for _, row := range l.rows(u) {
		if row.limit != nil {
			checks = append(checks, l.check(row))
		}
	}
	return checks
}

// resourceRow is a resource with its limit and its use.
type resourceRow struct {
	resource Resource
	limit    *int64
	used     int64
}

func (l ResourceLimits) rows(u ResourceUsage) []resourceRow {
	return []resourceRow{
		{ResourceMemory, l.Memory, u.Memory},
		{ResourceTime, (*int64)(l.Time), int64(u.Time)},
		{ResourceTokens, l.Tokens, u.Tokens},
		{ResourceConcurrentNodes, l.ConcurrentNodes, u.ConcurrentNodes},
		{ResourceConcurrentCalls, l.ConcurrentCalls, u.ConcurrentCalls},
		{ResourceLLMCalls, l.LLMCalls, u.LLMCalls},
	}
}

func (l ResourceLimits) check(row resourceRow) ResourceCheck {
	c := ResourceCheck{Resource: row.resource, Status: ResourceOK, Used: row.used}
	if row.limit == nil {
		return c
	}
	c.Limit, c.Limited = *row.limit, true
	if c.Limit > 0 {
		c.Share = float64(c.Used) / float64(c.Limit)
	}
	threshold := l.WarningThreshold
	if !(threshold > 0) {
		threshold = usualWarning
	}
	switch {
	case c.Limit <= 0 || c.Used > c.Limit:
		c.Status = ResourceExceeded
	case c.Share >= threshold:
		c.Status = ResourceWarning
	}
	return c
}

// String is the check in one line.
func (c ResourceCheck) String() string {
	used, limit := fmt.Sprint(c.Used), fmt.Sprint(c.Limit)
	if c.Resource == ResourceTime {
		used, limit = time.Duration(c.Used).String(), time.Duration(c.Limit).String()
	}
	if !c.Limited {
		return fmt.Sprintf("%s: %s, no limit", c.Resource, used)
	}
	return fmt.Sprintf("%s: %s of %s (%.1f %%): %s", c.Resource, used, limit, 100*c.Share, c.Status)
}

// ResourceChecks are how several resources stand.
type ResourceChecks []ResourceCheck

// AnyExceeded reports whether a limit is exceeded.
func (cs ResourceChecks) AnyExceeded() bool { return cs.any(ResourceExceeded) }

// AnyWarning reports whether a limit is nearly reached. One that is exceeded is not nearly reached.
func (cs ResourceChecks) AnyWarning() bool { return cs.any(ResourceWarning) }

func (cs ResourceChecks) any(s ResourceStatus) bool {
	for _, c := range cs {
		if c.Status == s {
			return true
		}
	}
	return false
}

// Summary returns one line per check and a verdict.
func (cs ResourceChecks) Summary() string {
	if len(cs) == 0 {
		return "no resource is limited"
	}
	var b strings.Builder
	for _, c := range cs {
		b.WriteString(c.String())
		b.WriteByte('\n')
	}
	switch {
	case cs.AnyExceeded():
		b.WriteString("a limit is exceeded")
	case cs.AnyWarning():
		b.WriteString("a limit is nearly reached")
	default:
		b.WriteString("all within their limits")
	}
	return b.String()
}
