package batch

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// request is what an input line asks for.
type request struct {
	row      rows.Row
	hash     work.Hash
	id       []byte // custom_id; may share the line's memory
	endpoint provider.Endpoint
	provider provider.Provider
	model    string
	body     []byte            // as it is sent; may share the line's memory
	filled   bool              // it was a bare prompt or plain text
	bound    string            // the member of the body that bounds the output, if Sluice added it; else ""
	prompts  provider.Endpoint // where prompts of its model go
	metadata []byte            // JSON: the fields of its row that are kept with the result; nil is none
}

// problem is why a row is no request.
type problem = rows.Problem

// parser makes requests of lines. It is not safe for concurrent use; what it returns is valid until the next line.
type parser struct {
	cfg      *Config
	table    bool      // the input is one
	template *renderer // nil: none
	set      []setting // of the configuration, sorted by name
	models   map[string]*model

	members members
	body    bodyMembers
	idText  []byte
	built   []byte
	compact []byte
	prose   []byte    // of a prompt, as JSON
	kept    []byte    // metadata, as JSON
	allSet  []setting // of a prompt
	fields  PromptFields
}

// model is one that was recognised before.
type model struct {
	name     string
	provider provider.Provider
	prompts  provider.Endpoint
}

// setting is a member of the body. Dots in its name lead into objects.
type setting struct {
	name  string
	value []byte // JSON
}

// members are what a line's object holds, as JSON; nil is absent.
type members struct {
	customID, method, url, body, params, key, request, prompt, system, messages, input []byte
	bodyMembers
}

// bodyMembers are what the object that is a request's body holds.
type bodyMembers struct {
	model, maxTokens, contents, content []byte
}

// newParser returns a parser. It fails with a *FieldError for a Template or a Set that is wrong.
func newParser(cfg *Config) (*parser, error) {
	p := &parser{cfg: cfg, table: rows.Table(cfg.Input), models: make(map[string]*model)}
	if cfg.Template != "" {
		var err error
		if p.template, err = newRenderer(cmp.Or(cfg.TemplateName, "template"), cfg.Template); err != nil {
			return nil, &FieldError{Field: "Template", Err: err}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Set)) {
		value := cfg.Set[name]
		err := settable(name, cfg.Set)
		if !jsonscan.Valid(value) {
			err = fmt.Errorf("%s: %s is not JSON", name, clip(value))
		}
		if err != nil {
			return nil, &FieldError{Field: "Set", Err: err}
		}
		p.set = append(p.set, setting{name: name, value: jsonscan.AppendCompact(nil, value)})
	}
	return p, nil
}

// parse reads a row, which is not blank. Also of a bad one it returns the id, if that can be read.
// What is quoted of it holds no key, which may stand where a name belongs.
func (p *parser) parse(row *rows.Row) (request, *problem) {
	rq, bad := p.request(row.Bytes, row.Number, row.Text)
	if bad != nil {
		bad.Text, bad.Hint = provider.Redact(bad.Text), provider.Redact(bad.Hint)
	}
	return rq, bad
}

// request reads a line.
func (p *parser) request(line []byte, number int, text bool) (request, *problem) {
	if !utf8.Valid(line) {
		return request{}, &problem{Text: "not valid UTF-8", Hint: "save the input as UTF-8"}
	}
	trimmed := bytes.TrimLeft(line, " \t")
	if text || trimmed[0] != '{' {
		return p.text(line, number)
	}
	p.members = members{}
	m := &p.members
	s := jsonscan.New(line)
	for s.Enter('{'); s.Next('}'); {
		p.member(&s, jsonscan.Name(s.Key()))
	}
	if !s.End() {
		return request{}, &problem{Text: fmt.Sprintf("broken JSON at byte %d", min(s.Offset(), len(line)-1)+1)}
	}
	isPrompt := m.isPrompt()
	rq := request{}
	var bad *problem
	if p.fromFields() {
		rq.id, bad = p.id("custom_id", p.given(m.customID), number)
	} else if !isPrompt && m.customID == nil && m.request != nil {
		rq.id, bad = p.id("key", m.key, number)
	} else {
		rq.id, bad = p.id("custom_id", m.customID, number)
	}
	if bad != nil {
		return rq, bad
	}
	switch {
	case p.fromFields():
		bad = p.row(&rq, line)
	case isPrompt:
		bad = p.prompt(&rq, line)
	case m.params != nil && m.body != nil:
		bad = &problem{Text: "the item has both fields body and params"}
	case m.request != nil && (m.body != nil || m.params != nil):
		bad = &problem{Text: "the item has the field request in addition to body or params"}
	case m.params != nil:
		bad = p.anthropic(&rq)
	case m.body != nil || m.url != nil || m.method != nil:
		bad = p.openAI(&rq)
	case m.messages != nil || m.input != nil:
		bad = p.bare(&rq, line)
	case m.request != nil:
		bad = p.gemini(&rq)
	case m.contents != nil || m.content != nil || m.model != nil:
		bad = p.bare(&rq, line)
	default:
		bad = &problem{
			Text: "the item contains no request: want a field body, params, request, messages, input, contents or prompt",
			Hint: `write the item as {"prompt": "…"}, or build prompts from other fields with --template`,
		}
	}
	return rq, bad
}

