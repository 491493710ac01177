// Package worlds measures schedulers in random worlds: simulated LLM providers in virtual time, with the limits, faults,
// storms and headers of real ones, and with right, wrong or missing configuration.
//
// [Random] makes a [World] of a seed, [Play] plays it with a [Client], and [Optimum] is the least time in which that can
// be done. The package knows nothing of the scheduler that it measures.
package worlds

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Dimension is something that a provider limits.
type Dimension string

// The dimensions: requests, tokens, input and output tokens per minute, requests per day, requests in flight.
const (
	RPM         Dimension = "rpm"
	TPM         Dimension = "tpm"
	ITPM        Dimension = "itpm"
	OTPM        Dimension = "otpm"
	RPD         Dimension = "rpd"
	Concurrency Dimension = "concurrency"
)

// The kinds of a limit: a token bucket; a fixed window by the clock, or one that its first request opens; a sliding window,
// or its estimate by two fixed windows, of which the one before counts in part.
const (
	Bucket   = ""
	Fixed    = "fixed"
	Opened   = "opened"
	Sliding  = "sliding"
	Estimate = "estimate"
)

// How a provider charges tokens against tpm and otpm. Input counts for itpm in every mode.
const (
	Declared = "declared" // max(input, max_tokens) at arrival, never returned; otpm: max_tokens
	Sum      = "sum"      // input + max_tokens at arrival, never returned
	Reserved = "reserved" // as Sum, but unused output is returned when the response ends
	Actual   = "actual"   // input at arrival, output as it is produced
)

// World describes one world completely: the same World is always played the same way.
type World struct {
	Seed    uint64    `json:"seed"` // of all that is drawn while it is played
	Load    Load      `json:"load"`
	Lanes   int       `json:"lanes"`             // models
	Lane    []Limit   `json:"lane,omitempty"`    // limits of each lane
	Account []Limit   `json:"account,omitempty"` // limits of all lanes together
	Charge  Charge    `json:"charge,omitzero"`
	Serve   Serve     `json:"serve"`
	Show    Show      `json:"show,omitzero"`
	Changes []Change  `json:"changes,omitempty"`
	Storms  []Storm   `json:"storms,omitempty"`
	Faults  Faults    `json:"faults,omitzero"`
	Odd     []Odd     `json:"odd,omitempty"`
	Foreign Foreign   `json:"foreign,omitzero"`
	Config  Config    `json:"config"`
	Procs   Processes `json:"procs,omitzero"`
}

// Load describes the items of a world.
type Load struct {
	Items    int     `json:"items"`
	Tenants  int     `json:"tenants,omitempty"`  // default 1
	Input    int     `json:"input,omitempty"`    // mean input tokens; default 100
	Max      int     `json:"max,omitempty"`      // max_tokens; default 100
	Output   float64 `json:"output,omitempty"`   // mean share of max_tokens that is produced; default 0.5
	Spread   float64 `json:"spread,omitempty"`   // sigma of the input's lognormal distribution
	Estimate float64 `json:"estimate,omitempty"` // estimated ÷ true input tokens; default 1
	Late     Seconds `json:"late,omitempty"`     // when the last third of the items is added
}

// Limit is one limit of a provider.
type Limit struct {
	Dim    Dimension `json:"dim"`
	N      float64   `json:"n"`                // per minute; per day for RPD; at once for Concurrency
	Kind   string    `json:"kind,omitempty"`   // Bucket, Fixed, Opened, Sliding or Estimate
	Burst  Seconds   `json:"burst,omitempty"`  // seconds of refill that a bucket holds; a window's length
	Phase  Seconds   `json:"phase,omitempty"`  // Fixed, Estimate: the age of the first window at time zero
	Used   float64   `json:"used,omitempty"`   // share that is used up at time zero
	Late   Seconds   `json:"late,omitempty"`   // Concurrency: how long a finished request still counts
	Status int       `json:"status,omitempty"` // of its rejections; default 429
}

// minute returns the seconds to which N refers.
func (l Limit) minute() float64 {
	if l.Dim == RPD {
		return 24 * 60 * 60
	}
	return 60
}

// Charge describes how a provider charges requests.
type Charge struct {
	Tokens   string `json:"tokens,omitempty"`   // Declared, Sum, Reserved or Actual; default Declared
	Rejected bool   `json:"rejected,omitempty"` // rejected requests are charged
	Overload bool   `json:"overload,omitempty"` // requests answered with 503 or 529 are charged
}

