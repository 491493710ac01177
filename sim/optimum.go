package sim

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"net/http"
	"net/url"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// Request is one item of a Workload.
type Request struct {
	// Input is the number of input tokens. MaxTokens is the declared maximum of output tokens (0: none).
	Input, MaxTokens int
	// Output is the number of output tokens. Zero selects the value from the Config. A negative Output means none, as for embeddings.
	Output int

	hash hash // of the body, if there is one
}

// Workload is a list of requests in the order in which a client sends them.
type Workload []Request

// Workload returns the requests that POST the given bodies to path, with the tokens and random choices of a [Server] with this
// Config. Workload omits invalid requests, which the Server would reject. If c is invalid, Workload panics.
func (c Config) Workload(path string, bodies ...[]byte) Workload {
	c.Key = ""
	s, err := New(c)
	if err != nil {
		panic(err)
	}
	target, err := url.Parse(path)
	if err != nil {
		panic(err)
	}
	w := make(Workload, 0, len(bodies))
	for _, body := range bodies {
		call, no := s.receive(http.MethodPost, target, anyVersion(), body)
		if no != nil {
			continue
		}
		r := Request{Input: call.input, MaxTokens: call.maxTokens * call.choices, Output: call.perChoice * call.choices, hash: call.hash}
		if r.Output == 0 {
			r.Output = -1
		}
		w = append(w, r)
	}
	return w
}

// Optimum returns the minimum time in which a client can complete w, counted from the first request. The client knows the provider's
// complete state, is never rejected, and has a network without delay. Optimum computes the shortest possible time from c, including
// bursts, concurrency, Queue, latency, storms of rejections, changes of limits, and faults.
//
// The client sends requests in order, each as early as the provider admits it, and retries failed requests first. With token limits,
// another order could be slightly faster. For requests that [Config.Workload] did not create, the position in w determines the random
// choices. Optimum ignores SpentAfter, Faults.Throttled, and requests that are too large for a limit. Contention counts as a Queue of
// the same length. Optimum panics if c is invalid.
func (c Config) Optimum(w Workload) time.Duration {
	c, err := c.withDefaults()
	if err != nil {
		panic(err)
	}
	o := optimum{config: &c, budgets: newBudgets(c), places: places{n: c.Queue}}
	if n := c.Contention; n > 0 && (c.Queue == 0 || n < c.Queue) {
		o.places.n = n
	}
	for i := range w {
		o.items = append(o.items, c.item(i, w[i]))
	}
	return o.run()
}

// item is a request that is to be answered.
type item struct {
	Request
	attempts uint32
}

func (c *Config) item(i int, r Request) *item {
	c.settle(i, &r)
	return &item{Request: r}
}

// settle decides what r leaves open, as item i of a workload.
func (c *Config) settle(i int, r *Request) {
	if r.hash == (hash{}) {
		binary.LittleEndian.PutUint64(r.hash[:8], uint64(i)+1)
	}
	if r.Output == 0 {
		r.Output, _ = c.answerTokens(r.hash, r.MaxTokens)
	}
	r.Output = max(r.Output, 0)
}

// optimum is a run in virtual time.
type optimum struct {
	config  *Config
	budgets *budgets
	now     time.Duration
	again   []*item // to be repeated, which goes before
	items   []*item // what is left
	open    events
	places  places
}

// event is the end of an open call.
type event struct {
	at     time.Duration
	output int   // tokens to charge
	repeat *item // nil: answered
}

// maxAttempts ends a workload that can never succeed.
const maxAttempts = 1000

func (o *optimum) run() time.Duration {
	var last time.Duration
	for {
		o.settle()
		queue := &o.items
		if len(o.again) > 0 {
			queue = &o.again
		}
		if len(*queue) == 0 {
			if len(o.open) == 0 {
				return last
			}
			o.now = o.open[0].at
			continue
		}
		passed, gone := o.admit((*queue)[0])
		if passed {
			if end := o.begin((*queue)[0]); end.repeat == nil {
				last = max(last, end.at)
			}
		}
		if passed || gone {
			*queue = (*queue)[1:]
		}
	}
}

// admit reports whether an item may pass now, or never; else it moves time to
// when that may be different.
func (o *optimum) admit(it *item) (passed, gone bool) {
	if storm, ok := o.config.stormAt(o.now); ok {
		o.now = storm.To
		return false, false
	}
	if o.config.Concurrency > 0 && len(o.open) >= o.config.Concurrency {
		o.now = o.open[0].at
		return false, false
	}
	price := costOf(o.config.Charge, it.Input, it.MaxTokens)
	short, ok := o.budgets.take(o.now, &price)
	if ok || short.tooLarge {
		return ok, short.tooLarge
	}
	next := o.now + max(short.exact, 1)
	if at, ok := o.budgets.nextChange(); ok {
		next = min(next, at)
	}
	if len(o.open) > 0 {
		next = min(next, o.open[0].at) // which may charge, or bring an item back
	}
	o.now = next
	return false, false
}

// settle ends the calls that are over by now.
func (o *optimum) settle() {
	for len(o.open) > 0 && o.open[0].at <= o.now {
		end := heap.Pop(&o.open).(event)
		if o.config.Charge == limits.ChargeActual {
			o.budgets.produced(end.at, end.output)
		}
		if end.repeat != nil && end.repeat.attempts < maxAttempts {
			o.again = append(o.again, end.repeat)
		}
	}
}

// begin opens an admitted call.
func (o *optimum) begin(it *item) event {
	plan := o.config.plan(it.hash, it.attempts, it.Output)
	it.attempts++
	end := event{repeat: it}
	took := plan.latency
	switch plan.fault {
	case noFault:
		took, end.output, end.repeat = plan.whole(), it.Output, nil
	case faultCut:
		took, end.output = plan.whole(), it.Output
	case faultOverloaded:
		took = o.config.RefusalLatency
	case faultHang:
		took = 0 // who knows everything does not wait for it
	}
	end.at = o.places.pass(o.now, took)
	heap.Push(&o.open, end)
	return end
}

// events is a heap by time.
type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return cmp.Less(e[i].at, e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}
