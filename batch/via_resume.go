package batch

import (
	"slices"

	"github.com/sluice-llm/sluice/internal/parts"
	"github.com/sluice-llm/sluice/internal/work"
)

// match finds the items of the requests that earlier processes left in parts. It refuses a run without some of them, or with
// other requests under their ids, unless Changed drops or keeps their results: they are paid for.
func (v *via) match() error {
	if v == nil {
		return nil
	}
	in := v.batch.input
	v.lines = make([]viaLine, in.index.Span())
	changed := ChangedError{Path: in.cfg.Input, Array: in.array}
	dropped, leftOut, last := 0, 0, (*parts.Part)(nil)
	for m, p := range v.desk.Members() {
		if p != last {
			v.parts, last = append(v.parts, p), p
		}
		number, ok := in.index.Find([]byte(m.ID))
		switch {
		case ok && v.same(number, m.Hash):
		case v.batch.cfg.Changed == ChangedRedo && (ok || in.cfg.Limit == 0):
			dropped++
			continue
		case ok:
			changed.Add(number+1, m.ID)
			continue
		default:
			leftOut++
			continue
		}
		line := &v.lines[number]
		if line.at == inPart { // killed between a retry and the end of the part before
			v.twice.Set(number)
		}
		line.at, line.part = inPart, int32(len(v.parts)-1)
		if v.batch.cfg.Cache != "" {
			v.sent[m.Hash] = number
		}
	}
	v.left = len(v.parts)
	if err := v.desk.Err(); err != nil {
		return runError(err)
	}
	if err := changed.Err(); err != nil {
		return err
	}
	if leftOut > 0 {
		e := pendingOf(in.cfg.Output, v.desk.Status())
		e.LeftOut = leftOut
		return e
	}
	if dropped > 0 {
		v.batch.log.Warn("results of pending batches are dropped: the input does not contain their requests", "requests", dropped)
	}
	return nil
}

// same reports whether a pending request counts as that of an item.
func (v *via) same(number int, hash work.Hash) bool {
	return v.batch.cfg.Changed == ChangedKeep || v.batch.input.index.Same(number, hash)
}

// supersedes reports whether a recorded failure is older than what is pending for its line: it is not what came of that.
func (v *via) supersedes(number int, rec *Recording) bool {
	switch {
	case v == nil:
		return false
	case v.settled || v.superseded.Has(number):
		return v.superseded.Has(number)
	case v.lines[number].at != inPart:
		return false
	}
	if batch := v.parts[v.lines[number].part].Status().Batch; batch != "" && batch == rec.Sluice.Batch {
		return false
	}
	v.superseded.Set(number)
	return true
}

// matched notes pending lines that are already recorded.
func (v *via) matched() {
	if v == nil || v.left == 0 {
		return
	}
	v.settled = true // from here on, lines are the feed's
	in := v.batch.input
	for number := range v.lines {
		if v.lines[number].at == inPart && in.index.Done().Has(number) { // killed while its part was merged
			v.lines[number].at = over
		}
	}
}

// lineOf returns the number of the line that a result is for; false of one that nobody waits for.
func (v *via) lineOf(p *parts.Part, m *parts.Member) (number int, ok bool) {
	in := v.batch.input
	if number, ok = in.index.Find([]byte(m.ID)); !ok || !v.same(number, m.Hash) {
		return 0, false
	}
	if v.twice.Has(number) && v.parts[v.lines[number].part] != p && slices.Contains(v.parts[:v.left], p) {
		return 0, false // the later part counts, or those that it was split into
	}
	return number, v.lines[number].at == inPart
}
