package sim

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// newCall reads everything of a request but its body. It reports false if there is no such path.
func newCall(method, path string, header http.Header, query url.Values, body []byte) (*call, bool) {
	c := &call{hash: hashOf(body), dialect: dialectOf(path, header, query)}
	c.id, c.choices = c.hash.String(), 1
	return c, c.route(method, path, query)
}

// receive reads a request and checks its key and form. Its refusal is nil if both are right.
func (s *Server) receive(method string, u *url.URL, header http.Header, body []byte) (*call, *refusal) {
	var query url.Values
	if u.RawQuery != "" {
		query = u.Query()
	}
	c, known := newCall(method, u.Path, header, query, body)
	if known && c.endpoint == statsPage {
		return c, nil
	}
	if no := s.checkKey(c, header, query); no != nil {
		return c, no
	}
	if !known {
		return c, &refusal{reason: reasonUnknownPath, param: method + " " + u.Path}
	}
	if c.endpoint == modelsPage {
		return c, nil
	}
	return c, s.validate(c, header, body)
}

// checkKey refuses a wrong key.
func (s *Server) checkKey(c *call, header http.Header, query url.Values) *refusal {
	switch key := c.dialect.key(header, query); {
	case s.config.Key == "" || key == s.config.Key:
		return nil
	case key == "":
		return &refusal{reason: reasonNoKey}
	}
	return &refusal{reason: reasonBadKey}
}

// dialectOf tells whom a client takes the server for, where the path may
// belong to several.
func dialectOf(path string, header http.Header, query url.Values) dialect {
	switch {
	case path == "/v1/messages", path == "/v1/messages/count_tokens":
		return anthropic{}
	case path == "/v2/chat":
		return cohere{}
	case strings.HasPrefix(path, "/v1beta/") || header["X-Goog-Api-Key"] != nil || query.Has("key"):
		return gemini{}
	case header["Anthropic-Version"] != nil || header["X-Api-Key"] != nil:
		return anthropic{}
	default:
		return openai{}
	}
}

// route finds the endpoint; some belong to one dialect alone.
func (c *call) route(method, path string, query url.Values) bool {
	if method == http.MethodGet || method == http.MethodHead {
		c.endpoint = modelsPage
		if path == "/stats" {
			c.endpoint = statsPage
		}
		return path == "/stats" || path == "/v1/models" || path == "/v1beta/models"
	}
	switch path {
	case "/v1/chat/completions":
		c.endpoint, c.dialect = chat, openai{}
	case "/v2/chat":
		c.endpoint = cohereChat
	case "/v1/responses":
		c.endpoint, c.dialect = responses, openai{}
	case "/v1/embeddings":
		c.endpoint, c.dialect = embeddings, openai{}
	case "/v1/messages":
		c.endpoint = messages
	case "/v1/messages/count_tokens":
		c.endpoint = countPage
	default:
		if !c.routeGemini(path, query) {
			return false
		}
	}
	return method == http.MethodPost
}

// validate reads the body.
func (s *Server) validate(c *call, header http.Header, body []byte) *refusal {
	if len(body) > maxBody {
		return &refusal{reason: reasonTooLong}
	}
	if c.endpoint == messages && header["Anthropic-Version"] == nil {
		return &refusal{reason: reasonNoVersion}
	}
	if !c.parse(body) {
		return &refusal{reason: reasonNotJSON}
	}
	switch {
	case c.wrong != "":
		return &refusal{reason: reasonWrongType, param: c.wrong}
	case c.model == "":
		return &refusal{reason: reasonNoModel}
	case c.prompts == 0:
		return &refusal{reason: reasonNoPrompts}
	case c.endpoint == messages && c.maxTokens == 0:
		return &refusal{reason: reasonNoMaxTokens}
	case len(s.config.Models) > 0 && !slices.Contains(s.config.Models, c.model):
		return &refusal{reason: reasonUnknownModel}
	case s.config.Faults.badRequest(newLuck(s.config.Seed, c.hash, 0)):
		return &refusal{reason: reasonBadRequest}
	}
	if !c.callsTool(body) {
		c.tool = ""
	}
	switch c.endpoint {
	case embeddings, embedding, embeddingBatch:
		c.stream, c.choices, c.maxTokens = false, 1, 0
		return nil
	case responses, messages, cohereChat:
		c.choices = 1
	}
	c.perChoice, c.cut = s.config.answerTokens(c.hash, c.maxTokens)
	if bytes.Contains(body, []byte("one word")) {
		c.perChoice, c.cut = 1, false // models do as they are asked
	}
	return nil
}
