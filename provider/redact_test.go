package provider_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// opaqueKey has no form that anybody would know, and characters that are escaped.
const opaqueKey = "ZQ7vKEY0123/aa+bb=x_<&9"

// spellings are ways in which a server may write a key into JSON.
var spellings = map[string]func(key string) string{
	"JSON":        func(key string) string { b, _ := json.Marshal(key); return strings.Trim(string(b), `"`) },
	"JSON of PHP": func(key string) string { return strings.ReplaceAll(key, "/", `\/`) },
	"an address":  url.QueryEscape,
	"HTML":        html.EscapeString,
	"base64":      func(key string) string { return base64.StdEncoding.EncodeToString([]byte(key)) },
	"hexadecimal": func(key string) string { return hex.EncodeToString([]byte(key)) },
	"a space":     func(key string) string { return key[:11] + " " + key[11:] },
}

// A server that quotes what it was sent may escape it, in a refusal as in an answer.
func TestAnswersHoldNoKeyHoweverTheServerEscapesIt(t *testing.T) {
	p := lookup(t, "openai")
	for name, spell := range spellings {
		said := spell(opaqueKey)
		for status, form := range map[int]string{
			200: `{"object":"chat.completion","choices":[{"message":{"role":"assistant","content":"%s"}}]}`,
			400: `{"error":{"message":"you sent %s","type":"invalid_request_error"}}`,
		} {
			body := strings.Replace(form, "%s", said, 1)
			base := tripper(func(*http.Request) (*http.Response, error) {
				return reply(status, strings.NewReader(body), "content-type", "application/json", "x-request-id", said)
			})
			req, _ := p.NewRequest(t.Context(), provider.Target{Key: opaqueKey, Endpoint: provider.ChatCompletions, Model: "m"}, []byte("{}"))
			a, o := provider.Exchange(t.Context(), base, nil, req,
				provider.ExchangeConfig{Provider: p, Endpoint: provider.ChatCompletions, Key: opaqueKey})
			if (status == 200) != (o.Kind == sluice.OK) {
				t.Fatalf("%s: %d is %s", name, status, o.Kind)
			}
			if text := fmt.Sprint(string(a.Body), a.RequestID, o.Err); strings.Contains(text, said) || strings.Contains(text, opaqueKey) {
				t.Errorf("%s: %d leaves %s", name, status, text)
			}
		}
	}
}
