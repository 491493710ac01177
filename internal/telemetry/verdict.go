package telemetry

import (
	"fmt"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
)

// Advice adds the state of the run and the next commands to a report. The zero value adds none.
type Advice struct {
	Status  string // command that shows the run, which continues; "" if it has ended
	Retry   string // command that repeats failed items; "" for none
	Again   string // command that resumes the run
	Left    int    // remaining items
	Stopped string // reason why the run stopped; "" if it did not

	Runs int          // number of runs on the output
	Last work.LastRun // the last of them
}

// noteworthy is the share of the time from which something is said to bind a run.
const noteworthy = 0.1

// Judge says in r what happened and what to do next.
func (r *Report) Judge(advice Advice) {
	r.Items.Left = advice.Left
	if advice.Runs > 1 {
		r.Runs, r.Last = advice.Runs, &advice.Last
	}
	r.Verdict, r.Next, r.Command = r.happened()+".", "", ""
	if advice.Stopped != "" {
		r.Verdict += " The run stopped: " + prose.Clip(advice.Stopped, mostMessage) + "."
	}
	switch {
	case advice.Status != "":
		r.Next = "The run continues:"
		r.Command = advice.Status
	case advice.Left > 0:
		r.Next = "The same command resumes the run:"
		r.Command = advice.Again
	case r.Run != nil && r.Run.Slots.Leaked > 0:
		r.Next = "Slots were not released: a program that uses the library must release every permit."
	case r.retryable() > 0:
		r.Next = fmt.Sprintf("Another attempt may succeed for %s", prose.Count(r.retryable(), "failed item"))
		if r.Command = advice.Retry; r.Command != "" {
			r.Next += ":"
		}
	case r.Items.Failed > 0:
		r.Next = "Another attempt would fail in the same way: fix the requests named below."
	case r.Run != nil && r.Run.open > 0:
		r.Next = "The last run was killed, or still runs. The same command resumes it."
		r.Command = advice.Again
	}
	if help := r.help(); help != "" {
		r.Verdict += " " + help
	}
}

// happened is what became of the items, and what held them back.
func (r *Report) happened() string {
	text := prose.Count(r.Items.Total, "item")
	switch {
	case r.ofSlots():
		text = prose.Count(r.Run.Slots.Acquired, "slot") + " taken"
	case r.Items.Total == 0:
		text = "No item was done"
	case r.Items.Left > 0:
		text = fmt.Sprintf("%s of %s done", prose.Group(r.Items.OK), prose.Count(r.Items.Total+r.Items.Left, "item"))
		if r.Items.Failed > 0 {
			text += fmt.Sprintf(", %s failed", prose.Group(r.Items.Failed))
		}
	case r.Items.Failed == 0:
		text += ", all done"
	case r.Items.OK == 0:
		text += ", all failed"
	default:
		text = fmt.Sprintf("%s of %s done, %s failed", prose.Group(r.Items.OK), prose.Count(r.Items.Total, "item"), prose.Group(r.Items.Failed))
	}
	if r.Run == nil {
		return text
	}
	text += " in " + took(r.Run.WallMS)
	if r.Run.Processes > 1 {
		text += fmt.Sprintf(" of %d runs", r.Run.Processes)
	}
	var bound []string
	for _, name := range prose.LargestFirst(r.Run.Bound) {
		if share := r.Run.Bound[name]; share >= noteworthy && len(bound) < 2 {
			bound = append(bound, held(name)+" "+prose.Percent(share))
		}
	}
	if len(bound) == 0 {
		return text + ", with almost no delay from limits"
	}
	return text + ", " + strings.Join(bound, " and ") + " of the time"
}

// ofSlots reports whether nothing is known of but slots, as of a program that takes them through the library.
func (r *Report) ofSlots() bool {
	return r.Items.Total+r.Items.Left == 0 && r.Run != nil && r.Run.Slots.Acquired > 0
}

// held says that something held calls back.
func held(by string) string {
	if by == "cooldown" || by == "paused" {
		return "paused"
	}
	return "limited by " + prose.LimitName(by)
}

