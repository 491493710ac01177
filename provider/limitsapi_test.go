package provider_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

const adminKey = "sk-admin-0f1e2d3c4b5a6978"

// limitsAPI returns the API of a provider at an address.
func limitsAPI(t *testing.T, name, address string) provider.LimitsAPI {
	t.Helper()
	p, _ := provider.Lookup(name)
	if name == "openai" {
		address += "/v1"
	}
	api, err := provider.LimitsAPIOf(p, address)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// The published limits are those that a simulator enforces, and no request is made to a model.
func TestPublishedLimitsAreTheTruth(t *testing.T) {
	var models []string
	for i := range 250 { // three pages of OpenAI's
		models = append(models, fmt.Sprintf("m-%d", i))
	}
	server, err := sim.New(sim.Config{RPM: 700, TPM: 80_000, ITPM: 60_000, OTPM: 20_000, RPD: 10_000, Models: models, Key: "sk-other", AdminKey: adminKey,
		Batches: sim.Batches{Pending: 500, EnqueuedTokens: 90_000}})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server)
	defer web.Close()
	for _, test := range []struct {
		name, part string
		found      string
		want       sluice.Limits
		other      map[string]float64
	}{
		{"anthropic", "", "", sluice.Limits{RPM: 700, ITPM: 60_000, OTPM: 20_000}, map[string]float64{"enqueued_batch_requests": 500}},
		{"anthropic", "wrkspc_01", "wrkspc_01", sluice.Limits{RPM: 700, ITPM: 60_000, OTPM: 20_000}, map[string]float64{"enqueued_batch_requests": 500}},
		{"openai", "proj_sim", "proj_sim", sluice.Limits{RPM: 700, TPM: 80_000, RPD: 10_000}, map[string]float64{"batch_1_day_max_input_tokens": 90_000}},
		{"openai", "", "proj_sim", sluice.Limits{RPM: 700, TPM: 80_000, RPD: 10_000}, map[string]float64{"batch_1_day_max_input_tokens": 90_000}},
	} {
		found, err := limitsAPI(t, test.name, web.URL).Read(t.Context(), web.Client().Transport, adminKey, test.part)
		if err != nil {
			t.Errorf("%s %q: %v", test.name, test.part, err)
			continue
		}
		all := found.ByModel()
		if len(all) != len(models) || all["m-0"] != test.want || all["m-249"] != test.want {
			t.Errorf("%s %q: %d models, %+v, want %+v", test.name, test.part, len(all), all["m-249"], test.want)
		}
		if last := found.Groups[len(found.Groups)-1]; !reflect.DeepEqual(last.Other, test.other) || found.Provider != test.name || found.Part != test.found {
			t.Errorf("%s %q: %q, %+v", test.name, test.part, found.Part, last)
		}
	}
	if stats := server.Stats(); stats.Requests+stats.Invalid != 0 || stats.LimitReads != 9 { // 1, 1, 3, and 4 with the list of projects
		t.Errorf("%+v", stats)
	}
}

