package plan

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// LargestCall is the maximum number of input tokens, and of output tokens, of one call.
const LargestCall = 100_000_000

// What is assumed of a workload that does not say.
const (
	usualLatency = 2 * time.Second
	usualInput   = 1500 // of 2,000 tokens a request
	usualOutput  = 500
)

// The most that can be planned with. Beyond them a number is a slip, and sums would overflow.
const (
	mostLatency  = 30 * 24 * time.Hour
	mostRequests = 10_000_000_000
	maxProcesses = 1_000_000_000
)

// Workload describes the requests of a Plan. The zero Workload is endless and has assumed values.
type Workload struct {
	Requests int           // number of requests (0: the length of Calls, or endless if Calls is empty)
	Latency  time.Duration // mean time from sending a request to the end of the response (0: unknown, assumed as 2 s)

	// InputTokens and OutputTokens are mean values per call. By default, the plan assumes 1,500 input tokens, and
	// max_tokens or 500 output tokens. Plan.Assumed contains these assumptions.
	InputTokens  int  // mean input tokens (0: unknown)
	OutputTokens int  // mean output tokens (0: unknown)
	NoOutput     bool // true if the requests produce no output tokens, as for embeddings
	MaxTokens    int  // value of max_tokens in each request (0: not declared)

	// Calls contains all calls, or a sample of the calls if Requests is another number. For unknown values of a call,
	// the plan uses the Workload's means.
	Calls []Call
}

// Call describes one call of a workload.
type Call struct {
	Input     int // input tokens (0: unknown)
	MaxTokens int // value of max_tokens in the request (0: not declared)
	Output    int // output tokens of all choices (0: unknown, NoOutput: none)
	Answers   int // requested number of choices, such as n (0: one), which share MaxTokens
}

// NoOutput is the value of Call.Output for a call without output tokens.
const NoOutput = -1

// FieldError names the invalid field of the limits, the workload or the options.
type FieldError = fault.FieldError

func wrong(field, format string, args ...any) error {
	return &FieldError{Field: field, Err: fmt.Errorf(format, args...)}
}

// inRange refuses what lies outside 0 to most.
func inRange[N int | time.Duration](field string, n, most N) error {
	switch {
	case n < 0:
		return wrong(field, "%v is below zero", n)
	case n > most:
		return wrong(field, "%v is above the maximum of %v", n, most)
	}
	return nil
}

// check names the field that is wrong.
func (w Workload) check() error {
	err := cmp.Or(
		inRange("Workload.Requests", w.Requests, mostRequests),
		inRange("Workload.Latency", w.Latency, mostLatency),
		inRange("Workload.InputTokens", w.InputTokens, LargestCall),
		inRange("Workload.OutputTokens", w.OutputTokens, LargestCall),
		inRange("Workload.MaxTokens", w.MaxTokens, LargestCall),
	)
	if err != nil {
		return err
	}
	if w.NoOutput && w.OutputTokens > 0 {
		return wrong("Workload.OutputTokens", "%d is set, although requests have no output", w.OutputTokens)
	}
	if w.OutputTokens > w.MaxTokens && w.MaxTokens > 0 && len(w.Calls) == 0 {
		return wrong("Workload.OutputTokens", "%d is set, although max_tokens limits responses to %d", w.OutputTokens, w.MaxTokens)
	}
	for i, c := range w.Calls {
		if err := c.check(); err != nil {
			return &FieldError{Field: fmt.Sprintf("Workload.Calls[%d]", i), Err: err}
		}
	}
	return nil
}

// check refuses lengths that no call has.
func (c Call) check() error {
	switch {
	case min(c.Input, c.Output-NoOutput, c.MaxTokens) < 0 || max(c.Input, c.Output, c.MaxTokens) > LargestCall:
		return fmt.Errorf("%d input tokens, at most %d and probably %d output tokens: each must be 0 to %d", c.Input, c.MaxTokens, c.Output, LargestCall)
	case c.Answers < 0 || c.Answers > LargestCall/usualOutput:
		return fmt.Errorf("%d responses are requested: want 1 to %d", c.Answers, LargestCall/usualOutput)
	}
	return nil
}

// Assumption is a value that a plan assumes because the caller did not specify the value.
type Assumption struct {
	What  string `json:"what"`  // Name of the value, such as `latency`.
	Value string `json:"value"` // Value with its unit.
	Why   string `json:"why"`   // Reason for the assumption.
}

// demand is what calls need, summed up over them.
type demand struct {
	count    int // of calls that were added up
	charged  limits.Vector
	reserved limits.Vector
	input    float64 // used
	output   float64
	tooLarge int
}

// calls returns Calls, or a single one that states nothing.
func (w *Workload) calls() []Call {
	if len(w.Calls) == 0 {
		return []Call{{}}
	}
	return w.Calls
}

