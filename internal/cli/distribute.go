package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
		return explain(err, r.o, r.accounts)
	}
	for _, doubt := range shared.Doubts() {
		r.s.Errorf("sluice: warning: %s\n", doubt)
	}
	return nil
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
