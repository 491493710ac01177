package batch

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// Recording is a line of the output: a line of an OpenAI batch output file, with figures of Sluice. All code that writes or reads results
// uses this type. Raw values share memory with the line.
type Recording struct {
	Name     string    `json:"id"`        // ID of the result.
	ID       string    `json:"custom_id"` // ID of the item.
	Response *Response `json:"response"`  // Response.
	Error    *Failure  `json:"error"`     // Failure, if the item failed.
	Sluice   Figures   `json:"sluice"`    // Figures of Sluice.
}

// Response is the response to an item.
type Response struct {
	Status    int             `json:"status_code"` // HTTP status.
	RequestID string          `json:"request_id"`  // Request ID.
	Body      json.RawMessage `json:"body"`        // Body of the response.
}

// Failure says why an item failed.
type Failure struct {
	Code    string `json:"code"`    // Kind of the failure.
	Message string `json:"message"` // Error message, without keys.
}

// Figures are the attempts, waits, tokens and cost of a result.
type Figures struct {
	Input        string          `json:"input"`                        // Hash of the request.
	Attempts     int             `json:"attempts"`                     // Attempts, except rate-limited attempts.
	Throttles    int             `json:"throttles"`                    // Rate-limited requests.
	WaitMS       int64           `json:"wait_ms"`                      // Waiting time of the item or request.
	QueuedMS     int64           `json:"queued_ms"`                    // Wait in the queue.
	CooldownMS   int64           `json:"cooldown_ms"`                  // Wait in cooldowns.
	BackoffMS    int64           `json:"backoff_ms"`                   // Wait in backoff.
	LatencyMS    int64           `json:"latency_ms"`                   // Duration of the last attempt.
	InputTokens  int             `json:"input_tokens"`                 // Input tokens.
	OutputTokens int             `json:"output_tokens"`                // Output tokens.
	CostUSD      *float64        `json:"cost_usd"`                     // Cost, if known.
	Estimated    float64         `json:"cost_estimated_usd,omitzero"`  // Estimated part of the cost.
	Unpriced     int             `json:"unpriced_tool_calls,omitzero"` // Tool calls without known prices.
	Upstream     string          `json:"upstream,omitzero"`            // Upstream, if there are several.
	Via          string          `json:"via,omitzero"`                 // `batch-api`, if the result is from a Batch API.
	Batch        string          `json:"batch,omitzero"`               // Batch ID at the provider.
	Cached       bool            `json:"cached,omitzero"`              // The result is from the cache.
	Metadata     json.RawMessage `json:"metadata,omitzero"`            // Fields of the input that are not sent.
	Kind         string          `json:"kind"`                         // `ok`, or the kind of the failure.
}

// responseOf returns the recorded part of a response.
func responseOf(a *provider.Answer) work.Response {
	return work.Response{Status: a.Status, RequestID: a.RequestID, FinishReason: a.FinishReason, Payload: a.Body}
}

// resultPrefix is how every line of the output begins.
const resultPrefix = `{"id":"batch_req_`

// appendResult appends the line of a result.
func appendResult(b []byte, r *work.Result) []byte {
	t := &r.Tally
	queued, cooldown, backoff := millis(t.Queued), millis(t.Cooldown), millis(t.Backoff)
	rec := Recording{Name: resultName(r), ID: r.ID, Sluice: Figures{
		Input: r.Hash.String(), Attempts: t.Attempts, Throttles: t.Throttles,
		WaitMS: queued + cooldown + backoff, QueuedMS: queued, CooldownMS: cooldown, BackoffMS: backoff, LatencyMS: millis(t.Latency),
		InputTokens: t.Usage.Input, OutputTokens: t.Usage.Output, Estimated: r.Estimated, Unpriced: r.Unpriced,
		Upstream: r.Upstream, Via: r.Via, Batch: r.Batch, Cached: r.Cached, Metadata: r.Note, Kind: r.Kind.String(),
	}}
	if r.Status != 0 {
		rec.Response = &Response{Status: r.Status, RequestID: r.RequestID, Body: r.Payload}
	}
	if r.Kind != sluice.OK {
		rec.Error = &Failure{Code: r.Kind.String(), Message: message(r.Err)}
	}
	if r.HasCost {
		rec.Sluice.CostUSD = &r.Cost
	}
	return append(jsonscan.AppendStruct(b, &rec), '\n')
}

