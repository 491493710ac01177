package provider

import (
	"cmp"

	"github.com/sluice-llm/sluice"
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
	isError  bool   // its type is "error"
	valid    bool   // it is one JSON object
}

// counts are the members of a usage object as they were last stated.
type counts struct {
	input, output, created, cached, tools, thoughts int64
}

// failed reports whether an answer of status 200 is an error all the same.
func (s summary) failed() bool {
	return s.isError || s.hasError && (!s.hasBody || s.status == "failed")
}

// ParseUsage reads from a whole answer what the call used and why it ended. ok is false when the answer does not state
// its usage. Usage.Input is all input, whatever the provider counts apart.
func ParseUsage(e Endpoint, body []byte) (u sluice.Usage, finish string, ok bool) {
	s := summarize(e, body)
	return s.usage, s.finish, s.hasUsage
}

// summarize reads an answer of status 200 in one pass over it, decoding nothing but what it is asked for.
func summarize(e Endpoint, body []byte) summary {
	s := scanner{b: body}
	var sum summary
	sum.members(e, &s)
	s.end()
	sum.valid = !s.bad
	return sum
}

func (sum *summary) members(e Endpoint, s *scanner) {
	for s.enter('{'); s.next('}'); {
		switch string(s.key()) {
		case "usage", "usageMetadata":
			sum.readUsage(e, s)
		case "choices", "candidates":
			sum.hasBody = sum.readChoices(s) || sum.hasBody
		case "promptFeedback":
			sum.readReason(s, "blockReason")
		case "output", "content", "data":
			c := s.peek()
			sum.hasBody = sum.hasBody || c == '['
			s.skip()
		case "stop_reason":
			sum.finish = cmp.Or(s.word(), sum.finish)
		case "status":
			sum.status = s.word()
			if e == Responses && sum.finish == "" {
				sum.finish = sum.status
			}
		case "incomplete_details":
			sum.readReason(s, "reason")
		case "type":
			sum.isError = s.word() == "error"
		case "error":
			switch s.peek() {
			case '{', '"':
				start := s.i
				s.skip()
				sum.hasError = s.i-start > len(`{}`)
			default:
				s.skip()
			}
		default:
			s.skip()
		}
	}
}

// readChoices takes the first reason that any choice gives, and reports whether there is a choice.
func (sum *summary) readChoices(s *scanner) (any bool) {
	if s.peek() != '[' {
		s.skip()
		return false
	}
	for s.enter('['); s.next(']'); {
		if s.peek() != '{' {
			s.skip()
			continue
		}
		any = true
		for s.enter('{'); s.next('}'); {
			switch string(s.key()) {
			case "finish_reason", "finishReason":
				if w := s.word(); sum.finish == "" {
					sum.finish = w
				}
			default:
				s.skip()
			}
		}
	}
	return any
}

// readReason takes the member of that name, which says why there is no answer, or only a part of one: a responses
// object is incomplete, or Gemini blocks a prompt.
func (sum *summary) readReason(s *scanner, name string) {
	if s.peek() != '{' {
		s.skip()
		return
	}
	for s.enter('{'); s.next('}'); {
		if string(s.key()) == name {
			sum.finish = cmp.Or(s.word(), sum.finish)
		} else {
			s.skip()
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
func (sum *summary) readUsage(e Endpoint, s *scanner) {
	if s.peek() != '{' {
		s.skip() // null in all but the last chunk of a stream
		return
	}
	c := &sum.counts
	for s.enter('{'); s.next('}'); {
		switch string(s.key()) {
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
			s.skip()
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

func (sum *summary) readDetails(s *scanner) {
	if s.peek() != '{' {
		s.skip()
		return
	}
	for s.enter('{'); s.next('}'); {
		if string(s.key()) == "cached_tokens" {
			sum.count(s, &sum.counts.cached)
		} else {
			s.skip()
		}
	}
}

func (sum *summary) count(s *scanner, to *int64) {
	if n, ok := s.number(); ok {
		*to = max(0, min(n, maxCount))
		sum.hasUsage = true
	}
}

// word reads a label. The labels that every answer has are not allocated anew.
func (s *scanner) word() string {
	if s.peek() != '"' {
		s.skip()
		return ""
	}
	at := s.i
	raw, size := s.str()
	switch string(raw) {
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
	if size == len(raw) {
		return string(raw)
	}
	return unquote(s.b[at:s.i])
}
