package cli

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/internal/telemetry"
)

// runReportFlag says where a run's report goes.
type runReportFlag struct{ name string }

func (f *runReportFlag) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.name, "report", "", "write a report of the run to FILE at its end, as one HTML page with charts")
}

// open makes sure that the report can be written; nil is none.
func (f *runReportFlag) open(o *runOptions) (*runReport, error) {
	if f.name == "-" {
		return nil, usageError(errors.New("--report needs a file: standard output is for --json"), "name one, such as --report report.html")
	}
	page, err := newFileFor("report", f.name)
	if err != nil || page == nil {
		return nil, err
	}
	return &runReport{page: page, o: o}, nil
}

// runReport is the report of a run that is on. It is an Observer, which needs no file of events.
type runReport struct {
	telemetry.Aggregate
	page *newFile
	o    *runOptions
}

// write writes what was observed of a run that ended with err. A run that could not begin has no report.
func (rr *runReport) write(r *batchRun, err error) error {
	if rr == nil || r.batch == nil {
		return nil
	}
	report := rr.Report()
	report.Output, report.Events = rr.o.output, rr.o.events
	report.Judge(telemetry.Advice{
		Again: rr.o.command(), Retry: rr.o.command("--retry-failed"), Left: max(0, r.batch.Progress().Left()), Stopped: stopped(err),
	})
	report.Redact(r.s.err.secrets.blot, r.s.err.secrets.strike)
	if err := rr.page.write(report.WriteHTML); err != nil {
		return err
	}
	r.s.row("report", "%s", rr.page.name)
	return nil
}

// stopped is why a run ended before its time; "" when it did not.
func stopped(err error) string {
	end, ok := errors.AsType[*exitError](err)
	switch {
	case err == nil || ok && end.err == nil:
		return ""
	case ok && end.code == exitInterrupted:
		return "it was interrupted"
	}
	return err.Error()
}

// record adds what keeps the run's events to its observers: the file of --events, and the report. done
// ends them.
func (r *batchRun) record() (done func(error), err error) {
	report, err := r.o.report.open(r.o)
	if err != nil {
		return nil, err
	}
	if report != nil {
		r.observers = append(r.observers, report)
	}
	if r.o.events == "" {
		return func(err error) { r.s.note(report.write(r, err)) }, nil
	}
	log, err := r.s.openEvents(r.o.events)
	if err != nil {
		return nil, err
	}
	r.observers = append(r.observers, log)
	return func(err error) {
		r.s.note(log.Close())
		r.s.note(report.write(r, err))
	}, nil
}
