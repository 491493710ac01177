package provider

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// Added adapts the two fields that Sluice adds to chat completion requests: the output limit and stream_options. An Added learns from
// rejections the field names that each model accepts. Use one Added per account. The zero value is ready to use. An Added is safe for
// concurrent use.
type Added struct {
	mu     sync.Mutex
	models map[string]taken
}

// taken is how a model takes the fields.
type taken struct {
	bound   string // the name of the bound, after the other one was refused; "": as the provider calls it
	noUsage bool   // the question for the usage was refused
}

// streamOptions is the field that asks a stream for its usage.
const streamOptions = "stream_options"

// OtherBound returns "max_completion_tokens" for "max_tokens" and the reverse, and "" for any other name.
func OtherBound(name string) string {
	return map[string]string{"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}[name]
}

func (a *Added) of(model string) taken {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.models[model]
}

// Complete returns the completed body of a request to a model of p, and the names of the added fields. bound is the name of the output limit
// that Sluice added to body, or "". If the model requires another name, Complete renames the field bound. If stream is true, Complete also
// requests usage.
func (a *Added) Complete(p *Provider, e Endpoint, model string, body []byte, bound string, stream bool) (complete []byte, added []string) {
	if e != ChatCompletions { // the only endpoint with more than one name
		return body, nil
	}
	t := a.of(model)
	if bound != "" {
		name, _ := p.Bound(e)
		name = cmp.Or(t.bound, name)
		body, added = renamed(body, bound, name), append(added, name)
	}
	if stream && !p.UsageUnasked && !t.noUsage {
		asking := WithUsage(body)
		if !bytes.Equal(asking, body) {
			added = append(added, streamOptions)
		}
		body = asking
	}
	return body, added
}

// Refused learns field names from a rejected request with added fields (see Verdict.Unsupported). If the model may accept the request with
// the field renamed or removed, Refused sets o.Amended.
func (a *Added) Refused(model string, o *sluice.Outcome) {
	refusal, ok := errors.AsType[*Error](o.Err)
	if !ok || refusal.Unsupported == "" || o.Kind.Fatal() || o.Kind.Throttle() || o.Kind.Transient() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.models[model]
	if refusal.Unsupported == streamOptions {
		t.noUsage = true
	} else if t.bound == refusal.Unsupported {
		return // it takes neither name
	} else {
		t.bound = OtherBound(refusal.Unsupported)
	}
	o.Amended = true
	const most = 1000 // a client may name any model
	if len(a.models) == most {
		clear(a.models)
	}
	if a.models == nil {
		a.models = make(map[string]taken)
	}
	a.models[model] = t
}

// renamed returns a body whose member of one name has another. The name stands there as Sluice wrote it.
func renamed(body []byte, from, to string) []byte {
	s := jsonscan.New(body)
	for s.Enter('{'); from != to && s.Next('}'); s.Skip() {
		s.Peek() // over space
		at := s.Offset()
		if string(s.Key()) == from {
			return slices.Concat(body[:at], jsonscan.AppendString(nil, to), body[at+len(from)+len(`""`):])
		}
	}
	return body
}

// WithUsage returns a chat completion body that requests usage in the stream. OpenAI streams usage only on request
// (https://platform.openai.com/docs/api-reference/chat/create#chat_create-stream_options). If body already requests usage or is not a JSON
// object, WithUsage returns body unchanged.
func WithUsage(body []byte) []byte {
	var options []byte
	at, members := 0, 0
	s := jsonscan.New(body)
	for s.Enter('{'); s.Next('}'); members++ {
		name, value := jsonscan.Name(s.Key()), s.Span()
		if string(name) == streamOptions {
			options, at = value, s.Offset()-len(value)
		}
	}
	with := UsageOptions(options)
	if !s.End() || with == nil || members == 0 {
		return body
	}
	from, to := at, at+len(options)
	if options == nil {
		from = bytes.LastIndexByte(body, '}')
		with, to = append([]byte(`,"stream_options":`), with...), from
	}
	edited := append(make([]byte, 0, len(body)+len(with)), body[:from]...)
	return append(append(edited, with...), body[to:]...)
}

// UsageOptions returns a value of stream_options that requests usage in a chat completion stream. options is the current value of
// stream_options, or nil. If options already requests usage or has a type that the provider will reject, UsageOptions returns nil.
func UsageOptions(options []byte) []byte {
	const ask = `"include_usage":true`
	switch {
	case options == nil || string(options) == "null":
		return []byte("{" + ask + "}")
	case options[0] != '{':
		return nil
	}
	members, asked := 0, false
	from, to, text := len(options)-1, len(options)-1, ask // before the last brace
	s := jsonscan.New(options)
	for s.Enter('{'); s.Next('}'); members++ {
		name, value := jsonscan.Name(s.Key()), s.Span()
		if string(name) == "include_usage" {
			asked = string(value) != "false" && string(value) != "null"
			from, to, text = s.Offset()-len(value), s.Offset(), "true"
		}
	}
	if asked {
		return nil
	}
	if text == ask && members > 0 {
		text = "," + text
	}
	return append(append(options[:from:from], text...), options[to:]...)
}
