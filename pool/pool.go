// Package pool lets many agents share few slots. A Pool registers Members. A Member takes a slot of a sluice.Scheduler for one
// call and gives it back. The Pool queues members beyond its maximum of active ones, and stores their checkpoints.
//
// Most programs call Pool.Run, which registers a member while a function works. In that function, Member.Do makes a call as
// sluice.Scheduler.Do does. An HTTP client makes calls as a member through provider.Transport.
package pool

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// Defaults of Config.
const (
	defaultMaxActive        = 12
	defaultMaxQueue         = 100
	defaultMaxQueuePriority = 30
	defaultTimeout          = 5 * time.Minute
	defaultDrain            = 30 * time.Second
)

// Errors that callers branch on.
var (
	// ErrClosed is returned by calls of a Member that was closed.
	ErrClosed = errors.New("member is closed")
	// ErrDuplicate is wrapped by the error for an id that another member has.
	ErrDuplicate = errors.New("the member is already registered: close it first, or use another id")
	// ErrNotHeld is wrapped by the error for the release of a permit that the member does not have.
	ErrNotHeld = errors.New("the member does not hold the permit: the permit was released, or belongs to another member")
)

// Config shapes a Pool.
type Config struct {
	// Scheduler has the slots, such as one of sluice.Config{Limits: sluice.Limits{Concurrency: 5}}. Required.
	Scheduler *sluice.Scheduler

	// SlotTimeout is how long a call may wait for its slot, each time that it is tried, before it fails with
	// sluice.ErrSlotTimeout. Default 5 minutes; negative: as long as its context allows. A call's own MaxWait wins.
	SlotTimeout time.Duration

	// MaxActive is how many members Run has at work at once. Default 12.
	MaxActive int

	// MaxQueue is how many more wait for that, and MaxQueuePriority how many of one priority. Defaults 100 and 30.
	MaxQueue         int
	MaxQueuePriority int

	// QueueTimeout is how long they wait. Default 5 minutes; negative: as long as their contexts allow.
	QueueTimeout time.Duration

	// DrainTimeout is how long Shutdown lets members at work end by themselves. Default 30 seconds; negative: not at all.
	DrainTimeout time.Duration

	// Limits bound what all members use together: Tokens, LLMCalls, and Time since New. The other fields are not looked at.
	Limits limits.ResourceLimits

	// Store keeps checkpoints. Default: a MemoryStore, which ends with the process.
	Store Store

	// Observer receives the events of members and their checkpoints, several at once if they happen at once. Nil: no observer.
	Observer sluice.Observer
}

// Pool is members and the queue of those that Run will start. It is safe for concurrent use.
type Pool struct {
	cfg   Config
	start time.Time

	mu      sync.Mutex
	members map[string]*Member // nil: the id waits in the queue
	total   counts
	queue   queue
}

// counts are what the members have come to together.
type counts struct {
	active, waiting int // calls
	unsent          int // of the active ones
	calls           int64
	tokens          int64
	waits           int64
	waited, longest time.Duration
	completed       int64
	failed          int64
	orphans         int // permits that closed members still have
}

// New returns a Pool, or an error that names the field of cfg that is wrong. A Pool needs no Close: Shutdown ends what Run
// started, and the Scheduler is the caller's.
func New(cfg Config) (*Pool, error) {
	if cfg.Scheduler == nil {
		return nil, errors.New("pool: Config.Scheduler is nil: it has the slots that members share")
	}
	for _, f := range []struct {
		name  string
		value *int
		usual int
	}{
		{"MaxActive", &cfg.MaxActive, defaultMaxActive},
		{"MaxQueue", &cfg.MaxQueue, defaultMaxQueue},
		{"MaxQueuePriority", &cfg.MaxQueuePriority, defaultMaxQueuePriority},
	} {
		if *f.value < 0 {
			return nil, fmt.Errorf("pool: Config.%s is %d: it must be at least 1", f.name, *f.value)
		}
		*f.value = cmp.Or(*f.value, f.usual)
	}
	cfg.SlotTimeout = cmp.Or(cfg.SlotTimeout, defaultTimeout)
	cfg.QueueTimeout = cmp.Or(cfg.QueueTimeout, defaultTimeout)
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, defaultDrain)
	if cfg.Store == nil {
		cfg.Store = NewMemoryStore()
	}
	return &Pool{
		cfg: cfg, start: time.Now(), members: make(map[string]*Member),
		queue: queue{running: make(map[*entry]bool)},
	}, nil
}

// Register adds a member, which makes calls until its Close. It fails with ErrDuplicate for an id that is in use.
// Members that are registered this way are not counted against MaxActive.
func (p *Pool) Register(id string, cfg MemberConfig) (*Member, error) {
	p.mu.Lock()
	if err := p.reserveLocked(id); err != nil {
		p.mu.Unlock()
		return nil, err
	}
	m := p.registerLocked(id, cfg)
	p.mu.Unlock()
	known := false
	defer func() {
		if !known { // the Observer panicked: nobody has the member
			m.Close()
		}
	}()
	p.tell(limits.EventMemberRegistered, m, nil)
	known = true
	return m, nil
}

