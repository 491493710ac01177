package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// MaxTaskBytes is the maximum size of a request that a Remote is given, its custom_id and model included: what Remotes are
// made of keeps all of it in memory, and copies it several times.
const MaxTaskBytes = 8_000_000

// mostName bounds a model's name in a task, far above any there is.
const mostName = 512

// Task is a call that is to be made elsewhere. Nothing in it says where that is, with which key, or by which program.
type Task struct {
	ID       string            `json:"id"`   // custom_id
	Number   int               `json:"line"` // from 1
	Hash     work.Hash         `json:"input"`
	Model    string            `json:"model"`
	Endpoint provider.Endpoint `json:"url"`
	Bound    string            `json:"bound,omitempty"` // the member of the body that bounds the output, if Sluice added it; else ""
	Again    bool              `json:"again,omitempty"` // as in work.Item
	Body     []byte            `json:"-"`               // crosses as it is

	// Terms are what its tries are held to. They cross apart from the task, since all of a run have the same.
	Terms *Terms `json:"-"`

	// Withdrawn is closed when the run makes no more calls, or when the task is not this worker's any more: the call is not to be
	// begun then, and is waited for if it was. It does not cross.
	Withdrawn <-chan struct{} `json:"-"`
}

// AppendTask appends the task as it crosses.
func AppendTask(b []byte, t *Task) []byte { return appendWire(b, t, t.Body) }

// ParseTask reads what AppendTask wrote, and checks all of it. The task shares the memory of b.
func ParseTask(b []byte) (t *Task, err error) {
	t = &Task{}
	if t.Body, err = parseWire(b, t); err != nil {
		return nil, err
	}
	switch {
	case t.ID == "" || t.Number < 1 || t.Hash == work.Hash{} || t.Endpoint == provider.NoEndpoint:
		return nil, errors.New("the task has no id, line number, hash or endpoint")
	case len(t.Body)+len(t.ID)+len(t.Model) > MaxTaskBytes:
		return nil, fmt.Errorf("the request has %d bytes, but the maximum is %d", len(t.Body), MaxTaskBytes)
	case t.Bound != "" && provider.OtherBound(t.Bound) == "":
		return nil, fmt.Errorf("%s is not a field that limits the output tokens", clip([]byte(t.Bound)))
	case t.Model == "" || len(t.Model) > mostName:
		return nil, errors.New("the model name is empty or too long")
	case len(t.Body) == 0 || t.Body[0] != '{' || !jsonscan.Valid(t.Body):
		return nil, errors.New("the request is not a JSON object")
	}
	_, err = t.Endpoint.Path(t.Model)
	return t, err
}

// Terms are the limits and checks of the attempts of one item: count, timeout, schema.
type Terms struct {
	Attempts  int           `json:"attempts"`  // see sluice.Call
	Throttles int           `json:"throttles"` // see sluice.Call.MaxThrottles
	Timeout   time.Duration `json:"timeout"`   // see Config.Timeout
	Schema    string        `json:"schema,omitempty"`
	FailOn    string        `json:"fail_on,omitempty"` // see FailOn.UnmarshalText
	Feedback  bool          `json:"feedback,omitempty"`

	check func(id string, e provider.Endpoint, body []byte) error // nil accepts all
}

// mostSchema bounds the schema that a worker compiles: that of the command line's own bound.
const mostSchema = 1 << 20

// The most that a run may ask of workers that it does not know: what is above is of a damaged or a hostile store.
const (
	mostAttempts    = 10_000
	longestAttempt  = 24 * time.Hour
	shortestAttempt = time.Millisecond
)

// Append appends the terms as they cross.
func (t *Terms) Append(b []byte) []byte { return appendWire(b, t, nil) }

