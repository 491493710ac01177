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

// taskVersion begins what crosses between a Batch and a Worker: programs of another version refuse it.
const taskVersion = "sluice-task 1 "

// mostName bounds a model's name in a task, far above any there is.
const mostName = 512

// Task is a call that is to be made elsewhere. Nothing in it says where that is, with which key, or by which program.
type Task struct {
	ID       string // custom_id
	Number   int    // of its line, from 1
	Hash     work.Hash
	Model    string
	Endpoint provider.Endpoint
	Body     []byte
	Bound    string // the member of the body that bounds the output, if Sluice added it; else ""
	Again    bool   // as in work.Item

	// Terms are what its tries are held to. They cross apart from the task, since all of a run have the same.
	Terms *Terms

	// Withdrawn is closed when the run makes no more calls, or when the task is not this worker's any more: the call is not to be
	// begun then, and is waited for if it was. It does not cross.
	Withdrawn <-chan struct{}
}

// taskHead is what stands above the body of a task.
type taskHead struct {
	ID       string `json:"id"`
	Number   int    `json:"line"`
	Hash     string `json:"input"`
	Model    string `json:"model"`
	Endpoint string `json:"url"` // as lines of a batch spell it
	Bound    string `json:"bound,omitzero"`
	Again    bool   `json:"again,omitzero"`
}

// AppendTask appends the task as it crosses: a line of JSON, and the body as it is.
func AppendTask(b []byte, t *Task) []byte {
	b = append(slices.Grow(b, len(taskVersion)+len(t.ID)+len(t.Model)+len(t.Body)+160), taskVersion...)
	b = jsonscan.AppendStruct(b, &taskHead{
		ID: t.ID, Number: t.Number, Hash: t.Hash.String(), Model: t.Model, Endpoint: t.Endpoint.String(), Bound: t.Bound, Again: t.Again,
	})
	return append(append(b, '\n'), t.Body...)
}

// TaskError is returned for bytes that are no task of this version.
type TaskError struct {
	Number int // of the line that the task says that it is of; 0 is not known
	Err    error
}

// Error says what is wrong.
func (e *TaskError) Error() string { return "task: " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *TaskError) Unwrap() error { return e.Err }

// ParseTask reads what AppendTask wrote, and trusts nothing of it. What it returns shares the memory of b. Its errors are a
// *TaskError.
func ParseTask(b []byte) (*Task, error) {
	var head taskHead
	body, err := parseCrossing(b, taskVersion, &head)
	if err != nil {
		return nil, &TaskError{Err: err}
	}
	t := &Task{ID: head.ID, Number: head.Number, Model: head.Model, Body: body, Bound: head.Bound, Again: head.Again}
	if err := t.read(&head); err != nil {
		return nil, &TaskError{Number: head.Number, Err: err}
	}
	return t, nil
}

// read checks a task and completes it by its head.
func (t *Task) read(head *taskHead) (err error) {
	if t.Hash, err = work.ParseHash([]byte(head.Hash)); err != nil {
		return err
	}
	if t.Endpoint, err = endpointOf(head.Endpoint); err != nil {
		return err
	}
	switch {
	case t.ID == "" || t.Number < 1:
		return errors.New("the task has no id or no line number")
	case len(t.Body)+len(t.ID)+len(t.Model) > MaxTaskBytes:
		return fmt.Errorf("the request has %d bytes, but the maximum is %d", len(t.Body), MaxTaskBytes)
	case t.Bound != "" && provider.OtherBound(t.Bound) == "":
		return fmt.Errorf("%s is not a field that limits the output tokens", clip([]byte(t.Bound)))
	case t.Model == "" || len(t.Model) > mostName:
		return errors.New("the model name is empty or too long")
	case len(t.Body) == 0 || t.Body[0] != '{' || !jsonscan.Valid(t.Body):
		return errors.New("the request is not a JSON object")
	}
	_, err = t.Endpoint.Path(t.Model)
	return err
}

