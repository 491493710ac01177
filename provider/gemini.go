package provider

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// gemini is the dialect of Google's Gemini API. Paths name the model. Like all protocol buffers, requests may be in camelCase and in
// snake_case.
type gemini struct{}

// geminiVersion begins the paths (https://ai.google.dev/gemini-api/docs/api-versions).
const geminiVersion = "/v1beta"

// https://ai.google.dev/api/generate-content, https://ai.google.dev/api/tokens, as of google.golang.org/genai v1.77.0; labels is of
// https://docs.cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.endpoints/generateContent.
const contentFields = `cachedContent contents continuationToken generateContentRequest generationConfig labels model safetySettings serviceTier
	store systemInstruction toolConfig tools`

func (gemini) facts() facts {
	content := spec{count: ":countTokens", bound: "generationConfig.maxOutputTokens", turns: &turns{"contents", openContents, appendContent},
		prompt: contentPrompt, fold: newContentFold, fields: contentFields}
	stream := content
	stream.stream, stream.count = "alt=sse", ""
	return facts{name: "gemini", auth: Auth{Header: "X-Goog-Api-Key"}, endpoints: map[Endpoint]spec{
		// https://ai.google.dev/api/generate-content, https://ai.google.dev/api/embeddings
		GenerateContent:       ofModel(":generateContent", content),
		StreamGenerateContent: ofModel(":streamGenerateContent", stream),
		EmbedContent: ofModel(":embedContent", spec{embeds: true, prompt: embedContentPrompt,
			fields: `content embedContentConfig model outputDimensionality taskType title`}),
		BatchEmbedContents: ofModel(":batchEmbedContents", spec{embeds: true, fields: `model requests`}),
	}, request: map[string]func(*estimate){
		"generationConfig": (*estimate).readGeneration, "generation_config": (*estimate).readGeneration, "contents": (*estimate).content,
		"systemInstruction": (*estimate).content, "system_instruction": (*estimate).content, "content": (*estimate).content,
		"requests": (*estimate).content,
	}, response: map[string]func(*summary, *jsonscan.Scanner){
		"candidates": (*summary).readChoices, "usageMetadata": (*summary).readUsage, "promptFeedback": (*summary).readFeedback,
		"embedding": (*summary).readEmbedding, "embeddings": (*summary).readEmbedding,
	}, usage: map[string]figure{
		// They are all of a call so far (https://ai.google.dev/api/generate-content#usagemetadata). Thoughts are paid for like the answer.
		"promptTokenCount": inputTokens, "cachedContentTokenCount": cachedTokens, "candidatesTokenCount": outputTokens,
		"toolUsePromptTokenCount": toolTokens, "thoughtsTokenCount": thoughtTokens, "serviceTier": serviceTier, "trafficType": serviceTier,
	}, event: map[string]func(*meter){
		"candidates": (*meter).readChoices,
	}}
}

// ofModel adds the path to an endpoint that is a method of a model.
func ofModel(method string, s spec) spec {
	s.path, s.ending = geminiVersion+"/models/{model}"+method, method
	s.pathOf = func(model string) (string, error) {
		collection, id := "/models/", strings.TrimPrefix(model, "models/")
		if tuned, ok := strings.CutPrefix(model, "tunedModels/"); ok {
			collection, id = "/tunedModels/", tuned
		}
		if id == "" || strings.Contains(id, "..") || strings.ContainsFunc(id, notInModel) {
			return "", fmt.Errorf("model %q is not a valid model ID of Gemini: use letters, digits, dots, dashes and underscores, "+
				"such as gemini-2.5-flash", Redact(clip(model, 200)))
		}
		return geminiVersion + collection + id + method, nil
	}
	return s
}

func notInModel(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_')
}

// isFrom knows clients of Gemini by more than the version, which may be /v1 as well.
func (gemini) isFrom(r *http.Request) bool {
	return strings.Contains(r.URL.Path, geminiVersion+"/") || r.Header.Get("X-Goog-Api-Key") != "" || r.URL.RawQuery != "" && r.URL.Query().Has("key")
}

