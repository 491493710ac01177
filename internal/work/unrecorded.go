package work

import "sync"

// unrecorded makes a call count as open until its result is in the journal and told of, although its permit is given back
// earlier: a slow disk holds new calls back, so that a kill costs no more calls than may be open, and who stops a run for what
// came of a call does so before another is sent in its place. The zero value is ready.
type unrecorded struct {
	mu      sync.Mutex
	changed sync.Cond // L is set by the first use
	permits int       // held
	sent    int       // of those, with their call open
	waiting int       // calls with their last answer, which is not recorded yet
}

// send waits until a call that has its permit may be sent. There is no deadlock: once all answers are recorded, it may,
// because its own permit is held and not sent.
func (u *unrecorded) send() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.changed.L == nil {
		u.changed.L = &u.mu
	}
	u.permits++
	if u.permits > 1 {
		u.changed.Signal() // one more may be open now, whoever it is
	}
	for u.sent+u.waiting >= u.permits {
		u.changed.Wait()
	}
	u.sent++
}

// answered says that a try of a call is over. If it was the last, its result waits to be recorded.
func (u *unrecorded) answered(last bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.permits--
	u.sent--
	if last {
		u.waiting++
	}
}

// recorded says that a result is in the journal, or never will be.
func (u *unrecorded) recorded() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waiting--
	if u.changed.L != nil {
		u.changed.Signal()
	}
}
