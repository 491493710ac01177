package plan

import (
	"math"

	"github.com/sluice-llm/sluice/limits"
)

// order is what calls count against a limit, one after the other, and then from the first again. A mean says nothing of a
// file that begins with its longest calls.
type order struct {
	sums []float64 // up to each call; the last is all of them
}

// ordersOf are those of the limits that calls count against differently.
func (p *Plan) ordersOf(o Options) (orders [limits.NumDimensions]*order) {
	if len(p.Workload.Calls) < 2 {
		return orders
	}
	for _, b := range p.Bounds {
		switch b.Dimension {
		case limits.Requests, limits.RequestsPerDay, limits.Concurrency:
			continue
		}
		sums := make([]float64, 1, len(p.Workload.Calls)+1)
		differ, first := false, 0.0
		for i, c := range p.Workload.Calls {
			charged := p.Workload.fill(c).charged(o)[b.Dimension]
			if i == 0 {
				first = charged
			}
			differ = differ || charged != first
			sums = append(sums, sums[i]+charged)
		}
		if differ {
			orders[b.Dimension] = &order{sums}
		}
	}
	return orders
}

// heaviest is the most that so many calls in a row count.
func (o *order) heaviest(calls float64) float64 {
	n := len(o.sums) - 1
	rounds := math.Floor(calls / float64(n))
	rest := calls - rounds*float64(n)
	low := int(rest)
	sum := o.row(low)
	if part := rest - float64(low); part > 1e-9 { // of one more call
		sum += part * (o.row(low+1) - sum)
	}
	return rounds*o.sums[n] + sum
}

// row is the heaviest row of n calls, of which there are at least as many.
func (o *order) row(n int) float64 {
	count := len(o.sums) - 1
	most := 0.0
	for end := 1; end <= count; end++ {
		sum := o.sums[end]
		if begin := end - n; begin >= 0 {
			sum -= o.sums[begin]
		} else { // it began before the end, the last time
			sum += o.sums[count] - o.sums[count+begin]
		}
		most = max(most, sum)
	}
	return most
}

// debt is the most that calls have left behind when another comes, where so much is refilled between any two.
func (o *order) debt(refill float64) float64 {
	level, most := 0.0, 0.0
	for range 2 { // the second time it begins with what the end left behind
		for i := 1; i < len(o.sums); i++ {
			most = max(most, level)
			level = max(0, level+o.sums[i]-o.sums[i-1]-refill)
		}
	}
	return most
}
