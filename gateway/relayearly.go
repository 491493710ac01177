package gateway

import (
	"net/http"
	"time"
)

// keepAlive is how often a client that has its head, but nothing more yet, is told that it is not forgotten.
const keepAlive = 10 * time.Second

// waiting is a comment of a stream of events. It has no blank line behind it: there are SDKs that take that for an event.
const waiting = ": waiting\n"

// early answers a stream with its head and comments while there is no answer yet: clients and proxies give up on a
// connection that stays silent. The zero value does nothing.
type early struct {
	c     *call
	since time.Time

	turn  chan struct{} // full while one of them has what follows, and the client's connection: for as long as a slow client takes
	timer *time.Timer
	out   bool // the head
	over  bool
}

// start begins to watch over a call that waits.
func (e *early) start(c *call, after time.Duration) {
	e.c, e.since, e.turn = c, time.Now(), make(chan struct{}, 1)
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	e.timer = time.AfterFunc(after, e.tell)
}

// stop ends it. From then on the client's connection is the caller's.
func (e *early) stop() {
	if e.turn == nil {
		return
	}
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	e.over = true
	e.timer.Stop()
}

// begun reports whether the client got its head. It is asked after stop.
func (e *early) begun() bool { return e.out }

func (e *early) tell() {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	if e.over {
		return
	}
	w := e.c.w
	e.c.to.renew()
	if !e.out {
		e.out = true
		h := w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		setWaited(h, time.Since(e.since)) // so far
		w.WriteHeader(http.StatusOK)
	}
	if _, err := w.Write([]byte(waiting)); err != nil || e.c.to.flush() != nil {
		return // the client is gone, which ends the call
	}
	e.timer.Reset(keepAlive)
}
