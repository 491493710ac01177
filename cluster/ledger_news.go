package cluster

import (
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/limits"
)

// listen has the engine say when a lane should ask, and when one pauses, until the Ledger closes. What is missed while the
// connection is gone is learned by asking.
func (l *Ledger) listen() {
	mine, news := l.account+":wake:"+l.member, l.account+":news"
	for backoff := (wake.Backoff{Min: firstBackoff, Max: lastBackoff}); l.ctx.Err() == nil; {
		_ = l.client.listen(l.ctx, []string{mine, news}, func() {}, func(channel, message string) {
			backoff.Reset()
			if channel == mine {
				l.tell(message, limits.LaneState{}, true)
			} else {
				l.told(message)
			}
		})
		_ = wake.In(l.ctx, backoff.Next(), nil)
	}
}

const pauseNumbers = 7 // of a pause that is told, and the instant; the lane's name follows

// told passes on a pause.
func (l *Ledger) told(text string) {
	parts := strings.SplitN(text, " ", pauseNumbers+1)
	if len(parts) != pauseNumbers+1 {
		return
	}
	now, err := strconv.ParseFloat(parts[pauseNumbers-1], 64)
	if err != nil {
		return
	}
	var r record
	r[fieldPause] = strings.Join(parts[:pauseNumbers-1], " ")
	l.tell(parts[pauseNumbers], readState(&r, now), false)
}
