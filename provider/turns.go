package provider

import (
	"bytes"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// AppendTurns returns a copy of a request body with the model's answer and the user's next message added to the conversation. AppendTurns
// omits a blank answer, because some providers reject blank messages. ok is false if the endpoint has no conversations, or if the body's
// conversation has an unknown form. If ok is false, use the body unchanged.
func AppendTurns(body []byte, e Endpoint, answer, user string) (longer []byte, ok bool) {
	turns := e.spec().turns
	if turns == nil {
		return nil, false
	}
	start, end := memberSpan(body, turns.member)
	if end == 0 {
		return nil, false
	}
	b := slices.Grow([]byte(nil), len(body)+len(answer)+len(user)+200)
	if b = turns.open(append(b, body[:start]...), body[start:end]); b == nil {
		return nil, false
	}
	if strings.Trim(answer, spaces) != "" {
		b = turns.turn(separate(b), "assistant", jsonscan.AppendString(nil, answer))
	}
	b = turns.turn(separate(b), "user", jsonscan.AppendString(nil, user))
	b = append(b, ']')
	return append(b, body[end:]...), true
}

// openList opens a conversation that is a list of messages.
func openList(b, list []byte) []byte {
	if list[0] != '[' {
		return nil
	}
	return append(b, list[:len(list)-1]...)
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

const spaces = " \n\r\t" // of JSON

// separate puts a comma behind what is in an open list.
func separate(b []byte) []byte {
	if bytes.HasSuffix(bytes.TrimRight(b, spaces), []byte("[")) {
		return b
	}
	return append(b, ',')
}
