package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/proc/agents"
)

const (
	windowsVersion = 1
	mostClosings   = 8         // of each window
	fineFor        = time.Hour // of which use is kept by the minute; before that by
	coarse         = 15 * time.Minute
)

// Windows is what is known of the allowances of a CLI's account: what its commands used, when a window closed and how much
// had been used by then, and what the CLI says of it itself. Note takes in commands, Forecasts says how long the rest lasts,
// Save keeps it for the next process. Make one with ReadWindows; it is safe for concurrent use.
//
// A window begins at the first command after the last reset, and ends its length later, unless the CLI states when: so do
// the five hours of a Claude subscription. What other programs use of the account is not seen, except in the CLI's figures.
type Windows struct {
	path string
	cli  *agents.CLI

	mu      sync.Mutex
	state   windowsState
	unsaved []noted // what was noted since the file was last written
}

// noted is what Note took in.
type noted struct {
	at time.Time
	m  agents.Meaning
}

// mostUnsaved is how much of that is kept, where the file cannot be written.
const mostUnsaved = 10_000

// windowsState is the file.
type windowsState struct {
	Version int                 `json:"version"`
	CLI     string              `json:"cli"`
	Total   spending            `json:"total"`             // of all time
	Uses    []spendingAt        `json:"uses,omitempty"`    // of the longest window, in the order of time
	Windows map[string]*history `json:"windows,omitempty"` // by name
}

// spending is what commands used together.
type spending struct {
	Commands int     `json:"commands,omitempty"`
	Tokens   float64 `json:"tokens,omitempty"`
	Cost     float64 `json:"cost,omitempty"` // in dollars
}

func (u spending) plus(v spending) spending {
	return spending{u.Commands + v.Commands, u.Tokens + v.Tokens, u.Cost + v.Cost}
}

func (u spending) minus(v spending) spending {
	return spending{max(0, u.Commands-v.Commands), max(0, u.Tokens-v.Tokens), max(0, u.Cost-v.Cost)}
}

// sane reports whether the numbers can be what commands used.
func (u spending) sane() bool {
	const most = 1e15
	return u.Commands >= 0 && u.Commands < most && u.Tokens >= 0 && u.Tokens < most && u.Cost >= 0 && u.Cost < most
}

// spendingAt is what was used in a minute, or in a quarter of an hour, that begins at an instant.
type spendingAt struct {
	At time.Time `json:"at"`
	spending
}

// history is what is known of one window.
type history struct {
	Closings []closure `json:"closings,omitempty"` // the last ones
	First    *figure   `json:"first,omitempty"`    // by the CLI's own figures, of the window that is open
	Last     *figure   `json:"last,omitempty"`
	Resets   time.Time `json:"resets,omitzero"` // the last reset that was stated
}

// closure is a window that was used up.
type closure struct {
	At     time.Time `json:"at"`
	Resets time.Time `json:"resets,omitzero"`
	Used   spending  `json:"used"`
}

// figure is how much of a window is used, by the CLI's own figures.
type figure struct {
	At    time.Time `json:"at"`
	Used  float64   `json:"used"`  // a share of one
	Total spending  `json:"total"` // that all commands had used by then
}

// ReadWindows reads what is known of a CLI's account from a file, which need not exist yet. What it returns can be used in any
// case: where the file is damaged, or of another CLI or version, that is begun anew, and the error says so.
func ReadWindows(path string, c *agents.CLI) (*Windows, error) {
	w := &Windows{path: path, cli: c}
	b, err := os.ReadFile(path)
	if err == nil {
		w.state, err = readState(b, w.cli.Name())
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("usage windows in %s: %w; they are learned anew", path, err)
	}
	if w.state.Windows == nil {
		w.state = windowsState{Version: windowsVersion, CLI: w.cli.Name(), Windows: make(map[string]*history)}
	}
	return w, err
}

// readState reads a file and refuses what cannot have been written.
func readState(b []byte, cli string) (s windowsState, err error) {
	if err := json.Unmarshal(b, &s); err != nil {
		return windowsState{}, err
	}
	switch {
	case s.Version != windowsVersion:
		return windowsState{}, fmt.Errorf("version %d is not known", s.Version)
	case s.CLI != cli:
		return windowsState{}, fmt.Errorf("they are of %q", s.CLI)
	case !s.sane():
		return windowsState{}, errors.New("the file is damaged")
	}
	if s.Windows == nil {
		s.Windows = make(map[string]*history)
	}
	return s, nil
}

