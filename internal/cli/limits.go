package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// limitFlags are the configured limits. Limits that are not configured are learned.
type limitFlags struct {
	limits sluice.Limits
	others rateLimits
}

// register adds the flags to fs.
func (f *limitFlags) register(fs *pflag.FlagSet) {
	f.registerFor(fs, limits.Requests, limits.Tokens, limits.Concurrency)
	f.others.limits = &f.limits
	fs.Var(&f.others, rateLimitFlag, "another limit, as `NAME=N`: "+rateLimitForms+" (repeatable)")
}

const (
	rateLimitFlag  = "rate-limit"
	rateLimitForms = "itpm, otpm, rpd, tpd, burst=2s, requests=100/10s, tokens=50000/30s"
)

// registerFor registers the flags of some dimensions.
func (f *limitFlags) registerFor(fs *pflag.FlagSet, dimensions ...limits.Dimension) {
	for _, d := range dimensions {
		fs.IntVar(f.limits.At(d), d.String(), 0, "limit of "+d.Help()+" (0: learned)")
	}
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

// rateLimits is a flag that sets one limit each time: per minute or day, with any other period, or the size of buckets.
type rateLimits struct {
	limits *sluice.Limits
	said   []string
}

// String returns the values that were given.
func (r *rateLimits) String() string { return strings.Join(r.said, ",") }

// Type returns the kind of the flag's values.
func (r *rateLimits) Type() string { return "stringArray" }

// Set reads NAME=N. A name may be given once.
func (r *rateLimits) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("a name and a value are needed, such as requests=100/10s or rpd=10000")
	}
	if slices.ContainsFunc(r.said, func(said string) bool { return strings.HasPrefix(said, name+"=") }) {
		return fmt.Errorf("%s is given twice", name)
	}
	r.said = append(r.said, text)
	if name == "burst" {
		burst, err := time.ParseDuration(value)
		if err != nil || burst <= 0 {
			return fmt.Errorf("%q is not a time above zero with its unit, such as 2s", value)
		}
		r.limits.Burst = burst
		return nil
	}
	var names []string
	for d, limit := range r.limits.All() {
		if d.WindowName() == name && name != "" {
			w, err := limits.ParseWindow(value)
			*r.limits.WindowOf(d) = w
			return err
		}
		if d.WindowName() != "" {
			names = append(names, d.WindowName())
		}
		if slices.Contains(limitNames(), d.String()) {
			if d.String() == name {
				return fmt.Errorf("%s has its own flag: --%s", name, name)
			}
			continue
		}
		if names = append(names, d.String()); d.String() == name {
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is not a whole number above zero", value)
			}
			*limit = n
			return nil
		}
	}
	return fmt.Errorf("%q is not one of %s, burst%s", name, strings.Join(names, ", "), provider.DidYouMean(provider.Nearest(name, append(names, "burst"))))
}

// Limits returns the limits, or a usage error that names the flag that is wrong.
func (f *limitFlags) Limits() (sluice.Limits, error) {
	for d, value := range f.limits.All() {
		if *value < 0 {
			return sluice.Limits{}, usageError(fmt.Errorf("--%s %d is below zero", d, *value),
				"leave --%s out to have the limit learned from the provider's answers", d)
		}
		if w := f.limits.WindowOf(d); w != nil && w.N > 0 && *value > 0 {
			return sluice.Limits{}, usageError(fmt.Errorf("--%s and --%s %s=%s both limit the %s", d, rateLimitFlag, d.WindowName(), *w, d.WindowName()),
				"leave one of them out")
		}
	}
	return f.limits, nil
}

// bytesOf reads a number of bytes such as 512MiB; "" is 0.
func bytesOf(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	number := strings.TrimRight(text, "BbKkMmGgi")
	unit := strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(text[len(number):], "B"), "b"), "i"))
	shift, ok := map[string]uint{"": 0, "k": 10, "m": 20, "g": 30}[unit]
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || n < 1 || n > 1<<50>>shift {
		return 0, usageError(fmt.Errorf("--%s %q is no number of bytes", flag, text), "write it such as 512MiB or 4GiB")
	}
	return n << shift, nil
}

// limitParts lists limits by name, in the order in which flags have them.
func limitParts(limits map[string]float64) []string {
	var parts []string
	add := func(name string) {
		if n := limits[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", name, number(n)))
		}
	}
	for d := range new(sluice.Limits).All() {
		add(d.String())
	}
	add("burst_seconds")
	return parts
}
