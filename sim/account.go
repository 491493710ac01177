package sim

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// project is the only project of the organization in OpenAI's form.
const project = "proj_sim"

// Paths of the APIs of an account's limits.
//   - https://platform.claude.com/docs/en/api/organization/rate_limits/list
//   - https://platform.claude.com/docs/en/api/organization/workspaces/rate_limits/list
//   - https://platform.openai.com/docs/api-reference/projects/list
//   - https://platform.openai.com/docs/api-reference/project-rate-limits/list
const (
	organizationLimits = "/v1/organizations/rate_limits"
	workspaces         = "/v1/organizations/workspaces/"
	projects           = "/v1/organization/projects"
	projectLimits      = projects + "/" + project + "/rate_limits"
)

// servesAccount reports whether a path is one of an administrator.
func servesAccount(path string) bool {
	return path == organizationLimits || strings.HasPrefix(path, workspaces) || strings.HasPrefix(path, projects)
}

// account tells the limits in force to an administrator, as far as the provider's form has them. Such a request is no call.
func (s *Server) account(w http.ResponseWriter, r *http.Request) {
	path, query := r.URL.Path, r.URL.Query()
	c := &call{dialect: openai{}}
	if path == organizationLimits || strings.HasPrefix(path, workspaces) {
		c.dialect = anthropic{}
	}
	c.id = "admin"
	switch key := c.dialect.key(r.Header, query); {
	case key == "":
		s.refuse(c, &refusal{reason: reasonNoKey}, w)
		return
	case s.config.AdminKey != "" && key != s.config.AdminKey:
		s.refuse(c, &refusal{reason: reasonBadKey}, w)
		return
	}
	s.mu.Lock()
	now := time.Duration(0)
	if !s.start.IsZero() {
		now = time.Since(s.start)
	}
	q := s.budgets.quotas(now)
	s.stats.LimitReads++
	s.mu.Unlock()
	var body []byte
	switch workspace, _ := strings.CutPrefix(path, workspaces); {
	case r.Method != http.MethodGet:
	case path == organizationLimits, strings.HasSuffix(workspace, "/rate_limits") && query.Get("include_inherited") == "true":
		body = marshal(s.modelGroup(&q))
	case path == projects:
		body = marshal(openaiPage{Object: "list", Data: []any{map[string]any{"object": "organization.project", "id": project, "name": "sim", "status": "active"}}})
	case path == projectLimits:
		body = marshal(s.modelPage(&q, query.Get("after")))
	}
	if body == nil {
		s.refuse(c, &refusal{reason: reasonUnknownPath, param: r.Method + " " + path}, w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	send(w, http.StatusOK, body)
}

// models returns the known models.
func (s *Server) models() []string {
	if len(s.config.Models) == 0 {
		return []string{"sim"}
	}
	return s.config.Models
}

// modelGroup is the limits in Anthropic's form: all models share them.
func (s *Server) modelGroup(q *[limits.NumDimensions]quota) any {
	type limit struct {
		Type  string `json:"type"`
		Value int    `json:"value"`
	}
	all := []limit{}
	for _, l := range []limit{
		{"requests_per_minute", q[limits.Requests].limit}, {"input_tokens_per_minute", q[limits.InputTokens].limit},
		{"output_tokens_per_minute", q[limits.OutputTokens].limit},
	} {
		if l.Value > 0 {
			all = append(all, l)
		}
	}
	groups := []any{map[string]any{"type": "rate_limit", "id": "rl_sim", "group_type": "model_group", "models": s.models(), "limits": all}}
	if n := s.config.Batches.Pending; n > 0 {
		groups = append(groups, map[string]any{"type": "rate_limit", "id": "rl_batch", "group_type": "batch", "models": nil,
			"limits": []limit{{"enqueued_batch_requests", n}}})
	}
	return map[string]any{"data": groups, "next_page": nil}
}

// openaiPage is a page of a list in OpenAI's form.
type openaiPage struct {
	Object  string `json:"object"`
	Data    []any  `json:"data"`
	HasMore bool   `json:"has_more"`
	LastID  string `json:"last_id,omitempty"`
}

// modelPage is the limits in OpenAI's form, of 100 models after the one with that id.
func (s *Server) modelPage(q *[limits.NumDimensions]quota, after string) openaiPage {
	const most = 100
	models := s.models()
	from := slices.Index(models, strings.TrimPrefix(after, "rl-")) + 1
	page := openaiPage{Object: "list", Data: []any{}}
	for _, model := range models[from:] {
		if page.HasMore = len(page.Data) == most; page.HasMore {
			break
		}
		page.LastID = "rl-" + model
		one := map[string]any{"object": "project.rate_limit", "id": page.LastID, "model": model,
			"max_requests_per_1_minute": q[limits.Requests].limit, "max_tokens_per_1_minute": q[limits.Tokens].limit}
		if n := q[limits.RequestsPerDay].limit; n > 0 {
			one["max_requests_per_1_day"] = n
		}
		if n := s.config.Batches.EnqueuedTokens; n > 0 {
			one["batch_1_day_max_input_tokens"] = n
		}
		page.Data = append(page.Data, one)
	}
	return page
}
