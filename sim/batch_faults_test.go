package sim_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

func TestOpenAIBatchFailsValidation(t *testing.T) {
	line := func(id, method, url, body string) string {
		return fmt.Sprintf(`{"custom_id":%q,"method":%q,"url":%q,"body":%s}`, id, method, url, body) + "\n"
	}
	good := line("a", "POST", chatPath, openaiBody(0))
	for _, test := range []struct {
		name, content, code, param string
		line                       int
	}{
		{"broken JSON", good + "{\"custom_id\":\n", "invalid_json_line", "", 2},
		{"duplicate id", good + good, "duplicate_custom_id", "custom_id", 2},
		{"no id", good + `{"method":"POST","url":"/v1/chat/completions","body":{}}`, "missing_required_parameter", "custom_id", 2},
		{"no body", good + `{"custom_id":"b","method":"POST","url":"/v1/chat/completions"}`, "missing_required_parameter", "body", 2},
		{"another method", good + line("b", "GET", chatPath, openaiBody(1)), "invalid_method", "method", 2},
		{"another endpoint", good + line("b", "POST", "/v1/responses", openaiBody(1)), "url_mismatch", "url", 2},
		{"another model", good + line("b", "POST", chatPath, strings.Replace(openaiBody(1), "gpt-4o", "gpt-5", 1)), "model_mismatch", "body.model", 2},
		{"no lines", "\n", "empty_file", "", 0},
		{"too many lines", openaiLines(4), "too_many_tasks", "", 0},
		{"too long", openaiLines(1) + strings.Repeat(" ", 5000), "maximum_input_file_size_exceeded", "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, _ context.Context) {
				c := batchesOf(t, sim.Config{Batches: sim.Batches{MaxRequests: 3, MaxBytes: 5000}})
				b := c.createOpenAI(c.upload(test.content).text("id"))
				equal(t, "status at first", b.text("status"), "validating")
				time.Sleep(time.Second)
				b = c.ok("GET", "/v1/batches/"+b.text("id"), "")
				equal(t, "status", b.text("status"), "failed")
				equal(t, "code", b.text("errors", "data", 0, "code"), test.code)
				equal(t, "param", b.text("errors", "data", 0, "param"), test.param)
				equal(t, "line", b.number("errors", "data", 0, "line"), test.line)
				equal(t, "lines", c.server.Stats().Batches.Lines, 0)
			})
		})
	}
}

// creators creates a batch of two lines by each API, and returns the answer.
func creators() map[string]func(batchClient) reply {
	return map[string]func(batchClient) reply{
		"openai": func(c batchClient) reply {
			return c.do("POST", "/v1/batches", openaiCreate(c.upload(openaiLines(2)).text("id")))
		},
		"anthropic": func(c batchClient) reply { return c.do("POST", messageBatches, messageRequests(2), version()...) },
		"gemini": func(c batchClient) reply {
			return c.do("POST", "/v1beta/models/g:batchGenerateContent", `{"batch":{"inputConfig":{"fileName":"`+c.uploadGemini(geminiLines(2))+`"}}}`)
		},
	}
}

func TestBatchesBeyondALimitAreRefused(t *testing.T) {
	perHour, pending, enqueued := sim.Batches{PerHour: 1}, sim.Batches{Pending: 3, Latency: time.Hour}, sim.Batches{EnqueuedTokens: 10, Latency: time.Hour}
	for _, test := range []struct {
		api    string
		limits sim.Batches
		words  string
	}{
		{"openai", perHour, `"code":"rate_limit_exceeded"`}, {"anthropic", perHour, `"type":"rate_limit_error"`},
		{"gemini", perHour, `"status":"RESOURCE_EXHAUSTED"`},
		{"anthropic", pending, "of 3 batch requests in the processing queue"},
		{"gemini", enqueued, "You exceeded your current quota"},
	} {
		bubble(t, func(t *testing.T, _ context.Context) {
			c := batchesOf(t, sim.Config{Batches: test.limits})
			equal(t, test.api, creators()[test.api](c).status, http.StatusOK)
			time.Sleep(time.Minute)
			r := creators()[test.api](c)
			equal(t, test.api, r.status, http.StatusTooManyRequests)
			contains(t, test.api, r.body, test.words)
			if test.limits == perHour && test.api != "gemini" {
				equal(t, test.api+": Retry-After", r.header.Get("Retry-After"), "3540")
			}
			time.Sleep(time.Hour)
			equal(t, test.api, creators()[test.api](c).status, http.StatusOK)
		})
	}
}

