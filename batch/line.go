package batch

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/work"
)

// maxLine bounds an input line.
const maxLine = 64 << 20

// request is what an input line asks for.
type request struct {
	id       []byte // custom_id; may share the line's memory
	endpoint provider.Endpoint
	provider provider.Provider
	model    string
	body     []byte // as it is sent; may share the line's memory
	filled   bool   // it was a bare prompt or plain text
}

// problem is why a line is no request.
type problem struct{ text, hint string }

// parser makes requests of lines. It is not safe for concurrent use; what it returns is valid until the next line.
type parser struct {
	fill    fill
	lookup  map[string]provider.Provider // by model, for models recognised before
	names   map[string]string            // of models
	members members
	body    bodyMembers
	idText  []byte
	built   []byte
	compact []byte
}

// fill is what bare prompts, plain text and requests without a model are completed with.
type fill struct {
	provider  provider.Provider // Name "" is recognised from the model
	registry  *provider.Registry
	baseURL   string
	model     string
	system    string
	maxTokens int
	set       []setting // sorted by name
}

// setting is a member of the body.
type setting struct {
	name  string
	value []byte // JSON
}

// members are what a line's object holds, as JSON; nil is absent.
type members struct {
	customID, method, url, body, params, prompt, system, messages, input []byte
	bodyMembers
}

// bodyMembers are what the object that is a request's body holds.
type bodyMembers struct {
	model, maxTokens []byte
}

func newParser(f fill) *parser {
	return &parser{fill: f, lookup: make(map[string]provider.Provider), names: make(map[string]string)}
}

// parse reads the line with that number, which is not blank. Also of a bad line it returns the id, if that can be read.
func (p *parser) parse(line []byte, number int) (request, *problem) {
	if !utf8.Valid(line) {
		return request{}, &problem{text: "not valid UTF-8"}
	}
	trimmed := bytes.TrimLeft(line, " \t")
	if trimmed[0] != '{' {
		return p.text(line, number)
	}
	p.members = members{}
	m := &p.members
	s := scanner{b: line}
	if !s.object(func(key []byte) bool { return p.member(&s, key) }) || !s.end() {
		return request{}, &problem{text: fmt.Sprintf("broken JSON at byte %d", min(s.at, len(line)-1)+1)}
	}
	rq := request{}
	var bad *problem
	if rq.id, bad = p.id(m.customID, number); bad != nil {
		return rq, bad
	}
	switch {
	case m.params != nil && m.body != nil:
		bad = &problem{text: "both body and params"}
	case m.params != nil:
		bad = p.anthropic(&rq)
	case m.body != nil || m.url != nil || m.method != nil:
		bad = p.openAI(&rq)
	case m.prompt != nil && m.messages == nil && m.input == nil:
		bad = p.prompt(&rq, line)
	case m.messages != nil || m.input != nil || m.model != nil:
		bad = p.bare(&rq, line)
	default:
		bad = &problem{
			text: "no form of request: neither body, params, messages, input nor prompt",
			hint: `the simplest line is {"prompt": "…"}`,
		}
	}
	return rq, bad
}

// member reads one member of a line's object.
func (p *parser) member(s *scanner, key []byte) (ok bool) {
	m := &p.members
	var to *[]byte
	switch {
	case is(key, "custom_id"):
		to = &m.customID
	case is(key, "method"):
		to = &m.method
	case is(key, "url"):
		to = &m.url
	case is(key, "body"):
		m.body, ok = p.inner(s)
		return ok
	case is(key, "params"):
		m.params, ok = p.inner(s)
		return ok
	case is(key, "prompt"):
		to = &m.prompt
	case is(key, "system"):
		to = &m.system
	case is(key, "messages"):
		to = &m.messages
	case is(key, "input"):
		to = &m.input
	default:
		return m.bodyMember(s, key)
	}
	*to, ok = s.span()
	return ok
}

