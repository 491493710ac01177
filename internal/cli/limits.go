package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice"
)

// limitFlags are the limits that the user tells. They are ceilings; what is not told is learned.
type limitFlags struct {
	limits sluice.Limits
	burst  float64 // seconds
}

// register adds the flags to fs.
func (f *limitFlags) register(fs *pflag.FlagSet) {
	for _, l := range f.all() {
		fs.IntVar(l.value, l.name, 0, l.usage)
	}
	fs.Float64Var(&f.burst, "burst-seconds", 0, "how many seconds' worth the provider's buckets hold (0: learned)")
}

// limitFlag is one of them.
type limitFlag struct {
	name, usage string
	value       *int
}

func (f *limitFlags) all() []limitFlag {
	what := [...]string{
		sluice.Requests: "requests a minute", sluice.Tokens: "tokens a minute, input and output together",
		sluice.InputTokens: "input tokens a minute", sluice.OutputTokens: "output tokens a minute",
		sluice.RequestsPerDay: "requests a day", sluice.TokensPerDay: "tokens a day, input and output together",
		sluice.Concurrency: "calls open at once",
	}
	var flags []limitFlag
	for d, value := range f.limits.All() {
		flags = append(flags, limitFlag{d.String(), "at most so many " + what[d] + " (0: learned)", value})
	}
	return flags
}

// Limits returns the limits, or a usage error that names the flag that is wrong.
func (f *limitFlags) Limits() (sluice.Limits, error) {
	for _, l := range f.all() {
		if *l.value < 0 {
			return sluice.Limits{}, usageError(fmt.Errorf("--%s %d is below zero", l.name, *l.value),
				"leave --%s out to have the limit learned from the provider's answers", l.name)
		}
	}
	limits := f.limits
	burst, err := burstTime(f.burst)
	limits.Burst = burst
	return limits, err
}

// burstTime returns the duration that --burst-seconds states.
func burstTime(seconds float64) (time.Duration, error) {
	if !(seconds >= 0) || seconds > math.MaxInt32 {
		return 0, usageError(fmt.Errorf("--burst-seconds %v is not a number of seconds", seconds), "give a number from 0 up, such as --burst-seconds 1.5")
	}
	return time.Duration(seconds * float64(time.Second)), nil
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

// limitMap are the limits that are stated, by their names.
func limitMap(l sluice.Limits) map[string]float64 {
	m := make(map[string]float64)
	for d, limit := range l.All() {
		if *limit > 0 {
			m[d.String()] = float64(*limit)
		}
	}
	if l.Burst > 0 {
		m["burst_seconds"] = l.Burst.Seconds()
	}
	return m
}

// limitParts lists limits by name, in the order in which flags have them.
func limitParts(limits map[string]float64) []string {
	var parts []string
	for _, name := range []string{"rpm", "tpm", "itpm", "otpm", "rpd", "tpd", "concurrent", "burst_seconds"} {
		if n := limits[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", name, number(n)))
		}
	}
	return parts
}
