// Package pool shares the slots of a sluice.Scheduler among many agents. A Pool registers Members. A Member receives a slot for each call and
// frees the slot after the call. The Pool queues members above the maximum number of active members, and stores the checkpoints of members.
//
// Most programs call Pool.Run, which registers a member, runs a function and closes the member. In the function, call
// Member.Do as you would call sluice.Scheduler.Do. With provider.Transport, an HTTP client makes calls as a member.
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

// Errors of members and of Register.
var (
	// ErrClosed is returned by the methods of a closed Member.
	ErrClosed = errors.New("member is closed")
	// ErrDuplicate is wrapped in the error returned for an ID that another member uses.
	ErrDuplicate = errors.New("the member is already registered: close it first, or use another id")
	// ErrNotHeld is wrapped in the error returned if a member releases a permit that the member does not have.
	ErrNotHeld = errors.New("the member does not hold the permit: the permit was released, or belongs to another member")
)

// Config configures a Pool.
type Config struct {
	// Scheduler provides the slots, for example with sluice.Config{Limits: sluice.Limits{Concurrency: 5}}. Scheduler is required.
	Scheduler *sluice.Scheduler

	// SlotTimeout is the maximum time that each attempt waits for a slot (default 5 minutes). After this time, the call fails with
	// sluice.ErrSlotTimeout. If SlotTimeout is negative, only the context limits the wait. Call.MaxWait takes precedence over SlotTimeout.
	SlotTimeout time.Duration

	// MaxActive is the maximum number of members that Run executes at once (default 12).
	MaxActive int

	// MaxQueue is the maximum number of waiting members (default 100). MaxQueuePriority is the maximum per priority (default 30).
	MaxQueue         int
	MaxQueuePriority int

	// QueueTimeout is the maximum time that a member waits in the queue (default 5 minutes, negative: no limit except the context).
	QueueTimeout time.Duration

	// DrainTimeout is the time that Shutdown waits before it cancels active members (default 30 seconds, negative: no wait).
	DrainTimeout time.Duration

	// Limits contains the limits of all members together for Tokens, LLMCalls, and Time since New. Other fields of Limits have no effect.
	Limits limits.ResourceLimits

	// Store stores the checkpoints of members (default: a MemoryStore, which keeps checkpoints until the process exits).
	Store Store

	// Observer receives the events of members and checkpoints, possibly several events at the same time (nil: no observer).
	Observer sluice.Observer
}

// Pool manages members, and the queue of members that Run will start. A Pool is safe for concurrent use.
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

// New returns a Pool. If a field of cfg is invalid, New returns an error that names the field. A Pool has no Close
// method. Shutdown stops the members started by Run, and the caller closes the Scheduler.
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

// Register adds a member, which can make calls until Member.Close. If another member uses the ID, the error wraps
// ErrDuplicate. Members added by Register do not count against MaxActive.
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

// Metrics contains the current state of a Pool, and totals since New.
type Metrics struct {
	Slots   int // maximum concurrency of all lanes together (before the first call, the configured concurrency)
	Active  int // number of calls that have a slot
	Waiting int // number of calls that wait for a slot

	Calls  int64 // number of requests sent so far, including retries
	Tokens int64 // number of tokens used so far, as stated in responses

	Waits       int64         // number of finished waits for a slot, including cancelled and zero waits
	TotalWait   time.Duration // total duration of all waits that Waits counts
	AverageWait time.Duration // mean duration of a wait (0: no waits)
	LongestWait time.Duration // maximum duration of a wait

	Members   int           // number of registered members
	Phases    map[Phase]int // number of registered members in each phase
	Completed int64         // number of members that were closed without an error
	Failed    int64         // number of members that were closed with an error
	Orphans   int           // number of permits that closed members have not released yet

	Running int // number of members that Run executes
	Queued  int // number of members that wait in the queue of Run
}

// String returns the main metrics in one line.
func (m Metrics) String() string {
	return fmt.Sprintf("%d of %d slots · %d waiting · %d requests · mean wait %s · %d members",
		m.Active, m.Slots, m.Waiting, m.Calls, m.AverageWait.Round(time.Millisecond), m.Members)
}

// Metrics returns all metrics of the pool at one point in time.
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

// Resources compares the usage of all members with Config.Limits.
func (p *Pool) Resources() limits.ResourceChecks {
	p.mu.Lock()
	defer p.mu.Unlock()
	return lookedAt(&p.cfg.Limits).CheckAll(p.usageLocked())
}

func (p *Pool) usageLocked() limits.ResourceUsage {
	return limits.ResourceUsage{Time: age(&p.cfg.Limits, p.start), Tokens: p.total.tokens, LLMCalls: p.total.calls}
}

// Members returns the states of all registered members, in no particular order.
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