// sane reports whether all numbers are possible and uses are in order.
func (s *windowsState) sane() bool {
	ok := s.Total.sane()
	for i, u := range s.Uses {
		ok = ok && u.sane() && (i == 0 || !u.At.Before(s.Uses[i-1].At))
	}
	for _, a := range s.Windows {
		if a == nil {
			return false
		}
		ok = ok && len(a.Closings) <= mostClosings && (a.First == nil) == (a.Last == nil)
		for _, c := range a.Closings {
			ok = ok && c.Used.sane()
		}
		for _, r := range [...]*figure{a.First, a.Last} {
			ok = ok && (r == nil || r.Used >= 0 && r.Used <= 1 && r.Total.sane())
		}
	}
	return ok
}

// Note takes in how a command ended at an instant: what it used, what its CLI said of the windows, and that it was refused
// because one is used up.
func (w *Windows) Note(at time.Time, m *agents.Meaning) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(at, m)
	w.unsaved = append(w.unsaved[max(0, len(w.unsaved)-mostUnsaved):], noted{at, *m})
}

func (w *Windows) noteLocked(at time.Time, m *agents.Meaning) {
	u := spending{}
	if !m.Kind.Throttle() {
		u.Commands = 1
	}
	if m.HasUsage {
		u.Tokens = float64(m.Usage.Input) + float64(m.Usage.Output)
	}
	if m.HasCost {
		u.Cost = m.Cost
	}
	if u.sane() {
		w.spendLocked(at, u)
	}
	for _, said := range m.Windows {
		w.readLocked(at, said)
	}
	if m.Kind == sluice.UsageWindow {
		for _, said := range m.Windows {
			if said.HasUsed && said.Used >= 1 {
				w.closeLocked(at, said)
			}
		}
	}
}

// Save writes what is known, and takes in what other runs have written since: what was noted here is noted again in what the
// file holds now. The file is replaced as a whole, so that a crash leaves either the old one or the new.
func (w *Windows) Save() error {
	if err := atomicfile.Locked(context.Background(), w.path, w.merge); err != nil {
		return fmt.Errorf("usage windows in %s: %w", w.path, err)
	}
	return nil
}

