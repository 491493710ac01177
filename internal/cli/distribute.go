package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
)

// distribute has the calls of a batch made by workers, if that is asked for.
func (r *batchRun) distribute(cfg *batch.Config) error {
	if !r.o.workers {
		return nil
	}
	job, err := r.o.jobConfig(r.accounts.Settings.MaxThrottles())
	if err != nil {
		return err
	}
	r.collector = cluster.NewRemote(job)
	cfg.Remote = r.collector
	return nil
}

// collect becomes the collector of the run's job. It comes after the output is locked: if another run has the same output, the error
// about that says more.
func (r *batchRun) collect(ctx context.Context, shared *account.Shared) error {
	if r.collector == nil {
		return nil
	}
	if err := r.collector.Start(ctx, shared.Cluster); err != nil {
		return r.explainJob(err)
	}
	for _, doubt := range shared.Doubts() {
		r.s.Errorf("sluice: warning: %s\n", doubt)
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
		return fault.New(fault.Value, fmt.Errorf("--job: the maximum is %d characters, without spaces", mostJobName), "give a short name, such as --job labels")
	}
	return nil
}

// jobConfig is the job of a run. Its name is made of the whole path of OUT, and not of the host, so that the run can be resumed in
// another container.
func (o *runOptions) jobConfig(throttles int) (cluster.JobConfig, error) {
	cfg := cluster.JobConfig{Window: batch.Window}
	out, err := filepath.Abs(o.output)
	if err != nil {
		return cfg, err
	}
	base := strings.TrimSuffix(filepath.Base(out), filepath.Ext(out))
	cfg.Name = strings.ToValidUTF8(strings.Join(strings.Fields(base), "-"), "") + "-" + digest(out)
	terms := batch.Terms{
		Attempts: o.attempts, Throttles: throttles, Timeout: o.timeout, Schema: o.checks.text, FailOn: strings.Join(o.checks.reject, ","),
		Feedback: o.checks.schema != "",
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
	e := &fault.Error{Code: fault.Failed, Err: err}
	held, isHeld := errors.AsType[*cluster.HeldError](err)
	version, isVersion := errors.AsType[*cluster.VersionError](err)
	terms, isTerms := errors.AsType[*cluster.TermsError](err)
	engine, isEngine := errors.AsType[*cluster.Error](err)
	const oneRelease = "use the same release of Sluice on all hosts"
	switch {
	case isHeld:
		e.Code, e.Err = fault.Job, fmt.Errorf("job %q is in use by process %d on host %s", job, held.PID, held.Host)
		e.Hint = "wait for that run, stop it, or use another output with -o OUT.jsonl"
	case errors.Is(err, cluster.ErrOtherInput):
		e.Code, e.Err = fault.Job, fmt.Errorf("job %q was started with another input or other settings, and has requests or results that are not recorded", job)
		e.Hint = "run the first command again to record them, or use another output with -o OUT.jsonl"
	case errors.Is(err, cluster.ErrNoWorkers):
		e.Hint = "correct the cause, start a worker, and run the same command again"
	case errors.Is(err, cluster.ErrFenced):
		e.Err = fmt.Errorf("another run took over job %q while this run could not reach Redis", job)
		e.Hint = "let the other run finish the remaining items"
	case isVersion:
		e.Code, e.Err, e.Hint = fault.Job, version, oneRelease
	case isTerms:
		e.Code, e.Err, e.Hint = fault.Job, terms, oneRelease
	case isEngine:
		return account.RedisError(engine, "--redis")
	default:
		return err
	}
	return e
}
