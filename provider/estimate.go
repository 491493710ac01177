package provider

import (
	"bytes"
	"errors"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
)

const (
	// bytesPerToken is how many bytes of text make a token: "one token is ~4 chars in English"
	// (https://help.openai.com/en/articles/4936856-what-are-tokens-and-how-to-count-them). The Scheduler corrects the
	// estimate by the ratio it learns from usage.
	bytesPerToken = 4

	// mediaTokens is the flat price of an image, a sound or a file. An image of 1.15 megapixels is about 1,530 tokens
	// at Anthropic (https://docs.anthropic.com/en/docs/build-with-claude/vision), one of 1024 × 1024 is 765 at OpenAI
	// in high detail (https://platform.openai.com/docs/guides/images-vision).
	mediaTokens = 1500

	// maxCount bounds what a request may claim, so that sums of claims cannot overflow.
	maxCount = 1 << 40
)

// Request contains the properties of a request that determine its cost.
type Request struct {
	Model  string // model in the body, or "" if missing
	Stream bool   // the request asks for a stream
	N      int    // requested number of choices, at least 1
	Cost   sluice.Cost
}

// ErrNotObject is returned by [Estimate] for a body that is not a JSON object.
var ErrNotObject = errors.New("request body is not a JSON object")

// Estimate estimates the tokens of a request from the request body. The estimated input is at least one token. Cost.MaxOutput is the output
// limit in the body, for all choices together. If the body is not a JSON object, the error is [ErrNotObject].
func Estimate(e Endpoint, body []byte) (Request, error) {
	q := estimate{counter: counter{Scanner: jsonscan.New(body)}, Request: Request{N: 1, Stream: e.spec().stream != ""}}
	for q.Enter('{'); q.Next('}'); {
		switch name := jsonscan.Name(q.Key()); string(name) {
		case "model":
			q.Model = q.Text()
		case "stream":
			q.Stream = q.Truth() || q.Stream
		default:
			if read := known.request[string(name)]; read != nil {
				read(&q)
			} else {
				q.Skip()
			}
		}
	}
	q.End()
	if q.Bad() {
		return Request{N: 1, Cost: sluice.Cost{Input: q.tokens()}}, ErrNotObject
	}
	q.Cost.Input = q.tokens()
	if !e.Embeds() {
		q.Cost.MaxOutput = int(min(maxCount, saturate(q.out, int64(q.N))))
	}
	return q.Request, nil
}

// estimate reads the body of a request.
type estimate struct {
	counter
	Request
	out int64 // the bound of an answer
}

// readBound reads a member that bounds an answer. Of several, the highest counts.
func (q *estimate) readBound() {
	if n, ok := q.Number(); ok {
		q.out = max(q.out, min(n, maxCount))
	}
}

// readAnswers reads a member that says how many answers are asked for. Of several, the highest counts.
func (q *estimate) readAnswers() {
	if n, ok := q.Number(); ok {
		q.N = int(max(int64(q.N), min(n, maxCount)))
	}
}

// saturate multiplies two counts that are not negative and at most maxCount.
func saturate(a, b int64) int64 {
	if a != 0 && b > maxCount/a {
		return maxCount
	}
	return a * b
}

// counter counts the text and the media of an input.
type counter struct {
	jsonscan.Scanner
	bytes int
	media int
	ids   int // numbers in the input: an embeddings request may hold tokens instead of text
}

func (c *counter) tokens() int {
	n := (int64(c.bytes)+bytesPerToken-1)/bytesPerToken + int64(c.media)*mediaTokens + int64(c.ids)
	return int(max(1, min(n, maxCount)))
}

// content counts a value of messages, input or system: text, parts, or lists of them.
func (c *counter) content() {
	switch b := c.Peek(); b {
	case '"':
		c.string()
	case '[':
		for c.Enter('['); c.Next(']'); {
			c.content()
		}
	case '{':
		c.part()
	default:
		if b == '-' || b >= '0' && b <= '9' {
			c.ids++
		}
		c.Skip()
	}
}

// string counts a string as text, or as one medium if it is a data URL.
func (c *counter) string() {
	raw, size := c.Str()
	if bytes.HasPrefix(raw, dataScheme) {
		c.media++
		return
	}
	c.bytes += size
}

var dataScheme = []byte("data:")

// part counts a message, an item, or a part of its content. All text counts but what is only a label to the provider.
// However many of an object's members describe a medium, it is one.
func (c *counter) part() {
	var (
		data   = -1 // bytes of a member "data", which is a document's text or a medium
		text   bool // the object is a source of type text
		medium bool
	)
	for c.Enter('{'); c.Next('}'); {
		switch string(c.Key()) {
		case "type":
			if c.Peek() != '"' {
				c.Skip()
				break
			}
			raw, _ := c.Str()
			text = string(raw) == "text"
		case "data":
			if c.Peek() != '"' {
				c.content()
				break
			}
			_, data = c.Str()
		case "image_url", "url", "file_id", "file_data", "file_url", "fileUri", "file_uri":
			if c.Peek() != '"' {
				c.content()
				break
			}
			c.Str()
			medium = true
		case "input", "arguments", "parameters", "args", "response":
			c.words()
		case "role", "id", "call_id", "tool_call_id", "tool_use_id", "name", "status", "detail", "format", "filename",
			"media_type", "signature", "cache_control", "title", "mimeType", "mime_type", "thoughtSignature", "thought_signature",
			"model", "taskType", "task_type":
			c.Skip()
		default:
			c.inner()
		}
	}
	switch {
	case data >= 0 && text:
		c.bytes += data
	case data >= 0 || medium:
		c.media++
	}
}

// inner counts a member of a part: its strings and parts, but no bare numbers.
func (c *counter) inner() {
	switch c.Peek() {
	case '"', '[', '{':
		ids := c.ids
		c.content()
		c.ids = ids
	default:
		c.Skip()
	}
}

// words counts every string in a value, names of members too: what a tool or a schema costs.
func (c *counter) words() {
	switch c.Peek() {
	case '"':
		_, size := c.Str()
		c.bytes += size
	case '[':
		for c.Enter('['); c.Next(']'); {
			c.words()
		}
	case '{':
		for c.Enter('{'); c.Next('}'); {
			c.bytes += len(c.Key())
			c.words()
		}
	default:
		c.Skip()
	}
}
