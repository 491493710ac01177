package budget

import (
	"math"
	"slices"
	"sync"

	"github.com/sluice-llm/sluice/limits"
)

// Units of an Amount.
const (
	USD    = iota // in units of 1e-12 US dollars, in which sums are exact
	Tokens        // input and output
	numUnits
)

// Dollar is the number of units in a US dollar.
const Dollar = 1e12

// Amount is an amount of money and of tokens.
type Amount [numUnits]float64

// Plus returns the sum of a and n times b.
func (a Amount) Plus(n float64, b Amount) Amount {
	return Amount{a[USD] + n*b[USD], a[Tokens] + n*b[Tokens]}
}

const (
	recentResponses = 64   // that corrections are taken of
	unknownOutput   = 4096 // tokens that are expected of a model whose maximum output is unknown
)

// Model corrects the estimates of requests to one model by its responses. It is safe for concurrent use.
type Model struct {
	mu       sync.Mutex
	input    float64 // measured over estimated input of recent responses; at least 1
	declared float64 // output over declared maximum: the highest, at least 1
	output   float64 // expected of a request that declares no maximum
	recent   [recentResponses]response
	n        int // responses
}

// response is the usage that a response stated, and the input that was estimated for its request.
type response struct{ estimated, input, output float64 }

// NewModel returns a Model of which nothing is learned. Until then, a request that declares no maximum output is expected to use maxOutput.
func NewModel(maxOutput float64) *Model { return &Model{input: 1, declared: 1, output: maxOutput} }

// Learn takes in the usage of a response, and the estimate of its request.
func (m *Model) Learn(c limits.Cost, in, out float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recent[m.n%recentResponses] = response{float64(max(1, c.Input)), in, out}
	m.n++
	recent := m.recent[:min(m.n, recentResponses)]
	var outputs [recentResponses]float64
	estimated, input := 0.0, 0.0
	for i, r := range recent {
		outputs[i], estimated, input = r.output, estimated+r.estimated, input+r.input
	}
	slices.Sort(outputs[:len(recent)])
	m.input = max(1, input/estimated)
	m.output = outputs[(len(recent)*95+99)/100-1]
	if c.MaxOutput > 0 {
		m.declared = max(m.declared, out/float64(c.MaxOutput))
	}
}

// maxModels bounds the Models that are kept, as clients of the gateway name them. Beyond it, all are learned anew.
const maxModels = 1000

// Models are the Models of a process, by any comparable key. The zero value is ready, and safe for concurrent use.
type Models struct {
	mu    sync.Mutex
	byKey map[any]*Model
}

// Of returns the Model of a key. maxOutput is the maximum output of a new one in tokens; 0 is unknown.
func (m *Models) Of(key any, maxOutput int) *Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.byKey[key]
	if one == nil {
		if maxOutput == 0 {
			maxOutput = unknownOutput
		}
		one = NewModel(float64(maxOutput))
		if m.byKey == nil || len(m.byKey) == maxModels {
			m.byKey = make(map[any]*Model)
		}
		m.byKey[key] = one
	}
	return one
}

// Estimate is the amount that a request may use, in parts that its Model corrects.
type Estimate struct {
	Model    *Model
	Input    Amount // of the estimated input
	Declared Amount // of the maximum output that the request declares
	Unstated Amount // of one token of output, if it declares none
}

// Amount returns the corrected estimate.
func (e *Estimate) Amount() Amount {
	m := e.Model
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := Amount{}.Plus(m.input, e.Input).Plus(m.declared, e.Declared).Plus(m.output, e.Unstated)
	return Amount{math.Ceil(sum[USD]), math.Ceil(sum[Tokens])}
}

// Plus adds n times another estimate of the same Model.
func (e *Estimate) Plus(n float64, o *Estimate) {
	e.Input, e.Declared, e.Unstated = e.Input.Plus(n, o.Input), e.Declared.Plus(n, o.Declared), e.Unstated.Plus(n, o.Unstated)
}

// Cap is an amount that requests may use. Its methods must not be called at the same time.
type Cap struct {
	Limit Amount // a zero limits nothing
	Used  Amount // by requests that are finished

	open map[*Model]*Estimate // sums of the open requests
}

// Open adds an open request.
func (c *Cap) Open(e *Estimate) {
	sum := c.open[e.Model]
	if sum == nil {
		sum = &Estimate{Model: e.Model}
		if c.open == nil {
			c.open = make(map[*Model]*Estimate)
		}
		c.open[e.Model] = sum
	}
	sum.Plus(1, e)
}

// Close removes an open request, and adds the amount that it used.
func (c *Cap) Close(e *Estimate, used Amount) {
	if sum := c.open[e.Model]; sum != nil {
		if sum.Plus(-1, e); *sum == (Estimate{Model: e.Model}) { // nothing is open, or it costs nothing
			delete(c.open, e.Model)
		}
	}
	c.Used = c.Used.Plus(1, used)
}

// Held returns the corrected estimates of all open requests.
func (c *Cap) Held() (sum Amount) {
	for _, e := range c.open {
		sum = sum.Plus(1, e.Amount())
	}
	return sum
}

// Fits reports whether an amount fits beside the amount that was used and the open requests.
func (c *Cap) Fits(more Amount) bool { return c.FitsLater(c.Held().Plus(1, more)) }

// FitsLater reports whether an amount would fit if all open requests used nothing.
func (c *Cap) FitsLater(more Amount) bool {
	return c.Exceeded(more) < 0
}

// Exceeded returns the unit of the limit that an amount exceeds beside the amount that was used; below zero: none.
func (c *Cap) Exceeded(more Amount) int {
	for unit, limit := range c.Limit {
		if limit > 0 && c.Used[unit]+more[unit] > limit {
			return unit
		}
	}
	return -1
}
