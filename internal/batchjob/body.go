package batchjob

import (
	"bytes"
	"slices"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// streamed are members that ask for a stream, which batches do not have: Anthropic refuses stream
// (https://platform.claude.com/docs/en/build-with-claude/batch-processing), and OpenAI refuses stream_options without it
// (https://platform.openai.com/docs/api-reference/chat/create).
var streamed = []string{"stream", "stream_options"}

// appendBody appends a JSON object on one line, without some of its members. What is no object is appended as it is.
func appendBody(dst, body []byte, without []string) []byte {
	s := jsonscan.New(body)
	if s.Peek() != '{' {
		return appendLine(dst, body)
	}
	start, members := len(dst), 0
	dst = append(dst, '{')
	s.Enter('{')
	for s.Next('}') {
		key := s.Key()
		value := s.Span()
		if s.Bad() || slices.Contains(without, string(jsonscan.Name(key))) {
			continue
		}
		if members++; members > 1 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), key...), '"', ':')
		if bytes.IndexByte(value, '\n') < 0 && bytes.IndexByte(value, '\r') < 0 {
			dst = append(dst, value...)
		} else {
			dst = jsonscan.AppendCompact(dst, value)
		}
	}
	if !s.End() {
		return appendLine(dst[:start], body)
	}
	return append(dst, '}')
}

// appendLine appends what is no JSON on one line, so that it spoils no other.
func appendLine(dst, body []byte) []byte {
	for _, c := range bytes.TrimSpace(body) {
		if c == '\n' || c == '\r' {
			c = ' '
		}
		dst = append(dst, c)
	}
	return dst
}

// member is one of an object's, as it stands there.
type member struct {
	name string
	to   *[]byte
}

// members finds members of an object, each as it stands there. It reports whether the text is one object.
func members(text []byte, wanted ...member) bool {
	s := jsonscan.New(text)
	if s.Peek() != '{' {
		return false
	}
	s.Enter('{')
	for s.Next('}') {
		key := jsonscan.Name(s.Key())
		value := s.Span()
		for _, m := range wanted {
			if string(key) == m.name && string(value) != "null" {
				*m.to = value
			}
		}
	}
	return s.End()
}

// text is the meaning of a JSON string; "" for any other value.
func text(value []byte) string {
	if len(value) < 2 || value[0] != '"' {
		return ""
	}
	return string(jsonscan.Unquote(value))
}

// number is a JSON number, whole; 0 for any other value.
func number(value []byte) int {
	s := jsonscan.New(value)
	n, _ := s.Number()
	return int(n)
}
