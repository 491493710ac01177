package provider

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"strings"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// cohere is the dialect of version 2 of Cohere's Chat API (https://docs.cohere.com/v2/reference/chat).
type cohere struct{}

func (cohere) facts() facts {
	return facts{name: "cohere", auth: Auth{Header: "Authorization", Prefix: "Bearer "}, messages: CohereChat, endpoints: map[Endpoint]spec{
		CohereChat: {path: "/v2/chat", ending: "/v2/chat", bound: "max_tokens", turns: messageTurns(), fold: newCohereFold,
			// https://docs.cohere.com/v2/reference/chat, as of cohere-python 5.20.
			fields: `citation_options documents frequency_penalty k logprobs max_tokens messages model p presence_penalty priority response_format
				safety_mode seed stop_sequences stream strict_tools temperature thinking tool_choice tools`},
	}, request: map[string]func(*estimate){
		"documents": (*estimate).content,
	}, response: map[string]func(*summary, *jsonscan.Scanner){
		"message":       (*summary).readCohereMessage,
		"finish_reason": (*summary).readCohereFinish,
	}, usage: map[string]figure{
		"billed_units": moreFigures, // in place of tokens, which count Cohere's own preamble too, and are not paid for
	}, event: map[string]func(*meter){
		"delta": (*meter).readCohereDelta,
	}, last: map[string]bool{"message-end": true}}
}

func (cohere) isFrom(r *http.Request) bool { return strings.Contains(r.URL.Path, "/v2/") }

func (cohere) address(base, path string, of Dialect) (before, after string) {
	if of == OpenAI {
		base = strings.TrimSuffix(base, "/v1")
	}
	if strings.HasSuffix(base, "/v2") {
		path = strings.TrimPrefix(path, "/v2")
	}
	return base, path
}

func (cohere) promptEndpoint(string) Endpoint { return CohereChat }

// readCohereMessage reads the message of a response. The message of an error is a text.
func (sum *summary) readCohereMessage(s *jsonscan.Scanner) {
	value := s.Span()
	if _, role := memberSpan(value, "role"); role == 0 {
		return
	}
	v := jsonscan.New(value)
	if sum.content == nil {
		sum.hasPlace = true
		sum.hasBody = holds(&v) || sum.hasBody
		return
	}
	sum.content.found = true
	sum.content.readMessage(&v)
}

// readCohereFinish reads why a response ended, which may be an error of the model's.
func (sum *summary) readCohereFinish(s *jsonscan.Scanner) {
	sum.finish = cmp.Or(word(s), sum.finish)
	sum.isError = sum.isError || sum.finish == "ERROR"
}

// readCohereDelta counts the text in a part of the message, and reads the end of it.
func (m *meter) readCohereDelta() {
	s := &m.seen.Scanner
	for name := range s.Members {
		switch string(name) {
		case "message", "content", "tool_calls", "function":
			m.readCohereDelta()
		case "text", "thinking", "tool_plan", "arguments":
			m.readText()
		case "finish_reason", "usage":
			m.sum.member(s, name)
		default:
			s.Skip()
		}
	}
}

func (cohere) refusal(r Refusal, in Endpoint) (event string, doc any) {
	if in != NoEndpoint {
		return "message-end", map[string]any{"type": "message-end", "delta": map[string]any{"finish_reason": "ERROR", "error": r.Message}, "code": r.Kind}
	}
	return "", map[string]any{"message": r.Message, "code": r.Kind}
}

func (cohere) model(name string) any {
	return map[string]any{"name": name, "endpoints": []string{"chat"}}
}

func (cohere) models(entries []any, _ []string) any { return map[string]any{"models": entries} }

// cohereFold folds the events of a message (https://docs.cohere.com/v2/docs/streaming). Each states the next piece of one part.
type cohereFold struct{ top, msg map[string]any }

func newCohereFold() fold { return &cohereFold{map[string]any{}, map[string]any{}} }

func (f *cohereFold) event(ev map[string]any) {
	if id := ev["id"]; id != nil {
		f.top["id"] = id
	}
	delta, _ := ev["delta"].(map[string]any)
	if message, ok := delta["message"].(map[string]any); ok {
		for _, name := range cohereParts {
			if part, ok := message[name].(map[string]any); ok {
				n, _ := ev["index"].(json.Number)
				part["index"] = cmp.Or(n, "0")
				message[name] = []any{part}
			} else {
				delete(message, name) // an empty list
			}
		}
		merge(f.msg, message)
		delete(delta, "message")
	}
	maps.Copy(f.top, delta)
}

// cohereParts are the members of a message that are lists, of which an event has one entry.
var cohereParts = [...]string{"content", "tool_calls", "citations"}

func (f *cohereFold) message() []byte {
	for _, name := range cohereParts {
		list, _ := f.msg[name].([]any)
		for _, part := range list {
			delete(part.(map[string]any), "index") // it only told the parts apart
		}
	}
	f.top["message"] = f.msg
	return encode(f.top)
}
