package gateway

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// TrafficConfig shapes a Traffic.
type TrafficConfig struct {
	Recent int // how many requests that ended are kept. Default 50

	// Ended is told of each request as it ended, by the goroutine that served it. It must be quick. Nil is nobody.
	Ended func(*Record)
}

// Traffic is what goes through a gateway now, and what went through it in the last minutes. It is safe for concurrent use, and
// keeps nothing of what is asked or answered.
type Traffic struct {
	cfg TrafficConfig

	mu      sync.Mutex
	recent  []Record // a ring,
	next    int      // whose oldest is here
	tenants map[string]*tenantTraffic
	kinds   map[string]int64
	slots   [slots]slot
	ended   int64
}

// tenantTraffic is what is known of one tenant.
type tenantTraffic struct {
	waiting, open int
	ended, failed int64
	tokens        int64
	wait          time.Duration
}

const (
	usualRecent = 50
	mostTenants = 1000 // those of any more are counted together
	mostKinds   = 100

	// otherTraffic stands for all tenants and kinds that are too many to be counted one by one.
	otherTraffic = "other"

	slotTime = 10 * time.Second
	slots    = int(15 * time.Minute / slotTime)
)

// slot is what ended within a slotTime.
type slot struct {
	number  int64 // of slotTimes since 1970: another's is over
	ended   int
	failed  int
	tokens  int64
	latency [latencies]int // how many took up to latencyBound(i)
}

// latencies are the steps, each twice the one before, in which times are counted: from 50 ms.
const latencies = 16

func latencyBound(i int) time.Duration { return 50 * time.Millisecond << i }

// NewTraffic returns a Traffic for Config.Traffic.
func NewTraffic(cfg TrafficConfig) *Traffic {
	cfg.Recent = max(1, cmp.Or(cfg.Recent, usualRecent))
	return &Traffic{cfg: cfg, tenants: make(map[string]*tenantTraffic), kinds: make(map[string]int64)}
}

// tenantLocked is the one of a name, or the one of all others.
func (t *Traffic) tenantLocked(name string) *tenantTraffic {
	if of := t.tenants[name]; of != nil {
		return of
	}
	if len(t.tenants) >= mostTenants {
		name = otherTraffic
	}
	of := t.tenants[name]
	if of == nil {
		of = &tenantTraffic{}
		t.tenants[name] = of
	}
	return of
}

