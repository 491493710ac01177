package provider

import (
	"slices"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// AppendTurns returns a request's body whose conversation goes on with the model's answer and what the user says to it.
// It shares no memory with body. An answer of nothing but space is left out: some providers refuse it. ok is false where
// the endpoint has no conversation, or the body's has a form that cannot go on; the body is then to be left as it is.
func AppendTurns(body []byte, e Endpoint, answer, user string) (longer []byte, ok bool) {
	member := "messages"
	switch {
	case e.Embeds():
		return nil, false
	case e == Responses:
		member = "input"
	case e.Dialect() == Gemini:
		member = "contents"
	}
	start, end := memberSpan(body, member)
	if end == 0 {
		return nil, false
	}
	b := slices.Grow([]byte(nil), len(body)+len(answer)+len(user)+200)
	b = append(b, body[:start]...)
	switch conversation := body[start:end]; {
	case e == Responses && conversation[0] == '"':
		b = append(b, '[')
		b = appendTurn(b, e, "user", conversation)
	case conversation[0] != '[':
		return nil, false
	case e.Dialect() == Gemini:
		b = appendContents(b, conversation)
	default:
		b = append(b, conversation[:len(conversation)-1]...)
	}
	if !blank(answer) {
		b = separate(b)
		b = appendTurn(b, e, "assistant", jsonscan.AppendString(nil, answer))
	}
	b = separate(b)
	b = appendTurn(b, e, "user", jsonscan.AppendString(nil, user))
	b = append(b, ']')
	return append(b, body[end:]...), true
}

// memberSpan returns where the value of an object's last member of that name stands; an end of 0 is nowhere.
func memberSpan(object []byte, name string) (start, end int) {
	s := jsonscan.New(object)
	if s.Peek() != '{' {
		return 0, 0
	}
	for s.Enter('{'); s.Next('}'); {
		if string(jsonscan.Name(s.Key())) != name {
			s.Skip()
			continue
		}
		s.Peek() // over space
		start = s.Offset()
		s.Skip()
		end = s.Offset()
	}
	if !s.End() {
		return 0, 0
	}
	return start, end
}

func blank(text string) bool {
	for _, c := range []byte(text) {
		if c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return false
		}
	}
	return true
}

// separate puts a comma behind what is in an open list.
func separate(b []byte) []byte {
	for i := len(b) - 1; i >= 0; i-- {
		switch b[i] {
		case ' ', '\n', '\r', '\t':
			continue
		case '[':
			return b
		}
		break
	}
	return append(b, ',')
}

// appendTurn appends one turn, whose text is a JSON string.
func appendTurn(b []byte, e Endpoint, role string, text []byte) []byte {
	if e.Dialect() == Gemini {
		if role == "assistant" {
			role = "model"
		}
		b = append(b, `{"role":"`+role+`","parts":[{"text":`...)
		b = append(b, text...)
		return append(b, `}]}`...)
	}
	b = append(b, `{"role":"`+role+`","content":`...)
	b = append(b, text...)
	return append(b, '}')
}

// appendContents appends Gemini's list of contents, left open. A single one may do without a role; of several, each must
// have one.
func appendContents(b, list []byte) []byte {
	b = append(b, '[')
	s := jsonscan.New(list)
	for s.Enter('['); s.Next(']'); {
		content := s.Span()
		b = separate(b)
		if _, end := memberSpan(content, "role"); end == 0 && content[0] == '{' {
			b = append(b, `{"role":"user"`...)
			if s := jsonscan.New(content); hasMember(&s) {
				b = append(b, ',')
			}
			content = content[1:]
		}
		b = append(b, content...)
	}
	return b
}

// hasMember reports whether an object has a member.
func hasMember(s *jsonscan.Scanner) bool {
	s.Enter('{')
	return s.Next('}')
}
