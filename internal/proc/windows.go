package proc

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/proc/agents"
	"github.com/sluice-llm/sluice/internal/prose"
)

// noteLocked takes in what an agent states of its account's usage windows. A later statement about a window replaces an earlier one,
// unless it lacks the share used of the same period.
func (l *lane) noteLocked(stated []agents.WindowUse) {
	for _, use := range stated {
		switch i := slices.IndexFunc(l.windows, func(w agents.WindowUse) bool { return w.Name == use.Name }); {
		case i < 0:
			l.windows = append(l.windows, use)
		case use.HasUsed || !use.Resets.Equal(l.windows[i].Resets):
			l.windows[i] = use
		}
	}
}

// outlook returns the agent's statements about usage windows that are not reset yet, with local times:
// "5-hour window: 72 % used, reset at 15:40". It is "" if there are none.
func (l *lane) outlook(now time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var parts []string
	for _, use := range l.windows {
		var facts []string
		if use.HasUsed {
			facts = append(facts, prose.Percent(use.Used)+" used")
		}
		if !use.Resets.IsZero() {
			facts = append(facts, "reset at "+prose.Clock(use.Resets, now, "15:04"))
		}
		if use.Resets.IsZero() || use.Resets.After(now) {
			parts = append(parts, use.Name+" window: "+strings.Join(facts, ", "))
		}
	}
	return strings.Join(parts, "; ")
}
