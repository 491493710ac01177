package provider

import (
	"cmp"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/errtext"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/limits"
)

// summary is what a response says.
type summary struct {
	endpoint Endpoint // that the response is of; NoEndpoint: unknown
	usage    sluice.Usage
	hasUsage bool
	counts   counts
	finish   string
	status   string // of a responses object
	hasError bool   // it has a member "error" that says something
	hasPlace bool   // it has the place of an answer: choices, or a list of output, content or embeddings,
	hasBody  bool   // and something in it that a model made: see holds
	vectors  int    // of embeddings
	blocked  bool   // the prompt is blocked: that is an answer without content, which is paid for
	isError  bool   // its type is "error", or it states a status of its own that is one
	valid    bool   // it is one JSON object
	content  *content
}

// figure is the meaning of a member of a usage object.
type figure uint8

const (
	inputTokens figure = iota + 1
	outputTokens
	cachedTokens      // of the input, read from a cache
	createdTokens     // of the input, written into a cache,
	createdHourTokens // and kept there for an hour
	toolTokens        // input from tools, beside the other
	thoughtTokens     // beside the output
	reasoningTokens   // of the output, or beside it
	totalTokens
	numFigures

	moreFigures // an object of them
	toolCalls   // an object: how often each of the provider's own tools was called
	serviceTier
)

// counts are the members of a usage object as they were last stated.
type counts struct {
	tokens               [numFigures]int64
	searches, otherTools int64
	service              limits.Service
}

// failed reports whether an answer of status 200 says that it is an error all the same. Gateways that lose a provider in
// the middle of its answer give what came, and beside it an error and the reason "error".
func (s summary) failed() bool {
	return s.isError || s.hasError && !s.hasBody || s.status == "failed" && (s.hasError || s.endpoint.spec().status)
}

// refuses reports whether an answer of status 200 is an error: it says so, or has the form of one and no answer in it.
func (s summary) refuses(body []byte) bool {
	return s.failed() || !s.hasBody && errtext.IsError(body)
}

// answers reports whether a response holds an answer, or states why the model made none: a bound of its length, a filter, a refusal. A
// response of OpenAI's that is made in the background has none yet.
func (s summary) answers() bool {
	why := Reply{Finish: s.finish}
	later := s.endpoint.spec().status && (s.status == "queued" || s.status == "in_progress")
	return s.hasBody || s.blocked || later || why.Cut() && s.finish != "incomplete" || why.Filtered() || why.Refused()
}

// holds reads a value of a response, and reports whether there is anything in it that a model made, at any depth: a number or a text. Only
// the text of a content may be empty. The thoughts of Gemini and their signatures are nothing.
func holds(s *jsonscan.Scanner) (some bool) {
	switch s.Peek() {
	case '{':
		thought := false
		for name := range s.Members {
			thought = thought || string(name) == "thought" && s.Peek() == 't'
			some = holdsMember(s, name, some)
		}
		some = some && !thought
	case '[':
		for range s.Elements {
			if some {
				s.Skip()
			} else {
				some = holds(s)
			}
		}
	case '"':
		some = len(s.Span()) > len(`""`)
	default:
		_, some = s.Number()
	}
	return some
}

// holdsMember reads a member of an object. already is what holds says of the members before it.
func holdsMember(s *jsonscan.Scanner, name []byte, already bool) bool {
	switch string(name) {
	case "role", "type", "id", "index", "object", "status", "thoughtSignature":
	case "content", "text":
		if s.Peek() != '"' && !already {
			return holds(s)
		}
		already = already || s.Peek() == '"'
	default:
		if !already {
			return holds(s)
		}
	}
	s.Skip()
	return already
}

// ParseUsage returns the usage in a complete response body, and the provider's finish reason. If the body contains no usage, ok is false.
// Usage.Input includes input tokens that the provider counts separately, such as cached tokens.
func ParseUsage(e Endpoint, body []byte) (u sluice.Usage, finish string, ok bool) {
	s := summarize(e, body)
	return s.usage, s.finish, s.hasUsage
}

// summarize reads an answer of status 200 in one pass over it, decoding nothing but what it is asked for.
func summarize(e Endpoint, body []byte) summary {
	r := &struct { // one allocation for both
		sum summary
		s   jsonscan.Scanner
	}{summary{endpoint: e}, jsonscan.New(body)}
	r.sum.members(&r.s)
	r.sum.valid = r.s.End()
	return r.sum
}

// members reads an object that is a response.
func (sum *summary) members(s *jsonscan.Scanner) {
	for s.Enter('{'); s.Next('}'); {
		sum.member(s, jsonscan.Name(s.Key()))
	}
	if sum.endpoint.spec().status {
		sum.finish = cmp.Or(sum.finish, sum.status)
	}
}

// member reads a member of a response.
func (sum *summary) member(s *jsonscan.Scanner, name []byte) {
	switch string(name) {
	case "usage":
		sum.readUsage(s)
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
		if read := known.response[string(name)]; read != nil {
			read(sum, s)
		} else {
			s.Skip()
		}
	}
}

// choices reads a list of choices or candidates. It hands out the members of each but its index and its reason, and then these.
func choices(s *jsonscan.Scanner, member func(name []byte), done func(index int64, finish string)) {
	for range s.Elements {
		if s.Peek() != '{' {
			s.Skip()
			continue
		}
		var index int64
		var finish string
		for name := range s.Members {
			switch string(name) {
			case "index":
				index, _ = s.Number()
			case "finish_reason", "finishReason":
				finish = word(s)
			default:
				member(name)
			}
		}
		done(index, finish)
	}
}

