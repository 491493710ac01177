package cli

// What a server was made from cannot be seen from outside: this test is in the package.

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/sim"
)

func TestEveryFlagOfTheImitationIsItsOwn(t *testing.T) {
	t.Setenv("SIM_TEST_KEY", "any-key-of-a-test")
	flags := []struct {
		args string
		set  func(*sim.Config)
	}{
		{"--rpm 5", func(c *sim.Config) { c.RPM = 5 }},
		{"--tpm 5", func(c *sim.Config) { c.TPM = 5 }},
		{"--rate-limit itpm=5", func(c *sim.Config) { c.ITPM = 5 }},
		{"--rate-limit otpm=5", func(c *sim.Config) { c.OTPM = 5 }},
		{"--rate-limit rpd=5", func(c *sim.Config) { c.RPD = 5 }},
		{"--rate-limit requests=5/10s", func(c *sim.Config) { c.Requests = limits.Window{N: 5, Period: 10 * time.Second} }},
		{"--rate-limit tokens=5/10s", func(c *sim.Config) { c.Tokens = limits.Window{N: 5, Period: 10 * time.Second} }},
		{"--concurrency 5", func(c *sim.Config) { c.Concurrency = 5 }},
		{"--queue 5", func(c *sim.Config) { c.Queue = 5 }},
		{"--rate-limit burst=1.5s", func(c *sim.Config) { c.Burst = 1500 * time.Millisecond }},
		{"--fixed-window", func(c *sim.Config) { c.FixedWindow = true }},
		{"--drained", func(c *sim.Config) { c.Drained = true }},
		{"--change 30s:0.5 --change 1m:2", func(c *sim.Config) {
			c.Changes = []sim.Change{{At: 30 * time.Second, Factor: 0.5}, {At: time.Minute, Factor: 2}}
		}},
		{"--charge actual", func(c *sim.Config) { c.Charge = limits.ChargeActual }},
		{"--charge-rejections", func(c *sim.Config) { c.ChargeRefusals = true }},
		{"--latency 5ms", func(c *sim.Config) { c.Latency = 5 * time.Millisecond }},
		{"--per-token 5ms", func(c *sim.Config) { c.PerToken = 5 * time.Millisecond }},
		{"--jitter 0.5", func(c *sim.Config) { c.Jitter = 0.5 }},
		{"--output-tokens 5", func(c *sim.Config) { c.OutputTokens = 5 }},
		{"--retry-after ms", func(c *sim.Config) { c.RetryAfter = sim.RetryAfterMillis }},
		{"--headers none", func(c *sim.Config) { c.NoHeaders = true }},
		{"--headers late", func(c *sim.Config) { c.LateHeaders = true }},
		{"--headers daily --rate-limit rpd=5", func(c *sim.Config) { c.DailyHeaders, c.RPD = true, 5 }},
		{"--vague", func(c *sim.Config) { c.VagueBodies = true }},
		{"--fault 500=0.5", func(c *sim.Config) { c.Faults.ServerError = 0.5 }},
		{"--fault 529=0.5", func(c *sim.Config) { c.Faults.Overloaded = 0.5 }},
		{"--fault reset=0.5", func(c *sim.Config) { c.Faults.Reset = 0.5 }},
		{"--fault hang=0.5", func(c *sim.Config) { c.Faults.Hang = 0.5 }},
		{"--fault cut=0.5", func(c *sim.Config) { c.Faults.Cut = 0.5 }},
		{"--fault 400=0.5", func(c *sim.Config) { c.Faults.BadRequest = 0.5 }},
		{"--fault 429=0.5", func(c *sim.Config) { c.Faults.Throttled = 0.5 }},
		{"--storm 3s-7s:529", func(c *sim.Config) { c.Storms = []sim.Storm{{From: 3 * time.Second, To: 7 * time.Second, Status: 529}} }},
		{"--spent-after 5", func(c *sim.Config) { c.SpentAfter = 5 }},
		{"--batch-latency 5s", func(c *sim.Config) { c.Batches.Latency = 5 * time.Second }},
		{"--batch-limit requests=5", func(c *sim.Config) { c.Batches.MaxRequests = 5 }},
		{"--batch-limit bytes=5", func(c *sim.Config) { c.Batches.MaxBytes = 5 }},
		{"--batch-limit tokens=5", func(c *sim.Config) { c.Batches.EnqueuedTokens = 5 }},
		{"--batch-limit pending=5", func(c *sim.Config) { c.Batches.Pending = 5 }},
		{"--batch-limit per-hour=5", func(c *sim.Config) { c.Batches.PerHour = 5 }},
		{"--batch-fault line=0.5", func(c *sim.Config) { c.Batches.Fail = 0.5 }},
		{"--batch-fault expire=5", func(c *sim.Config) { c.Batches.ExpireEvery = 5 }},
		{"--batch-fault fail=5", func(c *sim.Config) { c.Batches.FailEvery = 5 }},
		{"--batch-fault cut=5", func(c *sim.Config) { c.Batches.CutResults = 5 }},
		{"--batch-fault lost=1", func(c *sim.Config) { c.Batches.LoseResults = true }},
		{"--batch-fault list=5s", func(c *sim.Config) { c.Batches.ListDelay = 5 * time.Second }},
		{"--batch-fault drop=0.5", func(c *sim.Config) { c.Batches.Drop = 0.5 }},
		{"--key-env SIM_TEST_KEY", func(c *sim.Config) { c.Key = "any-key-of-a-test" }},
		{"--seed 5", func(c *sim.Config) { c.Seed = 5 }},
	}
	plain := sim.Config{Burst: time.Minute, Latency: 200 * time.Millisecond, OutputTokens: 64, Batches: sim.Batches{Latency: time.Second}}
	all := plain
	for _, f := range flags {
		want := plain
		f.set(&want)
		f.set(&all)
		if diff := cmp.Diff(want, describedBy(t, f.args)); diff != "" {
			t.Errorf("%s: %s", f.args, diff)
		}
	}
	for field, value := range reflect.ValueOf(all).Fields() {
		switch field.Name {
		case "RefusalLatency", "NoStats", "AdminKey", "Contention", "OutputSigma", "Models": // have none
		default:
			if value.IsZero() {
				t.Errorf("no flag sets %s", field.Name)
			}
		}
	}
	for field, value := range reflect.ValueOf(all.Batches).Fields() {
		if value.IsZero() {
			t.Errorf("no flag sets Batches.%s", field.Name)
		}
	}
}

// describedBy is what the imitation is like by those flags.
func describedBy(t *testing.T, args string) sim.Config {
	t.Helper()
	var o simOptions
	cmd := &cobra.Command{RunE: func(*cobra.Command, []string) error { return nil }}
	define(cmd, o.table()...)
	if err := cmd.Flags().Parse(strings.Fields(args)); err != nil {
		t.Fatal(err)
	}
	c, err := o.simulated()
	if err != nil {
		t.Fatal(err)
	}
	return c
}
