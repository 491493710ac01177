// Package gated plays random worlds with the scheduler's gate, which gets what the provider package reads in each response.
package gated

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/internal/worlds"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

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
		c := &client{world: w, provider: row, end: end, member: "member-" + strconv.Itoa(instance),
			items: map[*gate.Ticket]*worlds.Item{}, sent: map[*worlds.Attempt]*gate.Ticket{}}
		cfg := gate.Config{Attempts: cmp.Or(w.Config.Attempts, gate.DefaultAttempts),
			MaxThrottles: gate.DefaultMaxThrottles, Patience: gate.DefaultPatience, Charge: charge(w),
			Random: rand.New(rand.NewPCG(w.Seed, uint64(instance))).Int64N}
		configured := configured(w.Config)
		if w.Config.Account {
			cfg.Account = configured
		} else {
			cfg.Limits = configured
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

func charge(w *worlds.World) (c limits.Charge) {
	switch {
	case w.Config.Charge == "" && w.Show.Dialect == "anthropic":
		return limits.ChargeActual
	case w.Config.Charge == "", w.Config.Charge == worlds.Sum, w.Config.Charge == worlds.Reserved: // the closest that there is
		return limits.ChargeDeclared
	}
	if err := c.UnmarshalText([]byte(w.Config.Charge)); err != nil {
		panic(err) // both packages have the names that files have
	}
	return c
}

func configured(c worlds.Config) limits.Limits {
	l := limits.Limits{Burst: time.Duration(float64(c.Burst) * float64(time.Second))}
	for _, limit := range c.Limits {
		var d limits.Dimension
		if err := d.UnmarshalText([]byte(limit.Dim)); err != nil {
			panic(err) // both packages have the names that files have
		}
		*l.At(d) = int(limit.N)
	}
	return l
}

// client is one instance.
type client struct {
	world    *worlds.World
	provider provider.Provider
	gate     *gate.Gate
	end      worlds.End
	ledger   *gate.Shared // nil: the instance has its own
	member   string
	items    map[*gate.Ticket]*worlds.Item    // that have no result
	sent     map[*worlds.Attempt]*gate.Ticket // in flight
	backoff  []retry                          // by instant
	recall   map[string]gate.Memory           // of an earlier life
	memory   map[string]gate.Memory           // nil: nothing is saved
}

// retry is an attempt that waits on its own.
type retry struct {
	at     time.Time
	item   *worlds.Item
	ticket *gate.Ticket
}

func (c *client) Add(now time.Time, item *worlds.Item) {
	if m, ok := c.recall[item.LaneName()]; ok {
		c.gate.Recall(now, m)
		delete(c.recall, item.LaneName())
	}
	c.acquire(now, item, &gate.Ticket{Call: limits.Call{ID: strconv.Itoa(item.ID), Lane: item.LaneName(), Tenant: strconv.Itoa(item.Tenant),
		Cost: limits.Cost{Input: item.Input, MaxOutput: item.Max}}})
}

func (c *client) acquire(now time.Time, item *worlds.Item, t *gate.Ticket) {
	if !c.gate.Acquire(now, t) {
		c.end(item, false)
		return
	}
	c.items[t] = item
}

func (c *client) Next(now time.Time) (send []*worlds.Attempt, wake time.Time) {
	for len(c.backoff) > 0 && !c.backoff[0].at.After(now) {
		r := c.backoff[0]
		c.backoff = c.backoff[1:]
		c.acquire(now, r.item, r.ticket)
	}
	c.gate.Tick(now)
	c.exchange(now)
	for _, t := range c.gate.Granted() {
		a := &worlds.Attempt{Item: c.items[t]}
		c.sent[a] = t
		c.gate.Sent(now, t)
		send = append(send, a)
	}
	wake = c.gate.Next()
	if len(c.backoff) > 0 && (wake.IsZero() || c.backoff[0].at.Before(wake)) {
		wake = c.backoff[0].at
	}
	if c.ledger != nil { // another instance may give back
		if soon := now.Add(20 * time.Millisecond); wake.IsZero() || soon.Before(wake) {
			wake = soon
		}
	}
	return send, wake
}

// exchange carries requests of the gate to the ledger, and the ledger's replies back.
func (c *client) exchange(now time.Time) {
	for c.ledger != nil {
		fixes, settles, asks := c.gate.Outbox()
		if len(fixes)+len(settles)+len(asks) == 0 {
			return
		}
		for lane := range c.world.Lanes {
			c.exchangeLane(now, (&worlds.Item{Lane: lane}).LaneName(), fixes, settles, asks)
		}
	}
}

func (c *client) exchangeLane(now time.Time, lane string, fixes []limits.Correction, settles []limits.Settlement, asks []limits.Asks) {
	b := gate.Batch{Lane: lane}
	for _, f := range fixes {
		if f.Lane == lane {
			b.Corrections = append(b.Corrections, f)
		}
	}
	for _, s := range settles {
		if s.Lane == lane {
			b.Settlements = append(b.Settlements, s)
		}
	}
	for _, a := range asks {
		if a.Lane == lane {
			b.Waiting, b.Asks, b.Test = a.Waiting, a.Calls, a.Test
		}
	}
	if len(b.Corrections)+len(b.Settlements)+len(b.Asks) == 0 {
		return
	}
	for _, t := range c.sent {
		if t.Call.Lane == lane {
			b.Renewed = append(b.Renewed, t.ID)
		}
	}
	if r, _ := c.ledger.Exchange(now, c.member, &b); len(b.Asks) > 0 {
		c.gate.Reply(now, lane, r)
	} else {
		c.gate.Told(now, lane, &r.State, false)
	}
}

func (c *client) Head(now time.Time, a *worlds.Attempt, r *worlds.Response) {
	c.gate.Answered(now, c.sent[a], c.provider.Readings(r.Header, now))
}

func (c *client) Done(now time.Time, a *worlds.Attempt, r *worlds.Response) {
	t, lane := c.sent[a], a.Item.LaneName()
	delete(c.sent, a)
	delete(c.items, t)
	o := c.outcome(now, r)
	d := c.gate.Release(now, t, &o)
	if c.memory != nil {
		c.memory[lane], _ = c.gate.Memory(now, lane)
	}
	if d.Action != gate.Again {
		c.end(a.Item, d.Action == gate.Done)
		return
	}
	next := &gate.Ticket{Call: t.Call, Attempt: t.Attempt, Throttles: t.Throttles, Throttled: t.Throttled, Overloads: t.Overloads,
		Queued: t.Queued, Order: t.Order, Front: true}
	switch {
	case !d.Throttle:
		next.Attempt++
	case o.Kind == limits.Overloaded:
		next.Overloads++
		fallthrough
	default:
		if next.Throttles++; next.Throttles == 1 {
			next.Throttled = now
		}
	}
	i, _ := slices.BinarySearchFunc(c.backoff, now.Add(d.Wait), func(r retry, at time.Time) int {
		return cmp.Or(r.at.Compare(at), -1) // after retries of the same instant
	})
	c.backoff = slices.Insert(c.backoff, i, retry{now.Add(d.Wait), a.Item, next})
}

// outcome is what a response means by the words of the provider package.
func (c *client) outcome(now time.Time, r *worlds.Response) limits.Outcome {
	switch {
	case r.Err == worlds.ErrDeadline:
		return limits.Outcome{Kind: limits.Timeout, Err: r.Err}
	case r.Err != nil:
		return limits.Outcome{Kind: limits.Network, Err: r.Err, Readings: c.provider.Readings(r.Header, now)}
	case r.Status == 200:
		o := limits.Outcome{Readings: c.provider.Readings(r.Header, now)}
		o.Usage, _, o.HasUsage = provider.ParseUsage(endpoint, r.Body)
		return o
	}
	o := provider.Classify(c.provider, r.Status, r.Header, r.Body, now).Outcome(c.provider, r.Status, "")
	o.Readings = c.provider.Readings(r.Header, now)
	return o
}
