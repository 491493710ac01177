package batch

import (
	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/provider"
)

// How much of an answer that was refused, and of what is wrong with it, is sent back to the model.
const (
	mostAnswerBack = 32 << 10
	mostErrorBack  = 1 << 10
)

// correct makes the next attempt's request: the one of the line, the model's last answer, and what is wrong with it.
// Earlier answers are left out, so that a request does not grow with every attempt. Where the conversation cannot go on,
// the request stays as it is.
func (c *call) correct(answer []byte, wrong error) {
	if c.line == nil {
		line := *c
		c.line = &line
	}
	text := ""
	if replies := provider.Replies(answer); len(replies) > 0 {
		text = replies[0].Content()
	}
	user := "Your answer was not accepted: " + prose.Clip(wrong.Error(), mostErrorBack) +
		"\nAnswer again, in full, with this corrected, and say nothing about the correction."
	if body, ok := provider.AppendTurns(c.line.body, c.endpoint, prose.Clip(text, mostAnswerBack), user); ok {
		c.body = body
	}
}

// cost is what an attempt will use, of which its reservation knows only what the line's request would.
func (c *call) cost(ofLine sluice.Cost) sluice.Cost {
	if c.line == nil {
		return ofLine
	}
	if est, err := provider.Estimate(c.endpoint, c.body); err == nil {
		return est.Cost
	}
	return ofLine
}
