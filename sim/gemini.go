package sim

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// gemini is the dialect of Google's Gemini API. It has no headers of its own:
// the id of a request and every limit stand in the bodies.
type gemini struct{}

func (gemini) key(header http.Header, query url.Values) string {
	return cmp.Or(header.Get("X-Goog-Api-Key"), query.Get("key"), bearer(header))
}

func (gemini) idHeader() string { return "" }

func (gemini) rateHeaders(*headers, *[dimensions]quota, time.Time) {}

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

// answer appends the object of what was asked for.
func (g gemini) answer(b []byte, c *call) []byte {
	switch c.endpoint {
	case embedding:
		return append(g.vector(append(b, `{"embedding":`...), c, 0), '}')
	case embeddingBatch:
		b = append(b, `{"embeddings":[`...)
		for i := range c.prompts {
			if i > 0 {
				b = append(b, ',')
			}
			b = g.vector(b, c, i)
		}
		return append(b, `]}`...)
	}
	b = append(b, `{"candidates":[`...)
	for i := range c.choices {
		if i > 0 {
			b = append(b, ',')
		}
		b = g.candidate(b, c, i, c.appendText(nil, 0, c.perChoice), g.finish(c))
	}
	return g.tail(b, c, c.plan.output)
}

// vector is https://ai.google.dev/api/embeddings#ContentEmbedding
func (gemini) vector(b []byte, c *call, prompt int) []byte {
	b = append(b, `{"values":`...)
	b = appendVector(b, c, prompt)
	return append(b, '}')
}

// candidate is https://ai.google.dev/api/generate-content#candidate, and an
// empty finish leaves out that it is finished.
func (g gemini) candidate(b []byte, c *call, index int, text []byte, finish string) []byte {
	b = append(b, `{"content":{"parts":[`...)
	if c.tool != "" {
		b = g.functionCall(b, c)
	} else {
		b = append(b, `{"text":"`...)
		b = append(b, text...)
		b = append(b, `"}`...)
	}
	b = append(b, `],"role":"model"}`...)
	if finish != "" {
		b = append(b, `,"finishReason":"`...)
		b = append(b, finish...)
		b = append(b, '"')
	}
	b = append(b, `,"index":`...)
	b = appendInt(b, index)
	return append(b, '}')
}

func (gemini) finish(c *call) string {
	if c.cut {
		return "MAX_TOKENS"
	}
	return "STOP"
}

// tail appends what follows the candidates, after so many tokens of output.
// https://ai.google.dev/api/generate-content#UsageMetadata
func (gemini) tail(b []byte, c *call, output int) []byte {
	b = append(b, `],"usageMetadata":{"promptTokenCount":`...)
	b = appendInt(b, c.input)
	b = append(b, `,"candidatesTokenCount":`...)
	b = appendInt(b, output)
	b = append(b, `,"totalTokenCount":`...)
	b = appendInt(b, c.input+output)
	b = append(b, `,"promptTokensDetails":[{"modality":"TEXT","tokenCount":`...)
	b = appendInt(b, c.input)
	b = append(b, `}]},"modelVersion":`...)
	b = appendString(b, c.model)
	b = append(b, `,"responseId":"`...)
	b = append(b, c.id...)
	return append(b, `"}`...)
}

func (gemini) streamType(c *call) string {
	if c.array {
		return "application/json"
	}
	return eventStream
}

// open begins a stream, of which every part has a text.
func (gemini) open(b []byte, _ *call) []byte { return b }

func (g gemini) delta(b []byte, c *call, choice int, text []byte) []byte {
	if c.tool != "" {
		return b // a call of a function comes whole, at the end
	}
	b = g.begin(b, c)
	b = g.candidate(b, c, choice, text, "")
	return g.end(b, c)
}

// close appends a part that finishes every candidate, with an empty text.
func (g gemini) close(b []byte, c *call) []byte {
	b = g.begin(b, c)
	for i := range c.choices {
		if i > 0 {
			b = append(b, ',')
		}
		b = g.candidate(b, c, i, nil, g.finish(c))
	}
	b = g.end(b, c)
	if c.array {
		b = append(b, ']')
	}
	return b
}

// begin begins a part: an event, or an element of the array.
func (gemini) begin(b []byte, c *call) []byte {
	switch {
	case !c.array:
		b = append(b, "data: "...)
	case c.sequence == 0:
		b = append(b, '[')
	default:
		b = append(b, ",\r\n"...)
	}
	c.sequence++
	return append(b, `{"candidates":[`...)
}

// end ends a part. Google ends lines with both characters.
func (g gemini) end(b []byte, c *call) []byte {
	b = g.tail(b, c, c.produced)
	if c.array {
		return b
	}
	return append(b, "\r\n\r\n"...)
}

// count is https://ai.google.dev/api/tokens#response-body
func (gemini) count(c *call) []byte {
	b := append([]byte(nil), `{"totalTokens":`...)
	b = appendInt(b, c.input)
	b = append(b, `,"promptTokensDetails":[{"modality":"TEXT","tokenCount":`...)
	b = appendInt(b, c.input)
	return append(b, `}]}`...)
}

// models is https://ai.google.dev/api/models#response-body_1
func (gemini) models(names []string, _ time.Time) []byte {
	b := []byte(`{"models":[`)
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = appendString(b, "models/"+name)
		b = append(b, `,"version":"001","displayName":`...)
		b = appendString(b, name)
		b = append(b, `,"inputTokenLimit":1048576,"outputTokenLimit":65536,`+
			`"supportedGenerationMethods":["generateContent","countTokens","embedContent"]}`...)
	}
	return append(b, `]}`...)
}
