package provider

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// Reply is one choice of a model's response.
type Reply struct {
	Text    string   // text of all parts, without the model's thoughts
	Calls   []string // arguments of the tool calls
	Other   bool     // the reply contains other content, such as an image
	Finish  string   // the provider's finish reason; "" if missing
	Refusal string   // refusal message of the model or a filter, or the name of the refusal reason

	index    int64
	filtered bool // whatever the reason is called
}

// Content returns the text of the reply. If the reply has no text, Content returns the arguments of the tool calls, one per line.
func (r Reply) Content() string {
	if r.Text != "" {
		return r.Text
	}
	return strings.Join(r.Calls, "\n")
}

// Cut reports whether the reply ended because it reached a length limit.
func (r Reply) Cut() bool {
	switch strings.ToLower(r.Finish) {
	case "length", "max_tokens", "max_output_tokens", "incomplete", // a response that does not say of what
		"model_length", "max_length", "model_context_window_exceeded":
		return true
	}
	return false
}

// Filtered reports whether a filter of the provider blocked the reply or a part of it.
func (r Reply) Filtered() bool {
	if r.filtered {
		return true
	}
	switch strings.ToLower(r.Finish) {
	case "content_filter", "content_filtered", "guardrail_intervened", "error_toxic", // the first is OpenAI's
		"safety", "recitation", "blocklist", "prohibited_content", "spii", "language", "jailbreak", "model_armor",
		"image_safety", "image_prohibited_content", "image_recitation", "image_other":
		return true
	}
	return false
}

// Refused reports whether the model itself refused to answer, with OpenAI's refusal field or Anthropic's stop reason "refusal".
func (r Reply) Refused() bool {
	return r.Finish == "refusal" || r.Refusal != "" && !r.Filtered()
}

// Empty reports whether the reply has no content: no text except white space, no tool call and no other content. Thoughts and refusal
// messages do not count as content.
func (r Reply) Empty() bool {
	return len(r.Calls) == 0 && !r.Other && strings.TrimSpace(r.Text) == ""
}

// Replies returns the choices of a complete response body, in the order of their indices. Replies reads responses of all dialects, including
// legacy completions and an array of Gemini chunks. For a body without choices, such as an error, embeddings or invalid JSON, Replies
// returns nil. If Gemini blocked the prompt, Replies returns one empty Reply.
func Replies(body []byte) []Reply {
	s := jsonscan.New(body)
	var all []Reply
	if s.Peek() == '[' {
		for s.Enter('['); s.Next(']'); {
			if s.Peek() != '{' {
				return nil
			}
			all = append(all, repliesOf(&s)...)
		}
		all = joined(all)
	} else {
		all = repliesOf(&s)
	}
	if !s.End() {
		return nil
	}
	slices.SortStableFunc(all, func(a, b Reply) int { return cmp.Compare(a.index, b.index) })
	return all
}

// joined puts the chunks of each choice together.
func joined(chunks []Reply) []Reply {
	at := make(map[int64]int)
	texts := []*strings.Builder{}
	var all []Reply
	for _, c := range chunks {
		i, known := at[c.index]
		if !known {
			i = len(all)
			at[c.index] = i
			all, texts = append(all, Reply{index: c.index}), append(texts, &strings.Builder{})
		}
		r := &all[i]
		texts[i].WriteString(c.Text)
		r.Calls = append(r.Calls, c.Calls...)
		r.Other, r.filtered = r.Other || c.Other, r.filtered || c.filtered
		r.Finish, r.Refusal = cmp.Or(c.Finish, r.Finish), cmp.Or(c.Refusal, r.Refusal)
	}
	for i, text := range texts {
		all[i].Text = text.String()
	}
	return all
}

// content gathers what the choices of a response say.
type content struct {
	replyReader // of a response that has no choices
	all         []Reply
}

// replyReader gathers what one choice says.
type replyReader struct {
	Reply
	parts []byte // the text so far
	found bool   // there was something that makes an answer
}

// reply returns the choice.
func (r *replyReader) reply() Reply {
	r.Text = string(r.parts)
	if r.Refusal == "" && (r.Filtered() || r.Refused()) {
		r.Refusal = r.Finish
	}
	return r.Reply
}

// repliesOf reads one answer, or one chunk of Gemini's.
func repliesOf(s *jsonscan.Scanner) []Reply {
	if s.Peek() != '{' {
		s.Skip()
		return nil
	}
	sum := summary{content: &content{}}
	sum.members(s)
	c := sum.content
	if c.found && len(c.all) == 0 {
		c.Finish = cmp.Or(sum.finish, sum.status)
		c.all = append(c.all, c.reply())
	}
	return c.all
}

// readChoices reads what each choice says.
func (c *content) readChoices(s *jsonscan.Scanner) {
	var r replyReader
	var why string
	choices(s, func(name []byte) {
		switch string(name) {
		case "finishMessage":
			why = s.Text()
		case "message", "content":
			r.readMessage(s)
		case "text": // of old completions
			r.readText(s)
		default:
			s.Skip()
		}
	}, func(index int64, finish string) {
		r.index, r.Finish = index, finish
		if r.Filtered() { // else it explains how something else ended
			r.Refusal = cmp.Or(r.Refusal, why)
		}
		c.all = append(c.all, r.reply())
		r, why = replyReader{}, ""
	})
}

