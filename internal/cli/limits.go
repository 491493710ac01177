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

// limitFlags returns the flags of the limits. unset is the default: how a limit is found if it is not configured.
func limitFlags(l *sluice.Limits, unset string) []flag {
	row := func(d limits.Dimension, what string) flag {
		return flag{name: d.String(), field: countFrom(l.At(d), 1), metavar: "N", help: "Limit " + what + " (default: " + unset + ")",
			common: true, sets: "Limits." + d.Field()}
	}
	return []flag{
		row(limits.Requests, "requests per minute"), row(limits.Tokens, "tokens per minute"), row(limits.Concurrency, "requests in flight"),
		{name: rateLimitFlag, field: otherLimits(l), metavar: "NAME=N", help: "Set another limit, such as rpd=10000; repeatable", sets: otherFields()},
	}
}

const rateLimitFlag = "rate-limit"

// otherLimits is the option for limits without a flag: per minute or day, with any other period, or the size of buckets.
func otherLimits(l *sluice.Limits) *option {
	var rows []flag
	for d, limit := range l.All() {
		if !slices.Contains(limitNames(), d.String()) {
			rows = append(rows, flag{name: d.String(), field: countFrom(limit, 1)})
		}
		if w := l.WindowOf(d); w != nil {
			rows = append(rows, flag{name: d.WindowName(), field: w, metavar: "N/DURATION"})
		}
	}
	rows = append(rows, flag{name: "burst", field: durationFrom(&l.Burst, 1)})
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

// checkLimits rejects a dimension with two limits, or one that is too large.
func checkLimits(l *sluice.Limits) error {
	for d, value := range l.All() {
		if *value > limits.MaxLimit {
			return &fault.FieldError{Field: "Limits." + d.Field(), Err: fmt.Errorf("%d is above the maximum of %d", *value, limits.MaxLimit)}
		}
		if w := l.WindowOf(d); w != nil && w.N > 0 && *value > 0 {
			return fault.New(fault.Conflict, fmt.Errorf("--%s and --%s %s=%s both limit the %s", d, rateLimitFlag, d.WindowName(), *w, d.WindowName()),
				"omit one of the two flags")
		}
	}
	return nil
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
