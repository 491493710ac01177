package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// warn tells what the user should know of the account while the run goes on, and more of it to whom asked for more.
func (r *batchRun) warn(e sluice.Event) {
	model := e.Lane
	e.Lane = r.accounts.LaneLabel(e.Account, e.Lane)
	if e.Type == limits.EventShared && r.o.shared.url == "" {
		r.s.Errorf("sluice: another process uses %s with the same key: together both may exceed its limits\n", e.Lane)
		r.s.Errorf("hint: set --redis URL in both processes, use `sluice serve`, or run one process after the other\n")
	}
	r.watchHealth(e)
	if text := r.rejections.Observe(e); text != "" {
		advice := "if other programs use this key, share limits with --redis; otherwise set --rpm and --tpm to the limits of your account"
		if r.o.shared.url != "" {
			advice = "set --rpm and --tpm to the limits of your account"
		}
		r.s.Errorf("sluice: %s: %s\n", text, advice)
	}
	if model != "" {
		r.watchModel(model)
	}
	if !r.o.watch.verbose {
		return
	}
	switch e.Type {
	case limits.EventLimitsChanged:
		r.s.Errorf("sluice: %s: %s is %s\n", e.Lane, e.Dimension, prose.Group(e.Limit))
	case limits.EventCooldownStarted:
		r.s.Errorf("sluice: %s: pauses until %s: %s\n", e.Lane, prose.Clock(e.Until, e.At, time.TimeOnly), e.Outcome.Kind)
	case limits.EventCooldownEnded:
		r.s.Errorf("sluice: %s: resumed\n", e.Lane)
	case limits.EventThrottled, limits.EventGaveUp:
		r.s.Errorf("sluice: %s: %s: %v\n", e.Lane, e.Call, e.Outcome.Err)
	}
}

// watchHealth says when a lane keeps failing, and why: the run may stand still for long.
func (r *batchRun) watchHealth(e sluice.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Type == limits.EventSlotReleased && !e.Outcome.Unsent {
		r.reached = true
	}
	switch {
	case e.Type == limits.EventSlotReleased && e.Outcome.Kind.Transient() && e.Outcome.Err != nil:
		r.lastErr[e.Lane] = term.Clip(e.Outcome.Err.Error(), mostMessage)
	case e.Type == limits.EventBreaker && e.Until.IsZero():
		r.s.Errorf("sluice: %s: responds again\n", e.Lane)
	case e.Type == limits.EventBreaker && r.reached: // else the run ends, and there is no next try
		why := ""
		if last := r.lastErr[e.Lane]; last != "" {
			why = ": " + last
		}
		r.s.Errorf("sluice: %s: keeps failing, next attempt at %s%s\n", e.Lane, prose.Clock(e.Until, e.At, time.TimeOnly), why)
	}
}

// watchModel warns, once, of a model that begins with the limits of another.
func (r *batchRun) watchModel(model string) {
	s := r.accounts.Settings
	of := s.Foreign(model)
	if of == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.strangers[model] {
		r.strangers[model] = true
		r.s.Errorf("sluice: warning: %s starts with the limits of %s in %s\n", model, of, s.File.Name)
	}
}

// leftOut tells of an upstream, or one of its keys, that gets no calls any more.
func (r *batchRun) leftOut(l provider.Exclusion) {
	format := "sluice: upstream %s: continues without one of its keys: %s\n"
	switch {
	case l.Kind == sluice.OK:
		format = "sluice: upstream %s: %s\n"
	case l.Whole:
		format = "sluice: upstream %s: excluded: %s\n"
	}
	r.s.Errorf(format, l.Upstream, l)
}

// noteFields tells which fields of rows are sent and which are kept, if there are any beside the prompt's own.
func noteFields(s *term.Streams, fields batch.PromptFields) {
	if len(fields.Sent)+len(fields.Kept) > 0 {
		s.Errorf("sluice: fields sent in requests: %s; copied to results: %s\n", namesOf(fields.Sent), namesOf(fields.Kept))
	}
}

// namesOf lists the first few names of fields.
func namesOf(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	const most = 8
	if more := len(names) - most; more > 0 {
		return term.Clip(strings.Join(names[:most], ", "), mostMessage) + fmt.Sprintf(" and %d more", more)
	}
	return term.Clip(strings.Join(names, ", "), mostMessage)
}

// noteSettings tells where settings come from: whom asked for more, and everybody what is doubtful or holds the run back.
func (r *batchRun) noteSettings() {
	wanted := r.batch.Progress().Left()
	if r.o.input == "-" { // nobody knows yet what will come
		wanted = r.accounts.Config.Limits.Concurrency
	}
	if note := r.accounts.RoomNote(wanted); note != "" {
		r.s.Errorf("sluice: %s\n", note)
	}
	explainSettings(r.s, r.accounts.Settings, r.o.watch.verbose)
}

// record opens the file of --events, if there is one. The returned function closes it.
func (r *batchRun) record() (done func(), err error) {
	if r.o.watch.events == "" {
		return func() {}, nil
	}
	log, err := openEvents(r.s, r.o.watch.events)
	if err != nil {
		return nil, err
	}
	r.observers = append(r.observers, log)
	return func() { r.s.Warn(log.Close()) }, nil
}
