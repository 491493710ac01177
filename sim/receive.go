package sim

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// target is what receive takes for a URL.
func target(u *url.URL) string {
	if u.RawQuery == "" {
		return u.Path
	}
	return u.Path + "?" + u.RawQuery
}

// receive reads a request and checks its key and form. The target is its path,
// with the query if there is one. Its refusal is nil if there is nothing wrong
// with it.
func (s *Server) receive(method, target string, header http.Header, body []byte) (*call, *refusal) {
	c := &call{hash: hashOf(body)}
	c.id = c.hash.String()
	c.choices = 1
	path, rawQuery, _ := strings.Cut(target, "?")
	var query url.Values
	if rawQuery != "" {
		query, _ = url.ParseQuery(rawQuery) // what is not understood is not there
	}
	c.dialect = dialectOf(path, header, query)
	known := c.route(method, path, query)
	if known && c.endpoint == statsPage {
		return c, nil
	}
	if key := c.dialect.key(header, query); s.config.Key != "" && key != s.config.Key {
		if key == "" {
			return c, &refusal{reason: reasonNoKey}
		}
		return c, &refusal{reason: reasonBadKey}
	}
	if !known {
		return c, &refusal{reason: reasonUnknownPath, param: method + " " + path}
	}
	if c.endpoint == modelsPage {
		return c, nil
	}
	return c, s.validate(c, header, body)
}

// dialectOf tells whom a client takes the server for, where the path may
// belong to several.
func dialectOf(path string, header http.Header, query url.Values) dialect {
	switch {
	case path == "/v1/messages", path == "/v1/messages/count_tokens":
		return anthropic{}
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
	s.prepare(c)
	if bytes.Contains(body, []byte("one word")) && c.perChoice > 0 {
		c.perChoice, c.cut = 1, false // models do as they are asked
	}
	return nil
}

// prepare decides how long the answer will be.
func (s *Server) prepare(c *call) {
	switch c.endpoint {
	case embeddings, embedding, embeddingBatch:
		c.stream, c.choices, c.maxTokens = false, 1, 0
		return
	case responses, messages:
		c.choices = 1
	}
	c.perChoice, c.cut = s.config.answerTokens(c.hash, c.maxTokens)
}
