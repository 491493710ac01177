package gateway

import (
	"net/http"
	"sync"
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

	mu    sync.Mutex
	timer *time.Timer
	out   bool // the head
	over  bool
}

// start begins to watch over a call that waits.
func (e *early) start(c *call, after time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.c, e.since = c, time.Now()
	e.timer = time.AfterFunc(after, e.tell)
}

// stop ends it. From then on the client's connection is the caller's.
func (e *early) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if e.timer != nil {
		e.timer.Stop()
	}
}

// begun reports whether the client got its head. It is asked after stop.
func (e *early) begun() bool { return e.out }

func (e *early) tell() {
	e.mu.Lock()
	defer e.mu.Unlock()
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
