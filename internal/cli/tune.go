package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// tuning changes ceilings of a run's accounts while their calls go on.
type tuning struct {
	// turn admits one change at a time: an account that is added, or settings that are read again. It is no lock, since observers are
	// called meanwhile.
	turn chan struct{}

	mu       sync.Mutex
	tuned    []*tuned
	settings *settings // as they were read again; nil: those of the start
}

// tuned is an account with the limits that it has now.
type tuned struct {
	provider  provider.Provider
	label     string // of an account of upstreams; "" is no such
	scheduler *sluice.Scheduler
	limits    sluice.Limits // of each lane,
	account   sluice.Limits // of all together,
	start     sluice.Limits // and those that were only begun with
}

func newTuning() *tuning { return &tuning{turn: make(chan struct{}, 1)} }

// begin waits for the turn, and end passes it on.
func (t *tuning) begin() { t.turn <- struct{}{} }
func (t *tuning) end()   { <-t.turn }

// add takes an account in. It is called with the turn.
func (t *tuning) add(p provider.Provider, label string, s *sluice.Scheduler, c sluice.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tuned = append(t.tuned, &tuned{provider: p, label: label, scheduler: s, limits: c.Limits, account: c.Account, start: c.Start})
}

// all returns the accounts there are.
func (t *tuning) all() []*tuned {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tuned[:len(t.tuned):len(t.tuned)]
}

// shape sets the limits of c, for an account at p, as they are now. The label is that of an account of upstreams.
func (a *accounts) shape(c *sluice.Config, p provider.Provider, label string) error {
	a.tuning.mu.Lock()
	s := cmp.Or(a.tuning.settings, a.settings)
	a.tuning.mu.Unlock()
	return a.shapeBy(c, p, label, s)
}

func (a *accounts) shapeBy(c *sluice.Config, p provider.Provider, label string, s *settings) error {
	if own := s.ofAccount(label); own != nil {
		ceilings, start := own.Split()
		c.Limits, c.Start = begin(a.limits, ceilings, start)
		c.Account = c.Limits
	} else if err := s.Apply(c, p, a.flags.model, a.limits); err != nil {
		return err
	}
	if a.shared == nil { // else others would be held to this host's room: workers and connections keep to it
		a.room.among(max(1, a.shares)).bound(c)
	}
	return nil
}

// rereads reports whether limits are of files, so that reading them again makes sense.
func (a *accounts) rereads() bool { return a.settings.file.Name != "" }

// reread reads the files of limits again and lets their ceilings hold as if the run began now: flags win. It says what came of it.
// An error has changed nothing.
func (a *accounts) reread() (said []string, err error) {
	a.tuning.begin()
	defer a.tuning.end()
	next, said, err := a.settings.reread(&a.flags.settings)
	if err != nil {
		return nil, err
	}
	changes, err := a.retell(next)
	if err != nil {
		return nil, err
	}
	if len(changes) == 0 {
		return append(said, "limits re-read: nothing changed"), nil
	}
	for _, c := range changes {
		said = append(said, c.text(len(changes) > 1)...)
	}
	return said, nil
}

// retold is an account whose limits were exchanged.
type retold struct {
	account       string
	before, after sluice.Limits
	began         bool // limits that are only begun with differ too
}

// name is what people call the account.
func (t *tuned) name() string { return cmp.Or(strings.TrimPrefix(t.label, "="), t.provider.Name) }

// retell lets the limits of settings hold in every account, or in none if they cannot. It is called with the turn.
func (a *accounts) retell(s *settings) (changes []retold, err error) {
	all := a.tuning.all()
	next := make([]sluice.Config, len(all))
	for i, t := range all {
		c := &next[i]
		if err := a.shapeBy(c, t.provider, t.label, s); err != nil {
			return nil, err
		}
		c.Limits.Burst, c.Account.Burst, c.Start.Burst = t.limits.Burst, t.account.Burst, t.start.Burst // buckets have their size
		if err := errors.Join(c.Limits.Check(), c.Account.Check()); err != nil {
			return nil, err
		}
	}
	a.tuning.mu.Lock()
	a.tuning.settings = s
	a.tuning.mu.Unlock()
	for i, t := range all {
		c := next[i]
		if err := t.scheduler.SetLimits(c.Limits, c.Account); err != nil && !errors.Is(err, sluice.ErrClosed) {
			return changes, err
		}
		changes = append(changes, retold{t.name(), t.limits, c.Limits, t.start != c.Start})
		a.tuning.mu.Lock()
		t.limits, t.account, t.start = c.Limits, c.Account, c.Start
		a.tuning.mu.Unlock()
	}
	return changes, nil
}

// text says what changed, in lines that, with named, begin with whose account it is.
func (r retold) text(named bool) (said []string) {
	begin := "limits re-read"
	if named {
		begin += " (" + r.account + ")"
	}
	for d := range r.after.All() {
		if before, after := r.before.In(d), r.after.In(d); before != after {
			said = append(said, fmt.Sprintf("%s: %s %s -> %s", begin, d, ceiling(before, d), ceiling(after, d)))
		}
	}
	if len(said) == 0 {
		said = append(said, begin+": nothing changed")
	}
	if r.began {
		said = append(said, begin+": only configured limits are re-read; other limits apply from the next start")
	}
	return said
}

// ceiling writes a limit that may be none.
func ceiling(limit limits.Window, d limits.Dimension) string {
	switch {
	case limit.N == 0:
		return "none"
	case limit.Period != d.Window():
		return limit.String()
	}
	return prose.Group(limit.N)
}

// reread reads the files that the settings are of again, and returns settings that differ in limits alone. What else
// changed there it says.
func (s *settings) reread(f *settingsFlags) (next *settings, said []string, err error) {
	next = &settings{registry: s.registry, tier: s.tier}
	names, _ := f.names()
	if next.file, err = config.Load(names...); err != nil {
		return nil, nil, err
	}
	if next.file.DiffersFrom(s.file) {
		said = append(said, next.file.Name+": only its limits are re-read; other changes apply from the next start")
	}
	return next, said, nil
}

// rereading has the limits of the files read again while the run works, and says what changed.
func (r *batchRun) rereading() signals.Reread {
	if !r.accounts.rereads() {
		return signals.Reread{}
	}
	return signals.Reread{Files: r.accounts.settings.files, Read: func() signals.Files {
		said, err := r.accounts.reread()
		if err != nil {
			r.s.Errorf("sluice: warning: limits are unchanged: %s\n", err)
		}
		for _, line := range said {
			r.s.Errorf("sluice: %s\n", line)
		}
		return nil
	}}
}
