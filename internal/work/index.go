package work

import (
	"hash/maphash"
	"math/bits"
)

// Index remembers the ids and hashes of many items in at most 24 bytes each, by the items' numbers, and which of them
// are done. The zero value is ready. It is not safe for concurrent use.
//
// Ids are kept as 64 bits of a hash whose seed differs between processes: that two of a million ids are taken for one
// happens once in 40 million runs, and then not again.
type Index struct {
	seed   maphash.Seed
	rows   [][]row // chunks, so that growing copies nothing; by number, or by rank
	shards [64]shard
	done   Bits
	n      int
	span   int

	// gaps are there once numbers were left out, as by records of a table that span lines: a row for each number would
	// waste as much memory as there are gaps. Nil: every number from zero on has an item.
	gaps *ranks
}

const rowsPerChunk = 1 << 13

type row struct {
	id   uint64
	hash uint64
}

// shard is an open-addressed table of row numbers. There are many so that growing one copies little.
type shard struct {
	slots []uint32 // number + 1; 0 is free
	used  int
}

// Add remembers the item with this number, which must be above those of all items before. If another item has the same
// id, it says false and that item's number, and remembers nothing.
func (x *Index) Add(number int, id []byte, hash Hash) (other int, ok bool) {
	if x.seed == (maphash.Seed{}) {
		x.seed = maphash.MakeSeed()
	}
	h := maphash.Bytes(x.seed, id)
	s := &x.shards[h>>58]
	if s.used*5 >= len(s.slots)*4 {
		x.growShard(s)
	}
	i, found := x.find(s, h)
	if found {
		return int(s.slots[i] - 1), false
	}
	s.slots[i] = uint32(number) + 1
	s.used++
	x.append(number, row{id: h, hash: hash.short()})
	x.span = number + 1
	return number, true
}

// Find returns the number of the item with this id.
func (x *Index) Find(id []byte) (number int, ok bool) {
	if x.n == 0 {
		return 0, false
	}
	h := maphash.Bytes(x.seed, id)
	s := &x.shards[h>>58]
	if len(s.slots) == 0 {
		return 0, false
	}
	i, ok := x.find(s, h)
	if !ok {
		return 0, false
	}
	return int(s.slots[i] - 1), true
}

// Same says whether the item with this number was added with this hash.
func (x *Index) Same(number int, hash Hash) bool {
	return x.row(number).hash == hash.short()
}

// Len returns how many items there are.
func (x *Index) Len() int { return x.n }

// Span is one above the highest number of an item.
func (x *Index) Span() int { return x.span }

// Done returns the marks of items that are done.
func (x *Index) Done() *Bits { return &x.done }

// short is the part of a hash that an Index keeps.
func (h Hash) short() uint64 {
	var v uint64
	for _, b := range h[:8] {
		v = v<<8 | uint64(b)
	}
	return v
}

// find returns the slot of the row with that id, or the free slot where it belongs.
func (x *Index) find(s *shard, h uint64) (slot int, found bool) {
	n := uint64(len(s.slots))
	hi, _ := bits.Mul64(h<<6, n) // the top bits chose the shard
	for i := hi; ; {
		number := s.slots[i]
		if number == 0 {
			return int(i), false
		}
		if x.row(int(number-1)).id == h {
			return int(i), true
		}
		if i++; i == n {
			i = 0
		}
	}
}

// growShard makes a shard a quarter larger: doubling would waste more than the budget of 24 bytes allows.
func (x *Index) growShard(s *shard) {
	old := s.slots
	s.slots = make([]uint32, max(16, len(old)*5/4))
	for _, number := range old {
		if number == 0 {
			continue
		}
		i, _ := x.find(s, x.row(int(number-1)).id)
		s.slots[i] = number
	}
}

// row returns the row of the item with that number.
func (x *Index) row(number int) *row {
	if x.gaps != nil {
		number = x.gaps.rank(number)
	}
	return &x.rows[number/rowsPerChunk][number%rowsPerChunk]
}

// append adds the row of the item with that number, which is the last.
func (x *Index) append(number int, r row) {
	if x.gaps == nil && number != x.n {
		x.gaps = &ranks{}
		for i := range x.n {
			x.gaps.add(i)
		}
	}
	if x.gaps != nil {
		x.gaps.add(number)
	}
	if x.n/rowsPerChunk == len(x.rows) {
		x.rows = append(x.rows, make([]row, rowsPerChunk))
	}
	x.rows[x.n/rowsPerChunk][x.n%rowsPerChunk] = r
	x.n++
}

// ranks is a set of rising numbers that says how many are below one, in 1.5 bits for each number up to the last.
type ranks struct {
	words []uint64
	below []uint32 // how many are in the words before
	n     uint32
}

// add adds a number above all others.
func (s *ranks) add(number int) {
	for number/64 >= len(s.words) {
		s.words, s.below = append(s.words, 0), append(s.below, s.n)
	}
	s.words[number/64] |= 1 << (number % 64)
	s.n++
}

// rank says how many are below a number of the set.
func (s *ranks) rank(number int) int {
	before := s.words[number/64] & (1<<(number%64) - 1)
	return int(s.below[number/64]) + bits.OnesCount64(before)
}

// Bits is a set of small numbers. The zero value is empty. It is not safe for concurrent use.
type Bits struct {
	words []uint64
	n     int
}

// Set adds i. It says whether i was new.
func (b *Bits) Set(i int) bool {
	for i/64 >= len(b.words) {
		b.words = append(b.words, 0)
	}
	if b.words[i/64]&(1<<(i%64)) != 0 {
		return false
	}
	b.words[i/64] |= 1 << (i % 64)
	b.n++
	return true
}

// Unset takes i out.
func (b *Bits) Unset(i int) {
	if b.Has(i) {
		b.words[i/64] &^= 1 << (i % 64)
		b.n--
	}
}

// Has says whether i is in the set.
func (b *Bits) Has(i int) bool {
	return i/64 < len(b.words) && b.words[i/64]&(1<<(i%64)) != 0
}

// Len returns how many numbers are in the set.
func (b *Bits) Len() int { return b.n }