// resultName returns the name of a result: different items have different ones, and the same item always the same.
func resultName(r *work.Result) string {
	h := fnv.New64a()
	h.Write(r.Hash[:])
	h.Write([]byte(r.ID))
	return "batch_req_" + hex.EncodeToString(h.Sum(nil))
}

// message returns the recorded text of an error: that of the last attempt, because the counts have fields of their own.
func message(err error) string {
	if call, ok := errors.AsType[*sluice.CallError](err); ok && call.Err != nil {
		return call.Reason()
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

func millis(d time.Duration) int64 { return d.Round(time.Millisecond).Milliseconds() }

var errNotResult = errors.New("not a result of sluice run: want the fields custom_id and sluice.input")

// ParseRecording parses a line of an output of Sluice, or of an output file of OpenAI's Batch API, which has no figures.
func ParseRecording(line []byte) (rec Recording, err error) {
	s := jsonscan.New(line)
	err = s.Struct(&rec)
	f := &rec.Sluice
	switch {
	case !s.End() || rec.ID == "" || rec.Response == nil && rec.Error == nil && f.Input == "":
		return Recording{}, errNotResult
	case err != nil:
		return Recording{}, err
	case min(f.Attempts, f.Throttles, f.InputTokens, f.OutputTokens) < 0 || min(f.WaitMS, f.LatencyMS) < 0:
		return Recording{}, errNotResult
	}
	return rec, nil
}

// Work returns the work of a line of the output: one item, which is done or failed.
func Work(line []byte) (one work.LastRun) {
	rec, err := ParseRecording(line)
	if err != nil {
		return one
	}
	f := &rec.Sluice
	return work.OneItem(f.Kind == sluice.OK.String(), f.Attempts, f.Throttles, work.Tokens{InputTokens: f.InputTokens, OutputTokens: f.OutputTokens}, f.CostUSD)
}

// parseResult reads a line of an output of Sluice.
func parseResult(line []byte) (rec Recording, hash work.Hash, err error) {
	if rec, err = ParseRecording(line); err == nil && rec.Sluice.Input == "" {
		err = errNotResult
	}
	if err == nil {
		hash, err = work.ParseHash([]byte(rec.Sluice.Input))
	}
	return rec, hash, err
}

// wholeResult says whether a last line without its newline is a whole one.
func wholeResult(line []byte) bool {
	_, _, err := parseResult(line)
	return err == nil
}

// torn says whether a line may be the beginning of a result.
func torn(line []byte) bool {
	n := min(len(line), len(resultPrefix))
	return string(line[:n]) == resultPrefix[:n]
}

// Failed returns the code of an item's failure; "" if it succeeded. OpenAI's files tell of some failures by their status alone.
func (rec *Recording) Failed() string {
	switch {
	case rec.Error != nil && strings.TrimSpace(rec.Error.Code) != "":
		return rec.Error.Code
	case rec.Response != nil && rec.Response.Status >= 300:
		return fmt.Sprintf("status_%d", rec.Response.Status)
	case rec.Error != nil:
		return "error"
	}
	return ""
}

// kind is the kind of a recorded failure; work.UnknownKind if this version does not know it.
func (rec *Recording) kind() (kind sluice.Kind) {
	if rec.Error == nil {
		return sluice.OK
	}
	if kind.UnmarshalText([]byte(rec.Error.Code)) != nil {
		return work.UnknownKind
	}
	return kind
}

// Fields returns the fields of the item's row that were not sent. Their values share memory with the line.
func (rec *Recording) Fields() (fields []Field) {
	s := jsonscan.New(rec.Sluice.Metadata)
	for name := range s.Members {
		fields = append(fields, Field{Name: string(name), Value: s.Span()})
	}
	return fields
}
