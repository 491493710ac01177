package batch

import (
	"encoding/hex"
	"errors"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// resultPrefix is how every line of the output begins.
const resultPrefix = `{"id":"batch_req_`

// appendResult appends a result as a line of an OpenAI batch output file, with what Sluice knows beside it: its cost
// only if that is known.
func appendResult(b []byte, r *work.Result) []byte {
	b = append(b, resultPrefix...)
	b = appendResultID(b, r)
	b = append(b, `","custom_id":`...)
	b = jsonscan.AppendString(b, r.ID)
	b = appendResponse(b, r)
	b = appendError(b, r)
	b = append(b, `,"sluice":{"input":"`...)
	b = hex.AppendEncode(b, r.Hash[:])
	b = append(b, '"')
	b = appendTally(b, &r.Tally)
	b = append(b, `,"cost_usd":`...)
	if r.HasCost {
		b = appendDollars(b, r.Cost)
	} else {
		b = append(b, `null`...)
	}
	if r.Estimated > 0 {
		b = appendDollars(append(b, `,"cost_estimated_usd":`...), r.Estimated)
	}
	if r.Unpriced > 0 {
		b = strconv.AppendInt(append(b, `,"unpriced_tool_calls":`...), int64(r.Unpriced), 10)
	}
	switch data := r.Data.(type) {
	case *provider.Upstream:
		b = append(b, `,"upstream":`...)
		b = jsonscan.AppendString(b, data.Name)
	case *Batched:
		b = append(b, `,"via":"`...)
		b = append(b, ViaBatchAPI.String()...)
		b = append(b, `","batch":`...)
		b = jsonscan.AppendString(b, data.Batch)
	}
	if r.Cached {
		b = append(b, `,"cached":true`...)
	}
	if len(r.Note) > 0 {
		b = append(append(b, `,"metadata":`...), r.Note...)
	}
	b = append(b, `,"kind":"`...)
	b = append(b, r.Kind.String()...)
	return append(b, "\"}}\n"...)
}

// appendTally appends the figures of a result's attempts. wait_ms is the sum of its three parts as they are rounded.
func appendTally(b []byte, t *sluice.Tally) []byte {
	queued, cooldown, backoff := millis(t.Queued), millis(t.Cooldown), millis(t.Backoff)
	for _, f := range [...]struct {
		name  string
		value int64
	}{
		{"attempts", int64(t.Attempts)}, {"throttles", int64(t.Throttles)}, {"wait_ms", queued + cooldown + backoff},
		{"queued_ms", queued}, {"cooldown_ms", cooldown}, {"backoff_ms", backoff}, {"latency_ms", millis(t.Latency)},
		{"input_tokens", int64(t.Usage.Input)}, {"output_tokens", int64(t.Usage.Output)},
	} {
		b = append(append(append(b, `,"`...), f.name...), `":`...)
		b = strconv.AppendInt(b, f.value, 10)
	}
	return b
}

// appendResponse appends what was answered; null if nothing was.
func appendResponse(b []byte, r *work.Result) []byte {
	b = append(b, `,"response":`...)
	if r.Status == 0 {
		return append(b, `null`...)
	}
	b = append(b, `{"status_code":`...)
	b = strconv.AppendInt(b, int64(r.Status), 10)
	b = append(b, `,"request_id":`...)
	b = jsonscan.AppendString(b, r.RequestID)
	b = append(b, `,"body":`...)
	b = appendBody(b, r.Payload)
	return append(b, '}')
}

// appendError appends why an item failed; null if it did not.
func appendError(b []byte, r *work.Result) []byte {
	b = append(b, `,"error":`...)
	if r.Kind == sluice.OK {
		return append(b, `null`...)
	}
	b = append(b, `{"code":`...)
	b = jsonscan.AppendString(b, r.Kind.String())
	b = append(b, `,"message":`...)
	b = jsonscan.AppendString(b, message(r.Err))
	return append(b, '}')
}

// message is the recorded text of an error: of the last attempt, since the counts stand beside it.
func message(err error) string {
	if call, ok := errors.AsType[*sluice.CallError](err); ok && call.Err != nil {
		return call.Reason()
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// appendBody appends an answer's body on one line: as it is if it is JSON, and else as a text.
func appendBody(b, body []byte) []byte {
	if !jsonscan.Valid(body) {
		return jsonscan.AppendString(b, body)
	}
	return jsonscan.AppendCompact(b, body)
}

func millis(d time.Duration) int64 { return d.Round(time.Millisecond).Milliseconds() }

// appendResultID appends the name of a result: different lines have different ones, and the same line always the same.
func appendResultID(b []byte, r *work.Result) []byte {
	h := fnv.New64a()
	h.Write(r.Hash[:])
	h.Write([]byte(r.ID))
	return hex.AppendEncode(b, h.Sum(nil))
}

// recorded is what a resume reads of a line of the output.
type recorded struct {
	id     []byte // may share the line's memory
	hash   work.Hash
	failed bool
	kind   sluice.Kind // of a failure
	batch  []byte      // of a Batch API, that the answer came from; nil of a live one
}

var errNotResult = errors.New("not a result of sluice run: want the fields custom_id and sluice.input")

// parseResult reads a line of the output.
func parseResult(line []byte) (rec recorded, err error) {
	var hash []byte
	s := jsonscan.New(line)
	for s.Enter('{'); s.Next('}'); {
		switch string(jsonscan.Name(s.Key())) {
		case "custom_id":
			rec.id = text(s.Span())
		case "error":
			fault := s.Span()
			if rec.failed = string(fault) != "null"; rec.failed {
				rec.kind = kindOfError(fault)
			}
		case "sluice":
			if s.Peek() == '{' {
				hash, rec.batch = beside(&s)
			} else {
				s.Skip()
			}
		default:
			s.Skip()
		}
	}
	if !s.End() || rec.id == nil || hash == nil {
		return recorded{}, errNotResult
	}
	rec.hash, err = work.ParseHash(hash)
	return rec, err
}

// beside reads the hash of a request, and the batch that its answer came from, from the object beside its result.
func beside(s *jsonscan.Scanner) (hash, batch []byte) {
	for s.Enter('{'); s.Next('}'); {
		switch string(jsonscan.Name(s.Key())) {
		case "input":
			hash = text(s.Span())
		case "batch":
			batch = text(s.Span())
		default:
			s.Skip()
		}
	}
	return hash, batch
}

// text returns the meaning of a JSON value that is a string; nil of any other.
func text(value []byte) []byte {
	if len(value) == 0 || value[0] != '"' {
		return nil
	}
	return jsonscan.Unquote(value)
}

// wholeResult says whether a last line without its newline is a whole one.
func wholeResult(line []byte) bool {
	_, err := parseResult(line)
	return err == nil
}
