package cli

import (
	"fmt"

	"github.com/sluice-llm/sluice/internal/stress"
)

// load takes in how a run of stress stands.
func (p *stagedProgress) load(at stress.Progress) {
	m := at.Metrics
	p.tell(at.Part, at.Elapsed, loaded(at), stressLine{
		at.Part, at.N, at.Of, at.Elapsed.Milliseconds(), at.Total.Milliseconds(), m.Slots, m.Active, m.Waiting, m.Calls, m.Members,
	})
}

// loaded is how a run stands, in a line.
func loaded(at stress.Progress) string {
	return fmt.Sprintf("%d/%d %s: %s of %s; %s", at.N, at.Of, at.Part, span(at.Elapsed), span(at.Total), at.Metrics)
}

// stressLine is how a run stands, for programs.
type stressLine struct {
	Part      string `json:"part"`
	N         int    `json:"n"`
	Of        int    `json:"of"`
	ElapsedMS int64  `json:"elapsed_ms"`
	TotalMS   int64  `json:"total_ms"`
	Slots     int    `json:"slots"`
	Active    int    `json:"active"`
	Waiting   int    `json:"waiting"`
	Calls     int64  `json:"calls"`
	Members   int    `json:"members"`
}
