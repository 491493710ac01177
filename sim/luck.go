package sim

import (
	"encoding/binary"
	"math"
)

// luck is the source of everything random about one attempt, or about a
// request when the attempt is left out: a pure function of seed, request and
// attempt, never a shared stream.
type luck uint64

func newLuck(seed uint64, hash hash, attempt uint32) luck {
	h := mix(seed ^ binary.LittleEndian.Uint64(hash[:8]))
	h = mix(h ^ binary.LittleEndian.Uint64(hash[8:]))
	return luck(mix(h ^ uint64(attempt)))
}

// The draws, each from a place of its own, so that no setting disturbs the
// luck of another.
const (
	drawFault uint64 = iota + 1
	drawBadRequest
	drawLatency
	drawOutput
	drawThrottled
)

// uniform is in [0, 1).
func (l luck) uniform(draw uint64) float64 {
	return float64(mix(uint64(l)+draw*golden)>>11) / (1 << 53)
}

// normal has mean 0 and variance 1 (Box-Muller).
func (l luck) normal(draw uint64) float64 {
	u := 1 - l.uniform(draw)
	v := l.uniform(draw ^ 1<<32)
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v)
}

const golden = 0x9e3779b97f4a7c15

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += golden
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
