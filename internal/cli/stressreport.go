package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/stress"
	"github.com/sluice-llm/sluice/provider"
)

// stressDocument is what a run of stress came to, as --json prints it.
type stressDocument struct {
	Level      stress.Level     `json:"level"`
	Slots      int              `json:"slots"`
	Seed       uint64           `json:"seed"`
	Endpoint   string           `json:"endpoint"` // "": the imitation
	Model      string           `json:"model,omitempty"`
	DurationMS int64            `json:"duration_ms"`
	TookMS     int64            `json:"took_ms"`
	Outcome    string           `json:"outcome"` // ok, missed or interrupted
	Missed     []string         `json:"missed"`
	Rows       []stress.Row     `json:"rows"`
	Parts      []stressPart     `json:"parts"`
	LeftOut    []stress.LeftOut `json:"left_out"`
	Calls      int64            `json:"calls"`
	Seen       int64            `json:"seen"`
	Events     string           `json:"events,omitempty"`
	Deadlock   string           `json:"deadlock,omitempty"`
	Panic      string           `json:"panic,omitempty"`
	Failure    string           `json:"first_failure,omitempty"`
}

type stressPart struct {
	Name       string   `json:"name"`
	TookMS     int64    `json:"took_ms"`
	Calls      int      `json:"calls"`
	Completed  int      `json:"completed"`
	Cancelled  int      `json:"cancelled"`
	Failed     int      `json:"failed"`
	Arrived    int      `json:"arrived"`
	Dropped    int      `json:"dropped"`
	LongestMS  float64  `json:"longest_wait_ms"`
	MeanMS     float64  `json:"mean_wait_ms"`
	InUse      *float64 `json:"slots_in_use"`
	Jain       *float64 `json:"jain_index"`
	Starvation *float64 `json:"starvation"`
}

// conclude prints what a run came to, and returns what the program ends with.
func (o *stressOptions) conclude(s *streams, cfg stress.Config, res *stress.Result, err error) error {
	if res == nil {
		return o.ending(err)
	}
	d := o.document(cfg, res, err)
	if o.asJSON {
		if err := s.printJSON(d); err != nil {
			return err
		}
	} else if err := s.printStress(d); err != nil {
		return err
	}
	if res.Deadlock != "" {
		what, _, _ := strings.Cut(res.Deadlock, "\n")
		s.errorf("sluice: deadlock: %s (--json has the stacks)\n", what)
	}
	if res.Panic != "" {
		what, _, _ := strings.Cut(res.Panic, "\n")
		s.errorf("sluice: %s (--json has the stack)\n", what)
	}
	if res.Failure != nil {
		s.errorf("sluice: the first call that failed: %s\n", clip(res.Failure.Error(), mostMessage))
	}
	switch {
	case err != nil:
		return o.ending(err)
	case len(d.Missed) > 0:
		return &exitError{code: exitThreshold, err: fmt.Errorf("missed: %s", words(strings.Join(d.Missed, ", "))), hint: o.hint()}
	}
	return nil
}

// hint says how to find out why a threshold was missed.
func (o *stressOptions) hint() string {
	if o.events == "" {
		return "docs/stress.md says what each row means; --events FILE keeps what happened, and sluice report --events FILE shows it"
	}
	return "docs/stress.md says what each row means; sluice report --events " + shellQuote(o.events) + " shows what happened"
}

// words makes words of a name.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// ending gives the error of a run its exit code and a hint.
func (o *stressOptions) ending(err error) error {
	if errors.Is(err, stress.ErrInterrupted) {
		return &exitError{code: exitInterrupted, err: err, hint: "the same command runs it anew"}
	}
	if refused, ok := errors.AsType[*provider.Error](err); ok && refused.Kind == sluice.Auth {
		return &exitError{code: exitFailed, err: err, hint: "check the key in the environment, or name another variable with --key-env"}
	}
	if late, ok := errors.AsType[*provider.LateError](err); ok {
		return &exitError{code: exitFailed, err: err, hint: fmt.Sprintf("give a try more time than %s by --timeout, or check --base-url, --model and the network: "+
			"no load was put on it", late.After)}
	}
	if isAny[*stress.UnreachableError](err) {
		return &exitError{code: exitFailed, err: err, hint: "check --base-url, --model and the network: no load was put on it"}
	}
	if wrong, ok := errors.AsType[*stress.FieldError](err); ok {
		return usageError(wrong, "see sluice stress --help")
	}
	if isAny[*fs.PathError](err) { // of the checkpoints that it keeps while it runs
		return &exitError{code: exitFailed, err: err, hint: "name another directory for temporary files by TMPDIR=DIR"}
	}
	return err
}

