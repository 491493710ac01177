package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

const (
	geminiExhausted = `{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","status":"RESOURCE_EXHAUSTED"}}`
	geminiOverload  = `{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}`
)

// The words are those of https://github.com/dimetron/pi-go/pull/177 and
// https://github.com/google-gemini/gemini-cli/issues/13112
func TestGeminiRefusalIsAllInTheBody(t *testing.T) {
	for _, form := range []sim.RetryAfterForm{sim.RetryAfterSeconds, sim.RetryAfterDate, sim.RetryAfterNone} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, quick(sim.Config{RPM: 25, Burst: time.Second, RetryAfter: form})) // one in 2.4 s
			send(ctx, s, geminiPath, geminiBody("a", 1, 0))
			r := send(ctx, s, geminiPath, geminiBody("b", 1, 0))
			equal(t, "status", r.status, 429)
			equal(t, "headers", len(r.header), 3) // length, type, date
			words, info := `\nPlease retry in 2.4s.`, `,{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"2s"}`
			if form == sim.RetryAfterNone {
				words, info = "", ""
			}
			equal(t, "body", r.body, `{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details. `+
				`For more information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits. To monitor your current usage, `+
				`head to: https://ai.dev/rate-limit. \n* Quota exceeded for metric: generativelanguage.googleapis.com/generate_requests_per_model, `+
				`limit: 25, model: gemini-2.5-flash`+words+`","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.Help",`+
				`"links":[{"description":"Learn more about Gemini API quotas","url":"https://ai.google.dev/gemini-api/docs/rate-limits"}]},`+
				`{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/generate_requests_per_model",`+
				`"quotaId":"GenerateRequestsPerMinutePerProjectPerModel","quotaDimensions":{"location":"global","model":"gemini-2.5-flash"},"quotaValue":"25"}]}`+info+`]}}`)
		})
	}
}

func TestGeminiRefusalNamesTheQuota(t *testing.T) {
	for id, c := range map[string]sim.Config{
		"GenerateRequestsPerMinutePerProjectPerModel":         {RPM: 1},
		"GenerateRequestsPerDayPerProjectPerModel":            {RPD: 1},
		"GenerateContentPaidTierInputTokensPerModelPerMinute": {ITPM: 10},
		"GenerateContentOutputTokensPerModelPerMinute":        {OTPM: 20},
		"GenerateContentTokensPerModelPerMinute":              {TPM: 20},
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, quick(c))
			equal(t, "status", send(ctx, s, geminiPath, geminiBody("a", 10, 20)).status, 200)
			r := send(ctx, s, geminiPath, geminiBody("b", 10, 20))
			equal(t, "status", r.status, 429)
			contains(t, "body", r.body, `"quotaId":"`+id+`"`)
		})
	}
	bubble(t, func(t *testing.T, ctx context.Context) {
		r := send(ctx, serve(t, quick(sim.Config{ITPM: 10})), geminiPath, geminiBody("a", 11, 0))
		equal(t, "status of what can never pass", r.status, 429)
		equal(t, "a wait for what can never pass", strings.Contains(r.body, "etry"), false)
	})
}

// What the words tell is enough to wait for; what RetryInfo tells is not.
func TestGeminiWordsTellTheWholeWait(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, quick(sim.Config{ITPM: 1000}))
		send(ctx, s, geminiPath, geminiBody("a", 1000, 0))
		_, words, _ := strings.Cut(send(ctx, s, geminiPath, geminiBody("b", 123, 0)).message(), "Please retry in ")
		wait, err := time.ParseDuration(strings.TrimSuffix(words, "."))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "wait", wait, 7380*time.Millisecond)
		time.Sleep(wait - time.Millisecond)
		equal(t, "status a little before", send(ctx, s, geminiPath, geminiBody("b", 123, 0)).status, 429)
		time.Sleep(time.Millisecond)
		equal(t, "status then", send(ctx, s, geminiPath, geminiBody("b", 123, 0)).status, 200)
	})
}