// ParseTerms reads what Append wrote, and compiles the schema. It trusts nothing of it.
func ParseTerms(b []byte) (*Terms, error) {
	t := &Terms{}
	rest, err := parseWire(b, t)
	switch {
	case err != nil:
	case len(rest) > 0:
		err = errors.New("unexpected data follows")
	case t.Attempts < 1 || t.Attempts > mostAttempts || t.Throttles > mostAttempts:
		err = fmt.Errorf("the maximum number of attempts (%d) or of rate-limited attempts (%d) is out of range", t.Attempts, t.Throttles)
	case t.Timeout != 0 && t.Timeout < shortestAttempt || t.Timeout > longestAttempt:
		err = fmt.Errorf("the timeout of %v is out of range", t.Timeout)
	case len(t.Schema) > mostSchema:
		err = fmt.Errorf("the schema has %d bytes, but the maximum is %d", len(t.Schema), mostSchema)
	default:
		err = t.compile()
	}
	if err != nil {
		return nil, fmt.Errorf("settings of the run: %w", err)
	}
	return t, nil
}

// compile makes the check of the attempts.
func (t *Terms) compile() (err error) {
	var rules Rules
	if err = rules.FailOn.UnmarshalText([]byte(t.FailOn)); err == nil && t.Schema != "" {
		rules.Schema, err = ParseSchema([]byte(t.Schema))
	}
	if rules != (Rules{}) {
		t.check = rules.Check
	}
	return err
}

// Answer is what came of a task.
type Answer struct {
	Input   string       `json:"input"`             // the task's hash, in digits
	Refused bool         `json:"refused,omitempty"` // it was no task that can be read, of whatever request
	Kind    sluice.Kind  `json:"kind"`
	Scope   limits.Scope `json:"scope,omitempty"`   // see sluice.Outcome
	Message string       `json:"message,omitempty"` // why it failed
	Tally   sluice.Tally `json:"tally"`

	Unmetered int `json:"unmetered,omitempty"` // attempts that may be billed, and whose responses state no usage
	work.Response
	work.Charge // by the prices that the worker knows
}

// AppendAnswer appends the answer as it crosses.
func AppendAnswer(b []byte, a *Answer) []byte { return appendWire(b, a, a.Payload) }

// ParseAnswer reads what AppendAnswer wrote. What it returns shares the memory of b.
func ParseAnswer(b []byte) (a *Answer, err error) {
	a = &Answer{}
	a.Payload, err = parseWire(b, a)
	t, u := &a.Tally, &a.Tally.Usage
	negative := min(t.Attempts, t.Throttles, a.Unmetered, a.Unpriced, a.Status, u.Input, u.Output) < 0 ||
		min(t.Queued, t.Cooldown, t.Backoff, t.Latency) < 0 || min(a.Cost, a.Estimated) < 0
	if err == nil && (negative || a.Status > 999 || a.Kind.Fatal()) {
		err = errors.New("a field has a value out of range")
	}
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	return a, nil
}

// wireVersion begins what crosses between a Batch and a Worker: programs of another version refuse it.
const wireVersion = "sluice-wire 1 "

// appendWire appends what crosses: the version, a head as one line of JSON, and a body as it is.
func appendWire(b []byte, head any, body []byte) []byte {
	text, err := json.Marshal(head)
	if err != nil {
		panic("batch: " + err.Error()) // heads are made of texts and numbers
	}
	b = append(slices.Grow(b, len(wireVersion)+len(text)+1+len(body)), wireVersion...)
	return append(append(append(b, text...), '\n'), body...)
}

// parseWire reads the head of what appendWire wrote, and returns the body; nil if it is empty.
func parseWire(b []byte, head any) (body []byte, err error) {
	line, body, ok := bytes.Cut(b, []byte{'\n'})
	text, same := bytes.CutPrefix(line, []byte(wireVersion))
	version, _, _ := bytes.Cut(line, []byte("{"))
	switch {
	case !bytes.HasPrefix(line, []byte("sluice-wire ")):
		return nil, errors.New("the data was not written by Sluice")
	case !same:
		return nil, fmt.Errorf("the data has version %s, but this program reads version %s",
			clip(bytes.TrimSpace(version)), strings.TrimSpace(wireVersion))
	case !ok:
		return nil, errors.New("cut off")
	case json.Unmarshal(text, head) != nil:
		return nil, errors.New("the first line is not valid")
	case len(body) == 0:
		return nil, nil
	}
	return body, nil
}
