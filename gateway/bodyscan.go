package gateway

import (
	"bytes"
	"cmp"
	"errors"
	"strings"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/provider"
)

// errTwoModels is the error of a body that says more than once which model it is for. Which of them counts is up to whoever
// reads it: the gateway might count one and the provider serve another.
var errTwoModels = errors.New("the request names its model more than once")

// locate finds where a body, which is a JSON object, is changed as it is sent. bound is the endpoint whose fields it is bound to;
// provider.NoEndpoint leaves it unbound.
func (b *body) locate(all []byte, asksUsage bool, bound provider.Endpoint) error {
	var options []byte // the value of stream_options
	var optionsAt, models int
	s := jsonscan.New(all)
	for s.Enter('{'); s.Next('}'); {
		name := jsonscan.Name(s.Key())
		value := s.Span()
		at := s.Offset() - len(value)
		if bound != provider.NoEndpoint {
			b.notes(string(name), value, bound)
		}
		switch {
		case bytes.EqualFold(name, []byte("model")): // there are servers that do not tell case apart
			models++
			b.model = edit{from: int64(at), to: int64(s.Offset())}
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

// errOtherModel is the error of a request of Gemini's of which a part is for another model.
var errOtherModel = errors.New("a part of the request body names a different model than the URL path")

// locateParts finds where parts of a request of Gemini's name the model of its path once more
// (https://ai.google.dev/api/embeddings#EmbedContentRequest, https://ai.google.dev/api/tokens#method:-models.counttokens).
func (b *body) locateParts(all []byte, model string) (err error) {
	s := jsonscan.New(all)
	for name := range s.Members {
		switch string(name) {
		case "requests":
			for range s.Elements {
				err = cmp.Or(err, b.part(&s, model))
			}
		case "generateContentRequest", "generate_content_request":
			err = cmp.Or(err, b.part(&s, model))
		default:
			s.Skip()
		}
	}
	return err
}

func (b *body) part(s *jsonscan.Scanner, model string) (err error) {
	for name := range s.Members {
		if string(name) != "model" {
			s.Skip()
			continue
		}
		value, end := s.Span(), int64(s.Offset())
		if len(value) == 0 || value[0] != '"' {
			continue // the provider's to refuse
		}
		bare, prefixed := strings.CutPrefix(string(jsonscan.Unquote(value)), "models/")
		if bare != model {
			err = errOtherModel
		}
		b.parts = append(b.parts, part{edit{from: end - int64(len(value)), to: end}, prefixed})
	}
	return err
}

// notes takes in a field that the endpoint does not have, models that a field names, and background, of which nobody here is told the cost.
func (b *body) notes(name string, value []byte, of provider.Endpoint) {
	switch {
	case !of.HasField(name):
		b.unknown = cmp.Or(b.unknown, &name)
	case name == "background": // of OpenAI's responses
		b.background = b.background || string(value) == "true"
	case name == "model" || name == "fallback_credit_token":
	case holdsContent[name]:
		s := jsonscan.New(value)
		b.named = appendOfTools(b.named, &s)
	default:
		s := jsonscan.New(value)
		b.named = appendNamed(b.named, &s, namesModels(name))
	}
}

// appendOfTools appends the models that tools in a conversation name: Anthropic's tool_addition and OpenAI's additional_tools. What tools are
// called with, which is under input, is anything.
func appendOfTools(all []string, s *jsonscan.Scanner) []string {
	switch s.Peek() {
	case '{':
		for s.Enter('{'); s.Next('}'); {
			switch string(jsonscan.Name(s.Key())) {
			case "tool", "tools":
				all = appendNamed(all, s, false)
			case "input":
				s.Skip()
			default:
				all = appendOfTools(all, s)
			}
		}
	case '[':
		for s.Enter('['); s.Next(']'); {
			all = appendOfTools(all, s)
		}
	default:
		s.Skip()
	}
	return all
}

// holdsContent are fields, at any depth, with what people and models said, and schemas of it: any name may stand there.
var holdsContent = map[string]bool{
	"messages": true, "input": true, "input_examples": true, "system": true, "instructions": true, "prompt": true, "prediction": true,
	"documents": true, "chat_template_kwargs": true, "dependentRequired": true, "contents": true, "content": true, "system_instruction": true, "systemInstruction": true,
	"properties": true, "patternProperties": true, "$defs": true, "definitions": true, "default": true, "example": true, "examples": true,
}

// namesModels reports whether a field names models: model of tools, as Anthropic's advisor
// (https://platform.claude.com/docs/en/agents-and-tools/tool-use/advisor-tool) and OpenAI's generation of images, and of OpenAI's moderation;
// fallbacks of Anthropic; modelName of Vertex' routingConfig; models, analysis_models and others of OpenRouter and LiteLLM.
func namesModels(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "model") || strings.Contains(name, "fallback")
}

// addNamed appends a model; of very many, the last stands for the rest and has no name.
func addNamed(all []string, model string) []string {
	const most = 100
	if len(all) == most {
		all[most-1] = ""
		return all
	}
	return append(all, model)
}

// appendNamed appends the models that a value names, itself if it is of a field that does.
func appendNamed(all []string, s *jsonscan.Scanner, named bool) []string {
	before := len(all)
	switch s.Peek() {
	case '{':
		for s.Enter('{'); s.Next('}'); {
			if name := string(jsonscan.Name(s.Key())); holdsContent[name] {
				s.Skip()
			} else {
				all = appendNamed(all, s, namesModels(name) || named && s.Peek() == '[') // as in LiteLLM's {"gpt-4o": ["gpt-4o-mini"]}
			}
		}
		if named && len(all) == before {
			all = addNamed(all, "") // whatever its fields stand for
		}
	case '[':
		for s.Enter('['); s.Next(']'); {
			all = appendNamed(all, s, named)
		}
	case '"':
		if value := s.Span(); named {
			all = addNamed(all, string(jsonscan.Unquote(value)))
		}
	default:
		s.Skip()
	}
	return all
}

// appendParts appends the edits that have the parts of the request name that model.
func (b *body) appendParts(edits []edit, model string) []edit {
	for _, p := range b.parts {
		name := model
		if p.prefixed {
			name = "models/" + model
		}
		p.text = string(jsonscan.AppendString(nil, name))
		edits = append(edits, p.edit)
	}
	return edits
}

// usageEdit has a chat stream state its usage. options is the value of the body's stream_options, which stands at an offset;
// end is that of the brace that ends the body. What has the wrong type is the provider's to refuse.
func usageEdit(options []byte, at, end int64) edit {
	switch with := provider.UsageOptions(options); {
	case with == nil:
		return edit{}
	case options == nil:
		return edit{end, end, `,"stream_options":` + string(with)}
	default:
		return edit{at, at + int64(len(options)), string(with)}
	}
}
