package provider_test

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

func TestEveryPublishedFactHasASourceAndADate(t *testing.T) {
	r := provider.Published()
	date := regexp.MustCompile(`^20\d\d(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?$`)
	check := func(what, source, at string) {
		if u, err := url.Parse(source); err != nil || u.Scheme != "https" || u.Host == "" {
			t.Errorf("%s: source %q is no address", what, source)
		}
		if !date.MatchString(at) {
			t.Errorf("%s: date %q", what, at)
		}
	}
	for _, p := range r.All() {
		check(p.Name, p.Source, p.Date)
	}
	for _, tier := range r.Tiers("") {
		check(tier.Provider+" "+tier.Tier, tier.Source, tier.Date)
		if tier.Limits == (sluice.Limits{}) {
			t.Errorf("%s %s limits nothing", tier.Provider, tier.Tier)
		}
		official := strings.Contains(tier.Source, "docs.") || strings.Contains(tier.Source, "OpenRouterTeam") || strings.Contains(tier.Source, "cohere-ai/")
		if !official && !tier.Doubtful {
			t.Errorf("%s %s is of %s and not doubtful", tier.Provider, tier.Tier, tier.Source)
		}
	}
}

func TestEveryProviderCanBeCalledOrSaysWhatItLacks(t *testing.T) {
	for _, p := range provider.Published().All() {
		if (p.BaseURL == "") == (p.BaseForm == "") {
			t.Errorf("%s: either an address or its form: %q, %q", p.Name, p.BaseURL, p.BaseForm)
		}
		if strings.ContainsAny(p.BaseURL, "{}?") {
			t.Errorf("%s: %q", p.Name, p.BaseURL)
		}
		if len(p.KeyEnv) == 0 && !p.KeyOptional {
			t.Errorf("%s needs a key and knows no variable", p.Name)
		}
	}
}

func TestAliasesLeadToTheirProvider(t *testing.T) {
	for _, p := range provider.Published().All() {
		for _, alias := range p.Aliases {
			if got, ok := provider.Lookup(alias); !ok || got.Name != p.Name {
				t.Errorf("%s is %s, want %s", alias, got.Name, p.Name)
			}
		}
	}
	for name, want := range map[string]string{
		"azure": "azure-openai", "Azure_OpenAI": "azure-openai", "google": "gemini", "x-ai": "xai", "X.AI": "xai",
		"self-hosted": "vllm", "OpenAI": "openai", "together ai": "together", "openai_compatible": "openai-compatible",
	} {
		if got, ok := provider.Lookup(name); !ok || got.Name != want {
			t.Errorf("%s is %q, want %s", name, got.Name, want)
		}
	}
	for _, name := range []string{"", "-", "open ai inc"} {
		if got, ok := provider.Lookup(name); ok {
			t.Errorf("%q is %s", name, got.Name)
		}
	}
}

