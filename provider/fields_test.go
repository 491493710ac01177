package provider_test

import (
	"testing"

	"github.com/sluice-llm/sluice/provider"
)

func TestFieldsAreTheEndpointsOwn(t *testing.T) {
	for _, e := range provider.Endpoints() {
		if e != provider.BatchEmbedContents && !e.HasField("model") {
			t.Errorf("%s has no model", e)
		}
		for _, name := range []string{"", "Model", "models", "fallback_models", "extra_body", "engine", "route", "provider", "plugins", "preset", "deployment_id"} {
			if e.HasField(name) {
				t.Errorf("%s has %q", e, name)
			}
		}
	}
	for name, has := range map[string]map[provider.Endpoint]bool{
		"messages":          {provider.ChatCompletions: true, provider.Messages: true, provider.Responses: false, provider.Embeddings: false},
		"input":             {provider.Responses: true, provider.Embeddings: true, provider.ChatCompletions: false},
		"fallbacks":         {provider.Messages: true, provider.ChatCompletions: false},
		"generationConfig":  {provider.GenerateContent: true, provider.StreamGenerateContent: true, provider.EmbedContent: false, provider.ChatCompletions: false},
		"generation_config": {provider.GenerateContent: true, provider.EmbedContent: false, provider.ChatCompletions: false},
		"requests":          {provider.BatchEmbedContents: true, provider.EmbedContent: false},
	} {
		for e, want := range has {
			if e.HasField(name) != want {
				t.Errorf("%s has %s: %v", e, name, !want)
			}
		}
	}
}