// inner reads a member that is the body of a request.
func (p *parser) inner(s *scanner) ([]byte, bool) {
	if s.peek() != '{' {
		return s.span()
	}
	p.body = bodyMembers{}
	start := s.at
	ok := s.object(func(key []byte) bool { return p.body.bodyMember(s, key) })
	return s.b[start:s.at], ok
}

func (m *bodyMembers) bodyMember(s *scanner, key []byte) (ok bool) {
	switch {
	case is(key, "model"):
		m.model, ok = s.span()
	case is(key, "max_tokens"), is(key, "max_completion_tokens"), is(key, "max_output_tokens"):
		m.maxTokens, ok = s.span()
	default:
		ok = s.value()
	}
	return ok
}

// id reads a custom_id. A missing one is the line's number.
func (p *parser) id(raw []byte, number int) ([]byte, *problem) {
	switch {
	case raw == nil || string(raw) == "null":
		p.idText = strconv.AppendInt(p.idText[:0], int64(number), 10)
		return p.idText, nil
	case raw[0] == '"' && len(raw) > 2:
		return unquote(raw), nil
	case raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9':
		return raw, nil
	}
	return nil, &problem{text: fmt.Sprintf("custom_id is %s", clip(raw)), hint: "custom_id must be a text that is not empty"}
}

// openAI reads a line of an OpenAI batch file.
func (p *parser) openAI(rq *request) *problem {
	m := &p.members
	if m.method != nil && string(m.method) != `"POST"` {
		return &problem{text: fmt.Sprintf("method is %s, want \"POST\"", clip(m.method))}
	}
	if m.url == nil || m.url[0] != '"' {
		return &problem{text: "url is missing", hint: "such as /v1/chat/completions"}
	}
	var err error
	if rq.endpoint, err = provider.ParseEndpoint(string(unquote(m.url))); err != nil {
		return &problem{text: err.Error()}
	}
	return p.whole(rq, "body", m.body)
}

// anthropic reads a line of an Anthropic message batch.
func (p *parser) anthropic(rq *request) *problem {
	rq.endpoint = provider.Messages
	return p.whole(rq, "params", p.members.params)
}

// whole takes a body that stands in the line as it is, but for a missing model.
func (p *parser) whole(rq *request, name string, body []byte) *problem {
	if body == nil {
		return &problem{text: name + " is missing"}
	}
	if body[0] != '{' {
		return &problem{text: name + " is not an object"}
	}
	if bad := p.model(rq, p.body.model); bad != nil {
		return bad
	}
	rq.body = body
	if p.body.model == nil {
		rq.body = p.rebuild(body, nil)
	}
	return p.recognise(rq)
}

// bare reads a line that is a body itself.
func (p *parser) bare(rq *request, line []byte) *problem {
	m := &p.members
	if m.messages == nil && m.input == nil {
		return &problem{text: "the request has a model, but neither messages nor input"}
	}
	if bad := p.model(rq, m.model); bad != nil {
		return bad
	}
	if bad := p.recogniseModel(rq); bad != nil {
		return bad
	}
	switch {
	case m.messages != nil && rq.provider.Dialect == provider.Anthropic:
		rq.endpoint = provider.Messages
	case m.messages != nil:
		rq.endpoint = provider.ChatCompletions
	case embeds(rq.model):
		rq.endpoint = provider.Embeddings
	default:
		rq.endpoint = provider.Responses
	}
	rq.body = bytes.TrimSpace(line)
	if m.model == nil || m.customID != nil {
		rq.body = p.rebuild(line, m.customID)
	}
	return p.fits(rq)
}

// rebuild copies an object without its custom_id, and with the model that is filled in if it has none.
func (p *parser) rebuild(object, customID []byte) []byte {
	b := append(p.built[:0], '{')
	hasModel := false
	s := scanner{b: object}
	s.object(func(key []byte) bool {
		hasModel = hasModel || is(key, "model")
		value, ok := s.span()
		if customID == nil || !is(key, "custom_id") {
			b = append(b, key...)
			b = append(b, ':')
			b = append(b, value...)
			b = append(b, ',')
		}
		return ok
	})
	if !hasModel {
		b = append(b, `"model":`...)
		b = appendString(b, p.fill.model)
		b = append(b, ',')
	}
	b[len(b)-1] = '}'
	p.built = b
	return b
}

