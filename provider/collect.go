package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/sse"
)

// errCut is the error of a stream that ended before its message did.
var errCut = errors.New("stream ended before the end of the message")

// errEventTooLong is the error for a stream with an event above 16 MiB.
var errEventTooLong = sse.ErrTooLong

// message is what a stream amounts to.
type message struct {
	Body         []byte // the answer as it would have come without streaming; of a cut stream, as far as it came
	FinishReason string
	Usage        sluice.Usage
	HasUsage     bool
	Fault        []byte // the data of the event with which the provider broke off; nil if it did not

	meter *meter
}

// collect folds a stream into the whole message that it amounts to: a chat completion, a response object, a message of
// Anthropic, or generated content of Gemini, whose stream may be an array instead of events. It fails with errCut when the stream ends
// before the message does, with ErrAnswerTooLong above most bytes, and with r's error; the message then holds what was seen, but no Body
// of a stream that is too long. A stream that the provider itself breaks off is no error here: see Message.Fault. collect returns at the
// event that ends the message, which may be before r's end.
func collect(e Endpoint, r io.Reader, most int64) (message, error) {
	f := e.spec().fold()
	m := newMeter(e)
	m.also = func(ev sse.Event) {
		if v := decodeEvent(ev); v != nil {
			f.event(v)
		}
	}
	buf := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buf)
	buf.Reset()
	buf.Grow(16 << 10)
	chunk := buf.AvailableBuffer()[:16<<10]
	var (
		total int64
		err   error
	)
	for err == nil && m.fault == nil && !m.done && m.bad == nil {
		var n int
		n, err = r.Read(chunk)
		if total += int64(n); total > most {
			err = ErrAnswerTooLong
			break
		}
		m.feed(chunk[:n])
	}
	if err == io.EOF {
		m.end()
	}
	out := message{FinishReason: m.sum.finish, Usage: m.sum.usage, HasUsage: m.sum.hasUsage,
		Fault: m.fault, meter: m}
	if m.events > 0 && err != ErrAnswerTooLong {
		out.Body = f.message()
	}
	switch {
	case m.fault != nil || m.done:
		return out, nil
	case m.bad != nil:
		return out, m.bad
	case err == io.EOF && m.complete():
		return out, nil
	case err == io.EOF:
		return out, errCut
	}
	return out, err
}

// fold puts the pieces of a message together.
type fold interface {
	event(map[string]any)
	message() []byte
}

// decodeEvent decodes an event. What is not JSON adds nothing to a message: it is nil.
func decodeEvent(ev sse.Event) (v map[string]any) {
	d := json.NewDecoder(bytes.NewReader(ev.Data))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// text is a string that grows piece by piece. Its pieces, as they stand inside a JSON string, are never copied again before they are
// encoded: a text may be as long as a response may be.
type text struct {
	pieces [][]byte
	size   int // of all pieces
}

const longPiece = 64 << 10

func newText(s string) *text {
	t := &text{}
	t.add(s)
	return t
}

func (t *text) add(s string) {
	quoted := jsonscan.AppendString(make([]byte, 0, len(s)+2), s)
	inside := quoted[1 : len(quoted)-1]
	last := len(t.pieces) - 1
	if last < 0 || cap(t.pieces[last])-len(t.pieces[last]) < len(inside) {
		t.pieces = append(t.pieces, make([]byte, 0, max(len(inside), min(t.size, longPiece))))
		last++
	}
	t.pieces[last] = append(t.pieces[last], inside...)
	t.size += len(inside)
}

// is reports whether s is the whole text.
func (t *text) is(s string) bool {
	return len(t.pieces) == 1 && bytes.Equal(t.pieces[0], newText(s).pieces[0])
}

// bytes returns the text itself.
func (t *text) bytes() []byte {
	b := make([]byte, 0, t.size)
	for _, p := range t.pieces {
		b = append(b, jsonscan.Unquote(slices.Concat([]byte{'"'}, p, []byte{'"'}))...)
	}
	return b
}

// merge adds a delta to what came before: strings grow, objects merge, lists merge by their members' "index" and else
// grow, and everything else is replaced.
func merge(acc, delta map[string]any) {
	for k, v := range delta {
		old, had := acc[k]
		switch v := v.(type) {
		case nil:
			if !had {
				acc[k] = nil
			}
		case string:
			t, ok := old.(*text)
			if ok && !label(k) && (k != "name" || !t.is(v)) { // some servers repeat these in every chunk
				t.add(v)
			} else {
				acc[k] = newText(v)
			}
		case map[string]any:
			m, ok := old.(map[string]any)
			if !ok {
				m = map[string]any{}
				acc[k] = m
			}
			merge(m, v)
		case []any:
			list, _ := old.([]any)
			acc[k] = mergeList(list, v)
		default:
			acc[k] = v
		}
	}
}

// label reports whether a string is said whole each time it is said.
func label(k string) bool {
	switch k {
	case "id", "type", "role", "object", "model", "finish_reason", "native_finish_reason", "signature":
		return true
	}
	return false
}

func mergeList(list, delta []any) []any {
	for _, item := range delta {
		d, ok := item.(map[string]any)
		if !ok || d["index"] == nil {
			list = append(list, item)
			continue
		}
		at := slices.IndexFunc(list, func(x any) bool {
			m, ok := x.(map[string]any)
			return ok && index(m["index"]) == index(d["index"])
		})
		if at < 0 {
			at = len(list)
			list = append(list, map[string]any{})
		}
		if m, ok := list[at].(map[string]any); ok {
			merge(m, d)
		}
	}
	return list
}

// index reads an index; whatever is none is 0.
func index(v any) int {
	n, ok := v.(json.Number)
	if !ok {
		return 0
	}
	i, err := n.Int64()
	if err != nil {
		return 0
	}
	return int(i)
}

// encode writes JSON as providers do: without escaping <, > and &.
func encode(v any) []byte { return appendJSON(nil, v) }

// appendJSON is encode without copies of long strings: these may be as long as a response may be.
func appendJSON(b []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		b = append(b, '{')
		for i, k := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(append(jsonscan.AppendString(b, k), ':'), v[k])
		}
		return append(b, '}')
	case []any:
		if v == nil {
			break
		}
		b = append(b, '[')
		for i, item := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, item)
		}
		return append(b, ']')
	case *text:
		b = append(roomFor(b, v.size), '"')
		for _, p := range v.pieces {
			b = append(b, p...)
		}
		return append(b, '"')
	case json.RawMessage:
		return jsonscan.AppendCompact(roomFor(b, len(v)), v)
	case string:
		return jsonscan.AppendString(b, v)
	}
	var rest bytes.Buffer
	e := json.NewEncoder(&rest)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return append(b, "null"...)
	}
	return append(b, bytes.TrimSuffix(rest.Bytes(), []byte("\n"))...)
}

// roomFor makes room for n bytes and a little that follows them, in one step.
func roomFor(b []byte, n int) []byte {
	if cap(b)-len(b) >= n+2 {
		return b
	}
	return append(make([]byte, 0, len(b)+n+512), b...)
}
