package stress

import (
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/pool"
)

// Looker looks at a run of one slot as its watch does.
type Looker struct {
	r *run
	p progress
}

// NewLooker returns one. A call of the run waits by itself until backoff.
func NewLooker(backoff time.Time) *Looker {
	return &Looker{r: &run{cfg: Config{Slots: 1}, lane: lane{backoff: backoff}}}
}

// Look says what is stuck.
func (l *Looker) Look(snap sluice.Snapshot, m pool.Metrics) string { return l.p.look(l.r, snap, m) }

// What the table's two ratios are computed by.
var (
	Jain       = jain
	Starvation = starvation
)
