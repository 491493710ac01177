package proc

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/internal/proc/agents"
	"github.com/sluice-llm/sluice/internal/prose"
)

const (
	paceOver   = 30 * time.Minute // of which the pace is taken,
	leastPace  = 5 * time.Minute  // of no less, however new the window is
	leastShare = 0.02             // of a window, from which its whole can be told
)

// Forecast is what is expected of a window of an account.
type Forecast struct {
	Window string
	At     time.Time // when it was made
	Used   float64   // a share of one, up to then
	EndsAt time.Time // when nothing is left at this pace; At: nothing is; zero: it lasts until it is reset
	Resets time.Time // when it is reset
	Basis  string    // what tells the whole: "of the CLI's own figures", "of 3 earlier windows"
	Guess  bool      // earlier windows alone tell it
}

// String says how long the window lasts, in local time: "at this pace the 5-hour window ends 15:40".
func (f Forecast) String() string {
	switch {
	case f.EndsAt.IsZero():
		return fmt.Sprintf("at this pace the %s window lasts until its reset at %s", f.Window, clock(f.Resets, f.At))
	case !f.EndsAt.After(f.At) && f.Guess:
		return fmt.Sprintf("the %s window has taken what earlier ones had, and may end before its reset at %s", f.Window, clock(f.Resets, f.At))
	case !f.EndsAt.After(f.At):
		return fmt.Sprintf("the %s window is used up until %s", f.Window, clock(f.Resets, f.At))
	}
	return fmt.Sprintf("at this pace the %s window ends %s", f.Window, clock(f.EndsAt, f.At))
}

// Detail says what the forecast rests on: "72 % used, of 3 earlier windows".
func (f Forecast) Detail() string { return prose.Percent(f.Used) + " used, " + f.Basis }

// clock writes an instant as seen at another: a forecast is not good to the second.
func clock(t, now time.Time) string { return prose.Clock(t, now, "15:04") }

// Forecasts says of each window that is open, and of which the whole is known, how long it lasts at the pace of the last half
// hour. The shortest window comes first.
func (w *Windows) Forecasts(now time.Time) []Forecast {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []Forecast
	for _, known := range w.cli.Windows() {
		v, ok := w.viewLocked(known, now)
		if !ok || !v.open {
			continue
		}
		f := Forecast{Window: known.Name, At: now, Used: v.used, Resets: v.resets, Basis: v.basis, Guess: v.guess}
		if rest := 1 - v.used; rest <= 0 {
			f.EndsAt = now
		} else if left := rest / v.pace; v.pace > 0 && left < v.resets.Sub(now).Seconds() {
			f.EndsAt = now.Add(max(time.Duration(left*float64(time.Second)), 1))
		}
		list = append(list, f)
	}
	return list
}

// next returns when the next command should begin, after one that began at an instant, so that what is now left of each window
// lasts until it is reset: never later than that.
func (w *Windows) next(last, now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := last
	for _, known := range w.cli.Windows() {
		v, ok := w.viewLocked(known, now)
		if !ok || v.each <= 0 {
			continue
		}
		at := v.resets // nothing more fits
		if commands := (1 - v.used) / v.each; commands > 1 {
			at = last.Add(time.Duration(float64(v.resets.Sub(last)) / commands))
		}
		if at.After(next) {
			next = at
		}
	}
	return next
}

// view is one window as it stands. Shares are of the whole window.
type view struct {
	open   bool // a command has begun it
	used   float64
	resets time.Time
	pace   float64 // a second
	each   float64 // by one command
	basis  string
	guess  bool // earlier windows alone tell the whole, and no refusal its end
}

