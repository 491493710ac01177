package worlds

import (
	"encoding/json"
	"math"
	"reflect"
)

// Shrink returns the simplest world it finds in which fails still holds: it removes parts, and makes numbers smaller and
// rounder, field by field, until no such step is left.
func Shrink(w *World, fails func(*World) bool) *World {
	best, progress := w, false
	for i := 0; ; {
		c := best.clone()
		steps := simplifications(reflect.ValueOf(c).Elem(), nil)
		switch {
		case i < len(steps):
			steps[i]()
			if c.valid() && c.Line() != best.Line() && fails(c) {
				best, progress = c, true
			} else {
				i++
			}
		case progress:
			i, progress = 0, false
		default:
			return best
		}
	}
}

func (w *World) clone() *World {
	out := new(World)
	if err := json.Unmarshal([]byte(w.Line()), out); err != nil {
		panic(err) // Line writes nothing else
	}
	return out
}

// valid reports whether a world can be played.
func (w *World) valid() bool {
	if w.Load.Items < 1 || w.Lanes < 1 || w.Serve.Latency <= 0 {
		return false
	}
	for _, l := range w.limits() {
		if l.N <= 0 || l.Dim == "" || l.Dim != Concurrency && l.Burst <= 0 {
			return false
		}
	}
	for _, l := range w.Config.Limits {
		if l.N <= 0 || l.Dim == "" {
			return false
		}
	}
	for _, c := range w.Changes {
		if c.Factor <= 0 {
			return false
		}
	}
	for _, s := range w.Storms {
		if s.Status == 0 {
			return false
		}
	}
	return true
}

// simplifications appends the steps that make one part of v simpler.
func simplifications(v reflect.Value, steps []func()) []func() {
	if v.IsZero() {
		return steps
	}
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() != reflect.TypeFor[World]() {
			steps = append(steps, v.SetZero)
		}
		for i := range v.NumField() {
			steps = simplifications(v.Field(i), steps)
		}
	case reflect.Slice:
		for i := range v.Len() {
			steps = append(steps, func() { v.Set(reflect.AppendSlice(v.Slice3(0, i, i), v.Slice(i+1, v.Len()))) })
			steps = simplifications(v.Index(i), steps)
		}
	case reflect.Int, reflect.Uint64:
		for _, part := range []float64{0, 0.5, 0.9} {
			steps = append(steps, func() { v.Set(reflect.ValueOf(int64(part * intOf(v))).Convert(v.Type())) })
		}
	case reflect.Float64:
		x := v.Float()
		digit := math.Pow(10, math.Floor(math.Log10(math.Abs(x))))
		for _, y := range []float64{0, 1, math.Round(x/digit) * digit, math.Round(x/digit*10) * digit / 10} {
			steps = append(steps, func() { v.SetFloat(y) })
		}
	default:
		steps = append(steps, v.SetZero)
	}
	return steps
}

func intOf(v reflect.Value) float64 {
	if v.CanUint() {
		return float64(v.Uint())
	}
	return float64(v.Int())
}
