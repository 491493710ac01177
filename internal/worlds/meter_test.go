package worlds

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// naive computes the room of a limit from the list of all charges, in an obvious way.
func naive(l Limit, log []taken, now time.Duration) float64 {
	full := math.Max(l.N*float64(l.Burst)/60, 1)
	left := full
	last := time.Duration(0)
	window := l.Burst.span()
	index := func(at time.Duration) time.Duration { return (at + l.Phase.span()) / window }
	opened, used := -window, 0.0
	for _, e := range log {
		switch l.Kind {
		case Opened:
			if e.at >= opened+window {
				opened, used = e.at, 0
			}
			used += e.cost
		case Estimate:
			if index(e.at) == index(now) {
				left -= e.cost
			} else if index(e.at) == index(now)-1 {
				left -= e.cost * float64(window-(now+l.Phase.span())%window) / float64(window)
			}
		case Sliding:
			if e.at > now-window {
				left -= e.cost
			}
		case Fixed:
			if index(e.at) == index(now) {
				left -= e.cost
			}
		default:
			left = math.Min(full, left+l.N/60*(e.at-last).Seconds()) - e.cost
			last = e.at
		}
	}
	if l.Kind == Opened && now < opened+window {
		left -= used
	}
	if l.Kind == Bucket {
		left = math.Min(full, left+l.N/60*(now-last).Seconds())
	}
	return left
}

func TestMetersAgreeWithANaiveModel(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := Limit{Dim: TPM, N: float64(60 + r.IntN(6000)), Burst: Seconds(1 + r.IntN(20)), Kind: []string{Bucket, Fixed, Sliding, Opened, Estimate}[seed%5]}
		if l.Kind == Fixed || l.Kind == Estimate {
			l.Phase = Seconds(r.IntN(10))
		}
		m := newMeter(l)
		var log []taken
		now := time.Duration(0)
		for range 200 {
			now += time.Duration(r.ExpFloat64() * 0.3e9)
			if r.IntN(20) == 0 {
				now += 2 * l.Burst.span()
			}
			if left, want := m.left(now), naive(l, log, now); math.Abs(left-want) > 1e-3 {
				t.Fatalf("%+v at %v: %v left, want %v", l, now, left, want)
			}
			cost := r.Float64() * m.size() / 3
			at := after(m, now, cost)
			if naive(l, log, at)+1e-3 < cost {
				t.Fatalf("%+v: no room at %v for %v", l, at, cost)
			}
			if early := at - time.Millisecond; early > now && naive(l, log, early) > cost {
				t.Fatalf("%+v: room for %v before %v", l, cost, at)
			}
			if r.IntN(2) == 0 {
				now = at
			}
			m.take(now, cost)
			log = append(log, taken{now, cost})
		}
	}
}

func TestACounterHasNoRoomBeforeARelease(t *testing.T) {
	m := newMeter(Limit{Dim: Concurrency, N: 2})
	m.take(0, 1)
	m.take(0, 1)
	if at := after(m, 0, 1); at != never {
		t.Errorf("room at %v, want never", at)
	}
	m.take(0, -1)
	if at := after(m, 5, 1); at != 5 {
		t.Errorf("room at %v, want now", at)
	}
}
