package telemetry

import (
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/limits"
)

// Aggregate adds events up, of one process as they happen or of several from a file, and the results of a batch, in memory
// that does not grow with their number. It is an Observer and safe for concurrent use. The zero value is ready; most
// callers want Report.
type Aggregate struct {
	mu sync.Mutex

	events  int
	first   time.Time
	last    time.Time
	runs    int           // processes
	before  time.Duration // running time of those that ended
	started time.Time     // of the present one
	ended   time.Time     // its last event
	members map[string]bool
	opened  map[string]bool // accounts with a Scheduler that was not closed

	lanes  map[laneKey]*laneSeen
	shared bool
	said   string // by the first refusal

	done    items // by events
	calls   items // their waits for slots alone, of a program that has calls and no items
	results items // by the output
	byFile  bool  // there is an output
	cut     bool  // a last line was left out
}

type laneKey struct{ account, name string }

// mostReported is how many lanes are told apart; what is more is one lane.
const mostReported = 200

// Observe takes in an event.
func (a *Aggregate) Observe(e sluice.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events++
	a.process(&e)
	switch e.Type {
	case limits.EventItemDone:
		a.done.add(finishedBy(&e))
	case limits.EventMemberRegistered, limits.EventMemberClosed, limits.EventStarted,
		limits.EventCheckpointSaved, limits.EventCheckpointLoaded, limits.EventCheckpointDamaged:
	case limits.EventClosed:
		a.close(e.Account)
	case limits.EventPaused, limits.EventResumed:
		a.hold(&e)
	case limits.EventShared:
		a.shared = true
	default:
		a.lane(e.Account, e.Lane).event(&e, a.running(e.At))
		if e.Type == limits.EventSlotAcquired || e.Type == limits.EventSlotCancelled {
			a.calls.waits.add(e.Wait)
			a.calls.wait(&finished{id: e.Call, member: e.Member, wait: e.Wait})
		}
	}
	if e.Type == limits.EventThrottled && a.said == "" {
		a.said = prose.Clip(errorOf(&e), mostMessage)
	}
}

// process notices where the events of one process end and those of the next begin: what was started is started again,
// or something begins after everything was closed.
func (a *Aggregate) process(e *sluice.Event) {
	idle := len(a.members) == 0 && len(a.opened) == 0 && a.runs > 0
	switch e.Type {
	case limits.EventMemberRegistered:
		if idle || a.members[e.Member] {
			a.endProcess()
		}
		a.begin(e.At)
		a.members[e.Member] = true
	case limits.EventStarted:
		if idle || a.opened[e.Account] {
			a.endProcess()
		}
		a.begin(e.At)
		a.opened[e.Account] = true
	case limits.EventMemberClosed:
		delete(a.members, e.Member)
	}
	a.begin(e.At)
	if e.At.After(a.ended) {
		a.ended = e.At
	}
	if a.first.IsZero() || e.At.Before(a.first) {
		a.first = e.At
	}
	if e.At.After(a.last) {
		a.last = e.At
	}
}

// begin begins a process, unless one is on.
func (a *Aggregate) begin(at time.Time) {
	if !a.started.IsZero() {
		return
	}
	a.runs++
	a.started, a.ended = at, at
	a.members, a.opened = make(map[string]bool), make(map[string]bool)
}

// endProcess ends one that said nothing of it: what it had open was cut off.
func (a *Aggregate) endProcess() {
	for _, l := range a.lanes {
		l.end(false)
	}
	a.before = a.wall()
	a.started = time.Time{}
}

// close ends the lanes of an account in good order.
func (a *Aggregate) close(account string) {
	delete(a.opened, account)
	for key, l := range a.lanes {
		if key.account == account {
			l.end(true)
		}
	}
}

// hold notes a pause that somebody asked for.
func (a *Aggregate) hold(e *sluice.Event) {
	for key, l := range a.lanes {
		if key.account == e.Account {
			l.pass(e)
			l.held = e.Type == limits.EventPaused
		}
	}
}

// wall is how long processes ran, the gaps between them left out.
func (a *Aggregate) wall() time.Duration { return a.before + a.ended.Sub(a.started) }

// running is how much running time had passed at an instant of the present process.
func (a *Aggregate) running(at time.Time) time.Duration {
	return a.before + max(0, at.Sub(a.started))
}

func (a *Aggregate) lane(account, name string) *laneSeen {
	key := laneKey{prose.Clip(account, mostID), prose.Clip(name, mostID)}
	l := a.lanes[key]
	if l == nil && len(a.lanes) >= mostReported {
		key = laneKey{"", otherNames}
		l = a.lanes[key]
	}
	if l == nil {
		l = &laneSeen{account: key.account, name: key.name}
		if a.lanes == nil {
			a.lanes = make(map[laneKey]*laneSeen)
		}
		a.lanes[key] = l
	}
	return l
}

// finishedBy is the item of which an event says that it is done.
func finishedBy(e *sluice.Event) *finished {
	it := &finished{
		id: e.Call, model: e.Lane, kind: e.Outcome.Kind, attempts: e.Attempt, throttles: e.Throttles, wait: e.Wait,
		latency: e.Latency, usage: e.Outcome.Usage, finish: e.Finish, reused: e.Reused, cost: e.Cost, estimated: e.Estimated, costed: e.Cost > 0 || e.Reused,
	}
	it.message = errorOf(e)
	return it
}
