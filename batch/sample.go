package batch

import (
	"cmp"
	"container/heap"
	"crypto/sha256"
	"encoding/binary"

	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// sample chooses rows at random, and the same ones each time: those whose custom_ids have the smallest hashes. So a larger
// sample has all rows of a smaller one. A nil one chooses nothing.
type sample struct {
	in     *input
	most   int
	picks  picks
	models []sampledModel
	known  map[string]int // models, by name
	hash   []byte
}

// pick is a row of a sample.
type pick struct {
	hash   uint64
	number uint32
	model  int32 // below zero: none
}

type sampledModel struct {
	name string
	of   provider.Provider
}

// sampleKey is hashed before each id, so that the order is not that of ids that are hashes themselves.
const sampleKey = "sluice sample\n"

// newSample returns the sample that is wanted of the input.
func newSample(in *input) *sample {
	if in.cfg.Sample == 0 {
		return nil
	}
	return &sample{in: in, most: in.cfg.Sample, known: make(map[string]int)}
}

// offer gives a row to choose from. bad is why it is none.
func (s *sample) offer(line work.Line, rq *request, bad *problem) {
	if s == nil {
		return
	}
	id := rq.id
	if bad != nil {
		id = invalidID(line.Number)
	}
	s.hash = append(append(s.hash[:0], sampleKey...), id...)
	sum := sha256.Sum256(s.hash)
	p := pick{hash: binary.BigEndian.Uint64(sum[:]), number: uint32(line.Number - 1), model: -1}
	if len(s.picks) == s.most && !p.before(s.picks[0]) {
		return
	}
	if bad == nil {
		p.model = s.model(rq)
	}
	if heap.Push(&s.picks, p); len(s.picks) > s.most {
		heap.Pop(&s.picks)
	}
}

func (s *sample) model(rq *request) int32 {
	i, ok := s.known[rq.model]
	if !ok {
		i = len(s.models)
		s.known[rq.model] = i
		s.models = append(s.models, sampledModel{rq.model, rq.provider})
	}
	return int32(i)
}

// choose makes the sample all that there is of the input.
func (s *sample) choose() {
	if s == nil {
		return
	}
	in := s.in
	in.sampled, in.providers = true, nil
	clear(in.models)
	for _, p := range s.picks {
		in.chosen.Set(int(p.number))
		if p.model >= 0 {
			m := s.models[p.model]
			in.models[m.name]++
			in.meet(m.of)
		}
	}
	in.total.Store(int64(len(s.picks)))
}

// leftOut says whether the row on that line, counted from zero, is not in the sample.
func (in *input) leftOut(number int) bool { return in.sampled && !in.chosen.Has(number) }

// picks are a heap, with the last one in the order of the sample on top.
type picks []pick

func (p pick) before(other pick) bool {
	return cmp.Or(cmp.Compare(p.hash, other.hash), cmp.Compare(p.number, other.number)) < 0
}

// Len counts them.
func (ps picks) Len() int { return len(ps) }

// Less puts the last one in the order of the sample on top.
func (ps picks) Less(i, j int) bool { return ps[j].before(ps[i]) }

// Swap exchanges two.
func (ps picks) Swap(i, j int) { ps[i], ps[j] = ps[j], ps[i] }

// Push adds one.
func (ps *picks) Push(p any) { *ps = append(*ps, p.(pick)) }

// Pop takes the last off.
func (ps *picks) Pop() any {
	last := (*ps)[len(*ps)-1]
	*ps = (*ps)[:len(*ps)-1]
	return last
}
