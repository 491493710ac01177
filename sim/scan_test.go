package sim_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/sim"
)

// FuzzBody compares what the server takes for JSON with what encoding/json
// does.
func FuzzBody(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"hi \u00e9 \\ \" é"}],"n":2,"stream":false,"max_tokens":null}`,
		`{"a":[1,-0.5e+7,true,null,[],{}],"messages":[],"input":[1,2]}`, `{"a":01}`, `{"a":"` + "\t" + `"}`, ` {} `, `{"a":1,}`, `{,}`, `[1]`, `{"a":"\x"}`, `{"messages":`, "{\"\xff\":\"\xff\"}",
		`{"model":3,"stream_options":{"include_usage":true},"stream_options":7}`,
	} {
		f.Add(body)
	}
	s := serve(f, quick(sim.Config{}))
	f.Fuzz(func(t *testing.T, body string) {
		want := json.Valid([]byte(body)) && strings.HasPrefix(strings.TrimLeft(body, " \t\r\n"), "{")
		r := send(context.Background(), s, chatPath, body)
		if got := !strings.HasPrefix(r.message(), "We could not parse"); got != want {
			t.Errorf("%q is JSON: %v, want %v", body, got, want)
		}
	})
}
