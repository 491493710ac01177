package gateway

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// Traffic counts the requests of a Gateway, by tenant and model, and over the last 15 minutes. A Traffic stores no content of
// requests or responses. Create a Traffic with NewTraffic. A Traffic is safe for concurrent use.
type Traffic struct {
	ended func(*Record)

	mu      sync.Mutex
	uses    map[useKey]*Use
	models  map[string]int // of each tenant
	times   [slots]TimeTraffic
	newest  int64 // the last slot of times, in slotTimes since 1970
	waiting int   // requests, of all uses
}

type useKey struct{ tenant, model string }

const (
	// maxModels is the largest number of models of a tenant that are counted one by one: clients choose names of models.
	maxModels = 50

	slotTime = 10 * time.Second
	slots    = int(15 * time.Minute / slotTime)
)

// TrafficSnapshot contains the counts of a Traffic at one instant.
type TrafficSnapshot struct {
	At            time.Time     // time of the snapshot
	Waiting, Open int           // number of requests in queues, and of requests in flight at upstreams
	Uses          []Use         // usage since NewTraffic, sorted by tenant and model
	Times         []TimeTraffic // counts of the last 15 minutes in steps of 10 s, oldest first
}

// Use counts the requests of one tenant for one model.
type Use struct {
	Tenant string // name of the tenant ("" if none)
	Model  string // model name, or "other" for models after the tenant's first 50, unless Record.Listed is true

	Waiting, Open int     // number of requests in queues, and of requests in flight at upstreams
	Ended, Failed int     // number of finished requests, and of failed requests
	Throttled     int     // number of rate-limited attempts
	Input, Output int64   // input and output tokens
	Cost          float64 // cost in US dollars
	Unpriced      int     // number of requests with usage but without a known price
}

// TimeTraffic counts the requests in a period of 10 s.
type TimeTraffic struct {
	Ended, Failed, Throttled int   // counts of requests and attempts, as in Use
	Tokens                   int64 // input and output tokens of the finished requests
	Waiting                  int   // maximum number of requests in queues
}

// NewTraffic returns a Traffic for Config.Traffic. If ended is not nil, the goroutine that served a request calls ended with the
// finished request. The function ended must return quickly.
func NewTraffic(ended func(*Record)) *Traffic {
	return &Traffic{ended: ended, uses: make(map[useKey]*Use), models: make(map[string]int)}
}

// useLocked returns the counters of a request.
func (t *Traffic) useLocked(r *Record) *Use {
	key := useKey{r.Tenant, r.Model}
	if u := t.uses[key]; u != nil {
		return u
	}
	if t.models[r.Tenant] >= maxModels && !r.Listed {
		key.model = "other"
		if u := t.uses[key]; u != nil {
			return u
		}
	}
	t.models[r.Tenant]++
	u := &Use{Tenant: key.tenant, Model: key.model}
	t.uses[key] = u
	return u
}

// slotLocked returns the slot of now. The slots since the newest begin with the requests that wait.
func (t *Traffic) slotLocked(now time.Time) *TimeTraffic {
	number := now.UnixNano() / int64(slotTime)
	for t.newest = max(t.newest, number-int64(slots)); t.newest < number; {
		t.newest++
		t.times[t.newest%int64(slots)] = TimeTraffic{Waiting: t.waiting}
	}
	return &t.times[t.newest%int64(slots)]
}

// move counts that a request goes from one stage to another.
func (t *Traffic) move(r *Record, from, to stage) {
	if from == to {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	u, at := t.useLocked(r), t.slotLocked(time.Now())
	t.shiftLocked(u, from, -1)
	if from == stageWaiting { // before, a request that has its turn at once would count
		at.Waiting = max(at.Waiting, t.waiting)
	}
	t.shiftLocked(u, to, 1)
}

func (t *Traffic) shiftLocked(u *Use, s stage, n int) {
	switch s {
	case stageWaiting:
		u.Waiting, t.waiting = u.Waiting+n, t.waiting+n
	case stageOpen:
		u.Open += n
	}
}

// throttle counts a rate-limit rejection by an upstream.
func (t *Traffic) throttle(r *Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.useLocked(r).Throttled++
	t.slotLocked(time.Now()).Throttled++
}

// end counts a request that ended.
func (t *Traffic) end(r *Record) {
	t.count(r)
	if t.ended != nil {
		t.ended(r)
	}
}

func (t *Traffic) count(r *Record) {
	input, output := int64(max(0, r.Usage.Input)), int64(max(0, r.Usage.Output))
	failed, unpriced := 0, 0
	if r.Kind != KindOK {
		failed = 1
	}
	if input+output > 0 && !r.HasCost {
		unpriced = 1
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	u, at := t.useLocked(r), t.slotLocked(time.Now())
	u.Ended, u.Failed, u.Unpriced = u.Ended+1, u.Failed+failed, u.Unpriced+unpriced
	u.Input, u.Output, u.Cost = u.Input+input, u.Output+output, u.Cost+r.Cost
	at.Ended, at.Failed, at.Tokens = at.Ended+1, at.Failed+failed, at.Tokens+input+output
}

// Snapshot returns the current counts.
func (t *Traffic) Snapshot() TrafficSnapshot {
	t.mu.Lock()
	s := TrafficSnapshot{At: time.Now(), Waiting: t.waiting}
	at := t.slotLocked(s.At)
	at.Waiting = max(at.Waiting, t.waiting)
	for number := t.newest - int64(slots) + 1; number <= t.newest; number++ {
		s.Times = append(s.Times, t.times[number%int64(slots)])
	}
	for u := range maps.Values(t.uses) {
		s.Uses = append(s.Uses, *u)
		s.Open += u.Open
	}
	t.mu.Unlock()
	slices.SortFunc(s.Uses, func(a, b Use) int { return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Model, b.Model)) })
	return s
}
