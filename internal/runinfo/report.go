package runinfo

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
)

// ReadReport reads the results in an output and the events in a file, which is standard input for "-". Each of them can be "".
func ReadReport(output, events string, stdin io.Reader) (*telemetry.Report, error) {
	var a telemetry.Aggregate
	if output != "" {
		if err := readResults(&a, output); err != nil {
			return nil, err
		}
	}
	if events != "" {
		if err := readEvents(&a, events, stdin); err != nil {
			return nil, err
		}
	}
	r := a.Report()
	r.Output, r.Events = output, events
	r.Judge(advice(output, r.Items.Total))
	return r, nil
}

func readResults(a *telemetry.Aggregate, output string) error {
	f, err := os.Open(output)
	if err != nil {
		return fault.New(fault.File, err, "name the file that sluice run -o OUT.jsonl wrote: sluice report OUT.jsonl")
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		dir := term.Quote(output)
		return fault.New(fault.File, fmt.Errorf("%s is a directory", output), "read a run of exec with sluice status %s or sluice answers %s", dir, dir)
	}
	if err := a.ReadResults(f); err != nil {
		return fault.New(fault.Output, fmt.Errorf("%s: %w", output, err), "name the file that sluice run -o OUT.jsonl wrote")
	}
	return nil
}

func readEvents(a *telemetry.Aggregate, name string, stdin io.Reader) error {
	const hint = "name a file that sluice run --events FILE wrote"
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return fault.New(fault.File, fmt.Errorf("--events: %w", err), hint)
		}
		defer f.Close()
		in = f
	}
	if err := a.ReadEvents(in); err != nil {
		return fault.New(fault.File, fmt.Errorf("%s: %w", InputName(name), err), hint)
	}
	return nil
}

// advice returns the next steps of the run with this output and number of results. Its state file has the number of remaining items.
func advice(output string, results int) telemetry.Advice {
	if output == "" {
		return telemetry.Advice{}
	}
	again := "sluice run … -o " + term.Quote(output)
	_, path := Places(output)
	state, _ := work.LoadState(path) // without a state file, the rest is unknown
	advice := telemetry.Advice{Again: again, Retry: again + " --redo failed", Runs: state.Runs, Last: state.Last}
	if state.Status == "" || state.Status == work.Completed {
		return advice
	}
	if alive, _ := work.InUse(output); alive {
		advice.Status = "sluice status " + term.Quote(output)
	}
	if advice.Left = max(0, state.Total-results); advice.Left > 0 && state.Status == work.Stopped {
		advice.Stopped = strings.TrimPrefix(state.Reason, "run stopped: ")
	}
	return advice
}

// InputName returns the name of an input for people.
func InputName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}