// readChoices takes the first reason that any choice gives.
func (sum *summary) readChoices(s *jsonscan.Scanner) {
	if sum.content != nil {
		sum.content.readChoices(s)
		return
	}
	sum.hasPlace = true
	choices(s, func(name []byte) {
		switch string(name) {
		case "message", "content", "text", "delta":
			sum.hasBody = holdsMember(s, name, sum.hasBody)
		default:
			s.Skip()
		}
	}, func(_ int64, finish string) {
		sum.finish, sum.isError = cmp.Or(sum.finish, finish), sum.isError || finish == "error"
	})
}

// readParts reads a list of what a response without choices says.
func (sum *summary) readParts(s *jsonscan.Scanner) {
	switch {
	case s.Peek() != '[':
		s.Skip()
	case sum.content == nil:
		sum.hasPlace = true
		sum.hasBody = holds(s) || sum.hasBody
	default:
		sum.content.found = true
		sum.content.readList(s, true)
	}
}

// readReason reads an object that says why there is no answer, or only a part of one: the reason's name, and its words. It reports
// whether the reason is named.
func (sum *summary) readReason(s *jsonscan.Scanner, reason, words string) (named bool) {
	for name := range s.Members {
		switch {
		case string(name) == reason:
			w := word(s)
			sum.finish, named = cmp.Or(w, sum.finish), w != ""
		case string(name) == words && sum.content != nil:
			sum.content.Refusal = cmp.Or(s.Text(), sum.content.Refusal)
		default:
			s.Skip()
		}
	}
	return named
}

// readUsage reads a usage object. Each dialect names its figures in its own way.
func (sum *summary) readUsage(s *jsonscan.Scanner) {
	if s.Peek() != '{' {
		s.Skip() // null in all but the last chunk of a stream
		return
	}
	sum.readFigures(s)
	c, tokens := &sum.counts, &sum.counts.tokens
	sum.usage = sluice.Usage{
		Input: total(tokens[inputTokens], tokens[toolTokens]), CachedInput: int(tokens[cachedTokens]), Output: total(tokens[outputTokens], tokens[thoughtTokens]),
		CacheWrite: int(max(0, tokens[createdTokens]-tokens[createdHourTokens])), CacheWriteHour: int(tokens[createdHourTokens]),
		Searches: int(c.searches), OtherTools: int(c.otherTools), Service: c.service,
	}
	if r := tokens[reasoningTokens]; r > 0 && tokens[totalTokens] == tokens[inputTokens]+tokens[outputTokens]+r { // xAI counts the reasoning beside the answer
		sum.usage.Output = total(tokens[outputTokens], r)
	}
	if tokens[toolTokens] > 0 { // Gemini states the tokens of its tools, and not their calls
		sum.usage.OtherTools = 1
	}
	if dialectFacts[sum.endpoint.Dialect()].inputApart {
		sum.usage.Input = total(tokens[inputTokens], tokens[createdTokens], tokens[cachedTokens])
	}
}

// total adds counts, of which none is above maxCount.
func total(counts ...int64) int {
	sum := int64(0)
	for _, n := range counts {
		sum += n
	}
	return int(min(maxCount, sum))
}

// maxStated is the maximum that a response can state of tokens: ten times the largest context window, 10 million tokens in 2026. A
// greater figure, or one below 0, is a fault and no usage: costs of other requests are estimated from what responses state.
const maxStated = 100_000_000

// readFigures reads the members of a usage object, or of one within it.
func (sum *summary) readFigures(s *jsonscan.Scanner) {
	for name := range s.Members {
		switch f := known.usage[string(name)]; f {
		case 0:
			s.Skip()
		case moreFigures:
			sum.readFigures(s)
		case toolCalls:
			sum.readTools(s)
		case serviceTier:
			sum.readService(s)
		default:
			if n, ok := s.Number(); ok && n >= 0 && n <= maxStated {
				sum.counts.tokens[f] = n
				sum.hasUsage = sum.hasUsage || f != totalTokens // which alone is no usage
			}
		}
	}
}

// readTools reads how often the provider's own tools were called. Anthropic fetches pages without a charge
// (https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-fetch-tool).
func (sum *summary) readTools(s *jsonscan.Scanner) {
	sum.counts.searches, sum.counts.otherTools = 0, 0
	for name := range s.Members {
		n, ok := s.Number()
		switch n = max(0, min(n, maxCount)); {
		case !ok, string(name) == "web_fetch_requests":
		case string(name) == "web_search_requests", string(name) == "web_search_calls":
			sum.counts.searches += n
		default:
			sum.counts.otherTools += n
		}
	}
}

// readService reads the service tier. Gemini's is a kind of traffic, such as ON_DEMAND_PRIORITY.
func (sum *summary) readService(s *jsonscan.Scanner) {
	if name := word(s); name != "" {
		sum.counts.service = limits.ServiceOf(strings.ToLower(strings.TrimPrefix(name, "ON_DEMAND_")))
		sum.usage.Service = sum.counts.service
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
	for _, label := range labels {
		if string(quoted[1:len(quoted)-1]) == label {
			return label
		}
	}
	return string(jsonscan.Unquote(quoted))
}

var labels = [...]string{"stop", "length", "tool_calls", "end_turn", "max_tokens", "tool_use", "completed", "message", "error", "STOP", "MAX_TOKENS"}
