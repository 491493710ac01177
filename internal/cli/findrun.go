package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// watched runs a search that shows its progress, and that an interrupt stops.
func watched[R any](ctx context.Context, f *search, engine func(context.Context, find.Config) (R, error)) (R, *fault.Error) {
	ctx, end := signals.Interruptible(ctx)
	defer end()
	shown := term.NewStaged(f.s, f.o.progress)
	defer shown.Stop()
	cfg := f.o.cfg
	cfg.Progress = func(at find.Progress) { shown.Show(string(at.Phase), at.Elapsed, at.String(), at) }
	if f.o.verbose {
		cfg.Log = func(line string) { f.s.Errorf("%s\n", line) }
	}
	r, err := engine(ctx, cfg)
	return r, f.ending(err)
}

// found is the result of a search of either mode.
type found struct {
	document any
	workers  int // that are safe; 0: none is known
	line     string
	notes    []string
	hint     string
	knows    bool // it is worth saying after a failure,
	learned  bool // and worth replacing an earlier file
}

// measure finds the answer by measurements.
func (f *search) measure(ctx context.Context) error {
	r, end := watched(ctx, f, f.o.auto)
	if end != nil {
		r.Error = end.Error()
	}
	w := found{
		document: r, workers: r.Workers, line: r.Line(), notes: r.Notes, hint: r.Hint, knows: r.Knows(),
		learned: r.Knows(limits.SourceConfigured, limits.SourceAtLeast),
	}
	return f.report(r.Spent, end, w)
}

// sweep tries worker counts.
func (f *search) sweep(ctx context.Context) error {
	r, end := watched(ctx, f, find.Sweep)
	w := found{document: r, workers: r.Recommended, line: r.Line(end != nil), knows: r.Recommended > 0, learned: r.Recommended > 0}
	if w.knows {
		w.notes = []string{"each worker sent only two requests, too few to reach a limit per minute; other clients of the account share its limits"}
	}
	return f.report(r.Spent, end, w)
}

// report writes the result of a search, and returns its end. One that sent no request has none.
func (f *search) report(spent find.Spent, end *fault.Error, w found) (err error) {
	if end != nil && spent.Requests == 0 {
		return end
	}
	if f.o.asJSON {
		err = f.s.JSON(w.document)
	} else if end == nil || w.workers > 0 {
		_, err = fmt.Fprintln(f.s.Out, w.workers)
	}
	if f.o.progress != term.ProgressJSON && (end == nil || end.Exit() != fault.ExitFailed || w.knows) { // else standard error is for programs
		f.s.Errorf("%s\n", w.line)
		for _, note := range w.notes {
			f.s.Errorf("note: %s\n", note)
		}
		if w.hint != "" && end == nil { // else the error has its own
			f.s.Errorf("hint: %s\n", w.hint)
		}
	}
	// An earlier file is not replaced by less.
	if f.document != nil && (end == nil || w.learned || end.Exit() != fault.ExitFailed && !f.document.replaces) {
		err = cmp.Or(err, f.write(w.document))
	}
	switch {
	case end != nil:
		return end
	case err == nil && w.workers == 0:
		return fault.Exit(fault.ExitThreshold)
	}
	return err
}

// write writes a document into the file of --output-file, without a key in it.
func (f *search) write(document any) error {
	b, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}
	text := f.s.RedactData(string(b) + "\n")
	err = f.document.write(func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if err == nil {
		f.s.Errorf("sluice: the record of the search is in %s\n", f.document.name)
	}
	return err
}

// searchAgain ends hints.
const searchAgain = "then run the same command again"

// ending returns the error of a search; nil for none.
func (f *search) ending(err error) *fault.Error {
	if err == nil {
		return nil
	}
	e := fault.Of(err)
	refused, said := errors.AsType[*provider.Error](err)
	switch {
	case fault.Is[*find.FieldError](err):
		nameFlag(f.o.cmd, e)
	case errors.Is(err, find.ErrTokenBudget):
		e.Code, e.Err = fault.Cap, fmt.Errorf("stopped by --token-budget %s: %w", prose.Group(f.forecast.TokenBudget), err)
		e.Hint = cheaper
	case errors.Is(err, find.ErrMaxCost):
		e.Code, e.Err = fault.Cap, fmt.Errorf("stopped by --max-cost %s: %w", prose.Dollars(f.o.maxCost), err)
		e.Hint = cheaper
	case errors.Is(err, find.ErrDay):
		e.Hint = "run the same command again tomorrow, so that other work can use the remaining requests of this day"
	case e.Code == fault.Interrupted:
		e.Hint = "run the same command again to start a new search"
	case said:
		explainRefused(e, refused, f)
	case e.Code == fault.Failed:
		e.Code = fault.Unreachable
	}
	return e.Say("--concurrency", "--max-workers", runinfo.SameCommand, "run the same command again")
}

// cheaper is the hint for a budget that is used up.
const cheaper = "raise --token-budget or --max-cost, or lower --max-workers"

// explainRefused adds the reason why the provider does not respond, and a hint.
func explainRefused(e *fault.Error, refused *provider.Error, f *search) {
	e.Code = fault.Rejected
	switch {
	case refused.Kind == sluice.Auth:
		e.Code, e.Err = fault.KeyRejected, fmt.Errorf("the key was rejected: %w", e.Err)
		e.Hint = keyHint(f.accounts, refused) + ", " + searchAgain
	case refused.Kind == sluice.QuotaExhausted:
		e.Code, e.Err = fault.Quota, fmt.Errorf("the account's quota is spent: %w", e.Err)
	case refused.Status == http.StatusNotFound:
		e.Hint = fmt.Sprintf("check --model and --base-url: %s has no model %s for this key", f.o.cfg.Provider.Name, f.o.cfg.Target.Model)
	case refused.Kind == sluice.ContextLength:
		e.Hint = "use a shorter prompt with --prompt-file, or fewer --min-output-tokens"
	case !refused.Kind.Transient() && !refused.Kind.Throttle():
		e.Hint = "check --model, --base-url, --header, --prompt-file and --min-output-tokens: the provider rejects the requests"
	default:
		e.Hint = "run the same command later: the provider fails or has no capacity now"
	}
}