func TestGeminiRefusalsWithoutDetails(t *testing.T) {
	storm := func(status int, silent bool) sim.Config {
		return sim.Config{Storms: []sim.Storm{{To: 90 * time.Second, Status: status, Silent: silent}}}
	}
	for name, test := range map[string]struct {
		config sim.Config
		want   string
	}{
		"vague":        {sim.Config{RPM: 1, Burst: 1, VagueBodies: true}, geminiExhausted},
		"silent storm": {storm(429, true), geminiExhausted},
		"overload":     {storm(503, true), geminiOverload},
		"its 529":      {storm(529, true), geminiOverload},
		"overloaded":   {sim.Config{Faults: sim.Faults{Overloaded: 1}}, geminiOverload},
		"storm": {storm(429, false), strings.Replace(geminiExhausted, `"}}`,
			`","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"90s"}]}}`, 1)},
		"spent": {sim.Config{SpentAfter: 1}, `{"error":{"code":402,"message":"Your prepayment credits are depleted. ` +
			`Please go to AI Studio at https://ai.studio/projects to manage your project and billing.","status":"RESOURCE_EXHAUSTED"}}`},
		"internal": {sim.Config{Faults: sim.Faults{ServerError: 1}}, `{"error":{"code":500,"message":"An internal error has occurred. ` +
			`Please retry or report in https://developers.generativeai.google/guide/troubleshooting","status":"INTERNAL"}}`},
		"bad": {sim.Config{Faults: sim.Faults{BadRequest: 1}}, `{"error":{"code":400,"message":"Request contains an invalid argument.","status":"INVALID_ARGUMENT"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := serve(t, quick(test.config))
				r := send(ctx, s, geminiPath, geminiBody("a", 1, 0))
				if r.status == 200 {
					r = send(ctx, s, geminiPath, geminiBody("b", 1, 0))
				}
				equal(t, "body", r.body, test.want)
				contains(t, "body", r.body, fmt.Sprintf(`"code":%d,`, r.status))
				equal(t, "headers", len(r.header), 3)
			})
		})
	}
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Concurrency: 1})
		go send(ctx, s, geminiPath, geminiBody("a", 1, 0))
		synctest.Wait()
		equal(t, "body", send(ctx, s, geminiPath, geminiBody("b", 1, 0)).body, geminiExhausted)
		time.Sleep(time.Second)
	})
}

func TestGeminiStreamIsRefusedInItsOwnFraming(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, quick(sim.Config{Storms: []sim.Storm{{To: time.Second, Silent: true}}}))
		equal(t, "events", send(ctx, s, geminiStream+"?alt=sse", geminiBody("a", 1, 0)).body, geminiExhausted)
		equal(t, "array", send(ctx, s, geminiStream, geminiBody("a", 1, 0)).body, "["+geminiExhausted+"]")
	})
}

func TestGeminiAsksForTheKey(t *testing.T) {
	const wrong = `{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT",` +
		`"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com",` +
		`"metadata":{"service":"generativelanguage.googleapis.com"}},{"@type":"type.googleapis.com/google.rpc.LocalizedMessage",` +
		`"locale":"en-US","message":"API key not valid. Please pass a valid API key."}]}}`
	const missing = `{"error":{"code":403,"message":"Method doesn't allow unregistered callers (callers without established identity). ` +
		`Please use API Key or other form of API consumer identity to call this API.","status":"PERMISSION_DENIED"}}`
	for _, test := range []struct {
		query, header, value, want string
	}{
		{"", "X-Goog-Api-Key", "right", ""},
		{"", "Authorization", "Bearer right", ""},
		{"?key=right", "Accept", "*/*", ""},
		{"?key=right", "X-Goog-Api-Key", "wrong", wrong},
		{"?key=wrong", "Accept", "*/*", wrong},
		{"", "Authorization", "Bearer wrong", wrong},
		{"", "X-Api-Key", "right", missing}, // Anthropic's header
		{"", "Authorization", "right", missing},
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, quick(sim.Config{Key: "right"}))
			r := send(ctx, s, geminiPath+test.query, geminiBody("a", 1, 0), test.header, test.value)
			if test.want == "" {
				equal(t, "status", r.status, 200)
				return
			}
			equal(t, "body", r.body, test.want)
			equal(t, "refused", s.Stats().Refused["auth"], 1)
		})
	}
}

// FuzzGemini compares what the server takes for JSON with what encoding/json
// does, for any path below a model, and wants every answer to be JSON.
func FuzzGemini(f *testing.F) {
	for _, body := range []string{
		geminiBody("hi", 3, 40), `{"contents":{"parts":{"text":"hi"}},"generation_config":{"candidate_count":"8","maxOutputTokens":1e1}}`,
		`{"content":{"parts":[{"text":"é \" \u00e9"}]}}`, `{"requests":[{"content":{}},{}]}`, `{"generateContentRequest":{"contents":[{}]}}`,
		`{"generateContentRequest":{"generateContentRequest":{"generateContentRequest":null}}}`, `{"contents":`, `{"contents":nul}`, `{"contents":[{},]}`,
		`{"systemInstruction":"x","generationConfig":[],"contents":7}`, `{"generationConfig":{"maxOutputTokens":"NaN","candidateCount":-1}}`, `{"contents" : [ null ] }`, "",
	} {
		for _, verb := range []string{":generateContent", ":streamGenerateContent?alt=sse", ":streamGenerateContent", ":embedContent", ":batchEmbedContents", ":countTokens", "", ":"} {
			f.Add(verb, body)
		}
	}
	s := serve(f, quick(sim.Config{NoStats: true}))
	f.Fuzz(func(t *testing.T, verb, body string) {
		r, err := http.NewRequest(http.MethodPost, baseURL+geminiModel, nil)
		if err != nil {
			t.Fatal(err)
		}
		path, query, _ := strings.Cut(verb, "?")
		r.URL.Path, r.URL.RawQuery = geminiModel+path, query
		got := sendRequest(s, r, body)
		if got.err != nil {
			t.Fatal(got.err)
		}
		events := strings.HasPrefix(got.header.Get("Content-Type"), "text/event-stream")
		if events {
			geminiParts(t, got.body)
		} else if !json.Valid([]byte(got.body)) {
			t.Errorf("%q answers %q", verb, got.body)
		}
		if got.status == 404 || strings.HasPrefix(got.body, "[") {
			return
		}
		want := json.Valid([]byte(body)) && strings.HasPrefix(strings.TrimLeft(body, " \t\r\n"), "{")
		if isJSON := !strings.HasPrefix(got.message(), "Invalid JSON"); isJSON != want {
			t.Errorf("%q is JSON: %v, want %v", body, isJSON, want)
		}
	})
}
