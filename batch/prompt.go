package batch

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/provider"
)

// text makes a request of a line of plain text.
func (p *parser) text(line []byte, number int) (request, *problem) {
	rq := request{id: strconv.AppendInt(p.idText[:0], int64(number), 10)}
	p.idText = rq.id
	if p.cfg.Model == "" {
		return rq, &problem{
			Text: "the line is not a JSON object, and no model is configured for plain text",
			Hint: "set --model to send each line of plain text as a prompt",
		}
	}
	text := bytes.TrimSpace(line)
	if p.template != nil {
		var bad *problem
		if text, bad = p.template.render(map[string]any{"line": string(text)}); bad != nil {
			return rq, bad
		}
	}
	p.members = members{}
	return rq, p.rendered(&rq, []byte("{}"), text)
}

// fromFields says whether rows are fields to make prompts of, and no requests.
func (p *parser) fromFields() bool { return p.template != nil || p.table }

// given returns a member of a row as JSON; nil is absent, as an empty field of a table is.
func (p *parser) given(raw []byte) []byte {
	if p.table && string(raw) == `""` {
		return nil
	}
	return raw
}

// row makes a request of the fields of a row: the prompt that the template makes, or that it has, and its system and model.
// No other field goes into the body.
func (p *parser) row(rq *request, object []byte) *problem {
	m := &p.members
	text := []byte(nil)
	if p.template == nil {
		if prompt := p.given(m.prompt); prompt != nil { // a table has this column
			text = jsonscan.Unquote(prompt)
		}
	} else {
		var bad *problem
		if text, bad = p.template.render(rowFields(object)); bad != nil {
			return bad
		}
	}
	p.members = members{system: p.given(m.system), bodyMembers: bodyMembers{model: p.given(m.model)}}
	return p.rendered(rq, object, text)
}

// rendered makes a request of a row and the text of its prompt, of which nothing is taken for JSON.
func (p *parser) rendered(rq *request, row, text []byte) *problem {
	if len(bytes.TrimSpace(text)) == 0 {
		return &problem{Text: "the prompt is empty"}
	}
	if cap(p.prose) > 1<<20 {
		p.prose = nil // after a very long row
	}
	p.prose = jsonscan.AppendString(p.prose[:0], text)
	p.members.prompt = p.prose
	return p.prompt(rq, row)
}

// prompt makes a request of {"prompt": …}. Members that are fields of the endpoint go into the body as they are, and others are kept
// with the result, unless the settings name those that are. Of rows of fields, named ones are kept and no others are sent.
func (p *parser) prompt(rq *request, row []byte) *problem {
	m := &p.members
	if m.prompt[0] != '"' {
		return &problem{Text: "prompt is not a string", Hint: "rename prompt to messages if it is a list of messages"}
	}
	if bad := p.model(rq, m.model); bad != nil {
		return bad
	}
	rq.filled = true
	rq.endpoint = rq.prompts
	if bad := p.fits(rq); bad != nil {
		return bad
	}
	system := m.system
	if system == nil && p.cfg.System != "" {
		system = jsonscan.AppendString(nil, p.cfg.System)
	}
	if system != nil && rq.endpoint != provider.Messages && system[0] != '"' {
		return &problem{Text: "system is not a string"}
	}
	b := provider.AppendPrompt(p.built[:0], rq.endpoint, rq.model, m.prompt, system)
	if cap(p.kept) > 1<<20 {
		p.kept = nil // after a very long row
	}
	p.kept = p.kept[:0]
	b = appendCompleted(b, row, p.settings(rq, system), func(name string, value []byte) bool {
		switch {
		case ofPrompt(name), p.fromFields():
			return true
		case keeps(rq.endpoint, name):
			addName(&p.fields.Kept, name)
			p.kept = jsonscan.AppendCompact(append(jsonscan.AppendString(append(p.kept, ','), name), ':'), value)
			return true
		}
		addName(&p.fields.Sent, name)
		return false
	})
	p.built = append(b, '}')
	rq.body = p.built
	if len(p.kept) > 0 {
		p.kept[0] = '{'
		p.kept = append(p.kept, '}')
		rq.metadata = p.kept
	}
	return nil
}

// keeps reports whether a field of a prompt is kept with the result, and not sent.
func keeps(e provider.Endpoint, name string) bool {
	switch name {
	case "messages", "input", "contents", "content": // the prompt itself stands there
		return true
	}
	return !e.HasField(name)
}

// PromptFields are the names of the fields that rows with a prompt have beside custom_id, prompt, system and model, sorted.
type PromptFields struct {
	Sent []string // in the request
	Kept []string // as metadata, with the result
}

// maxFields bounds the names: rows that all have other fields are data.
const maxFields = 100

func addName(list *[]string, name string) {
	if at, known := slices.BinarySearch(*list, name); !known && len(*list) < maxFields {
		*list = slices.Insert(*list, at, name)
	}
}

// ofPrompt says whether a member of a line is the prompt's own, and so no member of the body.
func ofPrompt(name string) bool {
	switch name {
	case "custom_id", "prompt", "system", "model":
		return true
	}
	return false
}

// settings returns what is to be set in the body of a prompt, where the line does not set it itself.
func (p *parser) settings(rq *request, system []byte) []setting {
	set := append(p.allSet[:0], p.set...)
	if system != nil && rq.endpoint == provider.GenerateContent {
		value := append([]byte(`{"parts":[{"text":`), system...)
		set = append(set, setting{"systemInstruction", append(value, `}]}`...)})
	}
	bound, n := rq.provider.Bound(rq.endpoint)
	if p.cfg.MaxTokens > 0 {
		n = p.cfg.MaxTokens
	}
	bounded := p.members.maxTokens != nil || slices.ContainsFunc(set, func(s setting) bool {
		return s.name == "max_tokens" || s.name == "max_completion_tokens"
	})
	if bound != "" && n > 0 && !bounded {
		set = append(set, setting{bound, strconv.AppendInt(nil, int64(n), 10)})
		rq.bound = bound
	}
	p.allSet = set
	return set
}

// appendCompleted appends the members of an object to one that is open, and then the settings for which it has none. The
// name of a setting may be a path through objects, with dots. Members that are left out do not count as set.
func appendCompleted(b, object []byte, set []setting, leftOut func(name string, value []byte) bool) []byte {
	var own []string
	b, _ = jsonscan.AppendMembers(b, object, func(key, value []byte) []byte {
		name := string(key)
		if leftOut != nil && leftOut(name, value) {
			return nil
		}
		own = append(own, name)
		return completed(value, name, set)
	})
	for _, st := range set {
		name, _, deeper := strings.Cut(st.name, ".")
		if slices.Contains(own, name) {
			continue
		}
		own = append(own, name)
		if deeper {
			st.value = []byte("{}")
		}
		b = jsonscan.AppendMember(b, name, completed(st.value, name, set))
	}
	return b
}

// completed returns the value of a member with the settings whose paths lead into it, if it is an object.
func completed(value []byte, name string, set []setting) []byte {
	var inner []setting
	for _, st := range set {
		if top, rest, deeper := strings.Cut(st.name, "."); deeper && top == name {
			inner = append(inner, setting{rest, st.value})
		}
	}
	if inner == nil || value[0] != '{' {
		return value
	}
	return append(appendCompleted([]byte("{"), value, inner, nil), '}')
}
