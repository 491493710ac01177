package sim_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

// together sends n calls at once and returns how they went.
func together(ctx context.Context, s *sim.Server, n int) []reply {
	replies := make([]reply, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { replies[i] = send(ctx, s, chatPath, chatBody("a", 1, 10)) })
	}
	wg.Wait()
	return replies
}

func TestConcurrencyIsRefusedAndChargesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Concurrency: 3, RPM: 100, TPM: 10000})
		refused := 0
		for _, r := range together(ctx, s, 5) {
			if r.status == 429 {
				refused++
				equal(t, "message", r.message(), "Too many concurrent requests for this model")
				equal(t, "Retry-After", r.header.Get("Retry-After"), "")
				equal(t, "took", r.took, 5*time.Millisecond)
			}
		}
		equal(t, "refused", refused, 2)
		stats := s.Stats()
		equal(t, "peak", stats.Peak, 3)
		equal(t, "refused for concurrency", stats.Refused["concurrency"], 2)
		equal(t, "in flight", stats.InFlight, 0)
		time.Sleep(time.Second)
		r := send(ctx, s, chatPath, chatBody("a", 1, 10))
		equal(t, "remaining", r.header.Get("x-ratelimit-remaining-requests"), "98") // 98.67
		for _, r := range together(ctx, s, 3) {
			equal(t, "status when all places are free", r.status, 200)
		}
	})
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Concurrency: 1})
		go send(ctx, s, chatPath, chatBody("a", 1, 10))
		synctest.Wait()
		contains(t, "message", send(ctx, s, "/v1/messages", chatBody("a", 1, 9), "Anthropic-Version", "2023-06-01").message(),
			"Number of concurrent connections has exceeded your rate limit.")
		time.Sleep(time.Second)
	})
}

func TestSilentQueueServesInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Queue: 2, Latency: time.Second})
		var took []time.Duration
		for _, r := range together(ctx, s, 5) {
			equal(t, "status", r.status, 200)
			took = append(took, r.took)
		}
		slices.Sort(took)
		want := []time.Duration{1, 1, 2, 2, 3}
		for i := range want {
			equal(t, "took", took[i], want[i]*time.Second)
		}
		equal(t, "peak", s.Stats().Peak, 5)
	})
}

func TestQueuedCallThatIsCancelledLeavesNoTrace(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Queue: 1, Latency: time.Second})
		go send(ctx, s, chatPath, chatBody("first", 10, 10))
		synctest.Wait()
		impatient, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		go send(impatient, s, chatPath, chatBody("second", 10, 10))
		synctest.Wait()
		r := send(ctx, s, chatPath, chatBody("third", 10, 10))
		equal(t, "status", r.status, 200)
		equal(t, "took", r.took, 2*time.Second)
		stats := s.Stats()
		equal(t, "abandoned", stats.Abandoned, 1)
		equal(t, "in flight", stats.InFlight, 0)
	})
}

// lateCancel is a context that is cancelled while somebody asks whether it is.
type lateCancel struct {
	context.Context
	cancel context.CancelFunc
}

func (l lateCancel) Done() <-chan struct{} {
	time.Sleep(1500 * time.Millisecond)
	l.cancel()
	return l.Context.Done()
}

func TestTurnThatComesWithTheCancelIsPassedOn(t *testing.T) {
	for range 30 { // the second finds both, and takes either
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, sim.Config{Queue: 1, Latency: time.Second})
			go send(ctx, s, chatPath, chatBody("first", 10, 10))
			synctest.Wait()
			inner, cancel := context.WithCancel(ctx)
			go send(lateCancel{inner, cancel}, s, chatPath, chatBody("second", 10, 10))
			synctest.Wait()
			patient, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			equal(t, "status", send(patient, s, chatPath, chatBody("third", 10, 10)).status, 200)
		})
	}
}

