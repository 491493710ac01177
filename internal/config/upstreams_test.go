package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/limits"
)

func TestUpstreamsAreRead(t *testing.T) {
	f, err := config.Parse("x", []byte(`
providers: [{name: house, base_url: http://10.0.0.7:8000/v1}]
upstreams:
  - provider: OpenAI
    models: [gpt-4o, gpt-4o-mini]
    key_env: MY_KEY
  - provider: openai
    account: acme
    models:
      small: gpt-4o-mini
    key_env: [KEY_1, KEY_2]
    limits: {rpm: 500}
    price: 2.5/10
  - {name: own, provider: house, models: {gpt-4o: llama}}
  - provider: anthropic
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []config.Upstream{
		{Name: "openai", Provider: "openai", Models: config.Models{"gpt-4o": "gpt-4o", "gpt-4o-mini": "gpt-4o-mini"}, KeyEnv: config.Names{"MY_KEY"}},
		{Name: "openai-2", Provider: "openai", Account: "acme", Models: config.Models{"small": "gpt-4o-mini"}, KeyEnv: config.Names{"KEY_1", "KEY_2"},
			Limits: &config.Limits{Each: limits.Each[*config.Limit]{RPM: &config.Limit{Value: 500, Source: limits.SourceConfigured}}}, Price: "2.5/10"},
		{Name: "own", Provider: "house", Models: config.Models{"gpt-4o": "llama"}},
		{Name: "anthropic", Provider: "anthropic"},
	}
	if diff := cmp.Diff(want, f.Upstreams); diff != "" {
		t.Error(diff)
	}
}

func TestWrongUpstreamsAreNamedByLineAndField(t *testing.T) {
	for text, want := range map[string]string{
		"- {name: a}":                                                     "x:2: upstreams[0].provider: is missing: use one of openai,",
		"- {provider: opnai}":                                             `x:2: upstreams[0].provider: unknown provider "opnai" (did you mean openai?)`,
		"- provider: openai\n  base_url: ftp://a":                         "x:3: upstreams[0].base_url: this is not an http or https URL",
		"- provider: openai\n  base_url: https://u:p@a/v1":                "x:3: this looks like an API key",
		"- provider: azure\n  models: [a]":                                "x:2: upstreams[0].base_url: provider azure-openai has no default address",
		"- provider: openrouter":                                          "x:2: upstreams[0].models: the models of openrouter are unknown",
		"- provider: openai\n  models: []":                                "x:3: upstreams[0].models: the list is empty",
		"- provider: openai\n  models: 7":                                 "x:3: upstreams[0].models: want models, as {requested name: name at the upstream} or a list",
		"- provider: openai\n  models: {a: ''}":                           "x:3: upstreams[0].models: a model has no name",
		"- provider: openai\n  key_env: not-a-variable":                   "x:3: upstreams[0].key_env: the value is not the name of an environment variable",
		"- provider: openai\n  name: a b":                                 "x:3: upstreams[0].name: want letters",
		"- provider: openai\n  nmae: a":                                   `x:3: unknown field "nmae" (did you mean name?)`,
		"- {provider: openai, name: a}\n- {provider: openai, name: a}":    "x:3: upstreams[1].name: another upstream is named a",
		"- provider: openai\n  limits: {rpm: 0}":                          "x:3: upstreams[0].limits.rpm: 0 is not a whole number",
		"- provider: openai\n  limits: {rpm: 5, model: a}":                "x:3: upstreams[0].limits: the limits of an upstream apply to its account",
		"- provider: openai\n  price: 1":                                  "x:3: upstreams[0].price: want two prices in USD",
		"- provider: openai\n  price: -1/1":                               "x:3: upstreams[0].price: want two prices",
		"- {provider: openai, account: a}\n- {provider: xai, account: a}": "x:3: upstreams[1].account: account a belongs to openai",
		"- {provider: openai, account: a, limits: {rpm: 1}}\n- {provider: openai, account: a, limits: {rpm: 1}}": "x:3: upstreams[1].limits: upstream openai already sets",
		"- provider: sim":                "x:2: upstreams[0].provider: sim is not an upstream",
		"- provider: openai\n  key: abc": `x:3: unknown field "key"`,
	} {
		_, err := config.Parse("x", []byte("upstreams:\n"+text))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}
