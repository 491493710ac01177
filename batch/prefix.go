package batch

import (
	"crypto/sha256"
	"fmt"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/work"
)

// leastPrefix is how long a prefix must be, in bytes, for providers to keep it: 1,024 tokens of four bytes. Some models
// take 2,048 or 4,096; to wait for those is no loss but of a moment.
const leastPrefix = 4 * 1024

// Members of a body that stand before its messages in what the model reads, or that make another prompt of the same
// ones. All else, such as a temperature or the most tokens of the answer, does not.
const (
	partModel = iota
	partCacheKey
	partTools
	partFunctions
	partToolChoice
	partFormat
	partText
	partThinking
	partReasoning
	partSystem
	partInstructions
	partCached
	partPrevious
	partTurns // all but the last
	numParts
)

// partOf says which part a member of a body is.
func partOf(name string) (part int, ok bool) {
	switch name {
	case "model":
		return partModel, true
	case "prompt_cache_key":
		return partCacheKey, true
	case "tools":
		return partTools, true
	case "functions":
		return partFunctions, true
	case "tool_choice", "toolConfig", "tool_config":
		return partToolChoice, true
	case "response_format":
		return partFormat, true
	case "text":
		return partText, true
	case "thinking":
		return partThinking, true
	case "reasoning", "reasoning_effort":
		return partReasoning, true
	case "system", "systemInstruction", "system_instruction":
		return partSystem, true
	case "instructions":
		return partInstructions, true
	case "cachedContent", "cached_content":
		return partCached, true
	case "previous_response_id", "conversation":
		return partPrevious, true
	case "messages", "contents", "input":
		return partTurns, true
	}
	return 0, false
}

// prefixOf returns the identity of what an item's request has before its last turn. It says false if that is too short
// for a provider to keep it, or if no model reads it.
func prefixOf(item *work.Item) (key work.Hash, ok bool) {
	c := item.Data.(*call)
	if c.endpoint.Embeds() || len(c.body) < leastPrefix {
		return work.Hash{}, false
	}
	found := partsOf(c.body)
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", item.Lane)
	size := 0
	var compact []byte
	for part, value := range found {
		if len(value) == 0 {
			continue
		}
		compact = jsonscan.AppendCompact(compact[:0], value)
		size += len(compact)
		fmt.Fprintf(h, "%d %d\n", part, len(compact))
		h.Write(compact)
	}
	if size < leastPrefix {
		return work.Hash{}, false
	}
	return work.Hash(h.Sum(nil)), true
}

// partsOf returns the parts of a body before its last turn, as they stand there.
func partsOf(body []byte) (found [numParts][]byte) {
	s := jsonscan.New(body)
	for s.Enter('{'); s.Next('}'); {
		part, ok := partOf(string(jsonscan.Name(s.Key())))
		switch {
		case !ok:
			s.Skip()
		case part != partTurns:
			found[part] = s.Span()
		case s.Peek() == '[':
			found[part] = butLast(&s)
		default:
			s.Skip() // a text is the last turn itself
		}
	}
	return found
}

// butLast reads a list and returns it without its last value: a list that is not closed.
func butLast(s *jsonscan.Scanner) []byte {
	s.Peek()
	start := s.Offset()
	var all []byte
	first := true
	for s.Enter('['); s.Next(']'); first = false {
		if before := s.Since(start); !first {
			all = before[:len(before)-len(",")]
		}
		s.Skip()
	}
	return all
}
