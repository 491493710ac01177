package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/find"
	"github.com/sluice-llm/sluice/provider"
)

// watched makes a search that shows how it stands, and that an interrupt stops.
func watched[R any](ctx context.Context, f *search, engine func(context.Context, find.Config) (R, error)) (R, error) {
	ctx, end := interruptible(ctx)
	defer end()
	shown := newStagedProgress(f.s, f.o.progress)
	defer shown.stop()
	cfg := f.cfg
	cfg.Progress = shown.search
	if f.o.verbose {
		cfg.Log = func(line string) { f.s.errorf("%s\n", line) }
	}
	return engine(ctx, cfg)
}

// auto measures.
func (f *search) auto(ctx context.Context) error {
	r, err := watched(ctx, f, f.o.auto)
	end := f.ending(err)
	if end != nil && r.Spent.Calls == 0 {
		return end
	}
	w := found{Result: r, most: f.cfg.MaxWorkers, budgets: f.budgets(), err: err}
	d := f.findings(w, end)
	if f.o.asJSON {
		err = f.s.printJSON(d)
	} else if end == nil || w.safe() > 0 {
		_, err = fmt.Fprintln(f.s.out, w.safe())
	}
	if f.o.progress != progressJSON && (end == nil || end.code != exitFailed || d.Limits != nil) { // else what is on standard error is for programs
		f.tell(w)
	}
	if f.worthWriting(end, d.knows()) {
		err = cmp.Or(err, f.write(d))
	}
	if len(r.Probes) > 0 {
		err = cmp.Or(err, f.s.draw(f.chart, func(w io.Writer) error { return find.Draw(w, r) }))
	}
	switch {
	case end != nil:
		return end
	case err == nil && r.Workers == 0:
		return silent(exitThreshold)
	}
	return err
}

// worthWriting reports whether what a search knows at its end goes into the file: what was found before is not given away
// for nothing.
func (f *search) worthWriting(end *exitError, knows bool) bool {
	return f.document != nil && (end == nil || knows || end.code != exitFailed && !f.document.replaces)
}

// findings is the document of what was found.
func (f *search) findings(w found, end *exitError) *findings {
	published := float64(trustPublished)
	if len(f.accounts.settings.doubts) > 0 {
		published = trustDoubtful
	}
	target := f.cfg.Target
	target.BaseURL = cmp.Or(target.BaseURL, f.cfg.Provider.BaseURL)
	d := newFindings(w.Result, target, f.cfg.Provider, published, time.Now())
	d.Workers, d.Settings = w.safe(), f.settings()
	if end != nil {
		d.Error = end.Error()
	}
	return d
}

func (f *search) settings() findingSettings {
	return findingSettings{
		MaxWorkers: f.cfg.MaxWorkers, MinOutputTokens: f.cfg.MinOutputTokens, PromptFile: cmp.Or(f.o.promptFile, find.BuiltIn),
		TimeoutMS: f.cfg.Timeout.Milliseconds(), TokenBudget: f.forecast.TokenBudget, MaxCost: f.cfg.MaxCost, Quick: f.cfg.Quick,
	}
}

// budgets are the flags that bound what can be certified.
func (f *search) budgets() string {
	var flags []string
	if n := f.forecast.TokenBudget; n > 0 {
		flags = append(flags, "--token-budget "+group(n))
	}
	if m := f.cfg.MaxCost; m != nil {
		flags = append(flags, "--max-cost "+dollars(*m))
	}
	return cmp.Or(strings.Join(flags, " and "), "a minute")
}

// tell says in words what was found.
func (f *search) tell(w found) {
	f.s.errorf("%s\n", w.line())
	for _, note := range w.Notes {
		f.s.errorf("note: %s\n", note)
	}
	if w.Hint != "" && !w.stopped() { // else the error has one of its own
		f.s.errorf("hint: %s\n", w.Hint)
	}
}

// write puts a document into the file that was asked for. No key stands in it.
func (f *search) write(document any) error {
	b, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}
	text := f.s.out.secrets.strike(string(b) + "\n")
	err = f.document.write(func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if err == nil {
		f.s.errorf("sluice: the record of the search is in %s\n", f.document.name)
	}
	return err
}

// ending gives the error of a search its exit code and a hint of what to do; nil is none.
func (f *search) ending(err error) *exitError {
	if err == nil {
		return nil
	}
	const again = "then the same command searches again"
	e := &exitError{code: exitFailed, err: err}
	refused, said := errors.AsType[*provider.Error](err)
	switch {
	case isAny[*find.FieldError](err):
		e, _ = errors.AsType[*exitError](f.o.wrongField(err))
	case errors.Is(err, find.ErrTokenBudget):
		e.code, e.err = exitBudget, fmt.Errorf("stopped by --token-budget %s: %w", group(f.forecast.TokenBudget), err)
		e.hint = f.o.cheaper()
	case errors.Is(err, find.ErrMaxCost):
		e.code, e.err = exitBudget, fmt.Errorf("stopped by --max-cost %s: %w", dollars(f.o.maxCost), err)
		e.hint = f.o.cheaper()
	case errors.Is(err, find.ErrDay):
		e.hint = "the rest of the day's requests is left for other work; when the day is over the same command searches again"
	case errors.Is(err, context.Canceled):
		e.code, e.err, e.hint = exitInterrupted, errors.New("interrupted"), "the same command searches anew"
	case said:
		e.explainRefused(refused, f, again)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		e.hint = "raise the number of open files, as with ulimit -n 4096, or lower --max-workers; " + again
	default:
		e.hint = "check the network and --base-url; " + again
	}
	return e
}

// cheaper says what to do when a budget was used up.
func (o *findOptions) cheaper() string {
	if o.mode == modeSweep {
		return "raise it; --dry-run says what a search may spend, and --max-workers bounds it"
	}
	return "raise it; --dry-run says what a search may spend, and --quick spends less"
}

// explainRefused says why the provider does not answer, and what to do.
func (e *exitError) explainRefused(refused *provider.Error, f *search, again string) {
	switch {
	case refused.Kind == sluice.Auth:
		e.err = fmt.Errorf("the key was refused: %w", e.err)
		e.hint = f.accounts.check(refused) + "; " + again
	case refused.Kind == sluice.QuotaExhausted:
		e.err = fmt.Errorf("the account's quota is spent: %w", e.err)
		e.hint = "add credit or raise the spend limit; " + again
	case refused.Status == http.StatusNotFound:
		e.hint = fmt.Sprintf("check --model: %s has no %s, or not for this key; and --base-url, if it is given", f.cfg.Provider.Name, f.cfg.Target.Model)
	case refused.Kind == sluice.ContextLength:
		e.hint = "give a shorter prompt by --prompt-file, or fewer --min-output-tokens"
	case !refused.Kind.Transient() && !refused.Kind.Throttle():
		e.hint = "the provider does not take the calls of a search: check --model, --base-url and --header, and --prompt-file and --min-output-tokens"
	default:
		e.hint = "the provider fails or has no room now; later the same command searches again"
	}
}
