package runinfo

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

func TestRejectionsAreReportedOnceTheyPileUp(t *testing.T) {
	for _, tt := range []struct {
		name     string
		every    int           // one of this number of requests is rejected
		interval time.Duration // between requests
		want     int           // requests until the report; 0: none
	}{
		{"a few", 10, time.Millisecond, 0},
		{"many", 5, time.Millisecond, 50},
		{"many, but slowly", 5, 2 * time.Second, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r laneNotes
			at, got := time.Now(), []int(nil)
			for n := 1; n <= 200; n++ {
				e := sluice.Event{Type: limits.EventSlotReleased, Lane: "m", At: at.Add(time.Duration(n) * tt.interval)}
				if n%tt.every == 0 {
					e.Outcome.Kind = sluice.RateLimit
				}
				if r.observe(&e) != "" {
					got = append(got, n)
				}
			}
			if tt.want == 0 && got != nil || tt.want > 0 && (len(got) != 1 || got[0] != tt.want) {
				t.Errorf("reported after %v requests, want %d", got, tt.want)
			}
		})
	}
}

func TestNoNextAttemptIsAnnouncedOfAHostThatNothingReached(t *testing.T) {
	none := func(string) string { return "" }
	n := Notices{Foreign: none, Label: func(_, lane string) string { return lane }}
	breaker := sluice.Event{Type: limits.EventBreaker, Lane: "m", At: time.Now(), Until: time.Now().Add(time.Minute)}
	refused := sluice.Outcome{Kind: sluice.Network, Unsent: true, Err: errors.New("refused")}
	failed := sluice.Event{Type: limits.EventSlotReleased, Lane: "m", Outcome: refused}
	if lines := append(n.Lines(failed), n.Lines(breaker)...); lines != nil {
		t.Errorf("got %q", lines)
	}
	failed.Outcome.Unsent = false
	n.Lines(failed)
	text := strings.Join(n.Lines(breaker), "\n")
	if !strings.HasPrefix(text, "sluice: m: keeps failing") || !strings.HasSuffix(text, ": refused") {
		t.Errorf("got %q", text)
	}
}
