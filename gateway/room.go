package gateway

import (
	"errors"
	"sync"
	"time"
)

// errNoRoom is the error of a request body for which there is no room.
var errNoRoom = errors.New("the bodies of other requests take all the room")

// leastFile is how many bytes of the room on disk a file takes at least, since it takes a file descriptor as well.
const leastFile = 1 << 20

// place is where bodies are kept.
type place uint8

const (
	inMemory place = iota
	onDisk
	places
)

// rooms count the bytes that the bodies of all requests take. A tenant gets no more than is free beside: so one of them gets half of
// the room at most, and several that take all they can leave room for another.
type rooms struct {
	mu    sync.Mutex
	taken [places]int64
	told  time.Time // when the log was told last that a body could not be kept
}

// tells reports whether the log is to be told that a body could not be kept: once a minute, as a full disk meets every request.
func (r *rooms) tells() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.told) >= time.Minute {
		r.told = now
		return true
	}
	return false
}

// reservation is the part of the rooms that one body takes. It is used by one goroutine at a time.
type reservation struct {
	of     *rooms
	tenant *[places]int64 // bytes that bodies of its tenant take; guarded by of.mu
	totals [places]int64  // the size of the rooms
	own    [places]int64
}

// grow makes the reservation at least that large. It fails with errNoRoom.
func (r *reservation) grow(at place, size int64) error {
	more := size - r.own[at]
	if more <= 0 {
		return nil
	}
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	if r.tenant[at]+more > r.totals[at]-r.of.taken[at] {
		return errNoRoom
	}
	r.add(at, more)
	return nil
}

// release gives back what the body takes at a place.
func (r *reservation) release(at place) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.add(at, -r.own[at])
}

func (r *reservation) add(at place, n int64) {
	r.own[at] += n
	r.tenant[at] += n
	r.of.taken[at] += n
}
