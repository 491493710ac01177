package cli

import (
	"fmt"

	"github.com/sluice-llm/sluice/find"
)

// search takes in how a search stands.
func (p *stagedProgress) search(at find.Progress) {
	p.tell(string(at.Phase), at.Elapsed, standing(at), findLine{at.Phase, at.Doing, at.Spent, at.Elapsed.Milliseconds(), at.Low, at.High})
}

// standing is how a search stands, in a line.
func standing(at find.Progress) string {
	text := ""
	if at.High > 0 { // first: terminals may be narrow
		text = fmt.Sprintf("%s to %s; ", group(at.Low), count(at.High, "worker"))
	}
	return text + fmt.Sprintf("%s: %s; %s", at.Phase, at.Doing, spentWords(at.Spent, at.Elapsed))
}

// findLine is how a search stands, for programs.
type findLine struct {
	Phase     find.Phase `json:"phase"`
	Doing     string     `json:"doing"`
	Spent     find.Spent `json:"spent"`
	ElapsedMS int64      `json:"elapsed_ms"`
	Low       int        `json:"low"`
	High      int        `json:"high"`
}
