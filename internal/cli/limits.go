package cli

import (
	"fmt"
	"math"
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
	burst, err := seconds("burst-seconds", f.burst)
	limits.Burst = burst
	return limits, err
}

// seconds returns the duration that a flag states as a number of seconds.
func seconds(name string, value float64) (time.Duration, error) {
	if !(value >= 0) || value > math.MaxInt32 {
		return 0, usageError(fmt.Errorf("--%s %v is not a number of seconds", name, value),
			"give a number from 0 up, such as --%s 1.5", name)
	}
	return time.Duration(value * float64(time.Second)), nil
}