// Serve says how fast a provider answers and how far away it is.
type Serve struct {
	Latency Seconds `json:"latency"`
	Spread  float64 `json:"spread,omitempty"`  // sigma of the latency's lognormal distribution; 0: fixed
	Tail    float64 `json:"tail,omitempty"`    // share of requests that take five times as long
	Stream  bool    `json:"stream,omitempty"`  // headers come after a fifth of the latency, not at the end
	Workers int     `json:"workers,omitempty"` // requests served at once, others wait at the provider; 0: all
	Up      Seconds `json:"up,omitempty"`      // network delay of a request
	Down    Seconds `json:"down,omitempty"`    // network delay of a response
	Jitter  Seconds `json:"jitter,omitempty"`  // further delay of a request, at most
	Reject  Seconds `json:"reject,omitempty"`  // time that a rejection takes at the provider
}

// Show describes how a provider reports its limits. Its texts are in response.go.
type Show struct {
	Dialect    string  `json:"dialect,omitempty"`     // "openai" (default), "anthropic", "gemini" or "bare"
	Headers    string  `json:"headers,omitempty"`     // "" (none), "right", "rounded", "early", "end", "cached", "constant", "other", "units", or as forms
	Only       string  `json:"only,omitempty"`        // "ok" or "429": the responses that have headers; default all
	Cached     Seconds `json:"cached,omitempty"`      // age up to which "cached" figures are shown
	RetryAfter string  `json:"retry_after,omitempty"` // "" (none), "right", "ms", "short", "constant", "date"
	Constant   Seconds `json:"constant,omitempty"`    // the value of a "constant" Retry-After
	Skew       Seconds `json:"skew,omitempty"`        // how far the provider's clock is ahead
	Body       string  `json:"body,omitempty"`        // of a 429: "" (bare), "named", "figures", "wait", "wrong", "contradictory", "law", "page", "overflow"
}

// Change is a change of limits: those of Dim, or of all but RPD and Concurrency, are multiplied by Factor.
type Change struct {
	At     Seconds   `json:"at"`
	Dim    Dimension `json:"dim,omitempty"`
	Factor float64   `json:"factor"`
}

// Storm is a time in which a provider rejects everything.
type Storm struct {
	At         Seconds `json:"at"`
	For        Seconds `json:"for"`
	Status     int     `json:"status"`
	RetryAfter Seconds `json:"retry_after,omitempty"` // 0: none; negative: the time until the end
}

// Faults are shares of the requests that a provider has room for.
type Faults struct {
	Fast       float64 `json:"fast,omitempty"`  // answered with 500 at once
	Slow       float64 `json:"slow,omitempty"`  // answered with 500 after the usual latency
	Reset      float64 `json:"reset,omitempty"` // the connection breaks
	Hang       float64 `json:"hang,omitempty"`  // never answered
	Stray      float64 `json:"stray,omitempty"` // answered with 429
	Overloaded float64 `json:"overloaded,omitempty"`
	Status     int     `json:"status,omitempty"` // of Overloaded: 503 or 529 (default)
}

// Odd are items that can't succeed.
type Odd struct {
	Kind   string `json:"kind"` // "500", "429" (without words), "words" (429 of another kind), "hang", "large"
	Count  int    `json:"count"`
	Spread bool   `json:"spread,omitempty"` // over all items; otherwise they come first
}

// Foreign are other clients of the account.
type Foreign struct {
	Share float64 `json:"share,omitempty"` // of the binding limit, on average
	Burst int     `json:"burst,omitempty"` // requests that come at once; default 1
}

// Processes are instances of the client, which share the items.
type Processes struct {
	N      int       `json:"n,omitempty"`      // default 1
	Ledger bool      `json:"ledger,omitempty"` // they share a ledger
	Kills  []Seconds `json:"kills,omitempty"`  // instants at which all are killed and started anew
}

// Config holds the limits and options that the user configured.
type Config struct {
	Limits   []Limit `json:"limits,omitempty"`  // only Dim and N matter
	Account  bool    `json:"account,omitempty"` // they are limits of the account, not of each lane
	Burst    Seconds `json:"burst,omitempty"`   // 0: not configured
	Charge   string  `json:"charge,omitempty"`
	Attempts int     `json:"attempts,omitempty"` // default 6
	Deadline Seconds `json:"deadline,omitempty"` // of one attempt; default 60
}

