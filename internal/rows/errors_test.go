package rows_test

import (
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/rows"
)

func TestTheFirstLinesThatChangedAreNamedInWhateverOrderTheyCome(t *testing.T) {
	changed := rows.ChangedError{Path: "items.jsonl"}
	if changed.Err() != nil {
		t.Error("nothing changed, and that is an error")
	}
	for _, line := range []int{40, 3, 30, 8, 1, 7, 12, 5, 50, 4, 9, 2, 60, 6} {
		changed.Add(line, strings.Repeat("i", line))
	}
	lines := strings.Split(changed.Err().Error(), "\n")
	if len(lines) != 11 || lines[10] != "and 4 more" {
		t.Fatalf("%q", lines)
	}
	for i, want := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 12} {
		if changed.Lines[i] != want || len(changed.IDs[i]) != want {
			t.Errorf("line %d with id %q at %d, want line %d", changed.Lines[i], changed.IDs[i], i, want)
		}
	}
	if want := `items.jsonl line 3: item "iii" is not the one that was recorded`; lines[2] != want {
		t.Errorf("%q, want %q", lines[2], want)
	}
}
