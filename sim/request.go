package sim

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// request is the part of a body that the simulator reads, in one pass.
type request struct {
	model        string
	maxTokens    int // 0: not given
	choices      int // n
	stream       bool
	includeUsage bool
	base64       bool   // embeddings
	prompts      int    // elements of messages or input; a string is one
	chars        int    // of all texts
	input        int    // tokens, estimated
	tool         string // that the response calls; empty: none
	noTool       bool   // tools are not to be called
	wrong        string // first member of the wrong type; empty: none
}

// parse reads a body. It reports false if that is not a JSON object.
func (c *call) parse(body []byte) bool {
	s := jsonscan.New(body)
	for s.Enter('{'); s.Next('}'); {
		c.dialect.read(c, &s, string(s.Key()))
	}
	c.input = max(1, (c.chars+3)/4) // every provider's rule of thumb is four characters to a token
	return s.End()
}

// mistyped notes that a member has the wrong type.
func (r *request) mistyped(name string) {
	if r.wrong == "" {
		r.wrong = name
	}
}

// set keeps a member that matters to OpenAI or Anthropic. It reports false if its type is wrong.
func (r *request) set(key string, value []byte) (ok bool) {
	switch key {
	case "model":
		r.model, ok = jsonString(value)
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		r.maxTokens, ok = jsonCount(value, r.maxTokens)
	case "n":
		r.choices, ok = jsonCount(value, 1)
	case "stream":
		r.stream = string(value) == "true"
		return r.stream || string(value) == "false" || string(value) == "null"
	case "stream_options":
		s := jsonscan.New(value)
		for s.Enter('{'); s.Next('}'); {
			if string(s.Key()) == "include_usage" {
				r.includeUsage = s.Truth()
			} else {
				s.Skip()
			}
		}
		return true
	case "tools":
		r.tool, ok = offered(value), true
	case "tool_choice":
		r.noTool, ok = bytes.Contains(value, []byte(`"none"`)), true
	case "encoding_format":
		var format string
		format, ok = jsonString(value)
		r.base64 = format == "base64"
	default:
		ok = true
	}
	return ok
}

func jsonString(value []byte) (string, bool) {
	s := jsonscan.New(value)
	return s.Text(), value[0] == '"'
}

// jsonCount reads a number from 1 on. If it is null, it is missing.
func jsonCount(value []byte, missing int) (int, bool) {
	if string(value) == "null" {
		return missing, true
	}
	n, err := strconv.Atoi(string(value))
	return n, err == nil && n >= 1
}

// walk reads a value and counts the characters of its texts. The strings of the value itself are texts if isText.
func (r *request) walk(s *jsonscan.Scanner, isText bool) {
	switch c := s.Peek(); c {
	case '{':
		for s.Enter('{'); s.Next('}'); {
			r.walk(s, holdsText(string(s.Key())))
		}
	case '[':
		for s.Enter('['); s.Next(']'); {
			r.walk(s, isText)
		}
	case '"':
		if raw, _ := s.Str(); isText {
			r.chars += utf8.RuneCount(jsonscan.Name(raw))
		}
	default:
		if isText && isNumber(c) {
			r.chars += 4 // a token given as a number, in embeddings
		}
		s.Skip()
	}
}

func isNumber(c byte) bool { return c == '-' || '0' <= c && c <= '9' }

// holdsText reports whether a member contains text that a model reads.
func holdsText(key string) bool {
	switch key {
	case "content", "text", "system", "instructions", "output", "arguments", "thinking":
		return true
	}
	return false
}

// readPrompts reads the value of messages or input, and counts its elements.
func (r *request) readPrompts(s *jsonscan.Scanner) {
	r.prompts = 0
	if c := s.Peek(); c != '[' {
		if c == '"' {
			r.prompts = 1
		}
		r.walk(s, true)
		return
	}
	numbers := true
	for s.Enter('['); s.Next(']'); {
		r.prompts++
		numbers = numbers && isNumber(s.Peek())
		r.walk(s, true)
	}
	if numbers {
		r.prompts = min(r.prompts, 1) // one prompt, as the numbers of its tokens
	}
}