// limit returns the configured limit of a dimension, or 0.
func (t Config) limit(d Dimension) float64 {
	for _, l := range t.Limits {
		if l.Dim == d {
			return l.N
		}
	}
	return 0
}

func (t Config) attempts() int           { return cmp.Or(t.Attempts, 6) }
func (t Config) deadline() time.Duration { return cmp.Or(t.Deadline, 60).span() }

// Item is one unit of work.
type Item struct {
	ID       int
	Lane     int
	Tenant   int
	Input    int // input tokens as the client estimates them
	Max      int // max_tokens
	At       time.Duration
	Instance int // of the client
	input    int
	output   int
	odd      string
}

// Odd reports whether the item can't succeed.
func (i *Item) Odd() bool { return i.odd != "" }

// LaneName returns the model that an item asks for.
func (i *Item) LaneName() string { return "model-" + strconv.Itoa(i.Lane) }

// Streams of draws.
const (
	streamInput = 10 * (iota + 1)
	streamOutput
	streamLatency
	streamTail
	streamFault
	streamJitter
	streamLoop
)

// Items returns the items of the world, in the order of the queue.
func (w *World) Items() []*Item {
	load := w.Load
	items := make([]*Item, load.Items)
	for i := range items {
		input := float64(cmp.Or(load.Input, 100)) * math.Exp(load.Spread*normal(w.Seed, streamInput, i)-load.Spread*load.Spread/2)
		item := &Item{ID: i, Lane: i % max(w.Lanes, 1), Tenant: i % max(load.Tenants, 1), Max: cmp.Or(load.Max, 100)}
		item.input = max(1, int(input))
		share := cmp.Or(load.Output, 0.5) * (0.5 + draw(w.Seed, streamOutput, i))
		item.output = max(1, int(min(1, share)*float64(item.Max)))
		if load.Late > 0 && i >= load.Items*2/3 {
			item.At = load.Late.span()
		}
		item.Instance = i / max(w.Lanes, 1) % max(w.Procs.N, 1)
		items[i] = item
	}
	w.clip(items)
	w.makeOdd(items)
	for _, item := range items {
		item.Input = max(1, int(float64(item.input)*cmp.Or(load.Estimate, 1)))
	}
	return items
}

// clip makes each item so small that every limit has room for it.
func (w *World) clip(items []*Item) {
	for _, l := range w.limits() {
		full := newMeter(l).size() * 0.9 * w.lowest(l.Dim)
		for _, item := range items {
			for l.Dim != RPM && l.Dim != RPD && l.Dim != Concurrency && max(w.cost(l.Dim, item), w.total(l.Dim, item)) > full && item.Max+item.input > 2 {
				item.input, item.Max = (item.input+1)/2, (item.Max+1)/2
				item.output = min(item.output, item.Max)
			}
		}
	}
}

// lowest returns the least factor by which changes multiply the limits of a dimension, at most 1.
func (w *World) lowest(d Dimension) float64 {
	least, factor := 1.0, 1.0
	for _, c := range w.Changes {
		if c.concerns(d) {
			factor *= c.Factor
			least = min(least, factor)
		}
	}
	return least
}

func (c Change) concerns(d Dimension) bool {
	return c.Dim == d || c.Dim == "" && d != RPD && d != Concurrency
}

func (w *World) makeOdd(items []*Item) {
	next := 0
	for _, odd := range w.Odd {
		for i := range min(odd.Count, len(items)) {
			at := next + i
			if odd.Spread {
				at = i*len(items)/odd.Count + len(items)/(2*odd.Count) + i%max(w.Lanes, 1)
			}
			if at >= len(items) {
				break
			}
			items[at].odd = odd.Kind
			if odd.Kind == "large" {
				items[at].input = w.tooLarge()
			}
		}
		if !odd.Spread {
			next += odd.Count
		}
	}
}

// tooLarge returns input tokens that no limit and no model has room for.
func (w *World) tooLarge() int {
	tokens := 300_000.0
	for _, l := range w.limits() {
		if l.Dim == TPM || l.Dim == ITPM {
			tokens = max(tokens, 1.5*l.N)
		}
	}
	return int(tokens)
}

// limits returns the limits of a lane: its own and the limits of the account.
func (w *World) limits() []Limit {
	return append(w.Lane[:len(w.Lane):len(w.Lane)], w.Account...)
}

// cost returns the charge of an item at arrival.
func (w *World) cost(d Dimension, item *Item) float64 {
	switch {
	case d == ITPM || d == TPM && w.Charge.Tokens == Actual:
		return float64(item.input)
	case d == OTPM && w.Charge.Tokens == Actual:
		return 0
	default:
		return declared(w.Charge.Tokens, d, item.input, item.Max)
	}
}

