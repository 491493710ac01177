package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/limits"
)

// limitFlags are the configured limits. Limits that are not configured are learned.
type limitFlags struct {
	limits sluice.Limits
}

// flags returns the flags of the limits, with how a limit is found if it is not configured.
func (f *limitFlags) flags(otherwise string) []flag {
	return []flag{
		{name: limits.Requests.String(), field: countFrom(f.limits.At(limits.Requests), 1), metavar: "N", help: "Limit requests per minute (default: " + otherwise + ")", common: true, sets: "Limits." + limits.Requests.Field()},
		{name: limits.Tokens.String(), field: countFrom(f.limits.At(limits.Tokens), 1), metavar: "N", help: "Limit tokens per minute (default: " + otherwise + ")", common: true, sets: "Limits." + limits.Tokens.Field()},
		{name: limits.Concurrency.String(), field: countFrom(f.limits.At(limits.Concurrency), 1), metavar: "N", help: "Limit requests in flight (default: " + otherwise + ")", common: true, sets: "Limits." + limits.Concurrency.Field()},
		{name: rateLimitFlag, field: f.others(), metavar: "NAME=N", help: "Set another limit, such as rpd=10000; repeatable", sets: otherFields()},
	}
}

const rateLimitFlag = "rate-limit"

// others returns the flag of the limits that have none of their own: per minute or day, with any other period, or the size of buckets.
func (f *limitFlags) others() *option {
	var rows []flag
	for d, limit := range f.limits.All() {
		if !slices.Contains(limitNames(), d.String()) {
			rows = append(rows, flag{name: d.String(), field: countFrom(limit, 1)})
		}
		if w := f.limits.WindowOf(d); w != nil {
			rows = append(rows, flag{name: d.WindowName(), field: w, metavar: "N/DURATION"})
		}
	}
	rows = append(rows, flag{name: "burst", field: durationFrom(&f.limits.Burst, 1)})
	return namedValues(limitNames(), rows)
}

// otherFields returns the fields of plan.Limits that --rate-limit sets.
func otherFields() string {
	fields := []string{"Limits.Burst"}
	for d := range new(sluice.Limits).All() {
		if !slices.Contains(limitNames(), d.String()) {
			fields = append(fields, "Limits."+d.Field())
		}
	}
	return strings.Join(fields, " ")
}

// limitNames are the names of the flags.
func limitNames() []string {
	return []string{limits.Requests.String(), limits.Tokens.String(), limits.Concurrency.String(), rateLimitFlag}
}

// limitFlag returns the flag by which the limit of a dimension is configured.
func limitFlag(d limits.Dimension) string {
	if name := d.String(); slices.Contains(limitNames(), name) {
		return "--" + name
	}
	return fmt.Sprintf("--%s %s", rateLimitFlag, d)
}

// Limits returns the limits, or a usage error that names the flag that is wrong.
func (f *limitFlags) Limits() (sluice.Limits, error) {
	for d, value := range f.limits.All() {
		if w := f.limits.WindowOf(d); w != nil && w.N > 0 && *value > 0 {
			return sluice.Limits{}, fault.New(fault.Conflict, fmt.Errorf("--%s and --%s %s=%s both limit the %s", d, rateLimitFlag, d.WindowName(), *w, d.WindowName()),
				"omit one of the two flags")
		}
	}
	return f.limits, nil
}

// limitParts lists limits by name, in the order in which flags have them.
func limitParts(limits map[string]float64) []string {
	var parts []string
	add := func(name string) {
		if n := limits[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", name, prose.Number(n)))
		}
	}
	for d := range new(sluice.Limits).All() {
		add(d.String())
	}
	if s := limits["burst_seconds"]; s > 0 {
		parts = append(parts, "burst "+prose.Number(s)+"s")
	}
	return parts
}
