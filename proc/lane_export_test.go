package proc

import (
	"log/slog"
	"time"

	"github.com/sluice-llm/sluice"
)

// Lane is what the tests of limits reach.
type Lane = lane

// NewLane makes a lane.
func NewLane() *Lane { return newLane(&Config{}, slog.New(slog.DiscardHandler)) }

// Ended has it take in a try.
func (l *lane) Ended(started, ended time.Time, o *sluice.Outcome) (another bool) {
	return l.ended(&try{started: started, ended: ended, meaning: Meaning{Kind: o.Kind}}, o)
}
