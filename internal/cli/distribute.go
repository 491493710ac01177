package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/cluster"
)

// distributeFlags say whether workers make the calls of a run.
type distributeFlags struct {
	on     bool
	job    string
	window int
}

func (f *distributeFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.on, "distribute", false, "have the calls made by every sluice worker at the same --redis, and by nobody here")
	fs.StringVar(&f.job, "job", "", "name of the run among those that workers serve (absent: made of OUT's path)")
	fs.IntVar(&f.window, "window", batch.DefaultWindow, "most calls that workers are handed at once")
}

// callerFlags are those of whoever makes the calls.
func callerFlags() []string {
	return slices.Concat([]string{"key-env", "keys-file", "header", "ca-file"}, limitNames(), []string{"limits", "upstream", "prefer"})
}

// checkDistributed refuses flags that do not go with each other.
func (o *runOptions) checkDistributed() error {
	f := &o.distribute
	if !f.on {
		for _, name := range []string{"job", "window"} {
			if o.flags.Changed(name) {
				return usageError(fmt.Errorf("--%s is for --distribute", name), "say --distribute, or leave it out")
			}
		}
		return nil
	}
	for _, name := range callerFlags() {
		if o.flags.Changed(name) {
			return usageError(fmt.Errorf("--%s is for whoever makes the calls, and with --distribute workers do", name),
				"say it to each of them: sluice worker --%s ...", name)
		}
	}
	switch {
	case o.shared.url == "":
		return usageError(errors.New("--distribute needs --redis: workers are handed the calls there"), "name it: --redis redis://HOST")
	case o.rows.dryRun:
		return usageError(errors.New("--dry-run foresees the calls of one host, and --distribute has them made by others"), "leave --distribute out")
	case f.window < 1 || f.window > cluster.MaxWindow:
		return usageError(fmt.Errorf("--window %d is not from 1 to %d", f.window, cluster.MaxWindow), "leave it out to have %d", batch.DefaultWindow)
	}
	o.account.elsewhere = true
	return checkJob(f.job)
}

// distribute has the calls of a batch made by workers, if that is asked for.
func (r *batchRun) distribute(cfg *batch.Config) error {
	if !r.o.distribute.on {
		return nil
	}
	job, err := r.o.jobConfig()
	if err != nil {
		return err
	}
	r.collector = cluster.NewRemote(job)
	cfg.Remote, cfg.Window = r.collector, r.o.distribute.window
	return nil
}

// collect becomes the collector of the run's job. It comes after the output is locked: if another run has the same output, the error
// about that says more.
func (r *batchRun) collect(ctx context.Context, shared *shared) error {
	if r.collector == nil {
		return nil
	}
	if err := r.collector.Start(ctx, shared.cluster); err != nil {
		return r.explainJob(err)
	}
	for _, doubt := range shared.cluster.Doubts() {
		r.s.errorf("sluice: warning: %s\n", doubt)
	}
	return nil
}

// explainJob gives an error of the run's job its exit code and a hint. It returns other errors as they are.
func (r *batchRun) explainJob(err error) error {
	if r.collector == nil {
		return err
	}
	return explainJob(err, r.collector.Job())
}

// mostJobName is how long a job's name is at most: it stands in tables and messages.
const mostJobName = 100

// checkJob refuses names that tables cannot show.
func checkJob(name string) error {
	if len(name) > mostJobName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }) {
		return usageError(fmt.Errorf("--job: a name has at most %d characters, and no spaces", mostJobName), "give a short one, such as --job labels")
	}
	return nil
}

// jobConfig is the job of a run. Its name is that of --job, or else made of the whole path of OUT, and not of the host: who
// starts again in another container goes on with what is left of it.
func (o *runOptions) jobConfig() (cluster.JobConfig, error) {
	cfg := cluster.JobConfig{Name: o.distribute.job, Window: o.distribute.window}
	out, err := filepath.Abs(o.output)
	if err != nil {
		return cfg, err
	}
	if cfg.Name == "" {
		base := strings.TrimSuffix(filepath.Base(out), filepath.Ext(out))
		cfg.Name = strings.ToValidUTF8(strings.Join(strings.Fields(base), "-"), "") + "-" + digest(out)
	}
	terms := batch.Terms{
		Attempts: o.attempts, Throttles: o.account.mostThrottles(), Timeout: o.timeout, Schema: o.checks.text, FailOn: o.checks.failOn,
		Feedback: o.checks.feedback,
	}
	cfg.Settings = terms.Append(nil)
	in := o.input
	if in != "-" {
		if in, err = filepath.Abs(in); err != nil {
			return cfg, err
		}
	}
	cfg.Input = digest(in, string(cfg.Settings))
	return cfg, nil
}

// digest is a short name for texts.
func digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d %s\n", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// explainJob gives an error of a job its exit code and a hint. It returns other errors as they are.
func explainJob(err error, job string) error {
	e := &exitError{code: exitFailed, err: err}
	held, isHeld := errors.AsType[*cluster.HeldError](err)
	version, isVersion := errors.AsType[*cluster.VersionError](err)
	terms, isTerms := errors.AsType[*cluster.TermsError](err)
	engine, isEngine := errors.AsType[*cluster.Error](err)
	const oneRelease = "use one release of sluice on all hosts"
	switch {
	case isHeld:
		e.code, e.err = exitUsage, fmt.Errorf("job %q is collected by process %d on host %s", job, held.PID, held.Host)
		e.hint = "wait for that run to end, or stop it; or give this one a name and an output of its own: --job NAME -o OUT.jsonl"
	case errors.Is(err, cluster.ErrOtherInput):
		e.code, e.err = exitUsage, fmt.Errorf("job %q was begun with another input or other settings, and has calls or results that nobody recorded", job)
		e.hint = "run it as it was begun, to record them; or take another name to begin anew: --job NAME"
	case errors.Is(err, cluster.ErrNoWorkers):
		e.hint = "correct that, start a worker, and run the same command again: it resumes this one"
	case errors.Is(err, cluster.ErrFenced):
		e.err = fmt.Errorf("another run has taken job %q over, while this one was not heard of", job)
		e.hint = "what is recorded is kept; that other run goes on with the rest. Run one at a time"
	case isVersion:
		e.code, e.err, e.hint = exitUsage, version, oneRelease
	case isTerms:
		e.code, e.err, e.hint = exitUsage, terms, oneRelease
	case isEngine:
		return explainEngine(engine, "--redis")
	default:
		return err
	}
	return e
}
