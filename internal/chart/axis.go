package chart

import (
	"fmt"
	"math"

	"github.com/sluice-llm/sluice/internal/prose"
)

// Axis is one axis of a panel, from Min to Max.
type Axis struct {
	Label    string
	Min, Max float64 // a vertical axis without a Max ends above all marks
	Log      bool    // logarithmic; Min is then above 0
	Whole    bool    // no ticks between whole numbers
	Ticks    []Tick  // default: few round numbers
}

// Tick is a labelled value of an axis.
type Tick struct {
	Value float64
	Label string
}

// share returns how far along the axis a value is, from 0 to 1.
func (a *Axis) share(v float64) float64 {
	low, high := a.Min, a.Max
	if a.Log {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	switch {
	case v >= high:
		return 1
	case v > low: // false for NaN
		return (v - low) / (high - low)
	}
	return 0
}

// tick gives the axis about count ticks, unless it has any.
func (a *Axis) tick(count int) {
	switch {
	case a.Ticks != nil:
	case a.Log:
		a.Ticks = powers(a.Min, a.Max)
	default:
		a.Ticks = Round(a.Min, a.Max, count, a.Whole)
	}
}

// Round returns at most count ticks, and one at low, at round numbers: multiples of 1, 2 or 5 times a power of ten. If whole
// is set, none is between whole numbers.
func Round(low, high float64, count int, whole bool) []Tick {
	step := math.Pow(10, math.Floor(math.Log10(max(high-low, 1e-9))))
	for step*float64(count) > 4*(high-low) {
		step /= 10
	}
	for i := 0; (high-low)/step > float64(count); i++ { // 1, 2, 5, 10, ...
		step *= [3]float64{2, 2.5, 2}[i%3]
	}
	if whole {
		step = max(step, 1)
	}
	var out []Tick
	for i := math.Ceil(low / step); i*step <= high*(1+1e-9); i++ {
		out = append(out, Tick{i * step, label(i * step)})
	}
	return out
}

// powers returns the ticks 1, 2, 5, 10, 20 and so on of a logarithmic axis.
func powers(low, high float64) []Tick {
	var out []Tick
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for _, digit := range [...]float64{1, 2, 5} {
			if at := digit * power; at >= low && at <= high {
				out = append(out, Tick{at, label(at)})
			}
		}
	}
	return out
}

// label writes a number with commas between its thousands, and one that is not whole with at most four digits.
func label(x float64) string {
	if x != math.Trunc(x) {
		return fmt.Sprintf("%.4g", x)
	}
	return prose.Group(x)
}