func TestStormRefusesEveryCall(t *testing.T) {
	for _, test := range []struct {
		status      int
		silent      bool
		openai      int
		anthropic   int
		after, kind string
	}{
		{0, false, 429, 429, "4", "rate_limit_error"},
		{0, true, 429, 429, "", "rate_limit_error"},
		{529, false, 503, 529, "4", "overloaded_error"},
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, sim.Config{RPM: 600, Storms: []sim.Storm{{From: 2 * time.Second, To: 5 * time.Second, Status: test.status, Silent: test.silent}}})
			equal(t, "status before", send(ctx, s, chatPath, chatBody("a", 1, 1)).status, 200) // at 200 ms
			time.Sleep(1790 * time.Millisecond)
			equal(t, "status just before", send(ctx, s, chatPath, chatBody("a", 1, 1)).status, 200)
			time.Sleep(10 * time.Millisecond) // 2.2 s
			r := send(ctx, s, chatPath, chatBody("a", 1, 1))
			equal(t, "status", r.status, test.openai)
			if test.after == "" {
				equal(t, "Retry-After", r.header.Get("Retry-After"), "")
			} else {
				equal(t, "Retry-After", r.header.Get("Retry-After"), "3")
			}
			equal(t, "remaining", r.header.Get("x-ratelimit-remaining-requests"), "600")
			r = send(ctx, s, "/v1/messages", chatBody("a", 1, 1), "Anthropic-Version", "2023-06-01")
			equal(t, "status", r.status, test.anthropic)
			contains(t, "body", r.body, `"type":"`+test.kind+`"`)
			time.Sleep(2790 * time.Millisecond)
			equal(t, "status after", send(ctx, s, chatPath, chatBody("a", 1, 1)).status, 200)
			equal(t, "refused by the storm", s.Stats().Refused["storm"], 2)
		})
	}
}

func TestSpentQuotaEndsEverything(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, quick(sim.Config{SpentAfter: 2, RPM: 2}))
		for range 2 {
			equal(t, "status", send(ctx, s, chatPath, chatBody("a", 1, 1)).status, 200)
		}
		time.Sleep(time.Hour)
		r := send(ctx, s, chatPath, chatBody("a", 1, 1))
		equal(t, "status", r.status, 429)
		contains(t, "body", r.body, `"type":"insufficient_quota","param":null,"code":"insufficient_quota"`)
		equal(t, "Retry-After", r.header.Get("Retry-After"), "")
		r = send(ctx, s, "/v1/messages", chatBody("a", 1, 1), "Anthropic-Version", "2023-06-01")
		equal(t, "status", r.status, 400)
		contains(t, "message", r.message(), "Your credit balance is too low to access the Anthropic API.")
	})
}

// Each config refuses for one reason more than the one before; the first
// reason of the order is the one that is told.
func TestChecksComeInOrder(t *testing.T) {
	ok := chatBody("a", 10, 10)
	storm := []sim.Storm{{To: time.Hour}}
	for _, test := range []struct {
		want   string
		config sim.Config
		body   string
	}{
		{"Incorrect API key", sim.Config{Key: "sk-right", Storms: storm}, "not JSON"},
		{"could not parse", sim.Config{Storms: storm}, "not JSON"},
		{"Rate limit reached", sim.Config{Storms: storm, SpentAfter: 1, Concurrency: 1, RPM: 1, TPM: 15}, ok},
		{"exceeded your current quota", sim.Config{SpentAfter: 1, Concurrency: 1, RPM: 1, TPM: 15}, ok},
		{"Too many concurrent", sim.Config{Concurrency: 1, RPM: 1, TPM: 15}, ok},
		{"requests per min", sim.Config{RPM: 1, RPD: 1, TPM: 15}, ok},
		{"requests per day", sim.Config{RPD: 1, TPM: 15}, ok},
		{"on tokens per min", sim.Config{TPM: 15, ITPM: 15, OTPM: 15}, ok},
		{"on input tokens per min", sim.Config{ITPM: 15, OTPM: 15}, ok},
		{"on output tokens per min", sim.Config{OTPM: 15}, ok},
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, quick(test.config))
			send(ctx, s, chatPath, ok, "Authorization", "Bearer sk-right") // takes what there is
			if test.config.Concurrency > 0 && test.config.SpentAfter == 0 {
				s = serve(t, test.config)
				go send(ctx, s, chatPath, ok)
				synctest.Wait()
			}
			contains(t, "message", send(ctx, s, chatPath, test.body).message(), test.want)
			time.Sleep(time.Second)
		})
	}
}

