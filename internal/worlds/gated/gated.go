// Package gated plays random worlds with the scheduler's gate, which gets what the provider package reads in each response.
package gated

import (
	"container/heap"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/internal/worlds"
	"github.com/sluice-llm/sluice/provider"
)

// maxThrottles is the Scheduler's default.
const maxThrottles = 20

// providers are the rows of the registry that speak as a world's dialect does.
var providers = map[string]string{"": "openai", "openai": "openai", "anthropic": "anthropic", "gemini": "gemini", "bare": "openai-compatible"}

var endpoint, _, _ = provider.ParseEndpoint("/v1/chat/completions")

// Client is the gate as a client of worlds. Instances of a world with a ledger share one. An instance that was killed
// comes back with the memory of its lanes, as a process does by its state files.
func Client(w *worlds.World) func(instance int, end worlds.End) worlds.Client {
	ledger := new(gate.Shared)
	memories := map[int]map[string]gate.Memory{}
	row, ok := provider.Lookup(providers[w.Show.Dialect])
	if !ok {
		panic("no provider of dialect " + w.Show.Dialect)
	}
	return func(instance int, end worlds.End) worlds.Client {
		c := &client{world: w, provider: row, end: end, member: "member-" + strconv.Itoa(instance), calls: map[*gate.Ticket]*call{}}
		cfg := gate.Config{Attempts: attempts(w), MaxThrottles: maxThrottles, Charge: charge(w)}
		told := limits(w.Config)
		if w.Config.Account {
			cfg.Account = told
		} else {
			cfg.Limits = told
		}
		if w.Procs.Ledger {
			c.ledger, cfg.Remote = ledger, true
		}
		c.gate = gate.New(cfg)
		if len(w.Procs.Kills) > 0 {
			c.recall = memories[instance]
			memories[instance] = map[string]gate.Memory{}
			c.memory = memories[instance]
		}
		return c
	}
}

func attempts(w *worlds.World) int {
	if w.Config.Attempts > 0 {
		return w.Config.Attempts
	}
	return 6
}

func charge(w *worlds.World) gate.Charge {
	if w.Config.Charge == worlds.Actual || w.Config.Charge == "" && w.Show.Dialect == "anthropic" {
		return gate.ChargeActual
	}
	return gate.ChargeDeclared
}

func limits(told worlds.Config) gate.Limits {
	l := gate.Limits{Burst: time.Duration(float64(told.Burst) * float64(time.Second))}
	for _, limit := range told.Limits {
		switch n := int(limit.N); limit.Dim {
		case worlds.RPM:
			l.RPM = n
		case worlds.TPM:
			l.TPM = n
		case worlds.ITPM:
			l.ITPM = n
		case worlds.OTPM:
			l.OTPM = n
		case worlds.RPD:
			l.RPD = n
		case worlds.Concurrent:
			l.Concurrent = n
		}
	}
	return l
}

// call is an item on its way.
type call struct {
	item      *worlds.Item
	ticket    *gate.Ticket
	attempt   int
	throttles int
	overloads int
	queued    time.Time
	order     uint64
	attempted *worlds.Attempt
}

// client is one instance.
type client struct {
	world    *worlds.World
	provider provider.Provider
	gate     *gate.Gate
	end      worlds.End
	ledger   *gate.Shared // nil: budgets are its own
	member   string
	calls    map[*gate.Ticket]*call
	out      map[*worlds.Attempt]*call
	later    backoffs
	recall   map[string]gate.Memory // of an earlier life
	memory   map[string]gate.Memory // nil: nothing is saved
}

func (c *client) Add(now time.Time, item *worlds.Item) {
	if m, ok := c.recall[item.LaneName()]; ok {
		c.gate.Recall(now, m)
		delete(c.recall, item.LaneName())
	}
	c.acquire(now, &call{item: item, attempt: 1}, false)
}

func (c *client) acquire(now time.Time, k *call, front bool) {
	k.ticket = &gate.Ticket{
		Call: gate.Call{ID: strconv.Itoa(k.item.ID), Lane: k.item.LaneName(), Tenant: strconv.Itoa(k.item.Tenant),
			Cost: gate.Cost{Input: k.item.Input, MaxOutput: k.item.Max}},
		Attempt: k.attempt, Throttles: k.throttles, Overloads: k.overloads, Queued: k.queued, Order: k.order, Front: front,
	}
	c.calls[k.ticket] = k
	if !c.gate.Acquire(now, k.ticket) {
		delete(c.calls, k.ticket)
		c.end(k.item, false)
	}
	k.queued, k.order = k.ticket.Queued, k.ticket.Order
}

