package gate_test

import (
	"encoding/json"
	"testing"

	"github.com/sluice-llm/sluice/limits"
)

func TestEveryLimitIsReachedByTheNameThatItHasInFiles(t *testing.T) {
	n := 0
	for d := range new(limits.Limits).All() {
		n++
		var l limits.Limits
		*l.At(d) = 7
		got, err := json.Marshal(l)
		if want := `{"` + d.String() + `":7}`; err != nil || string(got) != want {
			t.Errorf("the limit of %v is %s, %v; want %s", d, got, err, want)
		}
	}
	if n != int(limits.NumDimensions)-1 {
		t.Errorf("%d limits, want %d", n, limits.NumDimensions-1)
	}
	if l := new(limits.Limits); l.At(limits.AnyDimension) != nil || l.At(limits.NumDimensions) != nil {
		t.Error("what is no dimension has a limit")
	}
}
