package proc

import (
	"context"
	"time"
)

// Pace is the part of a lane that spaces commands.
type Pace struct{ lane *lane }

func NewPace(w *Windows) Pace { return Pace{newLane(&Config{PaceWindow: true, Windows: w}, nil)} }

func (p Pace) Pace(ctx context.Context) bool {
	ctx, done := p.lane.starting(ctx)
	defer done()
	return p.lane.pace(ctx)
}
func (p Pace) Next() time.Time { return p.lane.paced() }
func (p Pace) Drain()          { p.lane.drain() }