func TestWhatIsReturnedIsTheCallersOwn(t *testing.T) {
	r := provider.Published()
	want := r.All()
	tiers := r.Tiers("")
	p, _ := r.Lookup("azure")
	p.KeyEnv[0], p.UntrustedWaits[0].Wait, p.Aliases[0] = "X", 1, "x"
	g, _ := r.Recognise("groq/compound")
	g.Headers[0].Limit, g.Models[0] = "X", "x"
	m, _ := r.Lookup("mistral")
	m.Codes["1300"] = sluice.Auth
	for _, tier := range r.Tiers("deepseek") {
		*tier.PriceIn, *tier.PriceOut, tier.Models[0] = -1, -1, "x"
	}
	if tier, err := r.Find("deepseek", "all", "deepseek-v4-pro"); err != nil || *tier.PriceIn != 1.32 || *tier.PriceOut != 3.96 {
		t.Errorf("%+v %v", tier, err)
	}
	if diff := cmp.Diff(want, r.All()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(tiers, r.Tiers("")); diff != "" {
		t.Error(diff)
	}
}

func TestTiersAreFoundByNameAndModel(t *testing.T) {
	cases := []struct {
		provider, tier, model string
		want                  sluice.Limits
		err                   string
	}{
		{"openai", "tier1", "gpt-4o", sluice.Limits{RPM: 500, TPM: 30000}, ""},
		{"openai", "Tier 1", "gpt-4o-2024-08-06", sluice.Limits{RPM: 500, TPM: 30000}, ""},
		{"openai", "tier1", "gpt-4", sluice.Limits{TPM: 10000}, ""},
		{"openai", "tier1", "gpt-4o-mini-realtime-preview", sluice.Limits{RPD: 1000}, ""},
		{"openai", "tier1", "gpt-4o-mini", sluice.Limits{}, `no limits for model "gpt-4o-mini": use one of gpt-4o, gpt-4.1, gpt-4`},
		{"openai", "tier1", "", sluice.Limits{}, "differ by model: name one of the models (gpt-4o"},
		{"openai", "", "gpt-4o", sluice.Limits{}, "has no tier"},
		{"openai", "teir1", "gpt-4o", sluice.Limits{}, "did you mean tier1?"},
		{"openai", "tier9", "gpt-4o", sluice.Limits{}, "use one of free, tier1, survey-2025"},
		{"opnai", "tier1", "gpt-4o", sluice.Limits{}, "did you mean openai?"},
		{"mistral", "free", "", sluice.Limits{}, "no limits are published for mistral"},
		{"anthropic", "start", "claude-opus-4-8", sluice.Limits{RPM: 1000, ITPM: 2000000, OTPM: 400000}, ""},
		{"anthropic", "start", "claude-3-5-haiku-20241022", sluice.Limits{RPM: 1000, ITPM: 100000, OTPM: 20000}, ""},
		{"claude", "tier1", "claude-opus-4-1", sluice.Limits{RPM: 50, ITPM: 30000, OTPM: 8000}, ""},
		{"anthropic", "survey-2025", "", sluice.Limits{RPM: 50, TPM: 40000, Concurrency: 5}, ""},
		{"groq", "free", "openai/gpt-oss-20b", sluice.Limits{RPM: 30, RPD: 1000}, ""},
		{"deepseek", "all", "deepseek-v4-pro", sluice.Limits{Concurrency: 500}, ""},
	}
	for _, c := range cases {
		got, err := provider.Published().Find(c.provider, c.tier, c.model)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s %s %s: %v, want %s", c.provider, c.tier, c.model, err, c.err)
			}
			continue
		}
		if err != nil || got.Limits != c.want {
			t.Errorf("%s %s %s: %+v, %v", c.provider, c.tier, c.model, got.Limits, err)
		}
	}
}

