package errtext_test

import (
	"strconv"
	"testing"

	"github.com/sluice-llm/sluice/internal/errtext"
)

func TestEveryRowDecidesItsExample(t *testing.T) {
	for name, example := range errtext.Rows() {
		status := 0
		if n, err := strconv.Atoi(example[:min(3, len(example))]); err == nil {
			status, example = n, example[4:]
		}
		if d, ok := errtext.Read([]byte(example), nil).Decide(status); !ok || d.Name != name {
			t.Errorf("%s: %d %s is of row %+v", name, status, example, d.Pattern)
		}
	}
}
