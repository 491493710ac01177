package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/sluice-llm/sluice"
)

// ErrCut is the error of a stream that ended before its message did.
var ErrCut = errors.New("stream ended before its message did")

// Message is what a stream amounts to.
type Message struct {
	Body         []byte // the answer as it would have come without streaming; of a cut stream, as far as it came
	FinishReason string
	Usage        sluice.Usage
	HasUsage     bool
	Fault        []byte // the data of the event with which the provider broke off; nil if it did not

	meter *meter
}

// Collect folds a stream into the whole message that it amounts to: a chat completion, a response object, a message of
// Anthropic, or generated content of Gemini, whose stream may be an array instead of events. It fails with ErrCut when the stream ends before the message does, with ErrAnswerTooLong above most
// bytes, and with r's error; the Message then holds what was seen. A stream that the provider itself breaks off is no
// error here: see Message.Fault. Collect returns at the event that ends the message, which may be before r's end.
func Collect(e Endpoint, r io.Reader, most int64) (Message, error) {
	f := newFold(e)
	m := &meter{e: e}
	m.also = func(ev Event) {
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
	out := Message{FinishReason: m.sum.finish, Usage: m.sum.usage, HasUsage: m.sum.hasUsage,
		Fault: m.fault, meter: m}
	if m.events > 0 {
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
		return out, ErrCut
	}
	return out, err
}

// fold puts the pieces of a message together.
type fold interface {
	event(map[string]any)
	message() []byte
}

func newFold(e Endpoint) fold {
	switch e {
	case Messages:
		return &messageFold{blocks: map[int]map[string]any{}}
	case Responses:
		return &responseFold{}
	case GenerateContent, StreamGenerateContent:
		return &contentFold{top: map[string]any{}, candidates: map[int]*candidate{}}
	}
	return &chatFold{top: map[string]any{}, choices: map[int]map[string]any{}}
}

// decodeEvent decodes an event. What is not JSON adds nothing to a message: it is nil.
func decodeEvent(ev Event) (v map[string]any) {
	d := json.NewDecoder(bytes.NewReader(ev.Data))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// chatFold folds chat completion chunks.
type chatFold struct {
	top     map[string]any
	choices map[int]map[string]any
}

func (f *chatFold) event(chunk map[string]any) {
	list, _ := chunk["choices"].([]any)
	delete(chunk, "choices")
	for k, v := range chunk {
		if v != nil {
			f.top[k] = v
		}
	}
	for _, item := range list {
		choice, ok := item.(map[string]any)
		if !ok {
			continue
		}
		i := index(choice["index"])
		if f.choices[i] == nil {
			f.choices[i] = map[string]any{"message": map[string]any{"role": "assistant", "content": nil}, "finish_reason": nil}
		}
		if delta, ok := choice["delta"].(map[string]any); ok {
			merge(f.choices[i]["message"].(map[string]any), delta)
		}
		delete(choice, "delta")
		merge(f.choices[i], choice)
		f.choices[i]["index"] = i
	}
}

func (f *chatFold) message() []byte {
	list := []any{}
	for _, i := range slices.Sorted(maps.Keys(f.choices)) {
		choice := f.choices[i]
		if calls, ok := choice["message"].(map[string]any)["tool_calls"].([]any); ok {
			for _, call := range calls {
				if c, ok := call.(map[string]any); ok {
					delete(c, "index") // it only told the pieces apart
				}
			}
		}
		list = append(list, choice)
	}
	f.top["choices"] = list
	f.top["object"] = "chat.completion"
	return encode(f.top)
}

// responseFold takes the whole response from the event that ends the stream. Servers that leave its output empty have
// sent the items one by one.
type responseFold struct {
	response map[string]any
	items    []any
}

func (f *responseFold) event(ev map[string]any) {
	if r, ok := ev["response"].(map[string]any); ok {
		f.response = r
	}
	if ev["type"] == "response.output_item.done" && ev["item"] != nil {
		f.items = append(f.items, ev["item"])
	}
}

func (f *responseFold) message() []byte {
	if f.response == nil {
		return nil
	}
	if out, _ := f.response["output"].([]any); len(out) == 0 && len(f.items) > 0 {
		f.response["output"] = f.items
	}
	return encode(f.response)
}

// messageFold folds the events of an Anthropic message
// (https://docs.anthropic.com/en/docs/build-with-claude/streaming).
type messageFold struct {
	msg    map[string]any
	blocks map[int]map[string]any
}

func (f *messageFold) event(ev map[string]any) {
	switch ev["type"] {
	case "message_start":
		if m, ok := ev["message"].(map[string]any); ok {
			f.msg = m
		}
	case "content_block_start":
		if b, ok := ev["content_block"].(map[string]any); ok {
			block := map[string]any{}
			merge(block, b)
			f.blocks[index(ev["index"])] = block
		}
	case "content_block_delta":
		block := f.blocks[index(ev["index"])]
		delta, ok := ev["delta"].(map[string]any)
		if block == nil || !ok {
			return
		}
		delete(delta, "type")
		if c, ok := delta["citation"]; ok {
			delete(delta, "citation")
			delta["citations"] = []any{c}
		}
		merge(block, delta)
	case "message_delta":
		if f.msg == nil {
			return
		}
		if d, ok := ev["delta"].(map[string]any); ok {
			maps.Copy(f.msg, d)
		}
		usage, _ := f.msg["usage"].(map[string]any)
		if u, ok := ev["usage"].(map[string]any); ok && usage != nil {
			maps.Copy(usage, u)
		} else if ok {
			f.msg["usage"] = u
		}
	}
}

func (f *messageFold) message() []byte {
	if f.msg == nil {
		return nil
	}
	list := []any{}
	for _, i := range slices.Sorted(maps.Keys(f.blocks)) {
		block := f.blocks[i]
		if part, ok := block["partial_json"].(*text); ok {
			delete(block, "partial_json")
			// A tool called without arguments streams none: its input stays {}.
			if json.Valid(part.b) {
				block["input"] = json.RawMessage(part.b)
			}
		}
		list = append(list, block)
	}
	f.msg["content"] = list
	return encode(f.msg)
}

// text is a string that grows piece by piece.
type text struct{ b []byte }

// MarshalJSON writes the whole string.
func (t *text) MarshalJSON() ([]byte, error) { return encode(string(t.b)), nil }

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
			switch {
			case !ok:
				acc[k] = &text{b: []byte(v)}
			case label(k), k == "name" && string(t.b) == v: // some servers repeat these in every chunk
				t.b = append(t.b[:0], v...)
			default:
				t.b = append(t.b, v...)
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
			return ok && m["index"] == d["index"]
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
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return nil
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
