package batch

import (
	"bytes"
	"encoding/binary"
	"iter"
	"sort"
	"sync"

	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
)

// twins are the lines of a file whose requests are equal to those of lines before them, in 24 bytes each, and the recorded
// answers that lines without one may have. scan and resume fill it; then it is only read, but for led, which is the feed's.
type twins struct {
	list    twinList         // by number, and once it is arranged by lead and number
	leads   work.Bits        // first lines of sets
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
		in.twins.leads.Set(lead)
		in.twins.list.add(twin{offset: line.Offset, check: otherHalf(hash), lead: uint32(lead), number: uint32(number)})
	}
}

// answer keeps where the recorded answer to the set of that lead is, which that line has or another one. Of a set of one
// line that has its own, nobody asks.
func (t *twins) answer(lead int, own bool, offset int64) {
	if own && !t.leads.Has(lead) {
		return
	}
	if t.answers == nil {
		t.answers = make(map[uint32]int64)
	}
	t.answers[uint32(lead)] = offset
}

// arrange finds out what is left to do of each set: the first line of it that is not done, or left out of the run, leads the
// others.
func (t *twins) arrange(done func(number int) bool) {
	sort.Sort(&t.list)
	answers := make(map[uint32]int64)
	for lead, offset := range t.answers { // those of sets with one line
		if !done(int(lead)) {
			answers[lead] = offset
		}
	}
	left := 0 // so many of the list stay, at its beginning
	for from, to := 0, 0; from < t.list.n; from = to {
		for lead := t.list.at(from).lead; to < t.list.n && t.list.at(to).lead == lead; to++ {
		}
		left = t.arrangeSet(from, to, left, done, answers)
	}
	t.list.cut(left)
	sort.Sort(&t.list)
	t.answers = answers
}

// arrangeSet puts what is left of one set but its lead at the list's place left, and returns the place behind it.
func (t *twins) arrangeSet(from, to, left int, done func(number int) bool, answers map[uint32]int64) int {
	first := t.list.at(from).lead
	lead, found := first, !done(int(first))
	for i := from; i < to; i++ {
		tw := *t.list.at(i)
		switch {
		case done(int(tw.number)):
		case found:
			t.led.Set(int(tw.number))
			tw.lead = lead
			*t.list.at(left) = tw
			left++
		default:
			lead, found = tw.number, true
			if offset, ok := t.answers[first]; ok {
				answers[lead] = offset
			}
		}
	}
	return left
}

// ledBy returns where in the list the lines are that the one with that number leads.
func (t *twins) ledBy(number int) (from, to int) {
	lead := uint32(number)
	from = sort.Search(t.list.n, func(i int) bool { return t.list.at(i).lead >= lead })
	for to = from; to < t.list.n && t.list.at(to).lead == lead; to++ {
	}
	return from, to
}

// twinList is a list in chunks, so that growing copies nothing. It sorts by lead and number.
type twinList struct {
	chunks [][]twin
	n      int
}

const twinsPerChunk = 1 << 13

func (l *twinList) at(i int) *twin { return &l.chunks[i/twinsPerChunk][i%twinsPerChunk] }

func (l *twinList) add(tw twin) {
	if l.n%twinsPerChunk == 0 {
		l.chunks = append(l.chunks, make([]twin, twinsPerChunk))
	}
	*l.at(l.n) = tw
	l.n++
}

// cut leaves the first n.
func (l *twinList) cut(n int) {
	keep := (n + twinsPerChunk - 1) / twinsPerChunk
	clear(l.chunks[keep:])
	l.chunks, l.n = l.chunks[:keep], n
}

// Len, Swap and Less are for sort.Sort.
func (l *twinList) Len() int      { return l.n }
func (l *twinList) Swap(i, j int) { *l.at(i), *l.at(j) = *l.at(j), *l.at(i) }
func (l *twinList) Less(i, j int) bool {
	a, b := l.at(i), l.at(j)
	return a.lead < b.lead || a.lead == b.lead && a.number < b.number
}

// also returns the lines that get their result from this item; nil without any. The feed calls it.
func (in *input) also(item *work.Item) iter.Seq2[work.Duplicate, error] {
	switch {
	case !in.cfg.Dedupe:
		return nil
	case in.file == nil:
		return in.arrivals.also(item.Hash)
	}
	t := &in.twins
	from, to := t.ledBy(int(item.Seq) - 1)
	if from == to {
		return nil
	}
	hash, check := item.Hash, otherHalf(item.Hash)
	for i := from; i < to; i++ {
		if tw := t.list.at(i); tw.check != check {
			t.led.Unset(int(tw.number)) // only half of the hash is the same: it comes later, and runs on its own
		}
	}
	return func(yield func(work.Duplicate, error) bool) {
		r, err := in.twinReader()
		if err != nil {
			yield(work.Duplicate{}, err)
			return
		}
		defer t.readers.Put(r)
		for i := from; i < to; i++ {
			if tw := *t.list.at(i); tw.check == check && !yield(r.read(in, tw, hash)) {
				return
			}
		}
	}
}

// twinReader reads lines of a set again.
type twinReader struct {
	*rows.Reader
	parser *parser
}

func (in *input) twinReader() (*twinReader, error) {
	if r, ok := in.twins.readers.Get().(*twinReader); ok {
		return r, nil
	}
	r, err := in.file.Reader()
	return &twinReader{Reader: r, parser: newParser(in.fill)}, err
}

// read returns a line of a set, which must be as it was.
func (r *twinReader) read(in *input, tw twin, hash work.Hash) (work.Duplicate, error) {
	again, err := r.At(tw.offset, int(tw.number)+1)
	if err != nil {
		return work.Duplicate{}, err
	}
	bad := again.Bad
	var rq request
	switch {
	case bad != nil:
	case len(again.Bytes) == 0:
		bad = &problem{Text: "the line contains a different request than before"}
	default:
		rq, bad = r.parser.parse(&again)
	}
	if bad == nil && r.parser.hash(&rq) != hash {
		bad = &problem{Text: "the line contains a different request than before"}
	}
	if bad != nil {
		bad.Text += changedSince
		return work.Duplicate{}, again.Wrong(in.cfg.Input, bad)
	}
	return work.Duplicate{ID: string(rq.id), Seq: int64(again.Number), Hash: hash, Note: bytes.Clone(rq.metadata)}, nil
}
