package batch

import (
	"slices"

	"github.com/sluice-llm/sluice/internal/parts"
)

// match finds the lines of the requests that earlier processes left in parts. It refuses a run that leaves some of them out:
// their answers would be lost, also those that are there by the time they are called off.
func (v *via) match() error {
	if v == nil {
		return nil
	}
	in := v.batch.input
	v.lines = make([]viaLine, in.index.Span())
	dropped, leftOut, last := 0, 0, (*parts.Part)(nil)
	for m, p := range v.desk.Members() {
		if p != last {
			v.parts, last = append(v.parts, p), p
		}
		number, ok := in.index.Find([]byte(m.ID))
		switch {
		case !ok && in.cfg.Limit > 0:
			leftOut++
			continue
		case !ok || !in.index.Same(number, m.Hash):
			dropped++
			continue
		}
		line := &v.lines[number]
		if line.at == inPart { // killed between a retry and the end of the part before
			v.twice.Set(number)
		}
		line.at, line.part = inPart, int32(len(v.parts)-1)
	}
	v.left = len(v.parts)
	if err := v.desk.Err(); err != nil {
		return runError(err)
	}
	if leftOut > 0 {
		e := pendingOf(in.cfg.Output, v.desk.Status())
		e.LeftOut = leftOut
		return e
	}
	if dropped > 0 {
		v.batch.log.Warn("answers of pending batches are dropped: the input no longer has their lines as they were", "requests", dropped)
	}
	return nil
}

// supersedes reports whether a recorded failure is older than what is pending for its line: it is not what came of that.
func (v *via) supersedes(number int, rec *recorded) bool {
	switch {
	case v == nil:
		return false
	case v.settled || v.superseded.Has(number):
		return v.superseded.Has(number)
	case v.lines[number].at != inPart:
		return false
	}
	if batch := v.parts[v.lines[number].part].Status().Batch; batch != "" && batch == string(rec.batch) {
		return false
	}
	v.superseded.Set(number)
	return true
}

// matched settles what is pending, once it is known what is recorded, and which lines lead others.
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
	t, left := &in.twins, 0
	for i := range t.list.n {
		tw := *t.list.at(i)
		led, lead := &v.lines[tw.number], &v.lines[tw.lead]
		switch {
		case led.at != inPart || !t.led.Has(int(tw.number)):
		case lead.at == inPart: // both may be paid for: what the one brings is not lost if the other fails
			t.led.Unset(int(tw.number))
			continue
		default: // it is to have the result of its lead, so the lead gets what is pending for it, if it has no other
			if led.at = over; lead.at == unseen {
				if v.stands == nil {
					v.stands = make(map[int]int)
				}
				v.stands[int(tw.number)] = int(tw.lead)
				lead.at, lead.part = inPart, led.part
			}
		}
		*t.list.at(left) = tw
		left++
	}
	t.list.cut(left)
}

// lineOf returns the number of the line that a result is for; false of one that nobody waits for.
func (v *via) lineOf(p *parts.Part, m *parts.Member) (number int, ok bool) {
	in := v.batch.input
	if number, ok = in.index.Find([]byte(m.ID)); !ok || !in.index.Same(number, m.Hash) {
		return 0, false
	}
	if v.twice.Has(number) && v.parts[v.lines[number].part] != p && slices.Contains(v.parts[:v.left], p) {
		return 0, false // the later part counts, or those that it was split into
	}
	if lead, ok := v.stands[number]; ok {
		number = lead
	}
	return number, v.lines[number].at == inPart
}
