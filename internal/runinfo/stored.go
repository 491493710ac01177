package runinfo

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
)

// Stored is the state of a run according to the files beside its output.
type Stored struct {
	Output string      `json:"output"`           // Path of the output.
	Status work.Status `json:"status"`           // Status from the state file, or `killed` if the process was killed.
	Reason string      `json:"reason,omitempty"` // Reason for the status.
	Hint   string      `json:"hint,omitempty"`   // Next step.
	Alive  bool        `json:"alive"`            // The process of the run exists.

	State *work.State  `json:"state,omitempty"` // Content of the state file.
	Parts []batch.Part `json:"parts,omitempty"` // Batches of `--batch`.
}

// List is the state of several runs.
type List struct {
	Runs []*Stored `json:"runs"` // Runs with state files.
}

// killed is the status of a run whose process ended without writing a status.
const killed work.Status = "killed"

// Load reads the state of the run with this output, which is a file of run or a directory of exec.
func Load(output string, warn func(text string)) (*Stored, error) {
	results, path := Places(output)
	state, err := work.LoadState(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.State, fmt.Errorf("no run has the state file %s", path),
			"name the output of a run, or list the runs of a directory with sluice status")
	}
	if err != nil {
		return nil, fault.New(fault.State, err, "run the same command again to write a new state")
	}
	st := &Stored{Output: output, Status: state.Status, Reason: state.Reason, State: &state}
	if st.Parts, err = batchjob.Read(results + batch.BatchesSuffix); err != nil {
		warn(err.Error())
	}
	if st.Status.Ended() {
		st.Hint = cmp.Or(NewParts(st.Parts).hint(), st.next(time.Now()))
		return st, nil
	}
	if st.Alive, err = work.InUse(results); err != nil {
		warn(err.Error())
	}
	if st.Alive {
		return st, nil
	}
	st.Status, st.Reason = killed, fmt.Sprintf("process %d ended without recording a reason", state.PID)
	if f, err := regular.Open(results); err == nil {
		defer f.Close()
		read := batch.Work
		if _, ok := ExecDir(output); ok {
			read = proc.Work
		}
		if err := state.CatchUp(f, read); err != nil {
			warn(err.Error())
		}
	}
	st.Reason += "; it recorded " + prose.Count(state.Finished(), "result")
	st.Hint = st.next(time.Now())
	return st, nil
}

// AllRuns returns the figures of all runs on an output; nil if this run is the first, or the state cannot be read.
func AllRuns(output string) *work.Figures {
	_, path := Places(output)
	state, err := work.LoadState(path)
	if err != nil || state.Runs < 2 {
		return nil
	}
	return &state.Figures
}

// LoadAll reads the states of the runs in a directory, and in the directories in it.
func LoadAll(dir string, warn func(text string)) (*List, error) {
	all := &List{Runs: []*Stored{}}
	for _, output := range outputsIn(dir) {
		st, err := Load(output, warn)
		if err != nil {
			warn(err.Error())
			continue
		}
		all.Runs = append(all.Runs, st)
	}
	if len(all.Runs) == 0 {
		return nil, fault.New(fault.State, fmt.Errorf("no run has a state in %s", dir), "name the output of a run: sluice status OUT.jsonl")
	}
	return all, nil
}

// Newest returns the runs, the last written one first.
func (l *List) Newest() []*Stored {
	return slices.SortedStableFunc(slices.Values(l.Runs), func(a, b *Stored) int { return b.State.UpdatedAt.Compare(a.State.UpdatedAt) })
}

// Incomplete reports whether the run ended with remaining or failed items.
func (st *Stored) Incomplete() bool {
	return st.Status.Ended() && (st.Status != work.Completed || st.State.Failed > 0)
}

// Progress returns "done of total".
func (st *Stored) Progress() string {
	return progress(st.State.Finished(), st.State.Total, " of ")
}

// Paused reports whether the run waits for a limit, or would wait after a resume.
func (st *Stored) Paused(now time.Time) bool {
	return st.State.Status != work.Completed && st.State.RateLimitUntil.After(now)
}

// Word returns the status in words.
func (st *Stored) Word() string {
	text := strings.ReplaceAll(string(st.Status), "called_off", "called off")
	if failed := st.State.Failed; st.Status == work.Completed && failed > 0 {
		text += " with " + prose.Count(failed, "failed item")
	}
	return text
}

// Line describes the run in one line.
func (st *Stored) Line(now time.Time) string {
	s := st.State
	text := fmt.Sprintf("%s: %s, %s", st.Output, st.Word(), st.Progress())
	if st.Status != work.Completed {
		text += prose.If(s.Failed, ", "+prose.Group(s.Failed)+" failed")
	}
	if st.Paused(now) {
		text += ", paused until " + prose.Clock(s.RateLimitUntil, now, time.TimeOnly)
	}
	text += prose.If(len(st.Reason), ", "+st.Reason)
	if parts := NewParts(st.Parts); parts.Pending > 0 {
		text += ", " + parts.Text(now)
	}
	return text + fmt.Sprintf(" (%s ago)", prose.Span(now.Sub(s.UpdatedAt)))
}

// next names the next step for remaining and failed items, and its effect on a limit that still applies.
func (st *Stored) next(now time.Time) string {
	command, first := "run", "see the failures with sluice report "+term.Quote(st.Output)+", then run"
	if _, ok := ExecDir(st.Output); ok {
		command, first = "exec", "retry the failed items: run"
	}
	switch {
	case st.State.Status == work.CalledOff:
		return "run the command without --cancel to send the remaining items"
	case st.Paused(now):
		return fmt.Sprintf("resume with the same %s command, which waits for the pause, or add --ignore-pause", command)
	case st.State.Status != work.Completed:
		return fmt.Sprintf("resume with the same %s command", command)
	case st.State.Failed > 0:
		return fmt.Sprintf("%s the same %s command with --redo failed", first, command)
	}
	return ""
}
