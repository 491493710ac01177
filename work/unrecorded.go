package work

import "sync"

// unrecorded makes a call count as open until its result is in the journal, although its permit is given back earlier:
// a slow disk holds new calls back, and so a kill costs no more calls than may be open. The zero value is ready.
type unrecorded struct {
	mu      sync.Mutex
	changed sync.Cond // L is set by the first use
	permits int       // held
	sent    int       // of those, with their call open
	waiting int       // answers that are not recorded yet
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

// answered says that a call is over. If its answer is good, it waits to be recorded.
func (u *unrecorded) answered(good bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.permits--
	u.sent--
	if good {
		u.waiting++
	}
}

// recorded says that an answer is in the journal, or never will be.
func (u *unrecorded) recorded() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waiting--
	if u.changed.L != nil {
		u.changed.Signal()
	}
}
