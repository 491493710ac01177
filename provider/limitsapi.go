package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// AccountLimits contains the rate limits of an account, as published by the provider.
type AccountLimits struct {
	Provider string       `json:"provider"`       // Provider.
	Part     string       `json:"part,omitempty"` // Project or workspace ID. If empty, the limits are of the organization.
	At       time.Time    `json:"at"`             // Time of the data or event. The limits were read at this time.
	Groups   []LimitGroup `json:"groups"`         // Limits by group of models.
}

// LimitGroup contains the limits that several models share, or the limits of another part of the API, such as batches.
type LimitGroup struct {
	Name   string             `json:"name"`             // Name of the group. This is its first model, or the provider's name for the kind of group, such as batch.
	Models []string           `json:"models,omitempty"` // Model IDs and aliases. If empty, the limits do not apply to model requests.
	Limits []limits.Limit     `json:"limits"`           // Limits of the group.
	Other  map[string]float64 `json:"other,omitempty"`  // Other limits, by the provider's names. For example, max_images_per_1_minute has no Dimension.
}

// ByModel returns the limits of each model. If a model has several limits of one dimension, the lowest limit applies.
func (a *AccountLimits) ByModel() map[string]sluice.Limits {
	all := make(map[string]sluice.Limits)
	for _, g := range a.Groups {
		for _, model := range g.Models {
			l := all[model]
			for _, limit := range g.Limits {
				if at := l.At(limit.Dimension); *at == 0 || int(limit.Value) < *at {
					*at = int(limit.Value)
				}
			}
			all[model] = l
		}
	}
	return all
}

// LimitsAPI is a provider's API that returns the rate limits of an account. A LimitsAPI requires an admin key, which is sent only to this
// API.
type LimitsAPI struct {
	KeyEnv  string // environment variable with the admin key
	PartEnv string // environment variable with the ID of the project (OpenAI) or workspace (Anthropic)

	provider Provider
	baseURL  string
}

// limitsAPIs are the providers that publish the limits of an account.
//   - https://platform.claude.com/docs/en/manage-claude/rate-limits-api, 2026-11-27
//   - https://platform.openai.com/docs/api-reference/project-rate-limits, 2026-11-27
//
// The variables of the ids are those of the official SDKs.
var limitsAPIs = map[string]LimitsAPI{
	"anthropic": {KeyEnv: "ANTHROPIC_ADMIN_KEY", PartEnv: "ANTHROPIC_WORKSPACE_ID"},
	"openai":    {KeyEnv: "OPENAI_ADMIN_KEY", PartEnv: "OPENAI_PROJECT_ID"},
}

// WithoutAdminKeys removes environment variables with admin keys, such as OPENAI_ADMIN_KEY, from env in place.
func WithoutAdminKeys(env []string) []string {
	return slices.DeleteFunc(env, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		for _, api := range limitsAPIs {
			if strings.EqualFold(name, api.KeyEnv) {
				return true
			}
		}
		return false
	})
}

// LimitsAPIOf returns the LimitsAPI of a provider. If baseURL is "", LimitsAPIOf uses p.BaseURL. LimitsAPIOf fails if the provider has no
// LimitsAPI, or if the base URL is neither on the provider's host nor on this machine.
func LimitsAPIOf(p Provider, baseURL string) (LimitsAPI, error) {
	api, ok := limitsAPIs[p.Name]
	if !ok {
		return api, fmt.Errorf("%s has no API for the limits of an account: only %s have such an API", p.Name,
			strings.Join(slices.Sorted(maps.Keys(limitsAPIs)), " and "))
	}
	api.provider, _ = Lookup(p.Name) // settings of the user have no say in where the key goes
	api.baseURL = cmp.Or(baseURL, p.BaseURL)
	u, err := url.Parse(api.baseURL)
	if own, _ := url.Parse(api.provider.BaseURL); err != nil || (u.Scheme != own.Scheme || u.Host != own.Host) && !local(u) {
		return api, fmt.Errorf("an admin key of %s is sent only to %s and to this machine", p.Name, api.provider.BaseURL)
	}
	return api, nil
}

