package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
)

// viaFlags say by which way the calls of a run go, and what the parts are held to that go through Batch APIs.
type viaFlags struct {
	flags    *pflag.FlagSet
	name     string
	cancel   bool
	resubmit bool
	requests int
	bytes    string
	tokens   int
	poll     time.Duration
	remove   bool

	way batch.Via // of name, once it is checked
}

func (f *viaFlags) register(fs *pflag.FlagSet) {
	f.flags = fs
	fs.StringVar(&f.name, "via", batch.ViaLive.String(), "how calls go: live, batch-api (the provider's Batch API: for less, within a day) or auto (as far as --deadline allows)")
	fs.BoolVar(&f.cancel, "cancel", false, "call off what is pending at the Batch API, record what is done, and submit nothing")
	fs.BoolVar(&f.resubmit, "resubmit-lost", false, "pay again for batches whose answers the provider has lost or no longer keeps; with --cancel, give them up")
	fs.IntVar(&f.requests, "batch-requests", 0, "most requests of a batch (absent: what the provider allows)")
	fs.StringVar(&f.bytes, "batch-bytes", "", "most bytes of a batch, such as 50MiB (absent: what the provider allows)")
	fs.IntVar(&f.tokens, "batch-tokens", 0, "most input tokens that are enqueued at an account at once (absent: until it refuses more)")
	fs.DurationVar(&f.poll, "batch-poll", time.Minute, "longest time between two looks at a batch")
	fs.BoolVar(&f.remove, "batch-delete", false, "delete the files of requests and results at the provider once their answers are recorded")
}

// shapes are the flags that shape what goes through Batch APIs.
func (*viaFlags) shapes() []string {
	return []string{"resubmit-lost", "batch-requests", "batch-bytes", "batch-tokens", "batch-poll", "batch-delete"}
}

// checkVia refuses flags that do not go with the way of the calls.
func (o *runOptions) checkVia() error {
	f := &o.via
	if err := cmp.Or(checkWordIfAny("via", f.name), f.way.UnmarshalText([]byte(f.name))); err != nil {
		return err
	}
	if f.cancel && !o.flags.Changed("via") {
		f.way = batch.ViaBatchAPI // there is nothing else to call off
	}
	if f.way == batch.ViaLive {
		if f.cancel {
			return usageError(errors.New("--cancel calls off what is pending at a Batch API, and --via live has nothing there"), "leave --via out")
		}
		for _, name := range f.shapes() {
			if o.flags.Changed(name) {
				return usageError(fmt.Errorf("--%s is for calls by way of a Batch API, and these go live", name), "say --via batch-api or --via auto, too")
			}
		}
		return nil
	}
	if err := o.checkBatched(); err != nil {
		return err
	}
	return f.check()
}

// checkBatched refuses what does not go with calls by way of a Batch API.
func (o *runOptions) checkBatched() error {
	way := "--via " + o.via.way.String()
	if o.via.cancel {
		way = "--cancel"
	}
	switch {
	case o.distribute.on:
		return usageError(fmt.Errorf("--distribute has calls made by workers, and %s by a Batch API", way), "leave one of them out")
	case o.shared.url != "":
		return usageError(fmt.Errorf("--redis shares the limits of live calls, which do not hold for %s", way), "leave --redis out")
	case o.flags.Changed("upstream") || o.flags.Changed("prefer"):
		return usageError(fmt.Errorf("%s uses one account, and upstreams are several", way), "name it by --provider in place of upstreams")
	case o.reuse.warmUp:
		return usageError(fmt.Errorf("--warm-up orders live calls, and %s hands requests over together", way), "leave --warm-up out")
	case o.input == "-":
		return usageError(fmt.Errorf("%s needs an input that can be read again when the results come, and standard input cannot", way), "put it into a file first")
	case o.via.cancel && o.rows.dryRun:
		return usageError(errors.New("--dry-run sends nothing, and --cancel would have to"), "leave one of them out; `sluice status OUT.jsonl` says what is pending")
	}
	return nil
}

// idle says which limits were told for nothing, since they are those of live calls; "" if none was.
func (f *viaFlags) idle() string {
	if f.way != batch.ViaBatchAPI {
		return ""
	}
	for _, name := range limitNames() {
		if f.flags.Changed(name) {
			return fmt.Sprintf("--%s limits live calls, and --via %s makes none: --batch-tokens bounds what is enqueued at once", name, f.way)
		}
	}
	return ""
}

// check refuses values that bound nothing.
func (f *viaFlags) check() error {
	for _, bound := range []struct {
		name  string
		value int
	}{{"batch-requests", f.requests}, {"batch-tokens", f.tokens}} {
		if bound.value < 0 || bound.value == 0 && f.flags.Changed(bound.name) {
			return usageError(fmt.Errorf("--%s %d is not above zero", bound.name, bound.value), "leave it out to have what the provider allows")
		}
	}
	if f.poll < leastPoll {
		return usageError(fmt.Errorf("--batch-poll %s is too often", f.poll), "a batch takes minutes to hours: say %s or more", leastPoll)
	}
	_, err := bytesOf("batch-bytes", f.bytes)
	return err
}

// leastPoll is how often a batch may be looked at: imitations are quick, and providers count looks as requests.
const leastPoll = 10 * time.Millisecond

// fill sets what the flags say.
func (f *viaFlags) fill(cfg *batch.Config) (err error) {
	cfg.Via = f.way
	cfg.Batches = batch.Batches{Requests: f.requests, Tokens: f.tokens, Poll: f.poll, Resubmit: f.resubmit, Delete: f.remove, Cancel: f.cancel}
	cfg.Batches.Bytes, err = bytesOf("batch-bytes", f.bytes)
	return err
}

// checkVia refuses accounts that cannot be reached by that way. Where each line's model names the provider, the batch finds out.
func (a *accounts) checkVia(way batch.Via) error {
	switch {
	case way == batch.ViaLive:
		return nil
	case a.upstreams != nil:
		return usageError(fmt.Errorf("--via %s uses one account, and the settings name upstreams", way), "name it by --provider in place of upstreams")
	case way == batch.ViaBatchAPI && a.provider.Name != "" && a.provider.Batches.API == "":
		return noBatchAPI(a.settings.registry, a.provider.Name)
	}
	return nil
}

// noBatchAPI says who has one.
func noBatchAPI(known *provider.Registry, name string) error {
	var having []string
	for _, other := range known.Names() {
		if p, ok := known.Lookup(other); ok && p.Batches.API != "" {
			having = append(having, other)
		}
	}
	return usageError(fmt.Errorf("%s has no Batch API that is known", name),
		"call it live, by leaving --via out; those that have one are %s. --via auto calls the others live. One with the same form is told in sluice.yaml, by batches: below its provider",
		strings.Join(having, ", "))
}
