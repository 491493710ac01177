package batch

import (
	"cmp"
	"encoding/binary"
	"iter"
	"slices"
	"sync"

	"github.com/sluice-llm/sluice/work"
)

// twins are the lines of a file whose requests are equal to those of lines before them, in 24 bytes each, and the recorded
// answers that lines without one may have. scan and resume fill it; then it is only read, but for led, which is the feed's.
type twins struct {
	list    []twin           // by number, and once it is arranged by lead and number
	answers map[uint32]int64 // where in the output the answer to a line is, by the number of the set's lead
	led     work.Bits        // lines that get their results from the lead of their set, in this run
	readers sync.Pool        // *twinReader
}

// twin is a line of a set of equal requests. Its lead is the first of them, and once they are arranged the first that is
// not done.
type twin struct {
	offset int64
	check  uint64 // the half of its hash that the index does not keep
	lead   uint32
	number uint32
}

// otherHalf is what of a hash the index does not keep.
func otherHalf(h work.Hash) uint64 { return binary.BigEndian.Uint64(h[8:]) }

// meetTwin enters a line that was entered into the index into its set.
func (in *input) meetTwin(line work.Line, hash work.Hash) {
	if !in.cfg.Dedupe {
		return
	}
	number := line.Number - 1
	if lead, ok := in.index.AddHash(number, hash); !ok {
		in.twins.list = append(in.twins.list, twin{
			offset: line.Offset, check: otherHalf(hash), lead: uint32(lead), number: uint32(number),
		})
	}
}

// answer keeps where the recorded answer to the set of that lead is.
func (t *twins) answer(lead int, offset int64) {
	if t.answers == nil {
		t.answers = make(map[uint32]int64)
	}
	t.answers[uint32(lead)] = offset
}

// arrange finds out what is left to do of each set: the first line of it that is not done, or left out of the run, leads the
// others.
func (t *twins) arrange(done func(number int) bool) {
	slices.SortFunc(t.list, byLead)
	answers := make(map[uint32]int64)
	for lead, offset := range t.answers { // those of sets with one line
		if !done(int(lead)) {
			answers[lead] = offset
		}
	}
	left := t.list[:0]
	for i, end := 0, 0; i < len(t.list); i = end {
		lead := t.list[i].lead
		for end = i; end < len(t.list) && t.list[end].lead == lead; end++ {
		}
		left = t.arrangeSet(left, t.list[i:end], done, answers)
	}
	t.list = slices.Clip(left)
	slices.SortFunc(t.list, byLead)
	t.answers = answers
}

// arrangeSet appends what is left of one set but its lead to left, which may share memory with what was read of the set.
func (t *twins) arrangeSet(left, set []twin, done func(number int) bool, answers map[uint32]int64) []twin {
	first := set[0].lead
	lead, found := first, !done(int(first))
	for _, tw := range set {
		switch {
		case done(int(tw.number)):
		case found:
			t.led.Set(int(tw.number))
			tw.lead = lead
			left = append(left, tw)
		default:
			lead, found = tw.number, true
			if offset, ok := t.answers[first]; ok {
				answers[lead] = offset
			}
		}
	}
	return left
}

func byLead(a, b twin) int {
	return cmp.Or(cmp.Compare(a.lead, b.lead), cmp.Compare(a.number, b.number))
}

// ledBy returns the lines that the one with that number leads.
func (t *twins) ledBy(number int) []twin {
	from, _ := slices.BinarySearchFunc(t.list, twin{lead: uint32(number)}, byLead)
	to := from
	for to < len(t.list) && t.list[to].lead == uint32(number) {
		to++
	}
	return t.list[from:to]
}

// also returns the lines that get their result from this item; nil without any. The feed calls it.
func (in *input) also(item *work.Item) iter.Seq2[work.Twin, error] {
	switch {
	case !in.cfg.Dedupe:
		return nil
	case in.file == nil:
		return in.arrivals.also(item.Hash)
	}
	led := in.twins.ledBy(int(item.Seq) - 1)
	if len(led) == 0 {
		return nil
	}
	hash, check := item.Hash, otherHalf(item.Hash)
	for _, tw := range led {
		if tw.check != check {
			in.twins.led.Unset(int(tw.number)) // only half of the hash is the same: it comes later, and runs on its own
		}
	}
	return func(yield func(work.Twin, error) bool) {
		r, err := in.twinReader()
		if err != nil {
			yield(work.Twin{}, err)
			return
		}
		defer in.twins.readers.Put(r)
		for _, tw := range led {
			if tw.check == check && !yield(r.read(in, tw, hash)) {
				return
			}
		}
	}
}

// twinReader reads lines of a set again.
type twinReader struct {
	*reader
	parser *parser
}

func (in *input) twinReader() (*twinReader, error) {
	if r, ok := in.twins.readers.Get().(*twinReader); ok {
		return r, nil
	}
	r, err := in.newReader()
	return &twinReader{reader: r, parser: newParser(in.fill)}, err
}

// read returns a line of a set, which must be as it was.
func (r *twinReader) read(in *input, tw twin, hash work.Hash) (work.Twin, error) {
	again, err := r.at(tw.offset, int(tw.number)+1)
	if err != nil {
		return work.Twin{}, err
	}
	bad := again.bad
	var rq request
	switch {
	case bad != nil:
	case len(again.Bytes) == 0:
		bad = &problem{text: "another request than before"}
	default:
		rq, bad = r.parser.parse(again.Bytes, again.Number)
	}
	if bad == nil && r.parser.hash(&rq) != hash {
		bad = &problem{text: "another request than before"}
	}
	if bad != nil {
		bad.text += changedSince
		return work.Twin{}, in.problem(again.Number, bad)
	}
	return work.Twin{ID: string(rq.id), Seq: int64(again.Number), Hash: hash}, nil
}
