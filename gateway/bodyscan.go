package gateway

import (
	"bytes"
	"errors"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// errTwoModels is the error of a body that says more than once which model it is for. Which of them counts is up to whoever
// reads it: the gateway might count one and the provider serve another.
var errTwoModels = errors.New("the request names its model more than once")

// locate finds where a body, which is a JSON object, is changed as it is sent.
func (b *body) locate(all []byte, asksUsage bool) error {
	var options []byte // the value of stream_options
	var optionsAt, models int
	s := jsonscan.New(all)
	for s.Enter('{'); s.Next('}'); {
		name := jsonscan.Name(s.Key())
		value := s.Span()
		at := s.Offset() - len(value)
		switch {
		case bytes.EqualFold(name, []byte("model")): // there are servers that do not tell case apart
			models++
			b.model = edit{from: int64(at), to: int64(s.Offset())}
		case bytes.EqualFold(name, []byte("models")), bytes.EqualFold(name, []byte("fallbacks")): // of OpenRouter and LiteLLM
			b.others = true
		case string(name) == "stream_options":
			options, optionsAt = value, at
		}
	}
	if !s.End() {
		return errors.New("the request body is not a JSON object")
	}
	if models > 1 {
		return errTwoModels
	}
	if asksUsage {
		b.usage = usageEdit(options, int64(optionsAt), int64(bytes.LastIndexByte(all, '}')))
	}
	return nil
}

// usageEdit has a chat stream state its usage. options is the value of the body's stream_options, which stands at an offset;
// end is that of the brace that ends the body. What has the wrong type is the provider's to refuse.
func usageEdit(options []byte, at, end int64) edit {
	const ask = `"include_usage":true`
	switch {
	case options == nil:
		return edit{end, end, `,"stream_options":{` + ask + `}`}
	case string(options) == "null":
		return edit{at, at + int64(len(options)), `{` + ask + `}`}
	case options[0] != '{':
		return edit{}
	}
	var found edit
	members, asked := 0, false
	s := jsonscan.New(options)
	for s.Enter('{'); s.Next('}'); members++ {
		name := jsonscan.Name(s.Key())
		value := s.Span()
		if string(name) != "include_usage" {
			continue
		}
		to := at + int64(s.Offset())
		asked = string(value) != "false" && string(value) != "null"
		found = edit{to - int64(len(value)), to, "true"}
	}
	brace := at + int64(len(options)) - 1
	switch {
	case asked:
		return edit{}
	case found.text != "":
		return found
	case members == 0:
		return edit{brace, brace, ask}
	}
	return edit{brace, brace, "," + ask}
}
