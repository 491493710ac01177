package sluice_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// ledgerDouble is a shared ledger as seen over a network: it answers late, may refuse a suffix, and may lose a reply
// after it has done what it was asked. It is idempotent by ID, as a Ledger has to be.
type ledgerDouble struct {
	take, settle, correct time.Duration // how long each takes
	lose                  float64       // part of the replies that are lost
	cut                   float64       // part of the asks of which only a prefix is looked at

	mu       sync.Mutex
	luck     *rand.Rand
	shared   gate.Shared
	open     map[string]map[uint64]bool // calls, by lane
	replies  map[uint64]limits.Reply
	done     map[uint64]bool
	taken    int // asks granted
	charged  map[uint64]int
	returned int
	takes    map[string]int // of a lane under way at once
	overlaps int
}

var errLost = errors.New("reply lost")

func newLedgerDouble(seed uint64) *ledgerDouble {
	const late = 5 * time.Millisecond
	return &ledgerDouble{take: late, settle: late, correct: late, luck: rand.New(rand.NewPCG(seed, 1)),
		replies: make(map[uint64]limits.Reply), done: make(map[uint64]bool), charged: make(map[uint64]int), open: make(map[string]map[uint64]bool), takes: make(map[string]int)}
}

func (l *ledgerDouble) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *ledgerDouble) lostLocked() error {
	if l.luck.Float64() < l.lose {
		return errLost
	}
	return nil
}

func (l *ledgerDouble) Take(ctx context.Context, all limits.Asks) (limits.Reply, error) {
	lane, asks := all.Lane, all.Calls
	l.mu.Lock()
	if l.takes[lane]++; l.takes[lane] > 1 {
		l.overlaps++
	}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.takes[lane]--
		l.mu.Unlock()
	}()
	if err := l.wait(ctx, l.take); err != nil {
		return limits.Reply{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.replies[asks[0].ID]; ok {
		return r, l.lostLocked()
	}
	some := asks
	if l.luck.Float64() < l.cut {
		some = asks[:l.luck.IntN(len(asks)+1)]
	}
	if l.open[lane] == nil {
		l.open[lane] = make(map[uint64]bool)
	}
	r, _ := l.shared.Exchange(time.Now(), "", &gate.Batch{Lane: lane, Renewed: l.renewed(lane), Waiting: all.Waiting, Asks: some})
	if r.Granted < len(asks) && r.Wait == 0 {
		r.Wait, r.Bound = 3*time.Millisecond, limits.Requests
	}
	for _, a := range asks[:r.Granted] {
		l.taken++
		l.charged[a.ID]++
		l.open[lane][a.ID] = true
	}
	if err := l.lostLocked(); err != nil {
		l.replies[asks[0].ID] = r
		return limits.Reply{}, err
	}
	return r, nil
}

func (l *ledgerDouble) Settle(ctx context.Context, s limits.Settlement) error {
	if err := l.wait(ctx, l.settle); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.done[s.ID] {
		l.shared.Exchange(time.Now(), "", &gate.Batch{Lane: s.Lane, Renewed: l.renewed(s.Lane), Settlements: []limits.Settlement{s}})
		if !s.Open {
			l.done[s.ID] = true
			l.returned++
			delete(l.open[s.Lane], s.ID)
		}
	}
	return l.lostLocked()
}

func (l *ledgerDouble) Correct(ctx context.Context, c limits.Correction) error {
	if err := l.wait(ctx, l.correct); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.done[c.ID] {
		l.done[c.ID] = true
		l.shared.Exchange(time.Now(), "", &gate.Batch{Lane: c.Lane, Renewed: l.renewed(c.Lane), Corrections: []limits.Correction{c}})
	}
	return l.lostLocked()
}

func (l *ledgerDouble) Watch(func(string, limits.LaneState, bool)) (stop func()) { return func() {} }

// renewed is the calls of a lane that are open.
func (l *ledgerDouble) renewed(lane string) []uint64 { return slices.Sorted(maps.Keys(l.open[lane])) }

// counts is how many calls were granted, and how many were given back.
func (l *ledgerDouble) counts() (taken, returned int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken, l.returned
}
