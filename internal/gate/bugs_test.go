//go:build bugs

package gate_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// Each of these is red for a defect that stands at the time of writing. It loses its build tag with the fix.

func TestAMeasuredRateDoesNotGrowWithoutEnd(t *testing.T) {
	r := newRig(t, gate.Config{Limits: told})
	one := func(every time.Duration, o gate.Outcome) {
		w := r.queue(gate.Call{})
		r.sleep(every)
		for !w.Granted() {
			r.sleep(time.Second)
		}
		r.release(w, o)
	}
	one(10*time.Millisecond, bare)
	for range 40 { // ten a second, until a refusal comes again
		one(100*time.Millisecond, gate.Outcome{})
	}
	one(10*time.Millisecond, bare)
	measured := r.budget(gate.Requests)
	if measured.Source != gate.SourceMeasured {
		t.Fatalf("%+v: nothing was measured", measured)
	}
	for range 8 * 3600 { // one call a second puts no such rate to the test
		one(time.Second, gate.Outcome{})
	}
	if b := r.budget(gate.Requests); b.Limit < 0 || b.Limit > 100*measured.Limit {
		t.Fatalf("measured were %d a minute; after eight quiet hours %d are believed", measured.Limit, b.Limit)
	}
}
