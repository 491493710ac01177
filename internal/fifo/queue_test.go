package fifo

// Verdicts hang on how well a law replays a volley, which nobody else asks: this test is in the package.

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/internal/suite"
)

// TestMain gives the fast suite few property checks.
func TestMain(m *testing.M) {
	if !suite.Full {
		flag.Set("rapid.checks", "20")
	}
	os.Exit(m.Run())
}

// burstServer answers a burst: when each call ends, in order or not, in units of a call's usual time.
type burstServer func(rng *rand.Rand, calls int) []float64

// noise is a lognormal factor.
func noise(rng *rand.Rand, sigma float64) float64 { return math.Exp(sigma * rng.NormFloat64()) }

func lognormal(sigma float64) func(*rand.Rand) float64 {
	return func(rng *rand.Rand) float64 { return noise(rng, sigma) }
}

// mostlyQuick is lognormal, but a share of calls takes some times as long.
func mostlyQuick(sigma, share, times float64) func(*rand.Rand) float64 {
	return func(rng *rand.Rand) float64 {
		if rng.Float64() < share {
			return times * noise(rng, sigma)
		}
		return noise(rng, sigma)
	}
}

// queueServer serves so many calls at once, in order, and has a detour of a part of a service.
func queueServer(places int, detour float64, service func(*rand.Rand) float64) burstServer {
	return func(rng *rand.Rand, calls int) []float64 {
		free, ends := make([]float64, places), make([]float64, calls)
		for i := range ends {
			next := slices.Index(free, slices.Min(free))
			free[next] += service(rng)
			ends[i] = free[next] + detour
		}
		return ends
	}
}

// batchServer takes so many calls, answers each as it is done, and takes no other before all are.
func batchServer(places int, service func(*rand.Rand) float64) burstServer {
	return func(rng *rand.Rand, calls int) []float64 {
		ends, begin, last := make([]float64, calls), 0.0, 0.0
		for i := range ends {
			if i%places == 0 {
				begin = last
			}
			ends[i] = begin + service(rng)
			last = max(last, ends[i])
		}
		return ends
	}
}

// loneServer answers each call by itself; slower says by how much, by the call's place in the burst.
func loneServer(service func(*rand.Rand) float64, slower func(place, calls int) float64) burstServer {
	return func(rng *rand.Rand, calls int) []float64 {
		ends := make([]float64, calls)
		for i := range ends {
			ends[i] = service(rng) * slower(i, calls)
		}
		return ends
	}
}

func notSlower(_, _ int) float64 { return 1 }

// allSlower is growth by every call of the burst.
func allSlower(by float64) func(place, calls int) float64 {
	return func(_, calls int) float64 { return 1 + by*float64(calls-1) }
}

// laterSlower is growth by every call that was open before.
func laterSlower(by float64) func(place, calls int) float64 {
	return func(place, _ int) float64 { return 1 + by*float64(place) }
}

// kneeSlower is growth by those open before beyond some, to which each adds a call's time in all.
func kneeSlower(first int) func(place, calls int) float64 {
	return func(place, _ int) float64 { return max(1, float64(place+1)/float64(first)) }
}

// sharedServer gives so many calls its full speed, and more of them the same power together.
func sharedServer(full int, service func(*rand.Rand) float64) burstServer {
	return func(rng *rand.Rand, calls int) []float64 {
		needs := make([]float64, calls)
		for i := range needs {
			needs[i] = service(rng)
		}
		slices.Sort(needs)
		ends, at, had := make([]float64, calls), 0.0, 0.0
		for i, need := range needs {
			at += (need - had) * max(1, float64(calls-i)/float64(full))
			had, ends[i] = need, at
		}
		return ends
	}
}

