package provider_test

import (
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

func TestOldModelsOfOpenAIComplete(t *testing.T) {
	for model, want := range map[string]provider.Endpoint{
		"gpt-3.5-turbo-instruct": provider.Completions, "gpt-3.5-turbo-instruct-0914": provider.Completions,
		"davinci-002": provider.Completions, "babbage-002": provider.Completions, "text-davinci-003": provider.Completions,
		"ada": provider.Completions, "curie": provider.Completions,
		"gpt-3.5-turbo": provider.ChatCompletions, "gpt-4o": provider.ChatCompletions, "text-embedding-ada-002": provider.Embeddings,
	} {
		p, ok := provider.Published().Recognise(model)
		if !ok || p.Name != "openai" || p.PromptEndpoint(model) != want {
			t.Errorf("%s is of %s, with %s", model, p.Name, p.PromptEndpoint(model))
		}
	}
	p := lookup(t, "openai")
	if bound, _ := p.Bound(provider.Completions); bound != "max_tokens" {
		t.Errorf("the bound of a completion is %s", bound)
	}
	if got := string(provider.AppendPrompt(nil, provider.Completions, "m", []byte(`"hi"`), []byte(`"be kind"`))); got != `{"model":"m","prompt":"be kind\n\nhi"` {
		t.Errorf("body %s", got)
	}
	const stream = "data: {\"choices\":[{\"index\":0,\"text\":\"he\"}]}\n\ndata: {\"choices\":[{\"index\":0,\"text\":\"llo\",\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	for body, kind := range map[string]string{`{"choices":[{"text":"hello","finish_reason":"stop"}]}`: "application/json", stream: "text/event-stream"} {
		a, o := exchange(t, t.Context(), replies(200, body, "content-type", kind), provider.ExchangeConfig{Endpoint: provider.Completions, Stream: kind != "application/json"})
		if all := provider.Replies(a.Body); o.Kind != sluice.OK || len(all) != 1 || all[0].Text != "hello" || !strings.EqualFold(a.FinishReason, "stop") {
			t.Errorf("%s: %v %s", kind, o.Err, a.Body)
		}
	}
}
