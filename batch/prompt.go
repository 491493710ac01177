package batch

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/sluice-llm/sluice/provider"
)

// defaultMaxTokens is what a bare prompt for Anthropic gets, which demands a bound, when nothing else says one.
const defaultMaxTokens = 4096

// text makes a request of a line of plain text.
func (p *parser) text(line []byte, number int) (request, *problem) {
	rq := request{id: strconv.AppendInt(p.idText[:0], int64(number), 10)}
	p.idText = rq.id
	if p.fill.model == "" {
		return rq, &problem{
			text: "neither a JSON object nor plain text with a model",
			hint: "--model makes every line of plain text a prompt",
		}
	}
	p.members = members{prompt: appendString(nil, bytes.TrimSpace(line))}
	return rq, p.prompt(&rq, []byte("{}"))
}

// prompt makes a request of {"prompt": …}. The members that it does not know go into the body as they are.
func (p *parser) prompt(rq *request, line []byte) *problem {
	m := &p.members
	if m.prompt[0] != '"' {
		return &problem{text: "prompt is not a text", hint: "a list of messages is named messages"}
	}
	if bad := p.model(rq, m.model); bad != nil {
		return bad
	}
	if bad := p.recogniseModel(rq); bad != nil {
		return bad
	}
	rq.filled = true
	switch {
	case rq.provider.Dialect == provider.Anthropic:
		rq.endpoint = provider.Messages
	case embeds(rq.model):
		rq.endpoint = provider.Embeddings
	default:
		rq.endpoint = provider.ChatCompletions
	}
	system := m.system
	if system == nil && p.fill.system != "" {
		system = appendString(nil, p.fill.system)
	}
	if system != nil && rq.endpoint != provider.Messages && system[0] != '"' {
		return &problem{text: "system is not a text"}
	}
	p.built = p.appendPrompt(p.built[:0], rq, line, system)
	rq.body = p.built
	return nil
}

// appendPrompt appends the body of a prompt.
func (p *parser) appendPrompt(b []byte, rq *request, line, system []byte) []byte {
	m := &p.members
	b = append(b, `{"model":`...)
	b = appendString(b, rq.model)
	switch rq.endpoint {
	case provider.Embeddings:
		b = append(b, `,"input":`...)
		b = append(b, m.prompt...)
	default:
		if system != nil && rq.endpoint == provider.Messages {
			b = append(b, `,"system":`...)
			b = append(b, system...)
		}
		b = append(b, `,"messages":[`...)
		if system != nil && rq.endpoint != provider.Messages {
			b = append(b, `{"role":"system","content":`...)
			b = append(b, system...)
			b = append(b, `},`...)
		}
		b = append(b, `{"role":"user","content":`...)
		b = append(b, m.prompt...)
		b = append(b, `}]`...)
	}
	var own []string // names that the line brings itself, and so are not filled in
	s := scanner{b: line}
	s.object(func(key []byte) bool {
		value, ok := s.span()
		name := string(unquote(key))
		switch name {
		case "custom_id", "prompt", "system", "model":
			return ok
		}
		own = append(own, name)
		b = appendMember(b, key, value)
		return ok
	})
	for _, set := range p.fill.set {
		if !slices.Contains(own, set.name) {
			own = append(own, set.name)
			b = appendMember(b, appendString(nil, set.name), set.value)
		}
	}
	if n := p.maxTokens(rq); n > 0 && m.maxTokens == nil && !slices.Contains(own, "max_tokens") && !slices.Contains(own, "max_completion_tokens") {
		b = appendMember(b, appendString(nil, maxTokensName(rq)), strconv.AppendInt(nil, int64(n), 10))
	}
	return append(b, '}')
}

// maxTokens returns the bound on the answer that is filled in; 0 is none.
func (p *parser) maxTokens(rq *request) int {
	switch {
	case rq.endpoint == provider.Embeddings:
		return 0
	case p.fill.maxTokens > 0:
		return p.fill.maxTokens
	case rq.endpoint == provider.Messages:
		return defaultMaxTokens
	}
	return 0
}

// maxTokensName returns what the bound is called. OpenAI's newer models refuse max_tokens, and other servers do not know
// its new name (https://platform.openai.com/docs/api-reference/chat/create).
func maxTokensName(rq *request) string {
	if rq.provider.Name == "openai" {
		return "max_completion_tokens"
	}
	return "max_tokens"
}

func appendMember(b, key, value []byte) []byte {
	b = append(b, ',')
	b = append(b, key...)
	b = append(b, ':')
	return append(b, value...)
}