// fly sends a burst over a network that takes a few milliseconds, and shuffles it.
func fly(s burstServer, rng *rand.Rand, calls int) []Flight {
	const usual = 300 * time.Millisecond
	ends := s(rng, calls)
	rng.Shuffle(calls, func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
	burst := make([]Flight, calls)
	for i := range burst {
		burst[i] = Flight{Sent: time.Duration(i) * 20 * time.Microsecond, Took: time.Duration(ends[i]*float64(usual)) + time.Duration(rng.Int64N(int64(2*time.Millisecond)))}
	}
	return burst
}

// gallop makes bursts of more and more calls, and two more where there may be a queue, as a search does.
func gallop(s burstServer, rng *rand.Rand, most int) (places int, sure bool) {
	var bursts [][]Flight
	for _, calls := range []int{4, 8, 16, 32, 64, 100} {
		if calls > most {
			break
		}
		bursts = append(bursts, fly(s, rng, calls))
		if places, _ = Fit(bursts); places == 0 {
			continue
		}
		for range 2 {
			bursts = append(bursts, fly(s, rng, min(100, max(calls, 2*places))))
		}
		if places, sure = Fit(bursts); sure {
			return places, true
		}
	}
	return 0, false
}

func TestQueueIsFoundAndItsPlacesAreCounted(t *testing.T) {
	for _, c := range []struct {
		sigma  float64
		places []int
		trials int
		all    bool // of the trials are exact, not only their median
	}{
		{0, suite.Size([]int{1, 3, 8, 16}, []int{1, 2, 3, 4, 5, 7, 8, 16, 31, 48}), 1, true},
		{0.1, suite.Size([]int{1, 4, 12}, []int{1, 2, 3, 4, 6, 8, 12, 16, 33, 64}), 1, true},
		{0.2, suite.Size([]int{5}, []int{2, 5, 16}), 3, false},
		{0.3, suite.Size([]int{2}, []int{1, 2, 4, 8}), suite.Size(3, 5), false},
		{0.5, suite.Size(nil, []int{1, 2}), 5, false},
	} {
		for _, places := range c.places {
			t.Run(fmt.Sprintf("%d places, jitter %v", places, c.sigma), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(1, uint64(places)))
				var found []int
				for range c.trials {
					n, sure := gallop(queueServer(places, 0, lognormal(c.sigma)), rng, 100)
					if !sure {
						t.Errorf("no queue is sure")
					}
					found = append(found, n)
				}
				slices.Sort(found)
				if found[c.trials/2] != places || c.all && (found[0] != places || found[c.trials-1] != places) {
					t.Errorf("found %d", found)
				}
			})
		}
	}
}

func TestQueueOfManyPlacesIsCountedNearlyUnderMuchJitter(t *testing.T) {
	suite.FullOnly(t)
	const places = 48
	rng := rand.New(rand.NewPCG(2, places))
	if n, sure := gallop(queueServer(places, 0, lognormal(0.3)), rng, 100); !sure || math.Abs(float64(n-places)) > 0.1*places {
		t.Errorf("found %d, %v", n, sure)
	}
}

func TestQueueIsFoundWhateverElseGoesOn(t *testing.T) {
	for name, s := range map[string]burstServer{
		"a long way":                  queueServer(8, 0.5, lognormal(0.1)),
		"a way longer than a service": queueServer(8, 1.2, lognormal(0.05)),
		"one in ten takes twice":      queueServer(8, 0, mostlyQuick(0.1, 0.1, 2)),
		"services of any even length": queueServer(8, 0, func(rng *rand.Rand) float64 { return 0.5 + rng.Float64() }),
		"continuous batches":          queueServer(8, 0, lognormal(0.2)),
		"batches":                     batchServer(8, lognormal(0.03)),
		"a call that hangs": func(rng *rand.Rand, calls int) []float64 {
			return queueServer(8, 0, mostlyQuick(0.1, 0.01, 12))(rng, calls)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(3, 3))
			var found []int
			for range suite.Size(1, 3) {
				n, sure := gallop(s, rng, 100)
				if !sure {
					t.Error("no queue is sure")
				}
				found = append(found, n)
			}
			slices.Sort(found)
			if found[len(found)/2] != 8 {
				t.Errorf("8 places are counted as %d", found)
			}
		})
	}
}

// withoutQueue are servers that only look as if they had a queue, if at all.
func withoutQueue() map[string]burstServer {
	all := map[string]burstServer{
		"pareto":            loneServer(func(rng *rand.Rand) float64 { return math.Pow(rng.Float64(), -1/1.5) }, notSlower),
		"fixed and more":    loneServer(func(rng *rand.Rand) float64 { return 1 + 0.3*rng.ExpFloat64() }, notSlower),
		"two kinds of call": loneServer(mostlyQuick(0.1, 0.3, 3), notSlower),
		"even":              loneServer(func(rng *rand.Rand) float64 { return 0.5 + rng.Float64() }, notSlower),
	}
	for _, sigma := range []float64{0, 0.1, 0.3, 0.5, 0.8} {
		all[fmt.Sprint("constant ", sigma)] = loneServer(lognormal(sigma), notSlower)
		all[fmt.Sprint("one in ten takes twice ", sigma)] = loneServer(mostlyQuick(sigma, 0.1, 2), notSlower)
	}
	for _, sigma := range []float64{0, 0.1, 0.3} {
		all[fmt.Sprint("all slower ", sigma)] = loneServer(lognormal(sigma), allSlower(0.1))
		for _, by := range []float64{0.02, 0.1, 0.25} {
			all[fmt.Sprint("later slower by ", by, " ", sigma)] = loneServer(lognormal(sigma), laterSlower(by))
		}
		for _, n := range []int{4, 16} {
			all[fmt.Sprint("later slower beyond ", n, " ", sigma)] = loneServer(lognormal(sigma), kneeSlower(n))
			all[fmt.Sprint("shared by ", n, " ", sigma)] = sharedServer(n, lognormal(sigma))
		}
	}
	return all
}

