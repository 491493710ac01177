package limits

import (
	"fmt"
	"strings"
	"time"
)

// Resource is a quantity that ResourceLimits limits.
type Resource string

// Resources.
const (
	ResourceMemory          Resource = "memory_bytes"     // memory in bytes
	ResourceTime            Resource = "time"             // time since the start of the work, in nanoseconds
	ResourceTokens          Resource = "tokens"           // input and output tokens together
	ResourceConcurrentNodes Resource = "concurrent_nodes" // graph nodes that run at once
	ResourceConcurrentCalls Resource = "concurrent_calls" // LLM calls in flight at once
	ResourceLLMCalls        Resource = "llm_calls"        // total number of LLM calls
)

// usualWarning is the default of WarningThreshold.
const usualWarning = 0.8

// ResourceLimits contains limits that a program sets for itself, for example per agent graph. Nil means unlimited, and
// 0 permits nothing. Check and CheckAll compare a usage with the limits. They do not enforce the limits.
type ResourceLimits struct {
	Memory          *int64         `json:"memory_bytes,omitempty"`     // memory in bytes
	Time            *time.Duration `json:"time_ns,omitempty"`          // time since the start of the work
	Tokens          *int64         `json:"tokens,omitempty"`           // input and output tokens of all calls
	ConcurrentNodes *int64         `json:"concurrent_nodes,omitempty"` // graph nodes that run at once
	ConcurrentCalls *int64         `json:"concurrent_calls,omitempty"` // calls in flight at once
	LLMCalls        *int64         `json:"llm_calls,omitempty"`        // total number of calls, as a guard against endless loops

	// WarningThreshold is the share of a limit at which the status becomes a warning. Zero, a negative value or NaN
	// means 0.8. A value above 1 disables warnings.
	WarningThreshold float64 `json:"warning_threshold,omitempty"`
}

// DevelopmentLimits returns limits for experiments: 1 GB, two minutes, 50,000 tokens, 2 nodes at once and 10 calls. The
// values of all presets are arbitrary, not measured.
func DevelopmentLimits() ResourceLimits {
	return ResourceLimits{
		Memory: new(int64(1_000_000_000)), Time: new(2 * time.Minute), Tokens: new(int64(50_000)),
		ConcurrentNodes: new(int64(2)), LLMCalls: new(int64(10)), WarningThreshold: usualWarning,
	}
}

// ProductionLimits returns limits for one graph in a container: 2 GB, ten minutes, 200,000 tokens, 3 nodes at once and
// 20 calls.
func ProductionLimits() ResourceLimits {
	return ResourceLimits{
		Memory: new(int64(2_000_000_000)), Time: new(10 * time.Minute), Tokens: new(int64(200_000)),
		ConcurrentNodes: new(int64(3)), LLMCalls: new(int64(20)), WarningThreshold: usualWarning,
	}
}

// StrictLimits returns limits for low costs: 500 MB, one minute, 20,000 tokens, one node, 5 calls, and warnings from 70 %.
func StrictLimits() ResourceLimits {
	return ResourceLimits{
		Memory: new(int64(500_000_000)), Time: new(time.Minute), Tokens: new(int64(20_000)),
		ConcurrentNodes: new(int64(1)), LLMCalls: new(int64(5)), WarningThreshold: 0.7,
	}
}

// UnlimitedResources returns limits without any bound.
func UnlimitedResources() ResourceLimits {
	return ResourceLimits{WarningThreshold: usualWarning}
}

// ResourcePreset returns the limits for a name: development, production, strict or unlimited. Any other name is an error.
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

// ResourceUsage is the current usage of each resource, in the units of ResourceLimits.
type ResourceUsage struct {
	Memory          int64         `json:"memory_bytes"`     // used memory in bytes
	Time            time.Duration `json:"time_ns"`          // time since the start of the work
	Tokens          int64         `json:"tokens"`           // input and output tokens so far
	ConcurrentNodes int64         `json:"concurrent_nodes"` // number of running graph nodes
	ConcurrentCalls int64         `json:"concurrent_calls"` // number of calls in flight
	LLMCalls        int64         `json:"llm_calls"`        // number of calls so far
}

// ResourceStatus is the result of a comparison of a usage with a limit.
type ResourceStatus string

// Statuses. A usage equal to the limit is a warning. A greater usage, or a limit of 0, is exceeded.
const (
	ResourceOK       ResourceStatus = "ok"
	ResourceWarning  ResourceStatus = "warning"
	ResourceExceeded ResourceStatus = "exceeded"
)

// ResourceCheck compares the usage of one resource with the limit. Times are in nanoseconds.
type ResourceCheck struct {
	Resource Resource       `json:"resource"`          // name of the resource
	Status   ResourceStatus `json:"status"`            // result of the comparison
	Used     int64          `json:"used"`              // used amount
	Limit    int64          `json:"limit"`             // value of the limit (0: no limit, or nothing is permitted)
	Share    float64        `json:"share"`             // Used / Limit (0 if Limit is 0)
	Limited  bool           `json:"limited,omitempty"` // true if the resource has a limit
}

// Check compares the usage of one resource with the limit. An unknown resource has no limit.
func (l ResourceLimits) Check(r Resource, u ResourceUsage) ResourceCheck {
	for _, row := range l.rows(u) {
		if row.resource == r {
			return l.check(row)
		}
	}
	return ResourceCheck{Resource: r, Status: ResourceOK}
}

// CheckAll returns a ResourceCheck for each resource that has a limit.
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

// String returns the check in one line.
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

// ResourceChecks contains the checks of several resources.
type ResourceChecks []ResourceCheck

// AnyExceeded reports whether the usage of any resource exceeds the limit.
func (cs ResourceChecks) AnyExceeded() bool { return cs.any(ResourceExceeded) }

// AnyWarning reports whether any resource has the status ResourceWarning. Exceeded limits do not count.
func (cs ResourceChecks) AnyWarning() bool { return cs.any(ResourceWarning) }

func (cs ResourceChecks) any(s ResourceStatus) bool {
	for _, c := range cs {
		if c.Status == s {
			return true
		}
	}
	return false
}

// Summary returns one line for each check, and a last line with the overall result.
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
		b.WriteString("a resource limit is nearly reached")
	default:
		b.WriteString("all resources are within their limits")
	}
	return b.String()
}