func (o *stressOptions) document(cfg stress.Config, res *stress.Result, err error) *stressDocument {
	d := &stressDocument{
		Level: res.Level, Slots: res.Slots, Seed: res.Seed, DurationMS: res.Duration.Milliseconds(), TookMS: res.Took.Milliseconds(),
		Outcome: "ok", Missed: append([]string{}, res.Missed()...), LeftOut: append([]stress.LeftOut{}, res.LeftOut...),
		Rows: res.Rows, Parts: []stressPart{}, Calls: res.Metrics.Calls, Seen: res.Seen, Events: o.events, Deadlock: res.Deadlock, Panic: res.Panic,
	}
	if e := cfg.Endpoint; e != nil {
		d.Endpoint, d.Model = e.Target.BaseURL, e.Target.Model
		if d.Endpoint == "" {
			d.Endpoint = e.Provider.BaseURL
		}
	}
	switch {
	case err != nil:
		d.Outcome = "interrupted"
	case len(d.Missed) > 0:
		d.Outcome = "missed"
	}
	if res.Failure != nil {
		d.Failure = res.Failure.Error()
	}
	for _, p := range res.Parts {
		d.Parts = append(d.Parts, stressPart{
			Name: p.Name, TookMS: p.Took.Milliseconds(), Calls: p.Calls, Completed: p.Completed, Cancelled: p.Cancelled, Failed: p.Failed,
			Arrived: p.Arrived, Dropped: p.Dropped, LongestMS: ms(p.LongestWait), MeanMS: ms(p.MeanWait),
			InUse: p.InUse, Jain: p.Jain, Starvation: p.Starvation,
		})
	}
	return d
}

// printStress prints the table.
func (s *streams) printStress(d *stressDocument) error {
	var b strings.Builder
	where := "the imitation"
	if d.Endpoint != "" {
		where = d.Model + " at " + d.Endpoint
	}
	fmt.Fprintf(&b, "%s: %s, %s, seed %d, %s to %s\n\n", d.Level, prose.Count(d.Slots, "slot"),
		span(time.Duration(d.TookMS)*time.Millisecond), d.Seed, prose.Count(int(d.Seen), "call"), escape(where))
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, row := range d.Rows {
		value, threshold, verdict := "-", "", ""
		if row.Value != nil {
			value = quantity(*row.Value, row.Unit)
		}
		if t := row.Threshold; t != nil {
			threshold = t.Op + " " + quantity(t.Value, row.Unit)
		}
		switch {
		case row.Value == nil:
			verdict = "-"
		case !row.OK:
			verdict = "MISSED"
		case row.Threshold != nil:
			verdict = "ok"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", words(row.Name), value, threshold, verdict, row.Note)
	}
	w.Flush()
	for _, l := range d.LeftOut {
		fmt.Fprintf(&b, "\nleft out: %s: %s\n", l.Part, escape(l.Why))
	}
	_, err := fmt.Fprint(s.out, trimmed(b.String()))
	return err
}

// trimmed takes blanks off the ends of lines.
func trimmed(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// quantity writes a number with its unit.
func quantity(x float64, unit string) string {
	switch {
	case unit == "s":
		return span(time.Duration(x * float64(time.Second)))
	case unit == "%":
		return fmt.Sprintf("%.4g %%", x)
	case x == float64(int64(x)):
		return group(x)
	}
	return fmt.Sprintf("%.3f", x)
}