// address keeps the version of a base that has one. Files are uploaded to, and downloaded from, paths that have a
// word before theirs (https://ai.google.dev/gemini-api/docs/files, https://ai.google.dev/gemini-api/docs/batch-api).
func (gemini) address(base, path string, of Dialect) (before, after string) {
	if of == OpenAI {
		base = strings.TrimSuffix(base, "/v1")
	}
	if !versioned(base) {
		return base, path
	}
	for _, word := range [...]string{"/upload", "/download"} {
		rest, ok := strings.CutPrefix(path, word+geminiVersion)
		if i := strings.LastIndexByte(base, '/'); ok && isVersion(base[i+1:]) {
			return base[:i], word + base[i:] + rest
		}
	}
	return base, strings.TrimPrefix(path, geminiVersion)
}

func (gemini) promptEndpoint(model string) Endpoint {
	if strings.Contains(model, "embed") {
		return EmbedContent
	}
	return GenerateContent
}

// contentPrompt has no place for system but a member.
func contentPrompt(b []byte, _ string, prompt, _ []byte) []byte {
	return append(appendContent(append(b, `{"contents":[`...), "user", prompt), ']')
}

func embedContentPrompt(b []byte, _ string, prompt, _ []byte) []byte {
	b = append(append(b, `{"content":{"parts":[{"text":`...), prompt...)
	return append(b, `}]}`...)
}

// appendContent appends one turn, whose text is a JSON string.
func appendContent(b []byte, role string, text []byte) []byte {
	if role == "assistant" {
		role = "model"
	}
	b = append(b, `{"role":"`+role+`","parts":[{"text":`...)
	return append(append(b, text...), `}]}`...)
}

// openContents opens a list of contents. A single one may do without a role; of several, each must have one.
func openContents(b, list []byte) []byte {
	if list[0] != '[' {
		return nil
	}
	b = append(b, '[')
	s := jsonscan.New(list)
	for range s.Elements {
		content := s.Span()
		b = separate(b)
		if _, end := memberSpan(content, "role"); end == 0 && content[0] == '{' {
			b = append(b, `{"role":"user"`...)
			if content = bytes.TrimLeft(content[1:], spaces); content[0] != '}' {
				b = append(b, ',')
			}
		}
		b = append(b, content...)
	}
	return b
}

// readGeneration reads generationConfig (https://ai.google.dev/api/generate-content#generationconfig).
func (q *estimate) readGeneration() {
	for name := range q.Members {
		switch string(name) {
		case "maxOutputTokens", "max_output_tokens":
			q.readBound()
		case "candidateCount", "candidate_count":
			q.readAnswers()
		case "responseSchema", "response_schema", "responseJsonSchema", "response_json_schema":
			q.words()
		default:
			q.Skip()
		}
	}
}

// readFeedback reads that a prompt is blocked, or ratings of it.
func (sum *summary) readFeedback(s *jsonscan.Scanner) {
	named := sum.readReason(s, "blockReason", "blockReasonMessage")
	sum.blocked = named && sum.endpoint.Dialect() == Gemini
	if sum.content != nil && named {
		sum.content.filtered, sum.content.found = true, true // also OTHER, which as a finishReason is no filter's
	}
}

// readEmbedding reads embeddings of any dialect, which are no answer of an endpoint that generates. None of a list may be empty.
func (sum *summary) readEmbedding(s *jsonscan.Scanner) {
	if sum.endpoint != NoEndpoint && !sum.endpoint.Embeds() {
		s.Skip()
		return
	}
	sum.hasPlace = sum.hasPlace || s.Peek() == '['
	if s.Peek() != '[' {
		sum.hasBody = holds(s) || sum.hasBody
		return
	}
	for range s.Elements {
		sum.hasBody = holds(s) && (sum.hasBody || sum.vectors == 0)
		sum.vectors++
	}
}

