package gate_test

import (
	"encoding/json"
	"testing"

	"github.com/sluice-llm/sluice/internal/gate"
)

func TestEveryLimitIsReachedByTheNameThatItHasInFiles(t *testing.T) {
	n := 0
	for d := range new(gate.Limits).All() {
		n++
		var l gate.Limits
		*l.At(d) = 7
		got, err := json.Marshal(l)
		if want := `{"` + d.String() + `":7}`; err != nil || string(got) != want {
			t.Errorf("the limit of %v is %s, %v; want %s", d, got, err, want)
		}
	}
	if n != int(gate.NumDimensions)-1 {
		t.Errorf("%d limits, want %d", n, gate.NumDimensions-1)
	}
	if l := new(gate.Limits); l.At(gate.AnyDimension) != nil || l.At(gate.NumDimensions) != nil {
		t.Error("what is no dimension has a limit")
	}
}
