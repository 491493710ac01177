package errtext_test

import (
	"encoding/json"
	"testing"

	"github.com/sluice-llm/sluice/internal/errtext"
)

func FuzzLiteral(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `{'error': {'code': None, 'n': [1, 2, True]}}`, `{ message: 'x', type: undefined }`, `[{"a":{`, `{"a`, `{{{{`, `{"\u00e9\ud800":"\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, ok, _ := errtext.Literal(s)
		if !ok {
			return
		}
		if _, err := json.Marshal(v); err != nil {
			t.Errorf("%q: %v", s, err)
		}
		// What is JSON reads as JSON does, numbers aside.
		var want map[string]any
		if got, isMap := v.(map[string]any); isMap && json.Unmarshal([]byte(s), &want) == nil && len(got) > len(want) {
			t.Errorf("%q: %d members, want %d", s, len(got), len(want))
		}
	})
}