// move notes that a call of a tenant goes from one stage to another.
func (t *Traffic) move(tenant string, from, to stage) {
	if from == to {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.tenantLocked(tenant)
	of.at(from, -1)
	of.at(to, 1)
}

func (of *tenantTraffic) at(s stage, n int) {
	switch s {
	case stageWaiting:
		of.waiting += n
	case stageOpen:
		of.open += n
	}
}

// end notes a request that ended.
func (t *Traffic) end(r *Record) {
	t.note(r)
	if t.cfg.Ended != nil {
		t.cfg.Ended(r)
	}
}

func (t *Traffic) note(r *Record) {
	failed := r.Kind != KindOK
	tokens := int64(max(0, r.Usage.Input)) + int64(max(0, r.Usage.Output))
	number := time.Now().UnixNano() / int64(slotTime)
	step := 0
	for step < latencies-1 && r.Latency > latencyBound(step) {
		step++
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended++
	if len(t.recent) < t.cfg.Recent {
		t.recent = append(t.recent, *r)
	} else {
		t.recent[t.next] = *r
		t.next = (t.next + 1) % len(t.recent)
	}
	if _, known := t.kinds[r.Kind]; known || len(t.kinds) < mostKinds {
		t.kinds[r.Kind]++
	} else {
		t.kinds[otherTraffic]++
	}
	of := t.tenantLocked(r.Tenant)
	of.ended++
	of.tokens += tokens
	of.wait += r.Wait
	s := &t.slots[number%int64(slots)]
	if s.number != number {
		*s = slot{number: number}
	}
	s.ended++
	s.tokens += tokens
	s.latency[step]++
	if failed {
		of.failed++
		s.failed++
	}
}

// TrafficSnapshot is a Traffic at one instant.
type TrafficSnapshot struct {
	At            time.Time
	Waiting, Open int   // calls: not sent yet, and sent but not over
	Ended         int64 // requests, since the Traffic was made

	Tenants []TenantTraffic // by name
	Kinds   []KindTraffic   // the most frequent first
	Recent  []Record        // the latest first
	Times   []TimeTraffic   // the last 15 minutes, in order, without a gap
}

// TenantTraffic is what is known of one tenant's requests, since the Traffic was made.
type TenantTraffic struct {
	Name          string
	Waiting, Open int           // calls now: not sent yet, and sent but not over
	Ended, Failed int64         // requests; those that failed are among those that ended
	Tokens        int64         // in and out, of what ended
	Share         float64       // of all tokens; where none are known, of all requests
	Wait          time.Duration // of all that ended
}

// KindTraffic is how many requests ended in a way.
type KindTraffic struct {
	Kind string // as in Record
	N    int64  // since the Traffic was made
}

// TimeTraffic is what ended in ten seconds.
type TimeTraffic struct {
	From          time.Time     // when the ten seconds begin
	Ended, Failed int           // requests; those that failed are among those that ended
	Tokens        int64         // in and out
	Median, P95   time.Duration // of the latency, rounded up to a power of two of 50 ms; 0: nothing ended
}

// Snapshot returns how things stand.
func (t *Traffic) Snapshot() TrafficSnapshot {
	s := TrafficSnapshot{At: time.Now()}
	t.mu.Lock()
	s.Ended = t.ended
	for name, of := range t.tenants {
		s.Waiting, s.Open = s.Waiting+of.waiting, s.Open+of.open
		s.Tenants = append(s.Tenants, TenantTraffic{
			Name: name, Waiting: of.waiting, Open: of.open, Ended: of.ended, Failed: of.failed, Tokens: of.tokens,
			Wait: of.wait,
		})
	}
	for kind, n := range t.kinds {
		s.Kinds = append(s.Kinds, KindTraffic{kind, n})
	}
	s.Recent = append(slices.Clone(t.recent[t.next:]), t.recent[:t.next]...)
	kept := t.slots
	t.mu.Unlock()

	slices.Reverse(s.Recent)
	slices.SortFunc(s.Tenants, func(a, b TenantTraffic) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Kinds, func(a, b KindTraffic) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Kind, b.Kind)) })
	share(s.Tenants)
	last := s.At.UnixNano() / int64(slotTime)
	for number := last - int64(slots) + 1; number <= last; number++ {
		at := TimeTraffic{From: time.Unix(0, number*int64(slotTime))}
		if k := &kept[number%int64(slots)]; k.number == number {
			at.Ended, at.Failed, at.Tokens = k.ended, k.failed, k.tokens
			at.Median, at.P95 = k.quantile(0.5), k.quantile(0.95)
		}
		s.Times = append(s.Times, at)
	}
	return s
}

// share says what part of everything each tenant had.
func share(tenants []TenantTraffic) {
	var tokens, ended int64
	for i := range tenants {
		tokens, ended = tokens+tenants[i].Tokens, ended+tenants[i].Ended
	}
	for i := range tenants {
		switch of := &tenants[i]; {
		case tokens > 0:
			of.Share = float64(of.Tokens) / float64(tokens)
		case ended > 0:
			of.Share = float64(of.Ended) / float64(ended)
		}
	}
}

// quantile is the time within which that part of what ended did.
func (s *slot) quantile(q float64) time.Duration {
	need := q * float64(s.ended)
	n := 0
	for i, k := range s.latency {
		if n += k; k > 0 && float64(n) >= need {
			return latencyBound(i)
		}
	}
	return 0
}
