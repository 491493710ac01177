package rows_test

import (
	"testing"

	"github.com/sluice-llm/sluice/internal/rows"
)

func TestTheFirstChangedRowIsNamedInAnyOrder(t *testing.T) {
	changed := rows.ChangedError{Path: "items.jsonl"}
	if changed.Err() != nil {
		t.Error("nothing changed, and that is an error")
	}
	for _, line := range []int{40, 3, 30} {
		changed.Add(line, map[bool]string{true: "abc"}[line == 3])
	}
	if got, want := changed.Err().Error(), `items.jsonl line 3: item "abc" differs from the recorded item (and 2 more)`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
