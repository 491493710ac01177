package proc_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/proc"
)

func TestPausesWithoutAHintGrowToFiveMinutes(t *testing.T) {
	var b proc.Backoff
	now := noon
	for i, want := range []int{60, 120, 240, 300, 300} {
		until := b.Limited(now, now)
		if got := until.Sub(now); got != time.Duration(want)*time.Second {
			t.Errorf("pause %d is of %v, want %d s", i, got, want)
		}
		// Those in flight meet the same limit, however late they say so.
		for _, late := range []time.Duration{time.Second, time.Hour} {
			if again := b.Limited(now.Add(-time.Minute), now.Add(late)); !again.Equal(until) {
				t.Errorf("the same limit again: %v, want %v", again, until)
			}
		}
		b.Succeeded(now.Add(-time.Second)) // and tell nothing of what comes after
		now = until
	}
	b.Succeeded(now)
	if until := b.Limited(now, now); until.Sub(now) != time.Minute {
		t.Errorf("after a success the first pause is of %v", until.Sub(now))
	}
}