func TestNoQueueIsFoundWhereThereIsNone(t *testing.T) {
	for name, s := range withoutQueue() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(4, 4))
			for _, most := range suite.Size([]int{32}, []int{32, 64}) {
				if n, sure := gallop(s, rng, most); sure {
					t.Errorf("a queue of %d is sure", n)
				}
			}
		})
	}
}

func TestNoQueueIsSeldomSuspected(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, sigma := range []float64{0.1, 0.3, 0.8} {
		suspected := 0
		for range suite.Size(20, 40) {
			if n, _ := Fit([][]Flight{fly(loneServer(lognormal(sigma), notSlower), rng, 16)}); n > 0 {
				suspected++
			}
		}
		if suspected > 2 {
			t.Errorf("jitter %v: a queue is suspected after %d of 40 bursts", sigma, suspected)
		}
	}
}

func TestQueueIsNotSeenByBurstsThatFitInto(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for _, sigma := range []float64{0, 0.1, 0.3} {
		s := queueServer(32, 0, lognormal(sigma))
		bursts := [][]Flight{fly(s, rng, 4), fly(s, rng, 8), fly(s, rng, 16), fly(s, rng, 32), fly(s, rng, 32), fly(s, rng, 32)}
		if n, sure := Fit(bursts); n > 0 || sure {
			t.Errorf("jitter %v: %d places, %v", sigma, n, sure)
		}
	}
}

func TestOneBurstSuspectsAQueueAndIsNeverSure(t *testing.T) {
	burst := fly(queueServer(8, 0, lognormal(0.05)), rand.New(rand.NewPCG(7, 7)), 32)
	if n, sure := Fit([][]Flight{burst}); n != 8 || sure {
		t.Errorf("%d places, %v", n, sure)
	}
	if n, sure := Fit([][]Flight{burst, burst, burst}); n != 8 || !sure {
		t.Errorf("three such: %d places, %v", n, sure)
	}
}

func TestCallsThatAreLeftOutDoNotHideAQueue(t *testing.T) {
	s, rng := queueServer(8, 0, lognormal(0.1)), rand.New(rand.NewPCG(8, 8))
	var bursts [][]Flight
	for _, calls := range []int{4, 8, 16, 32, 32, 32} {
		bursts = append(bursts, fly(s, rng, calls)[1:]) // one was answered by an error
	}
	if n, sure := Fit(bursts); n != 8 || !sure {
		t.Errorf("%d places, %v", n, sure)
	}
}

func TestAFitNeedsCalls(t *testing.T) {
	for _, bursts := range [][][]Flight{nil, {}, {{}}, {{{Took: time.Second}}}, {{{Took: 0}, {Took: -1}}, nil}, {{{Took: time.Second}}, {{Took: time.Second}}}} {
		if n, sure := Fit(bursts); n != 0 || sure {
			t.Errorf("%v: %d places, %v", bursts, n, sure)
		}
	}
}

func TestBurstsThatAreFarTooLargeAreNotLookedAt(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 12))
	large, small := fly(queueServer(200, 0, lognormal(0)), rng, 2000), fly(queueServer(200, 0, lognormal(0)), rng, 100)
	if n, sure := Fit([][]Flight{small, large, large, large}); n != 0 || sure {
		t.Errorf("%d places, %v", n, sure)
	}
}

// anyBursts are bursts of whatever latencies, among them those of queues.
func anyBursts(t *rapid.T) [][]Flight {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	s := queueServer(rapid.IntRange(1, 8).Draw(t, "places"), 0, lognormal(rapid.Float64Range(0, 0.6).Draw(t, "sigma")))
	var bursts [][]Flight
	for _, calls := range rapid.SliceOfN(rapid.IntRange(0, 16), 1, 4).Draw(t, "calls") {
		bursts = append(bursts, fly(s, rng, calls))
	}
	for range rapid.IntRange(0, 3).Draw(t, "odd ones") {
		if b := bursts[rng.IntN(len(bursts))]; len(b) > 0 {
			b[rng.IntN(len(b))] = Flight{Sent: time.Duration(rng.Int64N(1e9)), Took: time.Duration(rng.Int64N(1e10)) - time.Second}
		}
	}
	return bursts
}

func TestQueueHasNoMorePlacesThanCalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bursts := anyBursts(t)
		most := 0
		for _, b := range bursts {
			most = max(most, len(b))
		}
		if n, sure := Fit(bursts); n < 0 || n > max(0, most-1) || sure && n == 0 {
			t.Fatalf("%d places, %v, of at most %d calls", n, sure, most)
		}
	})
}

func TestQueueDoesNotDependOnTheOrderOfCalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bursts := anyBursts(t)
		n, sure := Fit(bursts)
		rng := rand.New(rand.NewPCG(9, 9))
		for _, b := range bursts {
			rng.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
		}
		if m, again := Fit(bursts); m != n || again != sure {
			t.Fatalf("%d places, %v; shuffled: %d, %v", n, sure, m, again)
		}
	})
}

func TestQueueDoesNotDependOnTheUnitOfTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bursts := anyBursts(t)
		n, sure := Fit(bursts)
		for _, b := range bursts {
			for i := range b {
				b[i].Sent, b[i].Took = 32*b[i].Sent, 32*b[i].Took
			}
		}
		if m, again := Fit(bursts); m != n || again != sure {
			t.Fatalf("%d places, %v; 32 times slower: %d, %v", n, sure, m, again)
		}
	})
}

// everyOrder is the exact log-likelihood of what a replay estimates: over all ways in which calls can have ended.
func everyOrder(l *law, v *volley, places int, slower []float64) float64 {
	calls := len(v.ended)
	var count func(i int, taken uint) float64
	count = func(i int, taken uint) float64 {
		if i == calls {
			return 1
		}
		sum := 0.0
		for k := range calls {
			start, by := 0.0, 0.0
			if k >= places {
				start = v.ended[k-places]
			}
			if slower != nil {
				by = slower[k]
			}
			if d := v.ended[i] - start; taken>>k&1 == 0 && d > 0 {
				sum += math.Exp(l.logDensity(math.Log(d)-by)) / d * count(i+1, taken|1<<k)
			}
		}
		return sum
	}
	all, _ := math.Lgamma(float64(calls) + 1)
	return math.Log(count(0, 0)) - all
}

func TestReplayIsNearTheLikelihood(t *testing.T) {
	var ls laws
	for _, sigma := range []float64{0.1, 0.3, 0.6} {
		l := ls.of(spreadOf(sigma))
		for places := 1; places <= 7; places++ {
			off, worst := 0.0, 0.0
			const trials = 20
			for seed := range uint64(trials) {
				rng := rand.New(rand.NewPCG(seed, 10))
				s, slower := queueServer(places, 0, lognormal(sigma)), []float64(nil)
				if places == 7 { // all at once, but some are slower
					s, slower = loneServer(lognormal(sigma), laterSlower(0.2)), fit{first: 1, growth: 0.2}.slower(7)
				}
				var burst []Flight
				for _, end := range s(rng, 7) {
					burst = append(burst, Flight{Took: time.Duration(end * 1e9)})
				}
				v := newVolley(burst, 1e9, 0)
				d := v.replay(l, 0, places, slower) - everyOrder(l, &v, places, slower)
				off, worst = off+d/trials, max(worst, math.Abs(d))
			}
			if math.Abs(off) > 0.8 || worst > 2.5 { // a queue is sure from 6 on
				t.Errorf("spread %v, %d places: off by %.2f on average, %.2f at worst", sigma, places, off, worst)
			}
		}
	}
}

func BenchmarkFitQueue(b *testing.B) {
	for _, places := range []int{4, 16, 48} {
		b.Run(fmt.Sprint(places), func(b *testing.B) {
			s, rng := queueServer(places, 0, lognormal(0.2)), rand.New(rand.NewPCG(11, 11))
			var bursts [][]Flight
			for calls := 4; calls <= places; calls *= 2 {
				bursts = append(bursts, fly(s, rng, calls))
			}
			for range 3 {
				bursts = append(bursts, fly(s, rng, min(100, 2*places)))
			}
			for b.Loop() {
				Fit(bursts)
			}
		})
	}
}