func (c *client) Next(now time.Time) (send []*worlds.Attempt, wake time.Time) {
	for len(c.later) > 0 && !c.later[0].at.After(now) {
		k := heap.Pop(&c.later).(backoff).call
		c.acquire(now, k, true)
	}
	c.gate.Tick(now)
	c.exchange(now)
	for _, t := range c.gate.Granted() {
		k := c.calls[t]
		k.attempted = &worlds.Attempt{Item: k.item}
		if c.out == nil {
			c.out = map[*worlds.Attempt]*call{}
		}
		c.out[k.attempted] = k
		c.gate.Sent(now, t)
		send = append(send, k.attempted)
	}
	wake = c.gate.Next()
	if len(c.later) > 0 && (wake.IsZero() || c.later[0].at.Before(wake)) {
		wake = c.later[0].at
	}
	if c.ledger != nil { // another member may give back
		if soon := now.Add(20 * time.Millisecond); wake.IsZero() || soon.Before(wake) {
			wake = soon
		}
	}
	return send, wake
}

// exchange carries what the gate says to the ledger, and the ledger's replies back.
func (c *client) exchange(now time.Time) {
	for c.ledger != nil {
		fixes, settles, asks := c.gate.Outbox()
		if len(fixes)+len(settles)+len(asks) == 0 {
			return
		}
		batches := map[string]*gate.Batch{}
		of := func(lane string) *gate.Batch {
			if batches[lane] == nil {
				batches[lane] = &gate.Batch{Lane: lane}
			}
			return batches[lane]
		}
		for _, f := range fixes {
			of(f.Lane).Corrections = append(of(f.Lane).Corrections, f)
		}
		for _, s := range settles {
			of(s.Lane).Settlements = append(of(s.Lane).Settlements, s)
		}
		for _, a := range asks {
			of(a.Lane).Waiting, of(a.Lane).Asks = a.Waiting, a.Calls
		}
		for lane := range c.world.Lanes {
			name := (&worlds.Item{Lane: lane}).LaneName()
			b := batches[name]
			if b == nil {
				continue
			}
			for _, k := range c.out {
				if k.item.LaneName() == name {
					b.Renewed = append(b.Renewed, k.ticket.ID)
				}
			}
			r, _ := c.ledger.Exchange(now, c.member, b)
			if len(b.Asks) > 0 {
				c.gate.Reply(now, name, r)
			} else {
				c.gate.Told(now, name, &r.News, false)
			}
		}
	}
}

func (c *client) Head(now time.Time, a *worlds.Attempt, r *worlds.Response) {
	c.gate.Answered(now, c.out[a].ticket, c.provider.Readings(r.Header, now))
}

func (c *client) Done(now time.Time, a *worlds.Attempt, r *worlds.Response) {
	k := c.out[a]
	delete(c.out, a)
	delete(c.calls, k.ticket)
	o := c.outcome(now, r)
	d := c.gate.Release(now, k.ticket, &o)
	if c.memory != nil {
		c.memory[k.item.LaneName()] = c.gate.Memory(now, k.item.LaneName())
	}
	switch {
	case d.Action == gate.Done:
		c.end(k.item, true)
		return
	case d.Action == gate.GiveUp:
		c.end(k.item, false)
		return
	case d.Throttle:
		if k.throttles++; o.Kind == gate.Overloaded {
			k.overloads++
		}
	default:
		k.attempt++
	}
	if d.Wait > 0 {
		heap.Push(&c.later, backoff{now.Add(d.Wait), k})
		return
	}
	c.acquire(now, k, true)
}

// outcome is what a response means by the words of the provider package.
func (c *client) outcome(now time.Time, r *worlds.Response) gate.Outcome {
	switch {
	case r.Err == worlds.ErrDeadline:
		return gate.Outcome{Kind: gate.Timeout, Err: r.Err}
	case r.Err != nil:
		return gate.Outcome{Kind: gate.Network, Err: r.Err, Readings: c.provider.Readings(r.Header, now)}
	case r.Status == 200:
		o := gate.Outcome{Readings: c.provider.Readings(r.Header, now)}
		o.Usage, _, o.HasUsage = provider.ParseUsage(endpoint, r.Body)
		return o
	}
	o := provider.Classify(c.provider, r.Status, r.Header, r.Body, now).Outcome(c.provider, r.Status, "")
	o.Readings = c.provider.Readings(r.Header, now)
	return o
}

var _ sluice.Outcome = gate.Outcome{} // the root's is the gate's

// backoffs is a heap of calls that are tried again later.
type backoffs []backoff

type backoff struct {
	at   time.Time
	call *call
}

func (b backoffs) Len() int           { return len(b) }
func (b backoffs) Less(i, j int) bool { return b[i].at.Before(b[j].at) }
func (b backoffs) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *backoffs) Push(x any)        { *b = append(*b, x.(backoff)) }
func (b *backoffs) Pop() any {
	old := *b
	last := old[len(old)-1]
	*b = old[:len(old)-1]
	return last
}
