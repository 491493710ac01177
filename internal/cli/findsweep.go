package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice/find"
)

// sweep tries worker counts.
func (f *search) sweep(ctx context.Context) error {
	began := time.Now()
	r, err := watched(ctx, f, find.Sweep)
	end := f.ending(err)
	if end != nil && r.Spent.Calls == 0 {
		return end
	}
	known := end == nil || r.Recommended > 0
	if f.o.asJSON {
		err = f.s.printJSON(r)
	} else if err = nil; known {
		_, err = fmt.Fprintln(f.s.out, r.Recommended)
	}
	if f.o.progress != progressJSON && (known || end.code != exitFailed) {
		f.s.errorf("%s; %s\n", sweepWords(r, end != nil), spentWords(r.Spent, time.Since(began)))
	}
	if f.o.progress != progressJSON && r.Recommended > 0 {
		f.s.errorf("note: each worker made two calls, which meet no limit per minute, and other clients of the account share its limits\n")
	}
	if f.worthWriting(end, r.Recommended > 0) {
		err = cmp.Or(err, f.write(r))
	}
	switch {
	case end != nil:
		return end
	case err == nil && r.Recommended == 0:
		return silent(exitThreshold)
	}
	return err
}

// sweepWords says what a sweep found.
func sweepWords(r *find.SweepResult, stopped bool) string {
	var refused *find.SweepRun // the fewest workers of which some were
	for i := range r.Runs {
		if run := &r.Runs[i]; run.Status == find.SweepRateLimited && (refused == nil || run.Workers < refused.Workers) {
			refused = run
		}
	}
	text := count(r.Recommended, "worker") + " passed"
	switch {
	case r.Recommended == 0 && stopped:
		text = "stopped early: nothing passed"
	case r.Recommended == 0:
		text = "0 workers: " + cmp.Or(r.Error, "nothing passed")
	case stopped:
		text = "stopped early: " + text
	}
	switch {
	case refused != nil:
		text += fmt.Sprintf("; %s had %s of %s refused", count(refused.Workers, "worker"), group(refused.RateLimited), count(refused.Prompts, "call"))
	case r.Recommended == r.Settings.MaxWorkers:
		text += fmt.Sprintf("; no more than --max-workers %s were tried", group(r.Settings.MaxWorkers))
	}
	return text
}
