package sim

import (
	"strconv"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// read knows a member by the name that Google's JSON gives it and by the field's own: maxOutputTokens is max_output_tokens. The
// model and whether to stream stand in the path. https://protobuf.dev/programming-guides/json/
func (g gemini) read(c *call, s *jsonscan.Scanner, key string) {
	texts := func(key string) { c.walk(s, holdsText(key)) }
	switch key {
	case geminiPrompt(c.endpoint):
		c.prompts = 0
		if s.Peek() == '[' && c.endpoint != embedding {
			for s.Enter('['); s.Next(']'); {
				c.prompts++
				c.message(s, key, texts)
			}
			return
		}
		if s.Peek() != 'n' { // Google takes an object without the array for the only element
			c.prompts = 1
		}
		c.message(s, key, texts)
	case "systemInstruction", "system_instruction":
		c.message(s, "system_instruction", texts)
	case "generationConfig", "generation_config":
		c.message(s, "generation_config", func(key string) { c.readConfig(key, s.Span()) })
	case "tools":
		c.tool = offered(s.Span())
	case "generateContentRequest", "generate_content_request":
		if c.endpoint == countPage {
			c.message(s, "generate_content_request", func(key string) { g.read(c, s, key) })
			return
		}
		s.Skip()
	default:
		s.Skip()
	}
}

// message reads an object or null. Any other value has the wrong type.
func (c *call) message(s *jsonscan.Scanner, name string, member func(key string)) {
	switch s.Peek() {
	case '{':
		for s.Enter('{'); s.Next('}'); {
			member(string(s.Key()))
		}
		return
	case 'n':
	default:
		c.mistyped(name)
	}
	s.Skip()
}

// geminiPrompt is the member that contains the prompts of an endpoint.
func geminiPrompt(e endpoint) string {
	switch e {
	case embedding:
		return "content"
	case embeddingBatch:
		return "requests"
	default:
		return "contents"
	}
}

// maxCandidates is https://ai.google.dev/api/generate-content#FIELDS.candidate_count
const maxCandidates = 8

// readConfig reads a member of generationConfig: a number that may stand in a string or have a fraction of zero. null means missing.
func (c *call) readConfig(key string, value []byte) {
	name, n, most := "max_output_tokens", &c.maxTokens, 1<<31-1
	switch key {
	case "maxOutputTokens", "max_output_tokens":
	case "candidateCount", "candidate_count":
		name, n, most = "candidate_count", &c.choices, maxCandidates
	default:
		return
	}
	if len(value) == 0 || string(value) == "null" {
		return
	}
	text, isString := jsonString(value)
	if !isString {
		text = string(value)
	}
	if x, err := strconv.ParseFloat(text, 64); err == nil && x >= 1 && x <= float64(most) && x == float64(int(x)) {
		*n = int(x)
	} else {
		c.mistyped("generation_config." + name)
	}
}
