package gateway

import (
	"errors"
	"sync"
)

// errNoRoom is the error of a request body for which there is no room.
var errNoRoom = errors.New("the bodies of other requests use all the memory for request bodies")

// rooms counts the bytes that the bodies of all requests take. A tenant gets no more than is free beside: so one of them gets half of
// the room at most, and several that take all they can leave room for another.
type rooms struct {
	mu    sync.Mutex
	taken int64
}

// reservation is the part of the room that one body takes. It is used by one goroutine at a time.
type reservation struct {
	of     *rooms
	tenant *int64 // bytes that bodies of its tenant take; guarded by of.mu
	total  int64  // the size of the room
	own    int64
}

// grow makes the reservation at least that large. It fails with errNoRoom.
func (r *reservation) grow(size int64) error {
	more := size - r.own
	if more <= 0 {
		return nil
	}
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	if *r.tenant+more > r.total-r.of.taken {
		return errNoRoom
	}
	r.addLocked(more)
	return nil
}

// release gives back what the body takes.
func (r *reservation) release() {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.addLocked(-r.own)
}

func (r *reservation) addLocked(n int64) {
	r.own += n
	*r.tenant += n
	r.of.taken += n
}
