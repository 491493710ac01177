package limits

import (
	"fmt"
	"strings"
	"time"
)

// Resource is the name of a quantity that ResourceLimits limits.
type Resource string

// Resources.
const (
	ResourceMemory          Resource = "memory_bytes"     // memory in bytes
	ResourceTime            Resource = "time"             // elapsed time of the work in nanoseconds
	ResourceTokens          Resource = "tokens"           // total number of input and output tokens
	ResourceConcurrentNodes Resource = "concurrent_nodes" // number of graph nodes that run at the same time
	ResourceConcurrentCalls Resource = "concurrent_calls" // number of LLM calls in flight at the same time
	ResourceLLMCalls        Resource = "llm_calls"        // total number of LLM calls
)

// usualWarning is the default of WarningThreshold.
const usualWarning = 0.8

// ResourceLimits contains limits that a program sets for itself, for example per agent graph. A nil limit means unlimited,
// and a limit of 0 permits nothing. Check and CheckAll compare a usage with the limits, but do not enforce the limits.
type ResourceLimits struct {
	Memory          *int64         `json:"memory_bytes,omitempty"`     // memory in bytes
	Time            *time.Duration `json:"time_ns,omitempty"`          // time since the start of the work
	Tokens          *int64         `json:"tokens,omitempty"`           // input and output tokens of all calls
	ConcurrentNodes *int64         `json:"concurrent_nodes,omitempty"` // number of graph nodes that run at the same time
	ConcurrentCalls *int64         `json:"concurrent_calls,omitempty"` // number of calls in flight at the same time
	LLMCalls        *int64         `json:"llm_calls,omitempty"`        // total number of calls, to stop endless loops

	// WarningThreshold is the share of a limit at which the status becomes a warning. The default for zero, negative
	// values and NaN is 0.8. A threshold above 1 disables warnings.
	WarningThreshold float64 `json:"warning_threshold,omitempty"`
}

// DevelopmentLimits returns limits for experiments: 1 GB, two minutes, 50,000 tokens, 2 concurrent nodes and 10 calls.
// The values in all presets are arbitrary, not measured.
func DevelopmentLimits() ResourceLimits {
	return ResourceLimits{
		Memory: new(int64(1_000_000_000)), Time: new(2 * time.Minute), Tokens: new(int64(50_000)),
		ConcurrentNodes: new(int64(2)), LLMCalls: new(int64(10)), WarningThreshold: usualWarning,
	}
}

// ProductionLimits returns limits for one graph in a container: 2 GB, ten minutes, 200,000 tokens, 3 concurrent nodes
// and 20 calls.
func ProductionLimits() ResourceLimits {
	return ResourceLimits{
		Memory: new(int64(2_000_000_000)), Time: new(10 * time.Minute), Tokens: new(int64(200_000)),
		ConcurrentNodes: new(int64(3)), LLMCalls: new(int64(20)), WarningThreshold: usualWarning,
	}
}

// StrictLimits returns limits that keep costs low: 500 MB, one minute, 20,000 tokens, one node and 5 calls. From 70 % of
// a limit, the status is a warning.
func StrictLimits() ResourceLimits {
	return ResourceLimits{
		Memory: new(int64(500_000_000)), Time: new(time.Minute), Tokens: new(int64(20_000)),
		ConcurrentNodes: new(int64(1)), LLMCalls: new(int64(5)), WarningThreshold: 0.7,
	}
}

// UnlimitedResources returns ResourceLimits without any limit.
func UnlimitedResources() ResourceLimits {
	return ResourceLimits{WarningThreshold: usualWarning}
}

// ResourcePreset returns the limits for the name development, production, strict or unlimited. For any other name, ResourcePreset returns an error.
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
	Memory          int64         `json:"memory_bytes"`     // amount of used memory in bytes
	Time            time.Duration `json:"time_ns"`          // time since the start of the work
	Tokens          int64         `json:"tokens"`           // number of input and output tokens used so far
	ConcurrentNodes int64         `json:"concurrent_nodes"` // number of running graph nodes
	ConcurrentCalls int64         `json:"concurrent_calls"` // number of calls in flight
	LLMCalls        int64         `json:"llm_calls"`        // number of calls so far
}

// ResourceStatus is the result of comparing a usage with a limit.
type ResourceStatus string

// Statuses. If the usage equals the limit, the status is a warning. If the usage is greater or the limit is 0, the limit is exceeded.
const (
	ResourceOK       ResourceStatus = "ok"
	ResourceWarning  ResourceStatus = "warning"
	ResourceExceeded ResourceStatus = "exceeded"
)

// ResourceCheck compares the usage of one resource with the limit. All times in a ResourceCheck are in nanoseconds.
type ResourceCheck struct {
	Resource Resource       `json:"resource"`          // name of the resource
	Status   ResourceStatus `json:"status"`            // result of the comparison
	Used     int64          `json:"used"`              // amount of the resource that was used
	Limit    int64          `json:"limit"`             // value of the limit (0: no limit, or a limit of 0)
	Share    float64        `json:"share"`             // Used divided by Limit (0 if Limit is 0)
	Limited  bool           `json:"limited,omitempty"` // true if the resource has a limit
}

// Check compares the usage of one resource with its limit. An unknown resource has no limit.
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

// String returns the result of the check in one line.
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

// AnyExceeded reports whether the usage of any resource exceeds its limit.
func (cs ResourceChecks) AnyExceeded() bool { return cs.any(ResourceExceeded) }

// AnyWarning reports whether any resource has the status ResourceWarning, without counting exceeded limits.
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
