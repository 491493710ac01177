package sim

import "strconv"

// read knows a member by the name that Google's JSON gives it and by the
// field's own: maxOutputTokens is max_output_tokens. The model and whether to
// stream stand in the path.
// https://protobuf.dev/programming-guides/json/
func (g gemini) read(c *call, s *scanner, key []byte) bool {
	switch string(key) {
	case geminiPrompt(c.endpoint):
		n, ok := s.messages(c, string(key))
		c.prompts = n
		return ok
	case "systemInstruction", "system_instruction":
		return s.message(c, "system_instruction", s.texts)
	case "generationConfig", "generation_config":
		return s.message(c, "generation_config", func(key []byte) bool { return c.readConfig(s, key) })
	case "tools":
		start := s.i
		ok := s.value(false, 0)
		c.tool = offered(s.b[start:s.i])
		return ok
	case "generateContentRequest", "generate_content_request":
		if c.endpoint == countPage {
			return s.message(c, "generate_content_request", func(key []byte) bool { return g.read(c, s, key) })
		}
	}
	return s.value(false, 0)
}

// geminiPrompt is the member that holds what an endpoint asks for.
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

// readConfig reads a member of generationConfig.
func (c *call) readConfig(s *scanner, key []byte) bool {
	start := s.i
	if !s.value(false, 0) {
		return false
	}
	name, n, most := "", &c.maxTokens, 1<<31-1
	switch string(key) {
	case "maxOutputTokens", "max_output_tokens":
		name = "max_output_tokens"
	case "candidateCount", "candidate_count":
		name, n, most = "candidate_count", &c.choices, maxCandidates
	default:
		return true
	}
	var ok bool
	if *n, ok = protoCount(s.b[start:s.i], *n, most); !ok {
		c.mistyped("generation_config." + name)
	}
	return true
}

// protoCount reads a number from 1 to most, which may stand in a string or have
// a fraction of zero; null means missing.
func protoCount(value []byte, missing, most int) (int, bool) {
	if string(value) == "null" {
		return missing, true
	}
	text, isString := jsonString(value)
	if !isString {
		text = string(value)
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 1 && x <= float64(most)) || x != float64(int(x)) {
		return missing, false
	}
	return int(x), true
}

// messages walks over objects in an array, or over one without the array,
// which Google takes for the only element, and counts them.
func (s *scanner) messages(c *call, name string) (n int, ok bool) {
	if s.i < len(s.b) && s.b[s.i] == '[' && c.endpoint != embedding {
		ok = s.array(func() bool {
			n++
			return s.message(c, name, s.texts)
		})
		return n, ok
	}
	if s.i < len(s.b) && s.b[s.i] != 'n' {
		n = 1
	}
	return n, s.message(c, name, s.texts)
}

// texts walks over the value of a member that may hold text.
func (s *scanner) texts(key []byte) bool { return s.value(isText(key), 1) }

// message walks over an object or null; anything else has the wrong type.
func (s *scanner) message(c *call, name string, member func(key []byte) bool) bool {
	if s.i < len(s.b) && s.b[s.i] == '{' {
		return s.object(member)
	}
	if s.i < len(s.b) && s.b[s.i] != 'n' {
		c.mistyped(name)
	}
	return s.value(false, 0)
}