// answers serves the answers in turn, and returns the requests.
func answers(t *testing.T, status int, bodies ...string) (address string, asked func() []*http.Request) {
	t.Helper()
	var mu sync.Mutex
	var all []*http.Request
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body := bodies[min(len(all), len(bodies)-1)]
		all = append(all, r)
		if status/100 == 3 {
			w.Header().Set("Location", body)
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(web.Close)
	return web.URL, func() []*http.Request { mu.Lock(); defer mu.Unlock(); return all }
}

// The answers are those of https://platform.claude.com/docs/en/manage-claude/rate-limits-api.
func TestAnthropicsGroupsAndPages(t *testing.T) {
	address, asked := answers(t, 200,
		`{"data":[{"type":"rate_limit","group_type":"model_group","models":["claude-opus-4-5","claude-opus-4-5-20251101"],"limits":[
			{"type":"requests_per_minute","value":4000},{"type":"input_tokens_per_minute_cache_aware","value":10000000},{"type":"fast_otpm","value":7}]}],"next_page":"p/2 x"}`,
		`{"data":[{"type":"rate_limit","group_type":"batch","models":null,"limits":[{"type":"enqueued_batch_requests","value":500000}]},
			{"type":"rate_limit","group_type":"model_group","models":["claude-haiku-4-5"],"limits":[{"type":"output_tokens_per_minute","value":0},{"type":"requests_per_minute","value":-1}]}],"next_page":null}`)
	found, err := limitsAPI(t, "anthropic", address).Read(t.Context(), http.DefaultTransport, adminKey, "")
	if err != nil {
		t.Fatal(err)
	}
	want := []provider.LimitGroup{
		{Name: "claude-opus-4-5", Models: []string{"claude-opus-4-5", "claude-opus-4-5-20251101"}, Other: map[string]float64{"fast_otpm": 7}, Limits: []limits.Limit{
			{Dimension: limits.Requests, Value: 4000, Source: limits.SourcePublished, At: found.At, Confidence: 1},
			{Dimension: limits.InputTokens, Value: 10_000_000, Source: limits.SourcePublished, At: found.At, Confidence: 1}}},
		{Name: "batch", Other: map[string]float64{"enqueued_batch_requests": 500_000}},
		{Name: "claude-haiku-4-5", Models: []string{"claude-haiku-4-5"}},
	}
	if !reflect.DeepEqual(found.Groups, want) {
		t.Errorf("%+v", found.Groups)
	}
	requests := asked()
	if len(requests) != 2 || requests[1].URL.Query().Get("page") != "p/2 x" {
		t.Fatalf("%d requests, %v", len(requests), requests[len(requests)-1].URL)
	}
	for _, r := range requests {
		if r.Method != http.MethodGet || r.URL.Path != "/v1/organizations/rate_limits" || r.Header.Get("X-Api-Key") != adminKey || r.Header.Get("Anthropic-Version") == "" {
			t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		}
	}
}

func TestOpenAIsProjects(t *testing.T) {
	const rows = `{"object":"list","data":[{"object":"project.rate_limit","id":"rl-1","model":"gpt-4o","max_requests_per_1_minute":500,
		"max_tokens_per_1_minute":30000,"max_images_per_1_minute":10,"created_at":1711471533},{"id":"rl-2","model":"","max_requests_per_1_minute":1}],"has_more":false}`
	address, asked := answers(t, 200, `{"object":"list","data":[{"id":"proj_a"}],"has_more":false}`, rows)
	found, err := limitsAPI(t, "openai", address).Read(t.Context(), http.DefaultTransport, adminKey, "")
	if err != nil || len(found.Groups) != 1 || found.ByModel()["gpt-4o"] != (sluice.Limits{RPM: 500, TPM: 30_000}) ||
		!reflect.DeepEqual(found.Groups[0].Other, map[string]float64{"max_images_per_1_minute": 10}) {
		t.Errorf("%+v, %v", found, err)
	}
	if r := asked(); len(r) != 2 || r[1].URL.Path != "/v1/organization/projects/proj_a/rate_limits" || r[1].Header.Get("Authorization") != "Bearer "+adminKey {
		t.Errorf("%v", r)
	}
	for _, projects := range []string{`{"data":[{"id":"proj_a"},{"id":"proj_b"}]}`, `{"data":[]}`, `{"data":[{"id":"../x"}]}`} {
		address, _ := answers(t, 200, projects, rows)
		if _, err := limitsAPI(t, "openai", address).Read(t.Context(), http.DefaultTransport, adminKey, ""); err == nil || !strings.Contains(err.Error(), "OPENAI_PROJECT_ID") {
			t.Errorf("%s: %v", projects, err)
		}
	}
}

// Whatever goes wrong is an error, which does not hold the key.
func TestLimitsThatCannotBeRead(t *testing.T) {
	elsewhere, asked := answers(t, 200, `{"data":[]}`)
	quoted := `{"error":{"message":"key ` + adminKey + ` is unknown"}}`
	for _, test := range []struct {
		status int
		body   string
		kind   sluice.Kind
	}{
		{401, quoted, sluice.Auth}, {403, quoted, sluice.Rejected}, {404, quoted, sluice.BadRequest}, {500, quoted, sluice.ServerError},
		{302, elsewhere, 0}, {200, quoted, 0}, {200, `{"data":{}}`, 0}, {200, `<html>` + adminKey, 0}, {200, "", 0}, {200, `{"data":[{"limits":7}]}`, 0},
		{200, `{"data":[],"next_page":"again"}`, 0}, {200, `{"data":[],"has_more":true,"last_id":"again"}`, 0},
	} {
		address, _ := answers(t, test.status, test.body)
		for name, part := range map[string]string{"anthropic": "", "openai": "proj_a"} {
			found, err := limitsAPI(t, name, address).Read(t.Context(), http.DefaultTransport, adminKey, part)
			if name == "openai" && strings.Contains(test.body, "limits") {
				continue // that is a row of a model without a name
			}
			if err == nil || found != nil || strings.Contains(err.Error(), adminKey[9:]) {
				t.Errorf("%s %d %.60s: %v", name, test.status, test.body, err)
			}
			if failed, ok := errors.AsType[*sluice.CallError](err); test.kind != 0 && (!ok || failed.Kind != test.kind) {
				t.Errorf("%s %d: %v", name, test.status, err)
			}
		}
	}
	if n := len(asked()); n != 0 {
		t.Errorf("%d requests were made at another address", n)
	}
	for _, part := range []string{"..", "a/b", "a?b", " "} {
		if _, err := limitsAPI(t, "openai", elsewhere).Read(t.Context(), http.DefaultTransport, adminKey, part); err == nil || len(asked()) != 0 {
			t.Errorf("%q: %v", part, err)
		}
	}
}

func TestAdminKeysGoToTheProviderOnly(t *testing.T) {
	openai, _ := provider.Lookup("openai")
	moved := openai
	moved.BaseURL = "https://proxy.example/v1"
	groq, _ := provider.Lookup("groq")
	for _, test := range []struct {
		p    provider.Provider
		base string
		ok   bool
	}{
		{openai, "", true}, {openai, "https://api.openai.com/v1", true}, {openai, "http://127.0.0.1:8080/v1", true}, {openai, "http://[::1]:1/v1", true},
		{openai, "http://localhost:8080/v1", true}, {openai, "http://api.openai.com/v1", false}, {openai, "https://api.open/v1", false},
		{openai, "https://api.openai.com.example/v1", false}, {openai, "https://proxy.example/v1", false}, {openai, "http://10.0.0.1/v1", false},
		{openai, "https://", false}, {moved, "", false}, {groq, "", false}, {provider.Provider{}, "http://127.0.0.1/v1", false},
	} {
		if _, err := provider.LimitsAPIOf(test.p, test.base); (err == nil) != test.ok {
			t.Errorf("%s at %q: %v", test.p.Name, test.base, err)
		}
	}
	env := provider.WithoutAdminKeys([]string{"A=1", "OPENAI_ADMIN_KEY=x", "OPENAI_API_KEY=y", "anthropic_admin_key=z"})
	if !reflect.DeepEqual(env, []string{"A=1", "OPENAI_API_KEY=y"}) {
		t.Error(env)
	}
}

func TestAModelOfSeveralGroupsHasTheLowestLimits(t *testing.T) {
	address, _ := answers(t, 200, `{"data":[
		{"type":"rate_limit","group_type":"model_group","models":["m"],"limits":[{"type":"requests_per_minute","value":50}]},
		{"type":"rate_limit","group_type":"model_group","models":["m","n"],"limits":[{"type":"requests_per_minute","value":60},{"type":"output_tokens_per_minute","value":9}]},
		{"type":"rate_limit","group_type":"batch","models":["m"],"limits":[{"type":"requests_per_minute","value":7}]}],"next_page":null}`)
	found, err := limitsAPI(t, "anthropic", address).Read(t.Context(), http.DefaultTransport, adminKey, "")
	if err != nil {
		t.Fatal(err)
	}
	all := found.ByModel()
	if all["m"] != (sluice.Limits{RPM: 50, OTPM: 9}) || all["n"] != (sluice.Limits{RPM: 60, OTPM: 9}) {
		t.Errorf("%+v", all)
	}
}