// isPrompt reports whether the object is a prompt with fields. A body may have a prompt too: beside messages, or one of
// Responses, which is an object, beside input.
func (m *members) isPrompt() bool {
	return m.prompt != nil && m.body == nil && m.method == nil && m.messages == nil && (m.input == nil || m.prompt[0] == '"')
}

// member reads one member of a line's object.
func (p *parser) member(s *jsonscan.Scanner, key []byte) {
	switch string(key) {
	case "body", "params", "request":
		*p.members.named(key) = p.inner(s)
	default:
		readMember(s, key, p.members.named(key))
	}
}

// named returns the member of that name; nil is none that matters.
func (m *members) named(name []byte) *[]byte {
	switch string(name) {
	case "custom_id":
		return &m.customID
	case "method":
		return &m.method
	case "url":
		return &m.url
	case "body":
		return &m.body
	case "params":
		return &m.params
	case "request":
		return &m.request
	case "key":
		return &m.key
	case "prompt":
		return &m.prompt
	case "system":
		return &m.system
	case "messages":
		return &m.messages
	case "input":
		return &m.input
	}
	return m.bodyMembers.named(name)
}

// inner reads a member that is the body of a request.
func (p *parser) inner(s *jsonscan.Scanner) []byte {
	if s.Peek() != '{' {
		return s.Span()
	}
	p.body = bodyMembers{}
	start := s.Offset()
	for s.Enter('{'); s.Next('}'); {
		key := jsonscan.Name(s.Key())
		readMember(s, key, p.body.named(key))
	}
	return s.Since(start)
}

// named returns the member of that name; nil is none that matters.
func (m *bodyMembers) named(name []byte) *[]byte {
	switch string(name) {
	case "model":
		return &m.model
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		return &m.maxTokens
	case "contents":
		return &m.contents
	case "content":
		return &m.content
	}
	return nil
}

// readMember reads a member into its place, if it has one.
func readMember(s *jsonscan.Scanner, key []byte, place *[]byte) {
	if place == nil {
		s.Skip()
	} else if *place = s.Span(); string(key) == "content" && len(*place) > 0 && (*place)[0] != '{' {
		*place = nil // not Gemini's
	}
}

// id reads the member of that name as the custom_id. A missing one is the line's number.
func (p *parser) id(name string, raw []byte, number int) ([]byte, *problem) {
	switch {
	case raw == nil || string(raw) == "null":
		p.idText = strconv.AppendInt(p.idText[:0], int64(number), 10)
		return p.idText, nil
	case raw[0] == '"' && len(raw) > 2:
		return jsonscan.Unquote(raw), nil
	case raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9':
		return raw, nil
	}
	return nil, &problem{Text: fmt.Sprintf("%s is %s", name, clip(raw)), Hint: name + " must be a string that is not empty"}
}

// openAI reads a line of an OpenAI batch file.
func (p *parser) openAI(rq *request) *problem {
	m := &p.members
	if m.method != nil && string(m.method) != `"POST"` {
		return &problem{Text: fmt.Sprintf("the method is %s, but must be \"POST\"", clip(m.method))}
	}
	if m.url == nil || m.url[0] != '"' {
		return &problem{Text: "url is missing", Hint: "set url, for example to /v1/chat/completions"}
	}
	var err error
	if rq.endpoint, rq.model, err = provider.ParseEndpoint(string(jsonscan.Unquote(m.url))); err != nil {
		return &problem{Text: err.Error()}
	}
	return p.whole(rq, "body", m.body)
}

