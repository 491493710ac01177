package provider

import (
	"bytes"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// WithUsage returns a body of chat completions whose stream states its usage: OpenAI's does so only for who asks
// (https://platform.openai.com/docs/api-reference/chat/create#chat_create-stream_options). It is the same body where that asks
// already, or is not a JSON object.
func WithUsage(body []byte) []byte {
	var options []byte
	at, members := 0, 0
	s := jsonscan.New(body)
	for s.Enter('{'); s.Next('}'); members++ {
		name, value := jsonscan.Name(s.Key()), s.Span()
		if string(name) == "stream_options" {
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

// UsageOptions returns stream_options by which a stream of chat completions states its usage, made of those of a request; nil is
// none. It returns nil where they stay as they are: they ask for it, or have the wrong type, which is the provider's to refuse.
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
