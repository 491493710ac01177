package provider

import "github.com/sluice-llm/sluice/internal/jsonscan"

// WithModel returns the body of a request with another model; what else it says stays as it is written. A body that names no
// model, as Gemini's, is returned as it is.
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
