package telemetry

import (
	"math/bits"
	"time"
)

// times counts durations in buckets that grow with them, 32 for each doubling: percentiles are within 3 %. The zero value
// is ready; it has a fixed size.
type times struct {
	n       int
	sum     time.Duration
	longest time.Duration
	buckets [timesBuckets]uint32
}

const (
	timesFine    = 32 // buckets of a doubling
	timesBuckets = 34 * timesFine
)

// add counts d, to the millisecond: that is what files keep.
func (t *times) add(d time.Duration) {
	d = max(0, d)
	t.n++
	t.sum += d
	t.longest = max(t.longest, d)
	t.buckets[timesBucket(d.Milliseconds())]++
}

// timesBucket is the bucket of that many milliseconds: below 32 one each, above by the highest six bits.
func timesBucket(ms int64) int {
	u := uint64(ms)
	if u < timesFine {
		return int(u)
	}
	shift := bits.Len64(u) - 6
	return min((shift+1)*timesFine+int(u>>shift)-timesFine, timesBuckets-1)
}

// from is the shortest time in bucket i, in milliseconds.
func timesFrom(i int) int64 {
	if i < timesFine {
		return int64(i)
	}
	shift := i/timesFine - 1
	return int64(i%timesFine+timesFine) << shift
}

// percentile is the time that this part of all does not exceed, within 3 %.
func (t *times) percentile(part float64) time.Duration {
	rank := int(part*float64(t.n) + 0.9999999)
	for i, n := range t.buckets {
		if rank -= int(n); rank <= 0 {
			return min(time.Duration(timesFrom(i+1)-1)*time.Millisecond, t.longest)
		}
	}
	return t.longest
}

// Times says how a duration was spread, in milliseconds. Percentiles are within 3 %.
type Times struct {
	Count int   `json:"count"`               // Values.
	Mean  int64 `json:"mean_ms"`             // Mean.
	P50   int64 `json:"p50_ms"`              // Median, accurate to ± 3 %.
	P95   int64 `json:"p95_ms"`              // 95th percentile, accurate to ± 3 %.
	P99   int64 `json:"p99_ms"`              // 99th percentile, accurate to ± 3 %.
	Max   int64 `json:"max_ms"`              // Maximum.
	Bars  []Bar `json:"histogram,omitempty"` // Values by range.
}

// Bar is how many durations were from From to below To, in milliseconds.
type Bar struct {
	From  int64 `json:"from_ms"` // Lower bound.
	To    int64 `json:"to_ms"`   // Upper bound, exclusive.
	Count int   `json:"count"`   // Values in the range.
}

func (t *times) result() Times {
	if t.n == 0 {
		return Times{}
	}
	return Times{
		Count: t.n, Mean: (t.sum / time.Duration(t.n)).Milliseconds(), P50: t.percentile(0.5).Milliseconds(),
		P95: t.percentile(0.95).Milliseconds(), P99: t.percentile(0.99).Milliseconds(), Max: t.longest.Milliseconds(),
		Bars: t.bars(),
	}
}

// bars are the counts by doublings of the time, from the first that has any to the last.
func (t *times) bars() []Bar {
	var all []Bar
	last := 0
	for i, n := range t.buckets {
		to := int64(1)
		if ms := timesFrom(i); ms > 0 {
			to = 1 << bits.Len64(uint64(ms))
		}
		if len(all) == 0 || all[len(all)-1].To != to {
			if n == 0 && len(all) == 0 {
				continue
			}
			all = append(all, Bar{From: to / 2, To: to})
		}
		if all[len(all)-1].Count += int(n); n > 0 {
			last = len(all)
		}
	}
	return all[:last]
}
