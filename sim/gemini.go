package sim

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// gemini is the dialect of Google's Gemini API. It has no headers of its own:
// the id of a request and every limit stand in the bodies.
type gemini struct{}

func (gemini) key(header http.Header, query url.Values) string {
	return cmp.Or(header.Get("X-Goog-Api-Key"), query.Get("key"), bearer(header))
}

func (gemini) idHeader() string { return "" }

func (gemini) rateHeaders(*headers, *[limits.NumDimensions]quota, time.Time) {}

func (gemini) retryHeaders(*headers, RetryAfterForm, time.Duration, time.Time) {}

// routeGemini takes a path such as
// "/v1beta/models/gemini-2.5-flash:generateContent" apart.
func (c *call) routeGemini(path string, query url.Values) bool {
	version, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/models/")
	colon := strings.LastIndexByte(rest, ':')
	if version != "v1beta" && version != "v1" || colon < 1 {
		return false
	}
	c.dialect = gemini{}
	c.version, c.model, c.verb = version, rest[:colon], rest[colon+1:]
	switch c.verb {
	case "generateContent":
		c.endpoint = generate
	case "streamGenerateContent":
		c.endpoint, c.stream = generate, true
		c.array = query.Get("alt") != "sse"
	case "embedContent":
		c.endpoint = embedding
	case "batchEmbedContents":
		c.endpoint = embeddingBatch
	case "countTokens":
		c.endpoint = countPage
	default:
		return false
	}
	return true
}

// answer is the object of the endpoint that was called.
func (g gemini) answer(c *call) string {
	switch c.endpoint {
	case embedding:
		return `{"embedding":` + g.values(c, 0) + `}`
	case embeddingBatch:
		return `{"embeddings":[` + list(c.prompts, func(i int) string { return g.values(c, i) }) + `]}`
	}
	return `{"candidates":[` + list(c.choices, func(i int) string {
		return g.candidate(c, i, c.text(0, c.perChoice), g.finish(c))
	}) + g.tail(c, c.plan.output)
}

// values is https://ai.google.dev/api/embeddings#ContentEmbedding
func (gemini) values(c *call, prompt int) string { return `{"values":` + vector(c, prompt) + `}` }

// candidate is https://ai.google.dev/api/generate-content#candidate. An empty finish leaves out that it is finished.
func (g gemini) candidate(c *call, index int, text, finish string) string {
	part := `{"text":"` + text + `"}`
	if c.tool != "" {
		part = g.functionCall(c)
	}
	if finish != "" {
		finish = `,"finishReason":"` + finish + `"`
	}
	return `{"content":{"parts":[` + part + `],"role":"model"}` + finish + `,"index":` + strconv.Itoa(index) + `}`
}

func (gemini) finish(c *call) string {
	if c.cut {
		return "MAX_TOKENS"
	}
	return "STOP"
}

// tail follows the candidates. output counts the tokens so far. https://ai.google.dev/api/generate-content#UsageMetadata
func (gemini) tail(c *call, output int) string {
	return `],"usageMetadata":{"promptTokenCount":` + strconv.Itoa(c.input) + `,"candidatesTokenCount":` + strconv.Itoa(output) +
		`,"totalTokenCount":` + strconv.Itoa(c.input+output) + `,"promptTokensDetails":` + inputDetails(c) + `},"modelVersion":` + quote(c.model) +
		`,"responseId":"` + c.id + `"}`
}

func inputDetails(c *call) string {
	return `[{"modality":"TEXT","tokenCount":` + strconv.Itoa(c.input) + `}]`
}

func (gemini) streamType(c *call) string {
	if c.array {
		return "application/json"
	}
	return eventStream
}

// open begins a stream, of which every part has a text.
func (gemini) open(*call) string { return "" }

func (g gemini) delta(c *call, choice int, text string) string {
	if c.tool != "" {
		return "" // a call of a function comes whole, at the end
	}
	return g.part(c, g.candidate(c, choice, text, ""))
}

// close is a part that finishes every candidate, with an empty text.
func (g gemini) close(c *call) string {
	out := g.part(c, list(c.choices, func(i int) string { return g.candidate(c, i, "", g.finish(c)) }))
	if c.array {
		out += "]"
	}
	return out
}

// part is an event, or an element of the array. Google ends lines with both characters.
func (g gemini) part(c *call, candidates string) string {
	begin, end := "data: ", "\r\n\r\n"
	switch {
	case c.array && c.sequence == 0:
		begin, end = "[", ""
	case c.array:
		begin, end = ",\r\n", ""
	}
	c.sequence++
	return begin + `{"candidates":[` + candidates + g.tail(c, c.produced) + end
}

// count is https://ai.google.dev/api/tokens#response-body
func (gemini) count(c *call) string {
	return `{"totalTokens":` + strconv.Itoa(c.input) + `,"promptTokensDetails":` + inputDetails(c) + `}`
}

// models is https://ai.google.dev/api/models#response-body_1
func (gemini) models(names []string, _ time.Time) string {
	return `{"models":[` + list(len(names), func(i int) string {
		return `{"name":` + quote("models/"+names[i]) + `,"version":"001","displayName":` + quote(names[i]) + `,"inputTokenLimit":1048576,"outputTokenLimit":65536,` +
			`"supportedGenerationMethods":["generateContent","countTokens","embedContent"]}`
	}) + `]}`
}
