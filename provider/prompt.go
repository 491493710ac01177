package provider

import "github.com/sluice-llm/sluice/internal/jsonscan"

// AppendPrompt appends the body of a bare prompt, but for its closing brace, so that more members can follow. prompt and
// system are JSON strings; a system of nil is none, and so is any where the endpoint has no place for one but a member.
func AppendPrompt(b []byte, e Endpoint, model string, prompt, system []byte) []byte {
	switch e {
	case GenerateContent:
		b = append(b, `{"contents":[{"role":"user","parts":[{"text":`...)
		b = append(b, prompt...)
		return append(b, `}]}]`...)
	case EmbedContent:
		b = append(b, `{"content":{"parts":[{"text":`...)
		b = append(b, prompt...)
		return append(b, `}]}`...)
	}
	b = append(b, `{"model":`...)
	b = jsonscan.AppendString(b, model)
	if e == Embeddings {
		b = append(b, `,"input":`...)
		return append(b, prompt...)
	}
	if system != nil && e == Messages {
		b = append(b, `,"system":`...)
		b = append(b, system...)
	}
	b = append(b, `,"messages":[`...)
	if system != nil && e != Messages {
		b = append(b, `{"role":"system","content":`...)
		b = append(b, system...)
		b = append(b, `},`...)
	}
	b = append(b, `{"role":"user","content":`...)
	b = append(b, prompt...)
	return append(b, `}]`...)
}
