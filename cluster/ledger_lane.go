package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/limits"
)

// errLate is a reply that came so late that its permits may be over.
var errLate = errors.New("the response of Redis arrived too late")

// lane is what a Ledger has to say of one lane, and what it remembers of it. At most one message of it is under way.
type lane struct {
	name  string
	keys  []string
	turn  chan struct{} // has room for one: whose message is under way
	pokes chan struct{} // has room for one

	// Guarded by the Ledger's mu:
	corrections []fix
	settlements []settlement
	since       time.Time       // when the oldest of them came
	open        map[uint64]bool // calls that were granted and are not settled
	renewing    []uint64        // those of them whose leases are being renewed
	renewed     time.Time
	outage      *outage // that the engine has still to hear of
	contended   bool    // somebody waits for slots
	memory      memory
	guarded     [limits.NumDimensions]bool // by a configured limit
}

// settlement is one, and when it was made: until it is heard, the request's age grows.
type settlement struct {
	limits.Settlement
	at time.Time
}

func (s settlement) asOf(now time.Time) limits.Settlement {
	s.Age += now.Sub(s.at)
	return s.Settlement
}

// fix is a correction, and when it was made: what it says is left of a pause becomes less until it is heard.
type fix struct {
	limits.Correction
	at time.Time
}

// asOf is the correction as it is to be said now.
func (f fix) asOf(now time.Time) limits.Correction {
	f.Pause.Left -= now.Sub(f.at)
	f.Slots.Left -= now.Sub(f.at)
	if f.Left != 0 {
		f.Left -= now.Sub(f.at)
	}
	return f.Correction
}

// lane returns the named lane, which is tended from its first use on.
func (l *Ledger) lane(name string) (*lane, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.lanes[name]
	if ln != nil {
		return ln, nil
	}
	if l.closing {
		return nil, ErrClosed
	}
	ln = newLane(l.account, name)
	l.lanes[name] = ln
	l.wg.Go(func() { l.tend(ln) })
	return ln, nil
}

// Where the keys are that have a member's place.
const keyWaiting, keyServed = 3, 6

func newLane(account, name string) *lane {
	of := account + ":lane:" + name + ":"
	return &lane{name: name, turn: make(chan struct{}, 1), pokes: make(chan struct{}, 1), open: make(map[uint64]bool),
		keys: []string{of + "state", of + "leases", of + "probes", of + "waiting", of + "order", of + "idle", of + "served",
			account + ":account", account + ":leases", account + ":members", account + ":ranks", account + ":outages", of + "weights"}}
}

// sortedLocked is the lanes by name.
func (l *Ledger) sortedLocked() []*lane {
	out := make([]*lane, 0, len(l.lanes))
	for _, name := range slices.Sorted(maps.Keys(l.lanes)) {
		out = append(out, l.lanes[name])
	}
	return out
}

func (ln *lane) hold(ctx context.Context) error {
	select {
	case ln.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (ln *lane) free() { <-ln.turn }

// tend says what no ask has carried in time, and renews leases.
func (l *Ledger) tend(ln *lane) {
	timer := time.NewTimer(gate.Heartbeat)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ln.pokes:
		case <-l.ctx.Done():
			return
		}
		wait := l.due(ln)
		if wait <= 0 && l.await(l.ctx, l.answersLocked) == nil {
			_ = l.flush(l.ctx, ln) // the breaker says what is wrong, and what is pending stays so
			wait = l.due(ln)
		}
		timer.Reset(max(wait, time.Millisecond))
	}
}

// due is how long until the lane has something to say by itself.
func (l *Ledger) due(ln *lane) time.Duration {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := gate.Heartbeat - now.Sub(l.said)
	if len(ln.open) > 0 {
		wait = min(wait, gate.Heartbeat-now.Sub(ln.renewed))
	}
	if len(ln.corrections)+len(ln.settlements) == 0 {
		return wait
	}
	if l.closing || ln.contended && len(ln.settlements) > 0 {
		return 0
	}
	return min(wait, lateSettle-now.Sub(ln.since))
}

// pendLocked notes that something is to be said.
func (ln *lane) pendLocked() {
	if len(ln.corrections)+len(ln.settlements) == 0 {
		ln.since = time.Now()
	}
}

// flush says what is pending, if an ask did not carry it meanwhile.
func (l *Ledger) flush(ctx context.Context, ln *lane) error {
	if err := ln.hold(ctx); err != nil {
		return err
	}
	defer ln.free()
	if l.due(ln) > 0 {
		return nil
	}
	_, err := l.exchange(ctx, ln, nil)
	return err
}

