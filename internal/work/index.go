package work

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
)

// Index remembers the ids and hashes of many items in at most 24 bytes each, by the items' numbers, and which of them
// are done. A number that is left out takes 2 bits. The zero value is ready. It is not safe for concurrent use.
//
// Ids are kept as 64 bits of a hash whose seed differs between processes: that two of a million ids are taken for one
// happens once in 40 million runs, and then not again.
type Index struct {
	rows    [][]row  // chunks, so that growing copies nothing
	numbers Bits     // of the items: the n-th of them has the n-th row
	below   []uint32 // how many of them are in the words before each
	span    int
	shards  [64]shard
	done    Bits
}

const rowsPerChunk = 1 << 13

type row struct {
	id   uint64
	hash uint64
}

// shard is an open-addressed table of item numbers. There are many so that growing one copies little.
type shard struct {
	slots []uint32 // number + 1; 0 is free
	used  int
}

var indexSeed = maphash.MakeSeed()

// Add remembers the item with this number, which must be above those of all items before. If another item has the same
// id, it says false and that item's number, and remembers nothing.
func (x *Index) Add(number int, id []byte, hash Hash) (other int, ok bool) {
	h := maphash.Bytes(indexSeed, id)
	s := &x.shards[h>>58]
	if s.used*5 >= len(s.slots)*4 {
		x.grow(s)
	}
	slot := x.slot(s, h)
	if *slot > 0 {
		return int(*slot) - 1, false
	}
	*slot = uint32(number) + 1
	s.used++
	for number/64 >= len(x.below) {
		x.below = append(x.below, uint32(x.numbers.n))
	}
	if x.numbers.n/rowsPerChunk == len(x.rows) {
		x.rows = append(x.rows, make([]row, rowsPerChunk))
	}
	x.numbers.Set(number)
	*x.row(number) = row{id: h, hash: hash.short()}
	x.span = number + 1
	return number, true
}

// Find returns the number of the item with this id.
func (x *Index) Find(id []byte) (number int, ok bool) {
	h := maphash.Bytes(indexSeed, id)
	s := &x.shards[h>>58]
	if s.used == 0 {
		return 0, false
	}
	slot := *x.slot(s, h)
	return int(slot) - 1, slot > 0
}

// Same says whether the item with this number was added with this hash.
func (x *Index) Same(number int, hash Hash) bool { return x.row(number).hash == hash.short() }

// Span is one above the highest number of an item.
func (x *Index) Span() int { return x.span }

// Done returns the marks of items that are done.
func (x *Index) Done() *Bits { return &x.done }

// short is the part of a hash that an Index keeps.
func (h Hash) short() uint64 { return binary.BigEndian.Uint64(h[:]) }

// slot returns the slot of the item with that id, or the free slot where it belongs.
func (x *Index) slot(s *shard, h uint64) *uint32 {
	n := uint64(len(s.slots))
	i, _ := bits.Mul64(h<<6, n) // the top bits chose the shard
	for s.slots[i] > 0 && x.row(int(s.slots[i]-1)).id != h {
		if i++; i == n {
			i = 0
		}
	}
	return &s.slots[i]
}

// grow makes a shard a quarter larger: doubling would waste more than the budget of 24 bytes allows.
func (x *Index) grow(s *shard) {
	old := s.slots
	s.slots = make([]uint32, max(16, len(old)*5/4))
	for _, number := range old {
		if number > 0 {
			*x.slot(s, x.row(int(number-1)).id) = number
		}
	}
}

// row returns the row of the item with that number.
func (x *Index) row(number int) *row {
	before := x.numbers.words[number/64] & (1<<(number%64) - 1)
	n := int(x.below[number/64]) + bits.OnesCount64(before)
	return &x.rows[n/rowsPerChunk][n%rowsPerChunk]
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
	if b.Has(i) {
		return false
	}
	b.words[i/64] |= 1 << (i % 64)
	b.n++
	return true
}

// Has says whether i is in the set.
func (b *Bits) Has(i int) bool {
	return i/64 < len(b.words) && b.words[i/64]&(1<<(i%64)) != 0
}

// Len returns how many numbers are in the set.
func (b *Bits) Len() int { return b.n }