// binding is what held the run back most.
func (r *Run) binding() (name string, share float64) {
	if names := prose.LargestFirst(r.Bound); len(names) > 0 {
		name = names[0]
	}
	return name, r.Bound[name]
}

// help says what would have made it faster; "" where nothing certain can be said.
func (r *Report) help() string {
	if r.Run == nil {
		return ""
	}
	name, share := r.Run.binding()
	shared := r.Run.together()
	switch {
	case share < noteworthy:
		return ""
	case shared != nil:
		return fmt.Sprintf("Several models were rate-limited, although none used half of its %[1]s limit. All models of the account seem to share this limit: set --%[1]s %d.",
			shared.Dimension, shared.Limit)
	case name == "cooldown" && r.Run.Shared:
		return "Another process used the same key, and together they exceeded its limits. Run the processes one after the other."
	case name == "cooldown":
		text := fmt.Sprintf("The provider asked to slow down (%s in %s)", prose.Count(r.Run.Throttles.Count, "rejection"), prose.Count(r.Run.Throttles.Episodes, "episode"))
		if r.Run.Throttles.Said == "" {
			return text + "."
		}
		return text + ": see the provider's message below."
	case name == "paused":
		return "A user paused the run."
	case name == limits.Concurrency.String() && r.ofSlots():
		return "More slots would help if the provider accepts them."
	case name == limits.Concurrency.String() && r.Run.Throttles.ByLimit[name] > 0:
		return "The provider limits the requests in flight, so more concurrency would not help. A higher tier would help."
	case name == limits.Concurrency.String():
		return "More concurrent requests would help if the provider accepts them: raise --concurrency (for exec: --jobs), or omit it to let the run learn the limit."
	}
	if used, ok := r.Run.used(name); ok && used < declared*share {
		return fmt.Sprintf("Responses used only %s of this limit, because requests declare more output (max_tokens) than responses contain. A lower max_tokens or a higher tier would help.", prose.Percent(used))
	}
	if r.Run.source(name) == limits.SourceConfigured {
		return fmt.Sprintf("You configured this limit: a higher --%s would help if the account allows it.", name)
	}
	return "A higher tier would help."
}

// declared is the part of a limit of tokens below which a lane that it limits is taken to declare too much.
const declared = 0.7

// used is the share of a limit of tokens that answers used, in a run that was long enough to tell.
func (r *Run) used(dimension string) (share float64, ok bool) {
	for _, l := range r.Lanes {
		for _, q := range l.Quota {
			if q.Dimension == dimension && q.long && (q.dimension == limits.Tokens || q.dimension == limits.OutputTokens) {
				return q.Share, true
			}
		}
	}
	return 0, false
}

// together is a limit that an account seems to have for several lanes together; nil: none.
func (r *Run) together() *Quota {
	if r.Shared {
		return nil // others used it
	}
	var all SharedLimits
	for i := range r.Lanes {
		l := &r.Lanes[i]
		for q := range l.Quota {
			q := &l.Quota[q]
			use := LimitUse{Dimension: q.dimension, Limit: q.Limit, Source: limits.Source(q.Source), Share: q.Share}
			if all.Add(l.Account, use, l.Sent, l.refused[q.dimension]) {
				return q
			}
		}
	}
	return nil
}

// source is where the limit of the busiest lane is known from.
func (r *Run) source(dimension string) limits.Source {
	for _, l := range r.Lanes {
		for _, q := range l.Quota {
			if q.Dimension == dimension {
				return limits.Source(q.Source)
			}
		}
	}
	return ""
}

// retryable returns the number of failed items for which a retry can succeed.
func (r *Report) retryable() int {
	kinds := make(map[sluice.Kind]int)
	for _, f := range r.Failures {
		kind := work.UnknownKind
		kind.UnmarshalText([]byte(f.Kind)) // an unknown name changes nothing
		kinds[kind] += f.Count
	}
	return work.Retryable(kinds)
}