// viewLocked works out how a window stands at an instant; ok says that its whole is known.
func (w *Windows) viewLocked(known agents.Window, now time.Time) (v view, ok bool) {
	a := w.state.Windows[known.Name]
	if a == nil {
		return v, false
	}
	begun, open := w.begunLocked(known.Name, now)
	if !open {
		begun = now
	}
	v.open, v.resets = open, begun.Add(known.Length)
	if a.Resets.After(now) {
		v.resets = a.Resets
	}
	if until, closed := a.closed(now); closed {
		v.used, v.resets, v.open = 1, until, true
	}
	spent := w.sinceLocked(begun, now)
	for _, unit := range [...]func(spending) float64{spending.cost, spending.tokens, spending.commands} {
		if v.measure(a, w.state.Total, spent, begun, now, unit) {
			over := min(max(now.Sub(begun), leastPace), paceOver, known.Length)
			from := now.Add(time.Minute - over)
			if from.Before(begun) {
				from = begun
			}
			v.pace *= unit(w.sinceLocked(from, now)) / over.Seconds()
			return v, true
		}
	}
	v.basis = "of its last refusal"
	return v, v.used == 1 // else nothing is known of it
}

// closed reports whether the window is used up, and until when. A later figure of the CLI's own opens it again.
func (a *history) closed(now time.Time) (until time.Time, closed bool) {
	n := len(a.Closings)
	if n == 0 {
		return time.Time{}, false
	}
	last := a.Closings[n-1]
	reopened := a.Last != nil && a.Last.At.After(last.At) && a.Last.Used < 1
	return last.Resets, last.Resets.After(now) && !reopened
}

func (u spending) cost() float64     { return u.Cost }
func (u spending) tokens() float64   { return u.Tokens }
func (u spending) commands() float64 { return float64(u.Commands) }

// measure tells the whole of a window in a unit, and what is used of it. pace is then what one of the unit takes of it.
func (v *view) measure(a *history, total, spent spending, begun, now time.Time, unit func(spending) float64) bool {
	whole, used := 0.0, 0.0
	if last := a.Last; last != nil && !last.At.Before(begun) && a.Resets.After(now) {
		whole = a.figures(spent, total, unit)
		v.basis = "of the CLI's own figures"
		used = last.Used
	}
	since := unit(spent)
	if whole > 0 || used > 0 { // what the CLI says is used counts, even if it does not tell the whole
		since = unit(total.minus(a.Last.Total))
	}
	if v.guess = false; whole <= 0 {
		var n int
		whole, n = a.earlier(unit)
		v.basis, v.guess = "of "+prose.Count(n, "earlier window"), max(v.used, used) < 1
	}
	if whole <= 0 {
		return false
	}
	v.pace = 1 / whole
	v.used = max(v.used, min(1, used+since/whole))
	v.each = v.perCommand(a, spent, unit) / whole
	return v.each > 0
}

// figures tells the whole of a window by the CLI's figures: by how much they rose while so much was used.
func (a *history) figures(spent, total spending, unit func(spending) float64) float64 {
	if rise := a.Last.Used - a.First.Used; rise >= leastShare {
		if used := unit(a.Last.Total.minus(a.First.Total)); used > 0 {
			return used / rise
		}
	}
	if a.Last.Used < leastShare {
		return 0
	}
	return unit(spent.minus(total.minus(a.Last.Total))) / a.Last.Used
}

// earlier tells the whole of a window by those that were used up: the median of what they held, and how many they are.
func (a *history) earlier(unit func(spending) float64) (whole float64, n int) {
	var held []float64
	for _, c := range a.Closings {
		if u := unit(c.Used); u > 0 {
			held = append(held, u)
		}
	}
	if n = len(held); n == 0 {
		return 0, 0
	}
	slices.Sort(held)
	return (held[(n-1)/2] + held[n/2]) / 2, n
}

// perCommand is what a command takes: as in this window, else as in the earlier ones.
func (v *view) perCommand(a *history, spent spending, unit func(spending) float64) float64 {
	for i := len(a.Closings) - 1; spent.Commands == 0 && i >= 0; i-- {
		spent = a.Closings[i].Used
	}
	if spent.Commands == 0 {
		return 0
	}
	return unit(spent) / float64(spent.Commands)
}
