package cli

import (
	"fmt"
	"time"

	"github.com/sluice-llm/sluice/internal/stress"
)

// load shows the state of a run of stress.
func (p *stagedProgress) load(at stress.Progress) {
	elapsed, total := time.Duration(at.ElapsedMS)*time.Millisecond, time.Duration(at.TotalMS)*time.Millisecond
	p.tell(at.Part, elapsed, fmt.Sprintf("%d/%d %s: %s of %s; %s", at.N, at.Of, at.Part, span(elapsed), span(total), at.Metrics), at)
}