// errorStatuses are the statuses of errors by those of HTTP (https://cloud.google.com/apis/design/errors).
var errorStatuses = map[int]string{
	http.StatusBadRequest:            "INVALID_ARGUMENT",
	http.StatusUnauthorized:          "UNAUTHENTICATED",
	http.StatusForbidden:             "PERMISSION_DENIED",
	http.StatusNotFound:              "NOT_FOUND",
	http.StatusMethodNotAllowed:      "INVALID_ARGUMENT",
	http.StatusRequestEntityTooLarge: "INVALID_ARGUMENT",
	http.StatusUnsupportedMediaType:  "INVALID_ARGUMENT",
	http.StatusRequestTimeout:        "DEADLINE_EXCEEDED",
	http.StatusTooManyRequests:       "RESOURCE_EXHAUSTED",
	http.StatusBadGateway:            "UNAVAILABLE",
	http.StatusServiceUnavailable:    "UNAVAILABLE",
	http.StatusGatewayTimeout:        "DEADLINE_EXCEEDED",
}

func (gemini) refusal(r Refusal, _ Endpoint) (event string, doc any) {
	status := cmp.Or(errorStatuses[r.Status], "UNKNOWN")
	return "", map[string]any{"error": map[string]any{"code": r.Status, "message": r.Message, "status": status,
		"details": []any{map[string]any{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": r.Kind, "domain": "sluice"}}}}
}

func (gemini) model(name string) any {
	return map[string]any{"name": "models/" + name, "displayName": name}
}

func (gemini) models(entries []any, _ []string) any { return map[string]any{"models": entries} }

// contentFold folds the chunks of Gemini, each of which is a whole answer with the next parts of the content
// (https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent).
type contentFold struct {
	top        map[string]any
	candidates map[int]*candidate
}

// candidate is one of the answers that were asked for.
type candidate struct {
	members map[string]any
	content map[string]any // without its parts
	parts   []any          // each a map[string]any
}

func newContentFold() fold {
	return &contentFold{top: map[string]any{}, candidates: map[int]*candidate{}}
}

func (f *contentFold) event(chunk map[string]any) {
	list, _ := chunk["candidates"].([]any)
	delete(chunk, "candidates")
	replace(f.top, chunk)
	for _, item := range list {
		next, ok := item.(map[string]any)
		if !ok {
			continue
		}
		i := index(next["index"])
		c := f.candidates[i]
		if c == nil {
			c = &candidate{members: map[string]any{}}
			f.candidates[i] = c
		}
		if content, ok := next["content"].(map[string]any); ok {
			c.add(content)
		}
		delete(next, "content")
		replace(c.members, next)
	}
}

// replace takes over what a later chunk says: its counts, ratings and reasons are those of all so far.
func replace(members, later map[string]any) {
	for k, v := range later {
		if v != nil {
			members[k] = v
		}
	}
}

// add takes the next parts of a candidate's content.
func (c *candidate) add(content map[string]any) {
	parts, _ := content["parts"].([]any)
	delete(content, "parts")
	if c.content == nil {
		c.content = map[string]any{}
	}
	replace(c.content, content)
	for _, item := range parts {
		if part, ok := item.(map[string]any); ok && !c.extend(part) {
			if s, ok := part["text"].(string); ok {
				part["text"] = newText(s)
			}
			c.parts = append(c.parts, part)
		}
	}
}

// extend adds a part that goes on with the text of the last one, if it does. Thoughts are kept apart from the answer.
func (c *candidate) extend(part map[string]any) bool {
	more, ok := part["text"].(string)
	if !ok || len(c.parts) == 0 {
		return false
	}
	last := c.parts[len(c.parts)-1].(map[string]any)
	t, ok := last["text"].(*text)
	if !ok || (last["thought"] == true) != (part["thought"] == true) || last["thoughtSignature"] != nil {
		return false // a signature vouches for its part as it is
	}
	t.add(more)
	delete(part, "text")
	maps.Copy(last, part)
	return true
}

func (f *contentFold) message() []byte {
	if len(f.candidates) > 0 { // a blocked prompt has none
		list := []any{}
		for _, i := range slices.Sorted(maps.Keys(f.candidates)) {
			c := f.candidates[i]
			if c.content != nil {
				if c.parts != nil {
					c.content["parts"] = c.parts
				}
				c.members["content"] = c.content
			}
			list = append(list, c.members)
		}
		f.top["candidates"] = list
	}
	return encode(f.top)
}
