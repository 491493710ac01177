package work_test

import (
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