// exchange says what is pending, in as many messages as it takes; asks go with the last. Who calls it has the lane's turn. What
// was not heard stays pending: saying it twice changes nothing.
func (l *Ledger) exchange(ctx context.Context, ln *lane, asks *limits.Asks) (limits.Reply, error) {
	for {
		m, more := l.compose(ln)
		if !more && asks != nil {
			m.waiting, m.asks, m.test = asks.Waiting, asks.Calls, asks.Test
		}
		began := time.Now()
		a, err := l.send(ctx, ln, m)
		if err != nil {
			return limits.Reply{}, err
		}
		// Also by a clock that runs while a host sleeps.
		late := max(time.Since(began), time.Now().Round(0).Sub(began.Round(0))) > oldestReply
		l.hear(ln, m, a, began, late)
		switch {
		case late:
			return limits.Reply{}, errLate
		case !more:
			return a.Reply, nil
		}
	}
}

// compose puts what is pending into a message, and reports whether there is more.
func (l *Ledger) compose(ln *lane) (m *message, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if len(ln.renewing) == 0 && len(ln.open) > 0 && now.Sub(ln.renewed) >= gate.Heartbeat/2 {
		ln.renewing, ln.renewed = slices.Collect(maps.Keys(ln.open)), now
	}
	ln.renewing = slices.DeleteFunc(ln.renewing, func(id uint64) bool { return !ln.open[id] })
	if l.gone {
		l.thinLocked(ln)
	}
	l.sent++
	m = &message{number: l.sent, outage: l.confessLocked(ln), member: l.member, account: l.account, lane: ln.name,
		knows: ln.memory.record, knowsAll: l.memory.record, renewed: first(ln.renewing)}
	for d := range m.guarded {
		m.guarded[d] = ln.guarded[d] || l.guarded[d]
	}
	for _, s := range first(ln.settlements) {
		m.settlements = append(m.settlements, s.asOf(now))
	}
	for _, f := range first(ln.corrections) {
		m.corrections = append(m.corrections, f.asOf(now))
	}
	more = len(m.corrections) < len(ln.corrections) || len(m.settlements) < len(ln.settlements) || len(m.renewed) < len(ln.renewing)
	return m, more
}

// first is as many as go into one message.
func first[T any](s []T) []T { return slices.Clip(s[:min(len(s), mostOfAKind)]) }

// thinLocked forgets the oldest corrections of budgets where there are too many. Those of slots and of pauses count from one to the
// next: without one of them, what comes after it would not be believed.
func (l *Ledger) thinLocked(ln *lane) {
	over := len(ln.corrections) - mostUnheard
	if over <= 0 {
		return
	}
	is, applied := (*island)(nil), 0
	if l.alone != nil && l.alone.lanes[ln.name] != nil {
		is = l.alone.lanes[ln.name]
		applied = is.applied
	}
	kept := ln.corrections[:0]
	for i, f := range ln.corrections {
		if over == 0 || f.Dimension == limits.AnyDimension || f.Dimension == limits.Concurrency {
			kept = append(kept, f)
			continue
		}
		if over--; i < applied {
			is.applied--
		}
	}
	clear(ln.corrections[len(kept):])
	ln.corrections = kept
}

// dropLocked forgets the oldest corrections.
func (l *Ledger) dropLocked(ln *lane, n int) {
	ln.corrections = slices.Delete(ln.corrections, 0, n)
	if l.alone != nil && l.alone.lanes[ln.name] != nil {
		is := l.alone.lanes[ln.name]
		is.applied = max(0, is.applied-n)
	}
}

// hear takes in the answer to a message.
func (l *Ledger) hear(ln *lane, m *message, a *answer, began time.Time, late bool) {
	l.mu.Lock()
	l.dropLocked(ln, len(m.corrections))
	ln.settlements = slices.Delete(ln.settlements, 0, len(m.settlements))
	ln.renewing = slices.Delete(ln.renewing, 0, len(m.renewed))
	if ln.outage == m.outage {
		ln.outage = nil
	}
	if len(ln.corrections)+len(ln.settlements) > 0 {
		ln.since = began // it came meanwhile
	}
	for _, ask := range m.asks[:a.Granted] {
		if late { // others may have been given its slot
			s := limits.Settlement{ID: ask.ID, Lane: ln.name, Refund: ask.Cost, Guarded: sum(limits.Vector{}, ask.Guarded, -1)}
			ln.settlements = append(ln.settlements, settlement{s, began})
			continue
		}
		if len(ln.open) == 0 {
			ln.renewed = began
		}
		ln.open[ask.ID] = true
	}
	ln.contended, l.said, l.seen = a.contended, began, a.standing
	if ln.memory.remember(a.lane, time.Now()); a.lane[fieldGuards] != "" {
		ln.guarded = ln.memory.guarded()
	}
	if m.number > l.recalled {
		l.recalled = m.number
		if l.memory.remember(a.account, time.Now()); a.account[fieldGuards] != "" {
			l.guarded = l.memory.guarded()
		}
	}
	l.mu.Unlock()
	wake.Up(ln.pokes) // to look at what is due now
	if len(m.asks) == 0 {
		l.tell(ln.name, a.State, a.awake == l.member)
	}
}