func TestValidationNamesWhatIsWrong(t *testing.T) {
	const version = "Anthropic-Version"
	for _, test := range []struct {
		path, body string
		status     int
		want       string
	}{
		{chatPath, `{"model":"m"`, 400, "could not parse the JSON body"},
		{chatPath, `[]`, 400, "could not parse the JSON body"},
		{chatPath, `{"model":"m","messages":[1]} x`, 400, "could not parse the JSON body"},
		{chatPath, `{"messages":[1]}`, 400, "you must provide a model parameter"},
		{chatPath, `{"model":"m"}`, 400, "Missing required parameter: 'messages'."},
		{chatPath, `{"model":"m","messages":[]}`, 400, "Missing required parameter: 'messages'."},
		{chatPath, `{"model":"m","messages":[1],"max_tokens":"9"}`, 400, "Invalid type for 'max_tokens'."},
		{chatPath, `{"model":"x","messages":[1]}`, 404, "The model `x` does not exist or you do not have access to it."},
		{"/v1/responses", `{"model":"m"}`, 400, "Missing required parameter: 'input'."},
		{"/v1/embeddings", `{"model":"m","input":[]}`, 400, "Missing required parameter: 'input'."},
		{"/v1/nothing", `{}`, 404, "Invalid URL (POST /v1/nothing)"},
		{"/v1/messages", `{`, 400, "not valid JSON"},
		{"/v1/messages", `{"max_tokens":1,"messages":[1]}`, 400, "model: Field required"},
		{"/v1/messages", `{"model":"m","max_tokens":1}`, 400, "messages: at least one message is required"},
		{"/v1/messages", `{"model":"m","messages":[1]}`, 400, "max_tokens: Field required"},
		{"/v1/messages", `{"model":"x","max_tokens":1,"messages":[1]}`, 404, "model: x"},
		{geminiPath, `{"contents":`, 400, "Invalid JSON payload received. Unexpected token."},
		{geminiPath, `[]`, 400, "Invalid JSON payload received. Unexpected token."},
		{geminiPath, `{}`, 400, "* GenerateContentRequest.contents: contents is not specified\n"},
		{geminiPath, `{"contents":null,"messages":[{"content":"hi"}]}`, 400, "* GenerateContentRequest.contents: contents is not specified\n"},
		{geminiPath, `{"contents":[]}`, 400, "* GenerateContentRequest.contents: contents is not specified\n"},
		{geminiPath, `{"content":{}}`, 400, "* GenerateContentRequest.contents: contents is not specified\n"},
		{geminiPath, `{"contents":"hi"}`, 400, "Invalid value at 'contents'"},
		{geminiPath, `{"contents":["hi"]}`, 400, "Invalid value at 'contents'"},
		{geminiPath, `{"contents":{},"systemInstruction":[{}]}`, 400, "Invalid value at 'system_instruction'"},
		{geminiPath, `{"contents":{},"system_instruction":"hi"}`, 400, "Invalid value at 'system_instruction'"},
		{geminiPath, `{"contents":{},"generationConfig":7}`, 400, "Invalid value at 'generation_config'"},
		{geminiPath, `{"contents":{},"generationConfig":{"maxOutputTokens":0}}`, 400, "Invalid value at 'generation_config.max_output_tokens'"},
		{geminiPath, `{"contents":{},"generationConfig":{"maxOutputTokens":1.5}}`, 400, "Invalid value at 'generation_config.max_output_tokens'"},
		{geminiPath, `{"contents":{},"generationConfig":{"max_output_tokens":2147483648}}`, 400, "Invalid value at 'generation_config.max_output_tokens'"},
		{geminiPath, `{"contents":{},"generationConfig":{"candidateCount":9}}`, 400, "Invalid value at 'generation_config.candidate_count'"},
		{geminiModel + ":embedContent", `{"contents":{}}`, 400, "* EmbedContentRequest.content: content is not specified\n"},
		{geminiModel + ":embedContent", `{"content":[{}]}`, 400, "Invalid value at 'content'"},
		{geminiModel + ":batchEmbedContents", `{}`, 400, "* BatchEmbedContentsRequest.requests: requests is not specified\n"},
		{geminiModel + ":countTokens", `{}`, 400, "* CountTokensRequest.contents: contents is not specified\n"},
		{"/v1/models/gemini-1.0-pro:generateContent", `{"contents":{}}`, 404, "models/gemini-1.0-pro is not found for API version v1, " +
			"or is not supported for generateContent. Call ListModels to see the list of available models and their supported methods."},
		{geminiModel + ":dance", `{"contents":{}}`, 404, "Requested entity was not found."},
		{geminiModel, `{"contents":{}}`, 404, "Requested entity was not found."},
		{"/v1beta/models/:generateContent", `{"contents":{}}`, 404, "Requested entity was not found."},
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, sim.Config{Models: []string{"m", "gemini-2.5-flash"}, RPM: 1})
			header := []string{}
			if test.path == "/v1/messages" {
				header = []string{version, "2023-06-01"}
			}
			r := send(ctx, s, test.path, test.body, header...)
			equal(t, "status of "+test.body, r.status, test.status)
			contains(t, "message", r.message(), test.want)
			equal(t, "requests", s.Stats().Requests, 0)
			equal(t, "invalid", s.Stats().Invalid, 1)
		})
	}
	bubble(t, func(t *testing.T, ctx context.Context) {
		r := send(ctx, serve(t, sim.Config{}), "/v1/messages", `{"model":"m","max_tokens":1,"messages":[1]}`)
		equal(t, "message", r.message(), "anthropic-version: header is required")
	})
}

func TestKeyIsAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Key: "secret"})
		body := chatBody("a", 1, 1)
		r := send(ctx, s, chatPath, body, "Authorization", "Bearer wrong")
		equal(t, "status", r.status, 401)
		contains(t, "body", r.body, `"code":"invalid_api_key"`)
		equal(t, "status", send(ctx, s, chatPath, body, "Authorization", "Bearer secret").status, 200)
		r = send(ctx, s, "/v1/messages", body, "X-Api-Key", "wrong", "Anthropic-Version", "2023-06-01")
		equal(t, "status", r.status, 401)
		contains(t, "body", r.body, `{"type":"authentication_error","message":"invalid x-api-key"}`)
		equal(t, "status", send(ctx, s, "/v1/messages", body, "X-Api-Key", "secret", "Anthropic-Version", "2023-06-01").status, 200)
	})
}

func TestStatsTellWhatWasPaid(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, quick(sim.Config{RPM: 3, OutputTokens: 20}))
		a, b := chatBody("a", 10, 100), chatBody("b", 10, 100)
		for _, body := range []string{a, a, b, b, "broken"} {
			send(ctx, s, chatPath, body)
		}
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, baseURL+"/stats", nil)
		response, err := s.Transport().RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var stats sim.Stats
		if err := json.NewDecoder(response.Body).Decode(&stats); err != nil {
			t.Fatal(err)
		}
		equal(t, "paid for a", stats.Paid[sim.RequestHash([]byte(a))], 2)
		equal(t, "paid for b", stats.Paid[sim.RequestHash([]byte(b))], 1)
		equal(t, "requests", stats.Requests, 4)
		equal(t, "answered", stats.Answered, 3)
		equal(t, "throttled", stats.Throttled, 1)
		equal(t, "refused by rpm", stats.Refused["rpm"], 1)
		equal(t, "refused as bad", stats.Refused["bad_request"], 1)
		equal(t, "input tokens", stats.InputTokens, 30)
		equal(t, "output tokens", stats.OutputTokens, 60)
	})
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, quick(sim.Config{NoStats: true}))
		send(ctx, s, chatPath, chatBody("a", 1, 1))
		equal(t, "accounts", len(s.Stats().Paid), 0)
		equal(t, "answered", s.Stats().Answered, 1)
	})
}

func TestModelsAreListedInBothDialects(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Models: []string{"small", "large"}})
		get := func(header string) string {
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, baseURL+"/v1/models", nil)
			if header != "" {
				r.Header.Set(header, "x")
			}
			response, err := s.Transport().RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			b, _ := io.ReadAll(response.Body)
			return string(b)
		}
		equal(t, "OpenAI's", get(""), `{"object":"list","data":[{"id":"small","object":"model","created":946684800,"owned_by":"sim"},`+
			`{"id":"large","object":"model","created":946684800,"owned_by":"sim"}]}`)
		for _, header := range []string{"Anthropic-Version", "X-Api-Key"} {
			equal(t, "Anthropic's", get(header), `{"data":[{"type":"model","id":"small","display_name":"small","created_at":"2000-01-01T00:00:00Z"},`+
				`{"type":"model","id":"large","display_name":"large","created_at":"2000-01-01T00:00:00Z"}],`+
				`"has_more":false,"first_id":"small","last_id":"large"}`)
		}
	})
}

func TestInputIsEstimatedFromTheTextAlone(t *testing.T) {
	image := strings.Repeat("A", 4000)
	for _, test := range []struct {
		path, body string
		want       int
	}{
		{chatPath, `{"model":"m","messages":[{"role":"user","content":""}]}`, 1},
		{chatPath, `{"model":"m","messages":[{"role":"user","content":"12345"}]}`, 2},
		{chatPath, `{"model":"m","messages":[{"role":"user","content":"\u00e9é\n\"日本語x"}]}`, 2},
		{chatPath, `{"model":"m","messages":[{"role":"system","content":"12345678"},{"content":[{"type":"text","text":"1234"},
			{"type":"image_url","image_url":{"url":"data:image/png;base64,` + image + `"}}]}]}`, 3},
		{"/v1/responses", `{"model":"m","instructions":"1234","input":"12345678"}`, 3},
		{"/v1/responses", `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"12345678"}]}]}`, 2},
		{"/v1/embeddings", `{"model":"m","input":["1234","5678"]}`, 2},
		{"/v1/embeddings", `{"model":"m","input":[101,102,103]}`, 3},
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, sim.Config{})
			r := send(ctx, s, test.path, test.body)
			equal(t, "status", r.status, 200)
			equal(t, "tokens of "+test.body[:min(90, len(test.body))], s.Stats().InputTokens, test.want)
		})
	}
}