// endpointOf finds the endpoint of a name that Endpoint.String gives, and of no other: a task brings no path of its own.
func endpointOf(name string) (provider.Endpoint, error) {
	for _, e := range provider.Endpoints() {
		if e.String() == name {
			return e, nil
		}
	}
	return provider.NoEndpoint, fmt.Errorf("%s is not a known endpoint", clip([]byte(name)))
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

// termsVersion begins the terms of a run as they cross.
const termsVersion = "sluice-terms 1 "

// mostSchema bounds the schema that a worker compiles: that of the command line's own bound.
const mostSchema = 1 << 20

// The most that a run may ask of workers that it does not know: what is above is of a damaged or a hostile store.
const (
	mostAttempts    = 10_000
	longestAttempt  = 24 * time.Hour
	shortestAttempt = time.Millisecond
)

// Append appends the terms as they cross.
func (t *Terms) Append(b []byte) []byte { return appendCrossing(b, termsVersion, t, nil) }

// ParseTerms reads what Append wrote, and compiles the schema. It trusts nothing of it.
func ParseTerms(b []byte) (*Terms, error) {
	t := &Terms{}
	rest, err := parseCrossing(b, termsVersion, t)
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

	Unmetered    int     `json:"unmetered,omitempty"` // attempts that may be billed, and whose tokens nobody said
	Status       int     `json:"status,omitempty"`
	RequestID    string  `json:"request_id,omitempty"`
	FinishReason string  `json:"finish_reason,omitempty"`
	Upstream     string  `json:"upstream,omitempty"`       // that answered, where there are several
	Cost         float64 `json:"cost,omitempty"`           // in US dollars, by the prices that are known there, if HasCost
	HasCost      bool    `json:"has_cost,omitempty"`       // that is known
	Estimated    float64 `json:"cost_estimated,omitempty"` // the part of Cost that is an estimate
	Unpriced     int     `json:"unpriced,omitempty"`       // tool calls that are not in Cost

	Payload []byte `json:"-"`
}

// answerVersion begins an answer as it crosses.
const answerVersion = "sluice-answer 1 "

// AppendAnswer appends the answer as it crosses: a line of JSON, and the payload as it is.
func AppendAnswer(b []byte, a *Answer) []byte { return appendCrossing(b, answerVersion, a, a.Payload) }

// ParseAnswer reads what AppendAnswer wrote. What it returns shares the memory of b.
func ParseAnswer(b []byte) (*Answer, error) {
	a := &Answer{}
	rest, err := parseCrossing(b, answerVersion, a)
	if err == nil && (a.Tally.Attempts < 0 || a.Tally.Throttles < 0 || a.Unmetered < 0 || a.Unpriced < 0 || a.Status < 0 || a.Status > 999 || a.Kind.Fatal()) {
		err = errors.New("a field has a value out of range")
	}
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	if len(rest) > 0 {
		a.Payload = rest
	}
	return a, nil
}

// appendCrossing appends a version, a head as one line of JSON, and a body.
func appendCrossing(b []byte, version string, head any, body []byte) []byte {
	b = append(b, version...)
	text, err := json.Marshal(head)
	if err != nil {
		panic("batch: " + err.Error()) // heads are made of texts and numbers
	}
	b = append(append(b, text...), '\n')
	return append(b, body...)
}

// parseCrossing reads the head of what has that version, and returns the body.
func parseCrossing(b []byte, version string, head any) (body []byte, err error) {
	rest, ok := bytes.CutPrefix(b, []byte(version))
	if !ok {
		name, _, _ := strings.Cut(version, " ")
		if bytes.HasPrefix(b, []byte(name)) {
			first, _, _ := bytes.Cut(b, []byte("{"))
			return nil, fmt.Errorf("the data has version %s, but this program reads version %s", clip(bytes.TrimSpace(first)), strings.TrimSpace(version))
		}
		return nil, errors.New("the data was not written by Sluice")
	}
	line, body, ok := bytes.Cut(rest, []byte{'\n'})
	if !ok {
		return nil, errors.New("cut off")
	}
	if err := json.Unmarshal(line, head); err != nil {
		return nil, errors.New("the first line is not valid JSON")
	}
	return body, nil
}