// reserveLocked takes an id, or says why it cannot be had.
func (p *Pool) reserveLocked(id string) error {
	if id == "" {
		return errors.New("pool: the member id is empty")
	}
	if p.queue.stopped {
		return ErrQueueStopped
	}
	if _, used := p.members[id]; used {
		return fmt.Errorf("member %q: %w", id, ErrDuplicate)
	}
	p.members[id] = nil
	return nil
}

// registerLocked makes the member of a reserved id.
func (p *Pool) registerLocked(id string, cfg MemberConfig) *Member {
	if cfg.Tenant == "" {
		cfg.Tenant = id
	}
	cfg.Priority = min(max(cfg.Priority, limits.Low), limits.Critical)
	m := &Member{
		pool: p, id: id, cfg: cfg, start: time.Now(), gone: make(chan struct{}),
		limited: bounds(&cfg.Limits) || bounds(&p.cfg.Limits),
	}
	p.members[id] = m
	return m
}

// tell sends an event of a member to the Observer. It must be called without mu.
func (p *Pool) tell(typ limits.EventType, m *Member, err error) {
	if p.cfg.Observer != nil {
		p.cfg.Observer.Observe(sluice.Event{Type: typ, At: time.Now(), Member: m.id, Tenant: m.cfg.Tenant, Outcome: limits.Outcome{Err: err}})
	}
}

// Metrics are what the members of a Pool do at one instant, and did so far.
type Metrics struct {
	Slots   int // calls that may be open at once, now, in all lanes together; before the first call, as told
	Active  int // calls that are
	Waiting int // calls that wait for a slot

	Calls  int64 // sent so far, each try counted when it was sent
	Tokens int64 // that their answers said they used

	Waits       int64         // for a slot, that are over: also those that were cancelled, and those that took no time
	TotalWait   time.Duration // of all Waits together,
	AverageWait time.Duration // of one of them; 0 while there are none,
	LongestWait time.Duration // and of the longest

	Members   int           // registered
	Phases    map[Phase]int // of those, how many are in each
	Completed int64         // members that were closed so far, without an error
	Failed    int64         // and with one
	Orphans   int           // permits that members still had when they were closed, and that are not back yet

	Running int // members that Run has at work
	Queued  int // and that wait for their turn
}

// String is the metrics in one line.
func (m Metrics) String() string {
	return fmt.Sprintf("slots=%d/%d, waiting=%d, calls=%d, avg_wait=%s, members=%d",
		m.Active, m.Slots, m.Waiting, m.Calls, m.AverageWait.Round(time.Millisecond), m.Members)
}

// Metrics returns them all as of one instant.
func (p *Pool) Metrics() Metrics {
	slots := slots(p.cfg.Scheduler.Snapshot())
	p.mu.Lock()
	defer p.mu.Unlock()
	n := &p.total
	m := Metrics{
		Slots: slots, Active: n.active, Waiting: n.waiting, Calls: n.calls, Tokens: n.tokens,
		Waits: n.waits, TotalWait: n.waited, LongestWait: n.longest,
		Phases: make(map[Phase]int), Completed: n.completed, Failed: n.failed, Orphans: n.orphans,
		Running: len(p.queue.running), Queued: len(p.queue.waiting),
	}
	if n.waits > 0 {
		m.AverageWait = n.waited / time.Duration(n.waits)
	}
	for _, member := range p.members {
		if member != nil {
			m.Members++
			m.Phases[member.phaseLocked()]++
		}
	}
	return m
}

// slots is how many calls may be open at once.
func slots(s sluice.Snapshot) int {
	n := 0
	for _, l := range s.Lanes {
		n += l.Slots
	}
	if len(s.Lanes) == 0 {
		n = s.Limits.Concurrency
	}
	if most := s.Account.Concurrency; most > 0 && (n == 0 || n > most) {
		n = most
	}
	return n
}

// Resources says how the members' use stands to Config.Limits.
func (p *Pool) Resources() limits.ResourceChecks {
	p.mu.Lock()
	defer p.mu.Unlock()
	return lookedAt(&p.cfg.Limits).CheckAll(p.usageLocked())
}

func (p *Pool) usageLocked() limits.ResourceUsage {
	return limits.ResourceUsage{Time: age(&p.cfg.Limits, p.start), Tokens: p.total.tokens, LLMCalls: p.total.calls}
}

// Members returns the states of those that are registered, in no order.
func (p *Pool) Members() []State {
	p.mu.Lock()
	defer p.mu.Unlock()
	states := make([]State, 0, len(p.members))
	for _, m := range p.members {
		if m != nil {
			states = append(states, m.stateLocked())
		}
	}
	return states
}
