package batch

import (
	"encoding/hex"
	"errors"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/work"
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
	b = append(b, `","attempts":`...)
	b = strconv.AppendInt(b, int64(r.Tally.Attempts), 10)
	b = append(b, `,"throttles":`...)
	b = strconv.AppendInt(b, int64(r.Tally.Throttles), 10)
	b = append(b, `,"wait_ms":`...)
	b = strconv.AppendInt(b, millis(r.Tally.Queued)+millis(r.Tally.Cooldown)+millis(r.Tally.Backoff), 10) // so that they add up
	b = append(b, `,"queued_ms":`...)
	b = appendMillis(b, r.Tally.Queued)
	b = append(b, `,"cooldown_ms":`...)
	b = appendMillis(b, r.Tally.Cooldown)
	b = append(b, `,"backoff_ms":`...)
	b = appendMillis(b, r.Tally.Backoff)
	b = append(b, `,"latency_ms":`...)
	b = appendMillis(b, r.Tally.Latency)
	b = append(b, `,"input_tokens":`...)
	b = strconv.AppendInt(b, int64(r.Tally.Usage.Input), 10)
	b = append(b, `,"output_tokens":`...)
	b = strconv.AppendInt(b, int64(r.Tally.Usage.Output), 10)
	b = append(b, `,"cost_usd":`...)
	if r.HasCost {
		b = appendDollars(b, r.Cost)
	} else {
		b = append(b, `null`...)
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
	if r.Twin != "" {
		b = append(b, `,"twin":`...)
		b = jsonscan.AppendString(b, r.Twin)
	}
	if r.Cached {
		b = append(b, `,"cached":true`...)
	}
	b = append(b, `,"kind":"`...)
	b = append(b, r.Kind.String()...)
	return append(b, "\"}}\n"...)
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
		err = call.Err
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

func appendMillis(b []byte, d time.Duration) []byte {
	return strconv.AppendInt(b, millis(d), 10)
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

var errNotResult = errors.New("not a result of a batch: want custom_id and sluice.input")

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