// census counts calls by what they state.
type census struct {
	all, noInput, noOutput, declare int
	cut                             int // output longer than max_tokens
}

func (w *Workload) census() (n census) {
	count := func(n *int, states bool) {
		if states {
			*n++
		}
	}
	for _, c := range w.calls() {
		n.all++
		most := cmp.Or(c.MaxTokens, w.MaxTokens)
		count(&n.noInput, c.Input == 0)
		count(&n.noOutput, c.Output == 0)
		count(&n.declare, most > 0)
		count(&n.cut, most > 0 && c.Output > most)
	}
	return n
}

// share says how many of the calls leave something out.
func (n *census) share(some int) string {
	if some < n.all {
		return fmt.Sprintf("not set by %d of %d requests", some, n.all)
	}
	return "not set"
}

// complete fills in what the workload leaves out, and returns that.
func (w Workload) complete(bounds sluice.Limits, o Options) (Workload, []Assumption) {
	var assumed []Assumption
	assume := func(what, value, why string) { assumed = append(assumed, Assumption{what, value, why}) }
	if w.Latency == 0 {
		w.Latency = usualLatency
		assume("latency", w.Latency.String(), "not set")
	}
	n := w.census()
	if n.noInput > 0 && w.InputTokens == 0 {
		w.InputTokens = usualInput
		assume("input_tokens", fmt.Sprint(usualInput), n.share(n.noInput))
	}
	if n.noOutput > 0 && w.OutputTokens == 0 && !w.NoOutput {
		value := fmt.Sprint(usualOutput)
		switch {
		case n.declare == n.all:
			value = "max_tokens"
		case n.declare > 0:
			value = fmt.Sprintf("max_tokens, or %d", usualOutput)
		}
		assume("output_tokens", value, n.share(n.noOutput))
	}
	if o.Charge == limits.ChargeDeclared && n.declare < n.all {
		charged := ": each request is charged only for its input"
		if bounds.OTPM > 0 {
			charged += ", and in otpm for its output"
		}
		assume("max_tokens", "none", n.share(n.all-n.declare)+charged)
	}
	if n.cut > 0 {
		assume("output_tokens", "max_tokens", fmt.Sprintf("%d of %d responses would be longer than max_tokens, and are cut", n.cut, n.all))
	}
	return w, assumed
}

// fill gives a call the means for what it leaves out. A call that uses more than it declares is cut by the provider.
func (w *Workload) fill(c Call) Call {
	if c.Input == 0 {
		c.Input = w.InputTokens
	}
	if c.MaxTokens == 0 {
		c.MaxTokens = w.MaxTokens
	}
	switch {
	case c.Output == NoOutput, c.Output == 0 && w.NoOutput:
		c.Output = 0
		return c
	case c.Output == 0:
		c.Output = cmp.Or(w.OutputTokens, c.MaxTokens, usualOutput*max(1, c.Answers))
	}
	if c.MaxTokens > 0 {
		c.Output = min(c.Output, c.MaxTokens)
	}
	return c
}

// demand adds up the calls of a workload that is complete.
func (w *Workload) demand(limits sluice.Limits, o Options) demand {
	var d demand
	for _, c := range w.calls() {
		d.add(w.fill(c), limits, o)
	}
	d.mean()
	return d
}

// charged is what a call that is complete counts against the limits in the end. Output that it does not bound counts where
// output is limited by itself, however a provider counts the two together.
func (c Call) charged(o Options) limits.Vector {
	cost := sluice.Cost{Input: c.Input, MaxOutput: c.MaxTokens}
	v := gate.Settled(o.Charge, true, cost, sluice.Usage{Input: c.Input, Output: c.Output})
	v[limits.OutputTokens] = max(v[limits.OutputTokens], float64(c.Output))
	return v
}

func (d *demand) add(c Call, bounds sluice.Limits, o Options) {
	cost := sluice.Cost{Input: c.Input, MaxOutput: c.MaxTokens}
	charged := c.charged(o)
	reserved := gate.Reserve(o.Charge, cost)
	for i := range charged {
		d.charged[i] += charged[i]
		d.reserved[i] += reserved[i]
	}
	for dim, limit := range bounds.All() {
		if *limit > 0 && charged[dim] > float64(*limit) {
			d.tooLarge++
			break
		}
	}
	d.count++
	d.input += float64(c.Input)
	d.output += float64(c.Output)
}

// mean turns sums into means.
func (d *demand) mean() {
	n := float64(d.count)
	for i := range d.charged {
		d.charged[i] /= n
		d.reserved[i] /= n
	}
	d.input /= n
	d.output /= n
}

// whole is n rounded down, but for what rounding took off before.
func whole(n float64) int { return int(math.Floor(n + min(1e-3, 1e-9*max(1, n)))) }