// local reports whether an address is on this machine.
func local(u *url.URL) bool {
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Read returns the account's limits, without sending a request to a model. key is an admin key. part is a project or workspace ID. If part
// is empty, Read uses the only project (OpenAI) or the organization (Anthropic). Errors of HTTP requests are *sluice.CallError values.
func (api LimitsAPI) Read(ctx context.Context, base http.RoundTripper, key, part string) (*AccountLimits, error) {
	if part != "" && !isID(part) {
		return nil, fmt.Errorf("%s is not a valid ID: use letters, digits, dashes and underscores", api.PartEnv)
	}
	r := limitsReader{p: api.provider, to: Target{BaseURL: api.baseURL, Key: key}, base: base, found: &AccountLimits{
		Provider: api.provider.Name, Part: part, At: time.Now().UTC(), Groups: []LimitGroup{}}}
	read := r.openai
	if api.provider.Dialect == Anthropic {
		read = r.anthropic
	}
	if err := read(ctx); err != nil {
		return nil, err
	}
	return r.found, nil
}

// isID reports whether a text is an id that leads to no other path.
func isID(id string) bool { return id != "" && id[0] != '.' && !strings.ContainsFunc(id, notInModel) }

// limitsReader makes the requests of one Read.
type limitsReader struct {
	p     Provider
	to    Target
	base  http.RoundTripper
	found *AccountLimits
}

// anthropic reads the limits of an organization, or those of a workspace with the ones that it inherits from the organization.
//   - https://platform.claude.com/docs/en/api/organization/rate_limits/list, 2026-11-27
//   - https://platform.claude.com/docs/en/api/organization/workspaces/rate_limits/list, 2026-11-27
func (r *limitsReader) anthropic(ctx context.Context) error {
	path, query := "/v1/organizations/rate_limits", url.Values{}
	if r.found.Part != "" {
		path, query = "/v1/organizations/workspaces/"+r.found.Part+"/rate_limits", url.Values{"include_inherited": {"true"}}
	}
	type group struct {
		Kind   string   `json:"group_type"`
		Models []string `json:"models"`
		Limits []struct {
			Type  string  `json:"type"`
			Value float64 `json:"value"`
		} `json:"limits"`
	}
	groups, err := listed[group](ctx, r, path, query)
	for _, g := range groups {
		if strings.Contains(g.Kind, "batch") {
			g.Models = nil // limits of batches are not those of requests to the models
		}
		made := LimitGroup{Name: g.Kind, Models: g.Models}
		if len(g.Models) > 0 {
			made.Name = g.Models[0]
		}
		for _, l := range g.Limits {
			made.add(l.Type, l.Value, r.found.At)
		}
		r.found.Groups = append(r.found.Groups, made)
	}
	return err
}

// openai reads the limits of a project. https://platform.openai.com/docs/api-reference/project-rate-limits/list, 2026-11-27
func (r *limitsReader) openai(ctx context.Context) error {
	if r.found.Part == "" {
		if err := r.onlyProject(ctx); err != nil {
			return err
		}
	}
	models, err := listed[map[string]any](ctx, r, "/v1/organization/projects/"+r.found.Part+"/rate_limits", url.Values{})
	for _, m := range models {
		model, _ := m["model"].(string)
		if model == "" {
			continue
		}
		made := LimitGroup{Name: model, Models: []string{model}}
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if value, ok := m[name].(float64); ok && strings.Contains(name, "max_") {
				made.add(name, value, r.found.At)
			}
		}
		r.found.Groups = append(r.found.Groups, made)
	}
	return err
}

// onlyProject finds the project of an organization that has one. https://platform.openai.com/docs/api-reference/projects/list, 2026-11-27
func (r *limitsReader) onlyProject(ctx context.Context) error {
	type project struct {
		ID string `json:"id"`
	}
	all, err := listed[project](ctx, r, "/v1/organization/projects", url.Values{})
	switch {
	case err != nil:
		return err
	case len(all) != 1 || !isID(all[0].ID):
		return fmt.Errorf("the organization has %d projects: set %s to the ID of the project of your API key", len(all), limitsAPIs["openai"].PartEnv)
	}
	r.found.Part = all[0].ID
	return nil
}

// add adds a limit by the provider's name for it. 0 stands for a limit that the model has not.
func (g *LimitGroup) add(name string, value float64, at time.Time) {
	d := limits.AnyDimension
	switch name {
	case "requests_per_minute", "max_requests_per_1_minute":
		d = limits.Requests
	case "max_tokens_per_1_minute":
		d = limits.Tokens
	case "input_tokens_per_minute", "input_tokens_per_minute_cache_aware": // the second one counts no input from a prompt cache, as seen in responses
		d = limits.InputTokens
	case "output_tokens_per_minute":
		d = limits.OutputTokens
	case "max_requests_per_1_day":
		d = limits.RequestsPerDay
	}
	switch {
	case !(value >= 1 && value <= limits.MaxLimit):
	case d != limits.AnyDimension:
		g.Limits = append(g.Limits, limits.Limit{Dimension: d, Value: value, Source: limits.SourcePublished, At: at, Confidence: 1})
	case g.Other == nil:
		g.Other = map[string]float64{name: value}
	default:
		g.Other[name] = value
	}
}

const (
	limitsTimeout = 10 * time.Second // from a request to its response, and between parts of the response
	limitsBytes   = 4 << 20          // maximum size of a page
	limitsPages   = 100              // maximum number of pages: OpenAI's have 100 models
)

// listed reads all pages of a list. OpenAI's name the last object of a page, Anthropic's the next page.
func listed[T any](ctx context.Context, r *limitsReader, path string, query url.Values) (all []T, err error) {
	for range limitsPages {
		var page struct {
			Data     *[]T   `json:"data"`
			HasMore  bool   `json:"has_more"`
			LastID   string `json:"last_id"`
			NextPage string `json:"next_page"`
		}
		if err := r.get(ctx, path, query, &page); err != nil {
			return nil, err
		}
		if page.Data == nil {
			return nil, errors.New("response contains no list of limits or projects")
		}
		all = append(all, *page.Data...)
		switch {
		case page.NextPage != "":
			query.Set("page", page.NextPage)
		case page.HasMore && page.LastID != "":
			query.Set("after", page.LastID)
		default:
			return all, nil
		}
	}
	return nil, fmt.Errorf("list of limits or projects has more than %d pages", limitsPages)
}

// get reads one JSON document.
func (r *limitsReader) get(ctx context.Context, path string, query url.Values, out any) error {
	req, err := r.p.NewControl(ctx, r.to, Control{Method: http.MethodGet, Path: path, Query: query, Dialect: r.p.Dialect})
	if err != nil {
		return err
	}
	a, o := Transfer(ctx, r.base, req, TransferConfig{Provider: r.p, Key: r.to.Key, Timeout: limitsTimeout, Idle: limitsTimeout, MaxBytes: limitsBytes})
	if o.Kind != sluice.OK {
		return &sluice.CallError{Outcome: o}
	}
	if err := json.Unmarshal(a.Body, out); err != nil {
		return errors.New("response is not JSON of the expected format")
	}
	return nil
}
