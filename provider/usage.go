package provider

import (
	"cmp"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// summary is what an answer says besides its content.
type summary struct {
	usage    sluice.Usage
	hasUsage bool
	counts   counts
	finish   string
	status   string // of a responses object
	hasError bool   // it has a member "error" that says something
	hasBody  bool   // it has what an answer has: choices, output, content, data
	isError  bool   // its type is "error", or it states a status of its own that is one
	valid    bool   // it is one JSON object
}

// counts are the members of a usage object as they were last stated.
type counts struct {
	input, output, created, cached, tools, thoughts int64
}

// failed reports whether an answer of status 200 says that it is an error all the same. Gateways that lose a provider in
// the middle of its answer give what came, and beside it an error and the reason "error".
func (s summary) failed() bool {
	return s.isError || s.hasError && (!s.hasBody || s.status == "failed" || s.finish == "error")
}

// refuses reports whether an answer of status 200 is an error: it says so, or has the form of one and no answer in it.
func (s summary) refuses(body []byte) bool {
	return s.failed() || !s.hasBody && errorBody(body)
}

// ParseUsage reads from a whole answer what the call used and why it ended. ok is false when the answer does not state
// its usage. Usage.Input is all input, whatever the provider counts apart.
func ParseUsage(e Endpoint, body []byte) (u sluice.Usage, finish string, ok bool) {
	s := summarize(e, body)
	return s.usage, s.finish, s.hasUsage
}

// summarize reads an answer of status 200 in one pass over it, decoding nothing but what it is asked for.
func summarize(e Endpoint, body []byte) summary {
	s := jsonscan.New(body)
	var sum summary
	sum.members(e, &s)
	sum.valid = s.End()
	return sum
}

func (sum *summary) members(e Endpoint, s *jsonscan.Scanner) {
	for s.Enter('{'); s.Next('}'); {
		switch string(s.Key()) {
		case "usage", "usageMetadata":
			sum.readUsage(e, s)
		case "choices", "candidates":
			sum.hasBody = sum.readChoices(s) || sum.hasBody
		case "promptFeedback":
			sum.readReason(s, "blockReason")
		case "output", "content", "data":
			c := s.Peek()
			sum.hasBody = sum.hasBody || c == '['
			s.Skip()
		case "stop_reason":
			sum.finish = cmp.Or(word(s), sum.finish)
		case "base_resp": // of MiniMax, which answers 200 to everything
			sum.readBase(s)
		case "status":
			sum.status = word(s)
			if e == Responses && sum.finish == "" {
				sum.finish = sum.status
			}
		case "incomplete_details":
			sum.readReason(s, "reason")
		case "type":
			sum.isError = word(s) == "error" || sum.isError
		case "error":
			switch s.Peek() {
			case '{', '"':
				sum.hasError = len(s.Span()) > len(`{}`)
			default:
				s.Skip()
			}
		default:
			s.Skip()
		}
	}
}

// readChoices takes the first reason that any choice gives, and reports whether there is a choice.
func (sum *summary) readChoices(s *jsonscan.Scanner) (any bool) {
	if s.Peek() != '[' {
		s.Skip()
		return false
	}
	for s.Enter('['); s.Next(']'); {
		if s.Peek() != '{' {
			s.Skip()
			continue
		}
		any = true
		for s.Enter('{'); s.Next('}'); {
			switch string(s.Key()) {
			case "finish_reason", "finishReason":
				if w := word(s); sum.finish == "" {
					sum.finish = w
				}
			default:
				s.Skip()
			}
		}
	}
	return any
}

// readReason takes the member of that name, which says why there is no answer, or only a part of one: a responses
// object is incomplete, or Gemini blocks a prompt.
func (sum *summary) readReason(s *jsonscan.Scanner, name string) {
	if s.Peek() != '{' {
		s.Skip()
		return
	}
	for s.Enter('{'); s.Next('}'); {
		if string(s.Key()) == name {
			sum.finish = cmp.Or(word(s), sum.finish)
		} else {
			s.Skip()
		}
	}
}

// readBase reads the member in which a status other than 0 is an error.
func (sum *summary) readBase(s *jsonscan.Scanner) {
	if s.Peek() != '{' {
		s.Skip()
		return
	}
	for s.Enter('{'); s.Next('}'); {
		if string(s.Key()) != "status_code" {
			s.Skip()
		} else if n, ok := s.Number(); ok && n != 0 {
			sum.isError = true
		}
	}
}

// readUsage reads a usage object. The dialects name the same things differently, and the names never clash:
//
//	chat completions, embeddings  prompt_tokens, prompt_tokens_details.cached_tokens, completion_tokens
//	responses                     input_tokens, input_tokens_details.cached_tokens, output_tokens
//	messages                      input_tokens + cache_creation_input_tokens + cache_read_input_tokens, output_tokens
//	generateContent               promptTokenCount + toolUsePromptTokenCount, cachedContentTokenCount,
//	                              candidatesTokenCount + thoughtsTokenCount
//
// Only Anthropic's input_tokens leaves the cached ones out
// (https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching, "tracking cache performance"). In its streams a
// later usage object states only what changed, so a member that is absent keeps its value. Gemini's counts are all of a
// call so far (https://ai.google.dev/api/generate-content#usagemetadata); thoughts are paid for like the answer.
func (sum *summary) readUsage(e Endpoint, s *jsonscan.Scanner) {
	if s.Peek() != '{' {
		s.Skip() // null in all but the last chunk of a stream
		return
	}
	c := &sum.counts
	for s.Enter('{'); s.Next('}'); {
		switch string(s.Key()) {
		case "prompt_tokens", "input_tokens":
			sum.count(s, &c.input)
		case "completion_tokens", "output_tokens":
			sum.count(s, &c.output)
		case "cache_creation_input_tokens":
			sum.count(s, &c.created)
		case "cache_read_input_tokens", "prompt_cache_hit_tokens":
			sum.count(s, &c.cached)
		case "prompt_tokens_details", "input_tokens_details":
			sum.readDetails(s)
		case "promptTokenCount":
			sum.count(s, &c.input)
		case "cachedContentTokenCount":
			sum.count(s, &c.cached)
		case "candidatesTokenCount":
			sum.count(s, &c.output)
		case "toolUsePromptTokenCount":
			sum.count(s, &c.tools)
		case "thoughtsTokenCount":
			sum.count(s, &c.thoughts)
		default:
			s.Skip()
		}
	}
	u := sluice.Usage{
		Input: int(min(maxCount, c.input+c.tools)), CachedInput: int(c.cached), Output: int(min(maxCount, c.output+c.thoughts)),
	}
	if e.Dialect() == Anthropic {
		u.Input = int(min(maxCount, c.input+c.created+c.cached))
	}
	sum.usage = u
}

func (sum *summary) readDetails(s *jsonscan.Scanner) {
	if s.Peek() != '{' {
		s.Skip()
		return
	}
	for s.Enter('{'); s.Next('}'); {
		if string(s.Key()) == "cached_tokens" {
			sum.count(s, &sum.counts.cached)
		} else {
			s.Skip()
		}
	}
}

func (sum *summary) count(s *jsonscan.Scanner, to *int64) {
	if n, ok := s.Number(); ok {
		*to = max(0, min(n, maxCount))
		sum.hasUsage = true
	}
}

// word reads a label. The labels that every answer has are not allocated anew.
func word(s *jsonscan.Scanner) string {
	if s.Peek() != '"' {
		s.Skip()
		return ""
	}
	quoted := s.Span()
	if quoted == nil {
		return ""
	}
	switch string(quoted[1 : len(quoted)-1]) {
	case "stop":
		return "stop"
	case "length":
		return "length"
	case "tool_calls":
		return "tool_calls"
	case "end_turn":
		return "end_turn"
	case "max_tokens":
		return "max_tokens"
	case "tool_use":
		return "tool_use"
	case "completed":
		return "completed"
	case "message":
		return "message"
	case "error":
		return "error"
	case "STOP":
		return "STOP"
	case "MAX_TOKENS":
		return "MAX_TOKENS"
	}
	return string(jsonscan.Unquote(quoted))
}
