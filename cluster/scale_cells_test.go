package cluster_test

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// The plan past one ledger: a ledger in each region, which has a part of the limits by a lease. A home
// gives the leases out by what the regions want. This exists here alone.

const (
	cellRound = time.Second     // a region says what it wants so often
	cellTerm  = 6 * time.Second // a lease that is not renewed ends after that
	cellFloor = 0.02            // of the limits, so that the first call of a region does not wait for the home
)

// home knows what each region may have out at most: what it was given, until it has said that it keeps to less.
type home struct {
	w     *world
	out   []float64
	wants []float64
	until []time.Time
}

func newLeases(w *world) {
	h := &home{w: w, out: make([]float64, len(w.cells)), wants: make([]float64, len(w.cells)), until: make([]time.Time, len(w.cells))}
	for i, c := range w.cells {
		c.lease = &cellLease{cell: c, home: h}
		h.out[i], h.until[i] = 1/float64(len(w.cells)), w.now.Add(cellTerm)
		c.lease.set(h.out[i])
		c.lease.report()
	}
}

// said takes in what a region wants, and what it may still use, and answers with what it gets.
func (h *home) said(region int, wants, holds float64) float64 {
	now := h.w.now
	h.wants[region], h.until[region] = wants, now.Add(cellTerm)
	h.out[region] = min(h.out[region], holds)
	var wanted, others float64
	for i := range h.out {
		if now.After(h.until[i].Add(cellTerm / 6)) { // its lease is over, whatever clock it has
			h.out[i], h.wants[i] = 0, 0
		}
		wanted += h.wants[i]
		if i != region {
			others += h.out[i]
		}
	}
	if wanted == 0 {
		wanted = 1
	}
	var shares float64
	for i := range h.out {
		shares += max(cellFloor, h.wants[i]/wanted)
	}
	given := min(max(cellFloor, wants/wanted)/shares, 1-others)
	h.out[region] = max(h.out[region], given) // what it gives up is out until it says so
	return given
}

// cellLease is the part of the limits that a region's ledger may give out.
type cellLease struct {
	cell  *cell
	home  *home
	share float64
	wants float64
	until time.Time
}

// set has the region's ledger keep to a part of the limits: it is what is told for all lanes of the account together.
func (l *cellLease) set(share float64) {
	w := l.cell.w
	l.share, l.until = share, w.now.Add(cellTerm)
	rate := 0.99 * float64(w.s.Told.RPM) / 60
	l.cell.shared.Exchange(w.now, "lease", &gate.Batch{Lane: scaleLane, Corrections: []limits.Correction{
		{Account: true, Dimension: limits.Requests, Lo: math.Inf(-1), Hi: math.Inf(1), Rate: rate * share, Cap: max(0.1, rate*share)},
		{Account: true, Dimension: limits.Concurrency, Slots: limits.SlotLimit{Limit: max(1, math.Floor(share*float64(w.s.Told.Concurrency)))}},
	}})
}

// report says what the region wants: what it sent in the last round, and what waits.
func (l *cellLease) report() {
	w := l.cell.w
	if w.s.CellDies > 0 && l.cell.index == len(w.cells)-1 && w.now.Sub(w.members[0].started()) > w.s.CellDies {
		return
	}
	if w.now.After(l.until) {
		l.set(cellFloor / 2)
	}
	open := l.cell.shared.State(w.now, scaleLane).Open
	waiting := 0
	for _, m := range w.members {
		if m.cell == l.cell && !m.dead {
			waiting += len(m.calls)
		}
	}
	l.wants += 0.5 * (float64(waiting) - l.wants)
	wants, holds := l.wants, max(l.share, float64(open)/float64(w.s.Told.Concurrency))
	there := w.s.Regions[l.cell.index].RoundTrip / 2
	w.after(there, func() {
		given := l.home.said(l.cell.index, wants, holds)
		w.after(there, func() { l.set(given) })
	})
	w.after(cellRound, l.report)
}