// total returns the charge of an item once its response has ended.
func (w *World) total(d Dimension, item *Item) float64 {
	switch {
	case d == TPM && (w.Charge.Tokens == Actual || w.Charge.Tokens == Reserved):
		return float64(item.input + item.output)
	case d == OTPM && (w.Charge.Tokens == Actual || w.Charge.Tokens == Reserved):
		return float64(item.output)
	default:
		return w.cost(d, item)
	}
}

// meanCost returns the final charge of a mean item; at least its charge at arrival if that is never returned.
func (w *World) meanCost(d Dimension) float64 {
	item := w.meanItem()
	if w.Charge.Tokens == Reserved {
		return w.total(d, item)
	}
	return max(w.cost(d, item), w.total(d, item))
}

// declared returns the charge that is known before a request is sent.
func declared(mode string, d Dimension, input, maxTokens int) float64 {
	switch {
	case d == ITPM:
		return float64(input)
	case d == OTPM:
		return float64(maxTokens)
	case d != TPM:
		return 1
	case mode == "" || mode == Declared:
		return float64(max(input, maxTokens))
	default:
		return float64(input + maxTokens)
	}
}

// Class returns the world's class: "troubled" if there are changes, storms, faults, kills or other users of the limits;
// otherwise the knowledge of the limits, where "partly" includes wrong configuration.
func (w *World) Class() string {
	if w.Shared() || w.Faulty() || len(w.Changes)+len(w.Storms)+len(w.Procs.Kills) > 0 {
		return "troubled"
	}
	return map[string]string{"right": "known", "partly": "partly", "wrong": "partly", "unknown": "unknown"}[w.Knowledge()]
}

// Shared reports whether another client, process or lane uses the limits and the configuration does not say so.
func (w *World) Shared() bool {
	return w.Foreign.Share > 0 || w.Procs.N > 1 && !w.Procs.Ledger || w.Lanes > 1 && len(w.Account) > 0 && !w.Config.Account
}

// Faulty reports whether requests fail for which there is room.
func (w *World) Faulty() bool { return w.Faults != Faults{} || len(w.Odd) > 0 }

// Knowledge returns how much the client can know of the limits before it meets them: "right" if each is configured rightly
// or shown in right headers, "wrong" if any is configured wrongly, "unknown" if none is known, otherwise "partly".
func (w *World) Knowledge() string {
	known, wrong, all := 0, false, 0
	form, limiter := forms[w.Show.Headers]
	shown := w.Show.Headers == "right" || w.Show.Headers == "rounded" || form.policy != ""
	hinted := w.Show.Headers != "" && w.Show.Headers != "constant" && w.Show.Headers != "other"
	for _, l := range w.limits() {
		if l.Dim == RPD {
			continue
		}
		all++
		configured := w.Config.limit(l.Dim)
		_, named := headerNames[cmp.Or(w.Show.Dialect, "openai")][l.Dim]
		named = named || limiter && l.Dim == RPM
		switch {
		case configured > 0 && math.Abs(configured/l.N-1) > 0.02:
			wrong = true
		case configured > 0 && (shown || l.Dim != TPM && l.Dim != OTPM || w.charges() == w.Config.Charge), shown && named:
			known++
		case hinted && named, configured > 0:
			known, all = known+1, all+1
		}
	}
	switch {
	case wrong:
		return "wrong"
	case known == all:
		return "right"
	case known == 0:
		return "unknown"
	}
	return "partly"
}

// charges returns the mode in which the provider charges tokens.
func (w *World) charges() string { return cmp.Or(w.Charge.Tokens, Declared) }

// Line returns the world as one line, which Parse reads.
func (w *World) Line() string {
	line, err := json.Marshal(w)
	if err != nil {
		panic(err) // a World has no values that JSON lacks
	}
	return string(line)
}

// Parse reads a world: a seed of draw, or the JSON of Line.
func Parse(line string, draw func(seed uint64) *World) (*World, error) {
	line = strings.TrimSpace(line)
	if seed, err := strconv.ParseUint(line, 10, 64); err == nil {
		return draw(seed), nil
	}
	w := new(World)
	decoder := json.NewDecoder(bytes.NewReader([]byte(line)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(w); err != nil {
		return nil, fmt.Errorf("world: %w", err)
	}
	return w, nil
}