func TestTypingErrorsAreUnderstood(t *testing.T) {
	for name, want := range map[string]string{
		"opnai": "openai", "opeani": "openai", "antropic": "anthropic", "azur": "azure-openai", "gogle": "gemini",
		"groc": "groq", "mistrall": "mistral", "fireworsk": "fireworks", "deepsek": "deepseek", "vlm": "vllm",
		"openr": "openrouter", "xia": "xai",
	} {
		if got := provider.Published().Suggest(name); len(got) == 0 || got[0] != want {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
	for _, name := range []string{"", "zzzzzz", "q", strings.Repeat("openai", 100)} {
		if got := provider.Published().Suggest(name); len(got) > 0 {
			t.Errorf("%q: %v", name, got)
		}
	}
	for model, want := range map[string]string{"gtp-4o": "gpt-", "cluade-3": "claude", "gemni-2.5-pro": "gemini-"} {
		if got := provider.Published().SuggestModel(model); !slices.Contains(got, want) {
			t.Errorf("%s: %v, want %s", model, got, want)
		}
	}
	for _, model := range []string{"", "g", "llama-3", "qwen", "my-model"} {
		if got := provider.Published().SuggestModel(model); len(got) > 0 {
			t.Errorf("%q: %v", model, got)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func TestRowsOfOnesOwnChangeOnlyWhatTheyName(t *testing.T) {
	before := provider.Published()
	r, err := before.With(
		provider.Row{Name: "azure", Query: ptr(""), BaseURL: ptr("https://me.openai.azure.com/openai/v1")},
		provider.Row{Name: "OpenAI", Tiers: []provider.TierRow{
			{Tier: "tier1", Models: []string{"gpt-5.4"}, Each: limits.Each[*provider.Count]{RPM: ptr(provider.Count(7))}},
			{Tier: "tier1", Models: []string{"gpt-4o-mini-realtime"}, Each: limits.Each[*provider.Count]{RPM: ptr(provider.Count(9))}},
			{Tier: "tier1", Models: []string{"gpt-4o-2024"}, Each: limits.Each[*provider.Count]{RPM: ptr(provider.Count(11))}},
		}},
		provider.Row{Name: "xai", Models: []string{"my-grok"}},
		provider.Row{Name: "house", Aliases: []string{"mine"}, BaseURL: ptr("http://10.0.0.1:8000/v1"), Models: []string{"gpt-oss", "house-"},
			Codes: map[string]string{"credit_limit": "rate_limit"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := before.Lookup("azure")
	want.Query, want.BaseURL = "", "https://me.openai.azure.com/openai/v1"
	got, _ := r.Lookup("azure-openai")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if p, ok := r.Lookup("mine"); !ok || p.Name != "house" || p.Auth.Prefix != "Bearer " || !p.CountsCached || p.Codes["creditlimit"] != sluice.RateLimit {
		t.Errorf("%+v", p)
	}
	if p, _ := r.Recognise("gpt-oss-120b"); p.Name != "house" {
		t.Errorf("models of one's own come first: %q", p.Name)
	}
	for model, want := range map[string]string{"gpt-4o": "openai", "my-grok-4": "xai", "grok-4": ""} { // models of a row replace those before
		if p, _ := r.Recognise(model); p.Name != want {
			t.Errorf("%s is of %q, want %q", model, p.Name, want)
		}
	}
	if tier, err := r.Find("openai", "tier1", "gpt-5.4"); err != nil || tier.Limits.RPM != 7 {
		t.Errorf("%+v %v", tier, err)
	}
	if tier, err := r.Find("openai", "tier1", "gpt-4o-mini-realtime"); err != nil || tier.Limits != (sluice.Limits{RPM: 9, RPD: 1000}) || tier.Source == "" {
		t.Errorf("%+v %v", tier, err)
	}
	if tier, err := r.Find("openai", "tier1", "gpt-4o-2024-08-06"); err != nil || tier.Limits.RPM != 11 {
		t.Errorf("a tier of one's own is found first: %+v %v", tier, err)
	}
	if p, _ := before.Recognise("gpt-oss-120b"); p.Name != "" || len(before.Names()) == len(r.Names()) {
		t.Error("the published registry was changed")
	}
}

func TestWrongRowsAreNamed(t *testing.T) {
	cases := map[string]provider.Row{
		"name":                        {},
		"aliases[0]":                  {Name: "x", Aliases: []string{"google"}},
		"base_url":                    {Name: "x", BaseURL: ptr("ftp://x")},
		"key_env[0]":                  {Name: "x", KeyEnv: []string{"sk-abc"}},
		"dialect":                     {Name: "x", Dialect: "french"},
		"charge":                      {Name: "x", Charge: "double"},
		"chat_bound":                  {Name: "x", ChatBound: "length"},
		"headers[0].dimension":        {Name: "x", Headers: []provider.HeaderRow{{Dimension: "rps", Limit: "A", Remaining: "B"}}},
		"headers[0]":                  {Name: "x", Headers: []provider.HeaderRow{{Dimension: "rpm", Limit: "A"}}},
		"codes":                       {Name: "x", Codes: map[string]string{"a": "slow"}},
		"untrusted_waits[0].probe":    {Name: "x", UntrustedWaits: []provider.UntrustedWaitRow{{Wait: "1h"}}},
		"batches.api":                 {Name: "x", Batches: &provider.BatchesRow{Requests: ptr(provider.Count(5))}},
		"batches.requests":            {Name: "x", Batches: &provider.BatchesRow{API: ptr("openai"), Requests: ptr(provider.Count(0))}},
		"batches.bytes":               {Name: "openai", Batches: &provider.BatchesRow{Bytes: ptr(provider.Count(-1))}},
		"batches.window":              {Name: "openai", Batches: &provider.BatchesRow{Window: "a day"}},
		"batches.price":               {Name: "openai", Batches: &provider.BatchesRow{Price: ptr(1.5)}},
		"models[0]":                   {Name: "x", Models: []string{"!"}},
		"tiers[0].tier":               {Name: "x", Tiers: []provider.TierRow{{}}},
		"tiers[1].rpm":                {Name: "x", Tiers: []provider.TierRow{{Tier: "a"}, {Tier: "b", Each: limits.Each[*provider.Count]{RPM: ptr(provider.Count(0))}}}},
		"tiers[0].price":              {Name: "x", Tiers: []provider.TierRow{{Tier: "a", Price: "-1/2"}}},
		"tiers[0].latency":            {Name: "x", Tiers: []provider.TierRow{{Tier: "a", Latency: "0s"}}},
		"tiers[0].models[0]":          {Name: "x", Tiers: []provider.TierRow{{Tier: "a", Models: []string{""}}}},
		"tiers[0].tokens_per_request": {Name: "x", Tiers: []provider.TierRow{{Tier: "a", TokensPerRequest: ptr(provider.Count(-5))}}},
	}
	for field, row := range cases {
		_, err := provider.Published().With(provider.Row{Name: "fine"}, row)
		wrong, ok := err.(*provider.RowError)
		if !ok || wrong.Field != field || wrong.Row != 1 {
			t.Errorf("%s: %v", field, err)
		}
		if err != nil && strings.Contains(err.Error(), "sk-abc") {
			t.Errorf("%v quotes a key", err)
		}
	}
}

// A row changes of a Batch API what it names, and an api of "" says that there is none.
func TestARowChangesABatchAPI(t *testing.T) {
	batches := func(name string, row provider.BatchesRow) provider.BatchAPI {
		r, err := provider.Published().With(provider.Row{Name: name, Batches: &row})
		if err != nil {
			t.Fatal(err)
		}
		p, _ := r.Lookup(name)
		return p.Batches
	}
	want, _ := provider.Lookup("openai")
	if b := want.Batches; b.API != "openai" || b.Requests != 50_000 || b.Bytes != 200e6 || b.Window != 24*time.Hour || b.Price != 0.5 {
		t.Errorf("openai's published Batch API is %+v", b)
	}
	want.Batches.PerHour = 7
	if got := batches("openai", provider.BatchesRow{PerHour: ptr(provider.Count(7))}); got != want.Batches {
		t.Errorf("got %+v, want %+v", got, want.Batches)
	}
	if got := batches("openai", provider.BatchesRow{API: ptr("")}); got != (provider.BatchAPI{}) {
		t.Errorf("switched off, it is %+v", got)
	}
	own := provider.BatchesRow{API: ptr("gemini"), Bytes: ptr(provider.Count(10)), Window: "2h", Source: "https://x"}
	if got := batches("house", own); got != (provider.BatchAPI{API: "gemini", Bytes: 10, Window: 2 * time.Hour, Source: "https://x"}) {
		t.Errorf("one's own is %+v", got)
	}
}

// What no request can hold, or would silently be left out of it, is refused where it is written.
func TestRowsThatCannotBeSentAreRefused(t *testing.T) {
	header := func(name string) provider.Row { return provider.Row{Auth: &provider.Auth{Header: name}} }
	for name, tt := range map[string]struct {
		field string
		row   provider.Row
	}{
		"a header with a line":    {"auth.header", header("X-Key\r\nEvil: yes")},
		"a header with a space":   {"auth.header", header("X Key")},
		"a header with an umlaut": {"auth.header", header("Schl\u00fcssel")},
		"the host":                {"auth.header", header("host")},
		"the length":              {"auth.header", header("Content-Length")},
		"a prefix alone":          {"auth.header", provider.Row{Auth: &provider.Auth{Prefix: "Bearer "}}},
		"a prefix with a line":    {"auth.prefix", provider.Row{Auth: &provider.Auth{Header: "X-Key", Prefix: "a\nb"}}},
		"a query that is cut":     {"query", provider.Row{Query: ptr("a=1#b=2")}},
		"a query with a space":    {"query", provider.Row{Query: ptr("a=1 2")}},
		"an address that is cut":  {"base_url", provider.Row{BaseURL: ptr("http://a/v1#")}},
		"an address with a query": {"base_url", provider.Row{BaseURL: ptr("http://a/v1?")}},
	} {
		tt.row.Name = "x"
		_, err := provider.Published().With(tt.row)
		if wrong, ok := err.(*provider.RowError); !ok || wrong.Field != tt.field || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, auth := range []provider.Auth{{}, {Header: "x-house_key", Prefix: "Token "}} {
		if _, err := provider.Published().With(provider.Row{Name: "x", Auth: &auth, Query: ptr("api-version=1&a=%23")}); err != nil {
			t.Errorf("%v: %v", auth, err)
		}
	}
}

// A model is of at most the provider that its first fitting prefix names, whatever the case and the space around it.
func TestRecognitionFollowsTheOrderOfPrefixes(t *testing.T) {
	var prefixes, owners []string
	for _, p := range provider.Published().All() {
		for _, m := range p.Models {
			prefixes, owners = append(prefixes, m), append(owners, p.Name)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(prefixes)-1).Draw(t, "prefix")
		tail := rapid.SampledFrom([]string{"", "-mini", "-2025-01-01", ":free", "x", ".5", "neo", "oss"}).Draw(t, "tail")
		id := strings.TrimPrefix(prefixes[i], "!") + tail
		want := ""
		for k, p := range prefixes {
			text := strings.TrimPrefix(p, "!")
			rest, ok := strings.CutPrefix(id, text)
			if ok && (rest == "" || strings.HasSuffix(text, "-") || strings.ContainsAny(rest[:1], "-:@/_")) {
				if p == text {
					want = owners[k]
				}
				break
			}
		}
		for _, form := range []string{id, strings.ToUpper(id), " " + id + "\n"} {
			if p, ok := provider.Published().Recognise(form); p.Name != want || ok != (want != "") {
				t.Fatalf("%q is of %q, want %q", form, p.Name, want)
			}
		}
	})
}

func TestEndpointsAndBoundsAreThoseOfTheRow(t *testing.T) {
	r, err := provider.Published().With(
		provider.Row{Name: "proxy", ChatBound: "max_completion_tokens"},
		provider.Row{Name: "only", OneDialect: ptr(true)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, bound string
		messages    bool
	}{
		{"openai", "max_completion_tokens", false},
		{"openai-compatible", "max_tokens", true},
		{"proxy", "max_completion_tokens", true},
		{"only", "max_tokens", false},
		{"gemini", "max_tokens", false},
	} {
		p, ok := r.Lookup(c.name)
		bound, _ := p.Bound(provider.ChatCompletions)
		if !ok || bound != c.bound || p.Has(provider.Messages) != c.messages {
			t.Errorf("%s: bound %s, messages %t", c.name, bound, p.Has(provider.Messages))
		}
	}
}
