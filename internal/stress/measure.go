package stress

import (
	"slices"
	"time"
)

// leastCalls is how many calls equal members must have made on average for their shares to say something.
const leastCalls = 8

// fairness takes in how evenly equal members got calls through.
func (s *step) fairness(agents []*agent) {
	counts := make([]float64, 0, len(agents))
	sum := 0.0
	for _, a := range agents {
		n := float64(a.done.Load() - a.before)
		counts = append(counts, n)
		sum += n
	}
	if len(agents) < 2 || sum < leastCalls*float64(len(agents)) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jain = append(s.jain, jain(counts))
}

// jain is the fairness index of what each got: 1 where all got the same, 1/n where one got all. It is 1 of nothing.
func jain(got []float64) float64 {
	var sum, squares float64
	for _, x := range got {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(got)) * squares)
}

// leastWaits is how many waits there must be for the longest to say something.
const leastWaits = 20

// starvation is the longest wait as a multiple of the median; ok is false of few waits.
func starvation(waits []time.Duration) (ratio float64, ok bool) {
	if len(waits) < leastWaits {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(waits))
	return float64(sorted[len(sorted)-1]) / float64(sorted[len(sorted)/2]), true
}
