package work_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

func TestRetryableCountsTransientAndUnknownFailuresAndRejectionsForALimit(t *testing.T) {
	kinds := map[sluice.Kind]int{
		sluice.OK: 1, sluice.BadRequest: 2, sluice.Auth: 4, // not these
		sluice.UsageWindow: 8, sluice.CommandFailed: 16, work.UnknownKind: 32,
	}
	if n := work.Retryable(kinds); n != 8+16+32 {
		t.Errorf("%d items", n)
	}
}

func TestTheStateOfAKilledRunCatchesUpWithItsJournal(t *testing.T) {
	earlier := work.Figures{Runs: 2, Attempts: 9, WallMS: 5}
	s := work.State{Offset: 4, Counts: work.Counts{Total: 9, Done: 3}, Figures: earlier, Last: work.LastRun{Done: 1, Figures: work.Figures{Attempts: 1}}}
	journal := strings.NewReader("old\ncounted\nok\nno\nok\ntorn")
	err := s.CatchUp(journal, func(line []byte) work.LastRun {
		one := work.LastRun{Done: 1, Figures: work.Figures{Attempts: 2, Cost: .5, Tokens: work.Tokens{InputTokens: 3}}}
		if string(line) == "no" {
			one.Done, one.Failed = 0, 1
		}
		return one
	})
	want := work.State{
		Offset: 4, Counts: work.Counts{Total: 9, Done: 5, Failed: 1}, Figures: work.Figures{Runs: 2, Attempts: 15, WallMS: 5, Cost: 1.5, Tokens: work.Tokens{InputTokens: 9}},
		Last: work.LastRun{Done: 3, Failed: 1, Figures: work.Figures{Attempts: 7, Cost: 1.5, Tokens: work.Tokens{InputTokens: 9}}},
	}
	if err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("%v: %+v, want %+v", err, s, want)
	}
}