// anthropic reads a line of an Anthropic message batch.
func (p *parser) anthropic(rq *request) *problem {
	rq.endpoint = provider.Messages
	return p.whole(rq, "params", p.members.params)
}

// gemini reads a line of a Gemini batch (https://ai.google.dev/gemini-api/docs/batch-api). Such a batch has one model,
// which its lines need not name.
func (p *parser) gemini(rq *request) *problem {
	rq.endpoint = provider.GenerateContent
	if p.body.contents == nil && p.body.content != nil {
		rq.endpoint = provider.EmbedContent
	}
	if beside := p.members.model; beside != nil {
		if bad := p.model(rq, beside); bad != nil {
			return bad
		}
		rq.model = strings.TrimPrefix(rq.model, "models/")
	}
	return p.whole(rq, "request", p.members.request)
}

// whole takes a body that stands in the line as it is, but for the model: one that is missing is filled in, and Gemini's
// goes into the path.
func (p *parser) whole(rq *request, name string, body []byte) *problem {
	if body == nil {
		return &problem{Text: name + " is missing"}
	}
	if body[0] != '{' {
		return &problem{Text: name + " is not an object"}
	}
	if beside := p.members.model; beside != nil && p.body.model == nil && rq.model == "" {
		return &problem{Text: fmt.Sprintf("the field model (%s) is not inside the field %s", clip(beside), name), Hint: "move model into " + name}
	}
	if bad := p.model(rq, p.body.model); bad != nil {
		return bad
	}
	rq.body = body
	if inPath := rq.endpoint.ModelInPath(); inPath == (p.body.model != nil) {
		rq.body = p.rebuild(body, inPath, false)
	}
	return p.fits(rq)
}

// bare reads a line that is a body itself.
func (p *parser) bare(rq *request, line []byte) *problem {
	m := &p.members
	if m.messages == nil && m.input == nil && m.contents == nil && m.content == nil {
		return &problem{Text: "the request has a model, but no messages, input or contents"}
	}
	if bad := p.model(rq, m.model); bad != nil {
		return bad
	}
	switch {
	case m.messages != nil:
		rq.endpoint = rq.provider.MessagesEndpoint()
	case m.input != nil && rq.prompts == provider.Embeddings:
		rq.endpoint = provider.Embeddings
	case m.input != nil:
		rq.endpoint = provider.Responses
	case m.contents != nil:
		rq.endpoint = provider.GenerateContent
	default:
		rq.endpoint = provider.EmbedContent
	}
	rq.body = bytes.TrimSpace(line)
	inPath := rq.endpoint.ModelInPath()
	if inPath == (m.model != nil) || m.customID != nil {
		rq.body = p.rebuild(line, inPath, true)
	}
	return p.fits(rq)
}

// rebuild copies an object with the model that is filled in if it has none, or without any if that is in the path. A
// bare body also has a custom_id, which is left out.
func (p *parser) rebuild(object []byte, inPath, bare bool) []byte {
	hasModel := inPath
	b, _ := jsonscan.AppendMembers(append(p.built[:0], '{'), object, func(name, value []byte) []byte {
		isModel := string(name) == "model"
		hasModel = hasModel || isModel
		if isModel && inPath || bare && string(name) == "custom_id" {
			return nil
		}
		return value
	})
	if !hasModel {
		b = jsonscan.AppendMember(b, "model", jsonscan.AppendString(nil, p.cfg.Model))
	}
	p.built = append(b, '}')
	return p.built
}

// model finds out the model of a request whose body says that one, and its provider.
func (p *parser) model(rq *request, raw []byte) *problem {
	switch {
	case rq.model != "": // the url's, or the line's
		if raw != nil && (raw[0] != '"' || strings.TrimPrefix(string(jsonscan.Unquote(raw)), "models/") != rq.model) {
			return &problem{Text: fmt.Sprintf("the line names two models: %q, and %s in the body", rq.model, clip(raw))}
		}
		return p.recognise(rq, []byte(rq.model))
	case raw == nil && p.cfg.Model != "":
		return p.recognise(rq, []byte(p.cfg.Model))
	case raw == nil:
		return &problem{Text: "the model is missing", Hint: "set --model for the lines without a model"}
	case raw[0] != '"' || len(raw) == 2:
		return &problem{Text: fmt.Sprintf("model is %s, but must be a name", clip(raw))}
	}
	return p.recognise(rq, jsonscan.Unquote(raw))
}