func TestAnthropicBatchIsRefused(t *testing.T) {
	one := `{"custom_id":"a","params":` + messageParams(0) + `}`
	for _, test := range []struct {
		name, body, kind string
		status           int
	}{
		{"no JSON", `{"requests":[`, "invalid_request_error", 400},
		{"no requests", `{"requests":[]}`, "invalid_request_error", 400},
		{"duplicate id", `{"requests":[` + one + "," + one + `]}`, "invalid_request_error", 400},
		{"id with a space", `{"requests":[{"custom_id":"a b","params":{}}]}`, "invalid_request_error", 400},
		{"no params", `{"requests":[{"custom_id":"a"}]}`, "invalid_request_error", 400},
		{"too many", messageRequests(4), "request_too_large", 413},
		{"too long", `{"requests":[` + one + strings.Repeat(" ", 5000) + `]}`, "request_too_large", 413},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := batchesOf(t, sim.Config{Batches: sim.Batches{MaxRequests: 3, MaxBytes: 5000}})
			no := c.status(test.status, "POST", messageBatches, test.body, version()...)
			equal(t, "type", no.text("error", "type"), test.kind)
			equal(t, "batches", c.server.Stats().Batches.Batches, 0)
		})
	}
	c := batchesOf(t, sim.Config{})
	contains(t, "without a version", c.do("POST", messageBatches, messageRequests(1)).body, "anthropic-version: header is required")
}

func TestLinesFailByTheirShare(t *testing.T) {
	bubble(t, func(t *testing.T, _ context.Context) {
		c := batchesOf(t, sim.Config{Batches: sim.Batches{Fail: 0.3}})
		failed := func() map[string]int {
			b := c.runOpenAI(openaiLines(1000))
			byID := map[string]int{}
			for _, l := range c.lines("/v1/files/" + b.text("error_file_id") + "/content") {
				byID[l.text("custom_id")] = l.number("response", "status_code")
				equal(t, "error of the line", l.at("error"), nil)
				equal(t, "message", l.text("response", "body", "error", "message") != "", true)
			}
			equal(t, "counted", b.number("request_counts", "failed"), len(byID))
			equal(t, "answered", len(c.lines("/v1/files/"+b.text("output_file_id")+"/content")), 1000-len(byID))
			return byID
		}
		first, second := failed(), failed()
		counts := map[int]int{}
		for id, status := range first {
			counts[status]++
			if status == 400 {
				equal(t, id+" again", second[id], 400)
			}
		}
		for _, status := range []int{400, 429, 500} {
			if counts[status] < 70 || counts[status] > 130 {
				t.Errorf("%d of 1000 lines failed by %d", counts[status], status)
			}
		}
		healed := 0
		for id := range first {
			if second[id] == 0 {
				healed++
			}
		}
		if healed < 100 {
			t.Errorf("%d lines that failed were answered the second time", healed)
		}
	})
}

func TestLineIsAnsweredAsItWouldBeLive(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		c := batchesOf(t, sim.Config{Batches: sim.Batches{Latency: -1}, Models: []string{"claude-x"}})
		bodies := []string{messageParams(1), `{"model":"other","max_tokens":1,"messages":[{"content":"x"}]}`, `{"model":"claude-x","messages":[{"content":"x"}]}`}
		var requests []string
		for i, body := range bodies {
			requests = append(requests, fmt.Sprintf(`{"custom_id":"%d","params":%s}`, i, body))
		}
		b := c.ok("POST", messageBatches, `{"requests":[`+strings.Join(requests, ",")+`]}`, version()...)
		results := c.do("GET", messageBatches+"/"+b.text("id")+"/results", "", version()...)
		for i, body := range bodies {
			live := send(ctx, c.server, "/v1/messages", body, version()...)
			kind := map[bool]string{true: `"succeeded","message":`, false: `"errored","error":`}[live.status == 200]
			contains(t, "results", results.body, fmt.Sprintf(`{"custom_id":"%d","result":{"type":%s%s}}`, i, kind, live.body)+"\n")
		}
	})
}

func TestAnswerToACreationIsLost(t *testing.T) {
	c := batchesOf(t, sim.Config{Batches: sim.Batches{Drop: 1}})
	web := httptest.NewServer(c.server)
	defer web.Close()
	body, kind := form(t, openaiLines(1))
	if r := c.do("POST", "/v1/files", body, "Content-Type", kind); r.err == nil {
		t.Errorf("the upload was answered: %d", r.status)
	}
	file := c.ok("GET", "/v1/files?purpose=batch", "").text("data", 0, "id")
	response, err := http.Post(web.URL+"/v1/batches", "application/json", strings.NewReader(openaiCreate(file)))
	if err == nil {
		t.Errorf("the creation was answered: %d", response.StatusCode)
	}
	equal(t, "tag of the batch", c.ok("GET", "/v1/batches", "").text("data", 0, "metadata", "tag"), "t1")
	equal(t, "dropped", c.server.Stats().Batches.Dropped, 2)
}
