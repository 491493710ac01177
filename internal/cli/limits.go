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
	for d, value := range f.limits.All() {
		fs.IntVar(value, d.String(), 0, "at most so many "+d.Help()+" (0: learned)")
	}
	fs.Float64Var(&f.burst, "burst-seconds", 0, "how many seconds' worth the provider's buckets hold (0: learned)")
}

// limitNames are the names of the flags but --burst-seconds.
func limitNames() (names []string) {
	for d := range new(sluice.Limits).All() {
		names = append(names, d.String())
	}
	return names
}

// Limits returns the limits, or a usage error that names the flag that is wrong.
func (f *limitFlags) Limits() (sluice.Limits, error) {
	for d, value := range f.limits.All() {
		if *value < 0 {
			return sluice.Limits{}, usageError(fmt.Errorf("--%s %d is below zero", d, *value),
				"leave --%s out to have the limit learned from the provider's answers", d)
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

// limitParts lists limits by name, in the order in which flags have them.
func limitParts(limits map[string]float64) []string {
	var parts []string
	for _, name := range append(limitNames(), "burst_seconds") {
		if n := limits[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", name, number(n)))
		}
	}
	return parts
}
