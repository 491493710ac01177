package provider

import "github.com/sluice-llm/sluice/internal/jsonscan"

// WithModel replaces the model in a request body, and keeps all other fields. A body without a model, such as a Gemini request body, is
// returned unchanged.
func WithModel(body []byte, model string) []byte {
	var out []byte
	copied := 0
	s := jsonscan.New(body)
	for s.Enter('{'); s.Next('}'); {
		key := s.Key()
		start := s.Offset()
		s.Skip()
		if string(jsonscan.Name(key)) != "model" {
			continue
		}
		out = append(out, body[copied:start]...)
		out = jsonscan.AppendString(out, model)
		copied = s.Offset()
	}
	if copied == 0 || s.Bad() {
		return body
	}
	return append(out, body[copied:]...)
}