// merge is Save, while nobody else has the file.
func (w *Windows) merge() error {
	var theirs windowsState
	b, err := os.ReadFile(w.path)
	if err == nil {
		theirs, err = readState(b, w.cli.Name())
	}
	w.mu.Lock()
	if err == nil { // else what is known here is better than what cannot be read
		w.state = theirs
		for _, n := range w.unsaved {
			w.noteLocked(n.at, &n.m)
		}
	}
	written := len(w.unsaved)
	b, err = json.Marshal(&w.state)
	w.mu.Unlock()
	if err == nil {
		err = atomicfile.Write(w.path, atomicfile.Options{Draft: w.path + ".tmp"}, append(b, '\n'))
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.unsaved = w.unsaved[min(written, len(w.unsaved)):]
	w.mu.Unlock()
	return nil
}

// spendLocked notes what was used at an instant.
func (w *Windows) spendLocked(at time.Time, u spending) {
	if u == (spending{}) {
		return
	}
	s := &w.state
	s.Total = s.Total.plus(u)
	at = at.UTC().Truncate(time.Minute)
	i := len(s.Uses)
	if i > 0 && at.Truncate(coarse).After(s.Uses[i-1].At.Truncate(coarse)) {
		w.thinLocked(at)
		i = len(s.Uses)
	}
	for i > 0 && s.Uses[i-1].At.After(at) { // commands are noted by several goroutines
		i--
	}
	if i > 0 && s.Uses[i-1].At.Equal(at) {
		s.Uses[i-1].spending = s.Uses[i-1].plus(u)
		return
	}
	s.Uses = slices.Insert(s.Uses, i, spendingAt{at, u})
}

// thinLocked puts together what was used in one minute, or long ago in one quarter of an hour, and drops what is older than
// the longest window. A time is never moved back: that could be before a reset.
func (w *Windows) thinLocked(now time.Time) {
	longest := 24 * time.Hour
	for _, known := range w.cli.Windows() {
		longest = max(longest, known.Length)
	}
	kept := w.state.Uses[:0]
	for _, u := range w.state.Uses {
		age := now.Sub(u.At)
		if age > longest {
			continue
		}
		grain := time.Minute
		if age > fineFor {
			grain = coarse
		}
		n := len(kept)
		same := n > 0 && kept[n-1].At.Truncate(grain).Equal(u.At.Truncate(grain))
		if same && !w.resetBetweenLocked(kept[n-1].At, u.At) {
			kept[n-1].spending = kept[n-1].plus(u.spending)
			continue
		}
		kept = append(kept, u)
	}
	w.state.Uses = kept
}

// resetBetweenLocked reports whether a window is known to have been reset between two instants.
func (w *Windows) resetBetweenLocked(from, to time.Time) bool {
	for _, a := range w.state.Windows {
		if a.Resets.After(from) && !a.Resets.After(to) {
			return true
		}
	}
	return false
}

// historyLocked returns what is known of a window.
func (w *Windows) historyLocked(name string) *history {
	a := w.state.Windows[name]
	if a == nil {
		a = new(history)
		w.state.Windows[name] = a
	}
	return a
}

// readLocked notes what a CLI said of a window. A reset that it states differently now is followed; one that lies a good part
// of the window later is that of the next one.
func (w *Windows) readLocked(at time.Time, said agents.WindowUse) {
	length := w.lengthOf(said.Name)
	if length == 0 || said.HasUsed && (said.Used < 0 || said.Used > 1) {
		return
	}
	a := w.historyLocked(said.Name)
	next := !a.Resets.IsZero() && !at.Before(a.Resets)
	if !said.Resets.IsZero() {
		next = next || !a.Resets.IsZero() && said.Resets.Sub(a.Resets) > length/2
		a.Resets = said.Resets.UTC()
	}
	if next || a.Last != nil && said.HasUsed && said.Used < a.Last.Used-0.05 {
		a.First, a.Last = nil, nil
	}
	if !said.HasUsed {
		return
	}
	r := &figure{At: at.UTC(), Used: said.Used, Total: w.state.Total}
	if a.First == nil {
		a.First = r
	}
	a.Last = r
}

// closeLocked notes that a window was used up. All commands that it refuses tell of one closing, whose reset may move.
func (w *Windows) closeLocked(at time.Time, said agents.WindowUse) {
	length := w.lengthOf(said.Name)
	if length == 0 || !said.Resets.IsZero() && !said.Resets.After(at) { // it tells of the window before
		return
	}
	a := w.historyLocked(said.Name)
	if n := len(a.Closings); n > 0 {
		last := &a.Closings[n-1]
		if at.Before(last.Resets) || last.Resets.IsZero() && at.Sub(last.At) < length {
			if !said.Resets.IsZero() {
				last.Resets = said.Resets.UTC()
			}
			return
		}
	}
	c := closure{At: at.UTC(), Resets: said.Resets.UTC()}
	if begun, ok := w.begunLocked(said.Name, at); ok {
		c.Used = w.sinceLocked(begun, at)
	}
	a.Closings = append(a.Closings, c)
	if n := len(a.Closings); n > mostClosings {
		a.Closings = append(a.Closings[:0], a.Closings[n-mostClosings:]...)
	}
}

// lengthOf returns how long a window is; 0 if the CLI has none of that name.
func (w *Windows) lengthOf(name string) time.Duration {
	for _, known := range w.cli.Windows() {
		if known.Name == name {
			return known.Length
		}
	}
	return 0
}

// begunLocked returns when the window that is open at an instant began; ok says that one is.
func (w *Windows) begunLocked(name string, now time.Time) (begun time.Time, ok bool) {
	length := w.lengthOf(name)
	var reset time.Time // the last that has passed
	if a := w.state.Windows[name]; a != nil {
		if begun = a.Resets.Add(-length); a.Resets.After(now) {
			if begun.After(now) {
				begun = now
			}
			return begun, true
		}
		begun, reset = time.Time{}, a.Resets
	}
	for _, u := range w.state.Uses {
		switch {
		case u.At.After(now):
		case u.At.Before(reset.Truncate(time.Minute)):
		case !ok || u.At.Sub(begun) >= length:
			begun, ok = u.At, true
		}
	}
	return begun, ok && now.Sub(begun) < length
}

// sinceLocked returns what was used from one instant up to another.
func (w *Windows) sinceLocked(from, to time.Time) (sum spending) {
	from = from.Truncate(time.Minute)
	for _, u := range w.state.Uses {
		if !u.At.Before(from) && !u.At.After(to) {
			sum = sum.plus(u.spending)
		}
	}
	return sum
}
