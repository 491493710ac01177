package provider

import "strings"

// Has reports whether the provider may have an endpoint. OpenAI, Anthropic and Gemini have only their own; a server that
// is compatible with OpenAI's may have others besides.
func (p Provider) Has(e Endpoint) bool {
	return e.Dialect() == p.Dialect || p.Dialect == OpenAI && p.Name != "openai"
}

// PromptEndpoint returns the endpoint for a bare prompt to a model, which is for embeddings if its name says so.
func (p Provider) PromptEndpoint(model string) Endpoint {
	embeds := strings.Contains(strings.ToLower(model), "embed")
	switch {
	case p.Dialect == Anthropic:
		return Messages
	case p.Dialect == Gemini && embeds:
		return EmbedContent
	case p.Dialect == Gemini:
		return GenerateContent
	case embeds:
		return Embeddings
	}
	return ChatCompletions
}

// Bound returns the member of a body that bounds the length of the answer, "" if it has none; a dot goes into an object.
// otherwise is the bound to send when nobody says one, because the provider demands one; 0 is to send none.
//
// OpenAI's newer models refuse max_tokens, and other servers do not know its new name
// (https://platform.openai.com/docs/api-reference/chat/create).
func (p Provider) Bound(e Endpoint) (member string, otherwise int) {
	switch {
	case e.Embeds():
		return "", 0
	case e == Messages:
		return "max_tokens", 4096
	case e == Responses:
		return "max_output_tokens", 0
	case e.Dialect() == Gemini:
		return "generationConfig.maxOutputTokens", 0
	case p.Name == "openai":
		return "max_completion_tokens", 0
	}
	return "max_tokens", 0
}
