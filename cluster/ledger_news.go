package cluster

import (
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/internal/gate"
)

// listen has the engine say when a lane should ask, and when one pauses, until the Ledger closes. What is missed while the
// connection is gone is learned by asking.
func (l *Ledger) listen() {
	wake, news := l.account+":wake:"+l.member, l.account+":news"
	for backoff := firstBackoff; l.ctx.Err() == nil; backoff = min(2*backoff, lastBackoff) {
		_ = l.client.listen(l.ctx, []string{wake, news}, func() {}, func(channel, message string) {
			backoff = firstBackoff
			if channel == wake {
				l.tell(message, gate.News{}, true)
			} else {
				l.told(message)
			}
		})
		_ = sleep(l.ctx, backoff)
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
	l.tell(parts[pauseNumbers], readNews(&r, now), false)
}