// readText takes a value that is a text.
func (r *replyReader) readText(s *jsonscan.Scanner) {
	if s.Peek() != '"' {
		s.Skip()
		return
	}
	quoted := s.Span()
	if quoted == nil {
		return
	}
	if text := jsonscan.Unquote(quoted); r.parts == nil {
		r.parts = text[:len(text):len(text)] // most have one part: it is copied once
	} else {
		r.parts = append(r.parts, text...)
	}
}

// readMessage reads the message of a choice of chat, or the content of a candidate.
func (r *replyReader) readMessage(s *jsonscan.Scanner) {
	for name := range s.Members {
		switch string(name) {
		case "content", "parts":
			r.readContent(s)
		case "refusal":
			r.Refusal = cmp.Or(s.Text(), r.Refusal)
		case "tool_calls":
			r.readCalls(s)
		case "function_call": // what tool calls once were
			r.readCall(s)
		case "audio", "images":
			c := s.Peek()
			r.Other = r.Other || c == '{' || c == '['
			s.Skip()
		default:
			s.Skip()
		}
	}
}

// readContent reads a text, or a list of parts.
func (r *replyReader) readContent(s *jsonscan.Scanner) {
	if s.Peek() == '"' {
		r.readText(s)
		return
	}
	r.readList(s, false)
}

// readList reads a list of parts. Items, those of a response, may be messages with parts of their own.
func (r *replyReader) readList(s *jsonscan.Scanner, items bool) {
	for range s.Elements {
		r.readPart(s, items)
	}
}

// part is one part of a message, or one item of a response. What a member means depends on the part's type, which may
// come last.
type part struct {
	kind                                     string
	text, refusal, arguments, input, content []byte
	thought                                  bool
}

// readPart reads one part.
func (r *replyReader) readPart(s *jsonscan.Scanner, item bool) {
	var p part
	calls := len(r.Calls)
	for name := range s.Members {
		switch string(name) {
		case "type":
			p.kind = word(s)
		case "text":
			p.text = s.Span()
		case "thought":
			p.thought = s.Truth()
		case "refusal":
			p.refusal = s.Span()
		case "arguments":
			p.arguments = s.Span()
		case "input":
			p.input = s.Span()
		case "content":
			p.content = s.Span()
		case "functionCall", "function_call":
			r.readCall(s)
		case "inlineData", "inline_data", "fileData", "file_data", "executableCode", "executable_code":
			r.Other = true
			s.Skip()
		default:
			s.Skip()
		}
	}
	if s.Bad() {
		return
	}
	if p.kind != "" {
		r.Calls = r.Calls[:calls] // such a member is Gemini's alone, whose parts have no type
	}
	r.take(&p, item)
}

// take takes what a part says.
func (r *replyReader) take(p *part, item bool) {
	switch p.kind {
	case "":
		if !p.thought {
			r.again(p.text, (*replyReader).readText)
		}
	case "text", "output_text":
		r.again(p.text, (*replyReader).readText)
	case "refusal":
		r.again(p.refusal, func(r *replyReader, s *jsonscan.Scanner) { r.Refusal = cmp.Or(s.Text(), r.Refusal) })
	case "message":
		if item {
			r.again(p.content, (*replyReader).readContent)
		}
	case "function_call":
		r.again(p.arguments, (*replyReader).readArguments)
	case "tool_use", "custom_tool_call":
		r.again(p.input, (*replyReader).readArguments)
	case "image", "image_url", "audio", "output_audio", "image_generation_call":
		r.Other = true
	}
}

// again reads a value that was kept until it was known what it is; nil is none.
func (r *replyReader) again(value []byte, read func(*replyReader, *jsonscan.Scanner)) {
	if value == nil {
		return
	}
	s := jsonscan.New(value)
	read(r, &s)
}

// readCalls reads the tool calls of a message of chat.
func (r *replyReader) readCalls(s *jsonscan.Scanner) {
	for range s.Elements {
		for name := range s.Members {
			switch string(name) {
			case "function", "custom":
				r.readCall(s)
			default:
				s.Skip()
			}
		}
	}
}

// readCall reads what a function is called with. A call without arguments is one all the same.
func (r *replyReader) readCall(s *jsonscan.Scanner) {
	if s.Peek() != '{' {
		s.Skip()
		return
	}
	n := len(r.Calls)
	for name := range s.Members {
		switch string(name) {
		case "arguments", "args", "input":
			r.readArguments(s)
		default:
			s.Skip()
		}
	}
	if len(r.Calls) == n {
		r.Calls = append(r.Calls, "{}")
	}
}

// readArguments takes the arguments of a call: a text, which holds JSON with OpenAI, or the JSON itself.
func (r *replyReader) readArguments(s *jsonscan.Scanner) {
	value := s.Span()
	switch {
	case value == nil:
	case value[0] == '"':
		r.Calls = append(r.Calls, string(jsonscan.Unquote(value)))
	default:
		r.Calls = append(r.Calls, string(bytes.TrimSpace(value)))
	}
}