// model finds out the model of a request whose body says that one.
func (p *parser) model(rq *request, raw []byte) *problem {
	switch {
	case raw == nil && p.fill.model != "":
		rq.model = p.fill.model
	case raw == nil:
		return &problem{text: "the model is missing", hint: "--model gives one to all lines that have none"}
	case raw[0] != '"' || len(raw) == 2:
		return &problem{text: fmt.Sprintf("model is %s, want a name", clip(raw))}
	default:
		rq.model = p.name(unquote(raw))
	}
	return nil
}

// name returns b as a text, the same one for the same name: a file has many lines and few models.
func (p *parser) name(b []byte) string {
	if known, ok := p.names[string(b)]; ok {
		return known
	}
	const most = 1000
	if len(p.names) == most {
		clear(p.names)
	}
	name := string(b)
	p.names[name] = name
	return name
}

// recognise finds the provider and checks that it has the endpoint.
func (p *parser) recognise(rq *request) *problem {
	if bad := p.recogniseModel(rq); bad != nil {
		return bad
	}
	return p.fits(rq)
}

func (p *parser) recogniseModel(rq *request) *problem {
	if p.fill.provider.Name != "" {
		rq.provider = p.fill.provider
		return nil
	}
	if known, ok := p.lookup[rq.model]; ok {
		rq.provider = known
		return nil
	}
	found, ok := p.fill.registry.Recognise(rq.model)
	if !ok && p.fill.baseURL != "" {
		found, ok = p.fill.registry.Lookup("openai-compatible")
	}
	if !ok {
		return p.unrecognised(rq.model)
	}
	p.lookup[rq.model] = found
	rq.provider = found
	return nil
}

// unrecognised says that a model's provider is not known, and what may have been meant.
func (p *parser) unrecognised(model string) *problem {
	bad := &problem{
		text: fmt.Sprintf("model %s is of no provider that is recognised", clip([]byte(strconv.Quote(model)))),
		hint: "say --provider, or --base-url for a server that is compatible with OpenAI's",
	}
	if near := p.fill.registry.SuggestModel(model); len(near) > 0 {
		bad.text += ": ids begin with " + strings.Join(near, " or ")
	} else if strings.Contains(model, "/") {
		bad.hint += "; several hosts serve such a model"
	}
	return bad
}

// fits refuses a request in the form of one well-known provider for the other.
func (p *parser) fits(rq *request) *problem {
	name := rq.provider.Name
	if name != "openai" && name != "anthropic" && name != "gemini" || rq.endpoint.Dialect() == rq.provider.Dialect {
		return nil
	}
	return &problem{text: fmt.Sprintf("%s does not have %s", name, rq.endpoint),
		hint: "for a server that is compatible with OpenAI's, say --provider openai-compatible and --base-url"}
}

// embeds says whether a model's name says that it makes embeddings. A line that has an url does not need the guess.
func embeds(model string) bool { return strings.Contains(strings.ToLower(model), "embed") }

// hash returns the identity of a request: where it goes and what it says, whatever spaces stand between.
func (p *parser) hash(rq *request) work.Hash {
	p.compact = append(p.compact[:0], rq.endpoint.String()...)
	p.compact = append(p.compact, '\n')
	p.compact = appendCompact(p.compact, rq.body)
	sum := work.HashOf(p.compact)
	p.shrink()
	return sum
}

// shrink gives the memory of a very long line back.
func (p *parser) shrink() {
	const usual = 1 << 20
	if cap(p.compact) > usual {
		p.compact = nil
	}
	if cap(p.built) > usual {
		p.built = nil
	}
}

// clip shortens what is quoted in a message.
func clip(b []byte) string {
	const most = 60
	if len(b) <= most {
		return string(b)
	}
	b = b[:most]
	for len(b) > 0 && !utf8.Valid(b) {
		b = b[:len(b)-1]
	}
	return string(b) + "…"
}
