package examples_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/sluice-llm/sluice/provider"
)

// A gateway refuses fields that it does not know of tenants that are bound to models: those of the official SDKs it has to know.
func TestTheFieldsOfTheOfficialSDKsAreKnown(t *testing.T) {
	for _, c := range []struct {
		endpoint provider.Endpoint
		params   any
	}{
		{provider.ChatCompletions, openai.ChatCompletionNewParams{}}, {provider.Responses, responses.ResponseNewParams{}},
		{provider.Embeddings, openai.EmbeddingNewParams{}},
		{provider.Messages, anthropic.MessageNewParams{}}, {provider.Messages, anthropic.BetaMessageNewParams{}},
		{provider.Messages, anthropic.MessageCountTokensParams{}}, {provider.Messages, anthropic.BetaMessageCountTokensParams{}},
	} {
		kind := reflect.TypeOf(c.params)
		seen := 0
		for i := range kind.NumField() {
			name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
			if name == "" || name == "-" {
				continue
			}
			if seen++; !c.endpoint.HasField(name) {
				t.Errorf("%s: %s of %s is not known", c.endpoint, name, kind)
			}
		}
		if seen == 0 {
			t.Errorf("%s has no fields", kind)
		}
	}
}
