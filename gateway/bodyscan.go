package gateway

import (
	"bytes"
	"errors"
	"strings"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/provider"
)

// errTwoModels is the error of a body that says more than once which model it is for. Which of them counts is up to whoever
// reads it: the gateway might count one and the provider serve another.
var errTwoModels = errors.New("the request names its model more than once")

// locate finds where a body, which is a JSON object, is changed as it is sent. bound is to look for what else may cost.
func (b *body) locate(all []byte, asksUsage, bound bool) error {
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
		case bound && b.notes(name, value):
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
var errOtherModel = errors.New("a part of the request names another model than its path does")

// locateParts finds where parts of a request of Gemini's name the model of its path once more
// (https://ai.google.dev/api/embeddings#EmbedContentRequest, https://ai.google.dev/api/tokens#method:-models.counttokens).
func (b *body) locateParts(all []byte, model string) (err error) {
	s := jsonscan.New(all)
	for s.Enter('{'); s.Next('}') && err == nil; {
		switch string(jsonscan.Name(s.Key())) {
		case "requests":
			if s.Peek() != '[' {
				s.Skip()
				continue
			}
			for s.Enter('['); s.Next(']') && err == nil; {
				err = b.part(&s, model)
			}
		case "generateContentRequest", "generate_content_request":
			err = b.part(&s, model)
		default:
			s.Skip()
		}
	}
	return err
}

func (b *body) part(s *jsonscan.Scanner, model string) error {
	if s.Peek() != '{' {
		s.Skip()
		return nil
	}
	for s.Enter('{'); s.Next('}'); {
		if string(jsonscan.Name(s.Key())) != "model" {
			s.Skip()
			continue
		}
		value, end := s.Span(), int64(s.Offset())
		if len(value) == 0 || value[0] != '"' {
			continue // the provider's to refuse
		}
		bare, prefixed := strings.CutPrefix(string(jsonscan.Unquote(value)), "models/")
		if bare != model {
			return errOtherModel
		}
		b.parts = append(b.parts, part{edit{from: end - int64(len(value)), to: end}, prefixed})
	}
	return nil
}

// notes takes in a member by which more than one model may answer or cost, or the cost is told to nobody. It reports whether it was one.
func (b *body) notes(name, value []byte) bool {
	switch {
	case bytes.EqualFold(name, []byte("models")), // of OpenRouter
		endsIn(name, "fallbacks"): // of LiteLLM, which has several
		b.others = true
	case bytes.EqualFold(name, []byte("tools")), bytes.EqualFold(name, []byte("plugins")):
		b.others = b.others || nameModels(value)
	case bytes.EqualFold(name, []byte("background")): // of OpenAI's responses
		b.background = b.background || string(value) == "true"
	default:
		return false
	}
	return true
}

func endsIn(name []byte, word string) bool {
	return len(name) >= len(word) && bytes.EqualFold(name[len(name)-len(word):], []byte(word))
}

// nameModels reports whether tools, or plugins, name models that do a part of the work, and whose tokens no answer counts among its
// own: Anthropic's advisor (https://platform.claude.com/docs/en/agents-and-tools/tool-use/advisor-tool), OpenAI's generation of images,
// those of OpenRouter. What functions take stands deeper, and may be called as it likes.
func nameModels(tools []byte) (any bool) {
	s := jsonscan.New(tools)
	if s.Peek() != '[' {
		return false
	}
	for s.Enter('['); s.Next(']'); {
		any = namesModel(&s, true) || any
	}
	return any
}

func namesModel(s *jsonscan.Scanner, deeper bool) (any bool) {
	if s.Peek() != '{' {
		s.Skip()
		return false
	}
	for s.Enter('{'); s.Next('}'); {
		name := jsonscan.Name(s.Key())
		switch {
		case endsIn(name, "model"), endsIn(name, "models"):
			any = true
			s.Skip()
		case deeper && bytes.EqualFold(name, []byte("parameters")): // of OpenRouter's; elsewhere it is a schema
			any = namesModel(s, false) || any
		default:
			s.Skip()
		}
	}
	return any
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
