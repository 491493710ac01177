package provider_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/provider"
)

func TestAStreamIsAskedForItsUsage(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"m","stream":true}`:                                                  `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`,
		`{"model":"m","stream_options":null,"stream":true}`:                            `{"model":"m","stream_options":{"include_usage":true},"stream":true}`,
		`{"stream_options":{},"model":"m"}`:                                            `{"stream_options":{"include_usage":true},"model":"m"}`,
		`{"model":"m","stream_options":{"include_usage":false}} `:                      `{"model":"m","stream_options":{"include_usage":true}} `,
		`{"model":"m","stream_options": {"a\"b" : [1, {"x":2}],"include_usage":null}}`: `{"model":"m","stream_options": {"a\"b" : [1, {"x":2}],"include_usage":true}}`,
		`{"model":"m","stream_options":{"include_usage":true}}`:                        `{"model":"m","stream_options":{"include_usage":true}}`,
		`{"model":"m","stream_options":7}`:                                             `{"model":"m","stream_options":7}`,
		`{}`:                                                                           `{}`,
		`{"model":"m"`:                                                                 `{"model":"m"`,
	} {
		if diff := cmp.Diff(want, string(provider.WithUsage([]byte(body)))); diff != "" {
			t.Errorf("%s:\n%s", body, diff)
		}
	}
}

// FuzzWithUsage checks that a body stays one JSON object with what it said.
func FuzzWithUsage(f *testing.F) {
	for _, body := range []string{`{"model":"m"}`, `{"stream_options":{"include_usage":null,"x":1},"a":2}`, `{"a":1,"stream_options":null,"a":2}`, `{`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var was, is map[string]any
		if json.Unmarshal(body, &was) != nil || len(was) == 0 {
			return
		}
		if err := json.Unmarshal(provider.WithUsage(body), &is); err != nil {
			t.Fatalf("%s: %v", provider.WithUsage(body), err)
		}
		if options, ok := is["stream_options"].(map[string]any); ok && options["include_usage"] == nil {
			t.Errorf("no usage is asked for: %v", is)
		}
		delete(was, "stream_options")
		delete(is, "stream_options")
		if diff := cmp.Diff(was, is); diff != "" {
			t.Error(diff)
		}
	})
}
