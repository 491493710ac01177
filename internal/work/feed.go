package work

import (
	"context"
	"fmt"

	"github.com/sluice-llm/sluice/internal/wake"
)

// feed takes items in and puts them into their lanes' queues until there are none, or the run halts. It is the only
// goroutine that knows the lanes.
func (r *Runner) feed() error {
	if r.cfg.Feed != nil && r.wait.Err() == nil {
		for item, err := range r.cfg.Feed(context.WithValue(r.wait, placeKey{}, r)) {
			if err != nil {
				return err
			}
			if r.wait.Err() != nil {
				return nil
			}
			if item.Given == nil {
				if err := r.prepare(); err != nil {
					return err
				}
			}
			r.taken.Add(1)
			if !r.put(item) {
				return nil
			}
		}
	}
	if r.wait.Err() != nil {
		return nil
	}
	r.tally.fed.Store(true)
	return r.placeParked()
}

// put gives an item to its lane, now or later. It says false when the run halts first.
func (r *Runner) put(item Item) bool {
	l := r.laneOf(item)
	for {
		if r.wait.Err() != nil {
			return false
		}
		if err := r.unpark(); err != nil {
			r.halt(err)
			return false
		}
		if !l.full() && r.fits(l, item) {
			r.hand(l, item)
			return true
		}
		if r.cfg.Reload != nil && item.Ref >= 0 && r.othersHungry(l) { // no room for it, in count or in bytes
			l.parked = append(l.parked, place{item.Seq, item.Ref})
			return true
		}
		if !r.awaitRoom() {
			return false
		}
	}
}

// hand puts an item into a queue that has room.
func (r *Runner) hand(l *lane, item Item) {
	r.queuedBytes.Add(int64(item.Size))
	l.bytes.Add(int64(item.Size))
	l.items <- item // only this goroutine sends, and there is room
	l.grow()
}

// fits says whether the item's bytes may wait too. One item of each lane always may: a lane that pauses would else keep
// the others' items out with its own.
func (r *Runner) fits(l *lane, item Item) bool {
	return l.bytes.Load() == 0 || r.queuedBytes.Load()+int64(item.Size) <= r.cfg.QueueBytes
}

// tookOut is told by workers of what leaves a queue.
func (r *Runner) tookOut(l *lane, item Item) {
	l.bytes.Add(-int64(item.Size))
	r.queuedBytes.Add(-int64(item.Size))
	wake.Up(r.room)
}

// awaitRoom waits until something left a queue.
func (r *Runner) awaitRoom() bool {
	select {
	case <-r.room:
		return true
	case <-r.wait.Done():
		return false
	}
}

func (r *Runner) laneOf(item Item) *lane {
	key := laneKey{item.Lane, item.Given != nil}
	l := r.queues[key]
	if l == nil {
		l = &lane{runner: r, items: make(chan Item, r.cfg.Queue)}
		r.queues[key] = l
		r.lanes[item.Lane] = true
	}
	return l
}

// othersHungry says whether another lane may run dry while this one is full, so that reading on is worth it.
func (r *Runner) othersHungry(full *lane) bool {
	if len(r.lanes) < r.cfg.Lanes {
		return true // one that was not met yet
	}
	for _, l := range r.queues {
		if l != full && l.hungry() {
			return true
		}
	}
	return false
}

// unpark reads items again that were put aside, for the lanes that have room.
func (r *Runner) unpark() error {
	for _, l := range r.queues {
		for len(l.parked) > 0 && len(l.items) < cap(l.items) {
			item, err := r.reload(l.parked[0])
			if err != nil {
				return err
			}
			if !r.fits(l, item) {
				break
			}
			l.parked = l.parked[1:]
			r.hand(l, item)
		}
	}
	return nil
}

// reload reads an item again.
func (r *Runner) reload(at place) (Item, error) {
	item, err := r.cfg.Reload(at.seq, at.ref)
	if err != nil {
		return Item{}, fmt.Errorf("an item cannot be read again: %w", err)
	}
	item.Again = item.Again || r.again
	return item, nil
}

// placeParked waits until all items that were put aside are in their queues.
func (r *Runner) placeParked() error {
	for {
		if err := r.unpark(); err != nil {
			return err
		}
		left := false
		for _, l := range r.queues {
			left = left || len(l.parked) > 0
		}
		if !left || !r.awaitRoom() {
			return nil
		}
	}
}