// recognise finds the provider of a request's model. A file has many lines and few models, which share their names' memory.
func (p *parser) recognise(rq *request, name []byte) *problem {
	m, known := p.models[string(name)]
	if !known {
		var bad *problem
		if m, bad = p.find(string(name)); bad != nil {
			return bad
		}
		const most = 1000
		if len(p.models) == most {
			clear(p.models)
		}
		p.models[m.name] = m
	}
	rq.model, rq.provider, rq.prompts = m.name, m.provider, m.prompts
	return nil
}

// find finds the provider of a model: of its upstreams the first, as whose provider wants them prompts are completed.
func (p *parser) find(name string) (*model, *problem) {
	m, id, ok := &model{name: name, provider: p.cfg.Provider}, name, p.cfg.Provider.Name != ""
	if p.cfg.Upstreams != nil {
		if m.provider, id, ok = p.cfg.Upstreams.First(name); !ok {
			return m, &problem{
				Text: fmt.Sprintf("no upstream serves the model %s", clip([]byte(strconv.Quote(name)))),
				Hint: "add the model to an upstream, or set --provider to ignore the upstreams",
			}
		}
	}
	if !ok {
		m.provider, ok = p.cfg.Registry.Recognise(name)
	}
	if !ok && p.cfg.BaseURL != "" {
		m.provider, ok = p.cfg.Registry.Lookup("openai-compatible")
	}
	if !ok {
		return m, p.unrecognised(name)
	}
	m.prompts = m.provider.PromptEndpoint(id)
	return m, nil
}

// unrecognised says that a model's provider is not known, and what may have been meant.
func (p *parser) unrecognised(model string) *problem {
	bad := &problem{
		Text: fmt.Sprintf("the provider of model %s is unknown", clip([]byte(strconv.Quote(model)))),
		Hint: "set --provider, or --base-url for an OpenAI-compatible server",
	}
	if strings.HasPrefix(model, "sim-") {
		bad.Hint = "add --provider sim, or use a model of your provider"
	} else if near := p.cfg.Registry.SuggestModel(model); len(near) > 0 {
		bad.Text += ": similar model IDs begin with " + strings.Join(near, " or ")
	} else if strings.Contains(model, "/") {
		bad.Hint += ", because several hosts serve this model"
	}
	return bad
}

// fits refuses a request in the form of one well-known provider for another, and a model that is none for its path.
func (p *parser) fits(rq *request) *problem {
	if p.cfg.Upstreams != nil && !p.cfg.Upstreams.Serves(rq.model, rq.endpoint) {
		return &problem{Text: fmt.Sprintf("no upstream of model %s supports the endpoint %s", clip([]byte(rq.model)), rq.endpoint),
			Hint: "add an upstream that supports this endpoint"}
	}
	if p.cfg.Upstreams == nil && !rq.provider.Has(rq.endpoint) {
		return &problem{Text: fmt.Sprintf("%s does not support the endpoint %s", rq.provider.Name, rq.endpoint),
			Hint: "set --provider openai-compatible and --base-url for an OpenAI-compatible server"}
	}
	if rq.endpoint.ModelInPath() {
		rq.model = strings.TrimPrefix(rq.model, "models/") // the same model, and so the same lane
	}
	if _, err := rq.endpoint.Path(rq.model); err != nil {
		return &problem{Text: err.Error()}
	}
	return nil
}

// hash returns the identity of a request: where it goes and what it says, whatever spaces stand between.
func (p *parser) hash(rq *request) work.Hash {
	path, _ := rq.endpoint.Path(rq.model) // fits has checked it
	p.compact = append(p.compact[:0], path...)
	p.compact = append(p.compact, '\n')
	p.compact = jsonscan.AppendCompact(p.compact, rq.body)
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
	return prose.Clip(string(b), most)
}
