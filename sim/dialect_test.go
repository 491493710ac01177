package sim_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sluice-llm/sluice/sim"
)

// golden compares a body with what is expected, in which HASH stands for the
// hash of the request.
func golden(t *testing.T, request, got, want string) {
	t.Helper()
	want = strings.ReplaceAll(want, "HASH", sim.RequestHash([]byte(request)))
	want = strings.ReplaceAll(want, "\n", "")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if !json.Valid([]byte(got)) {
		t.Errorf("body is not JSON: %s", got)
	}
}

func TestChatCompletion(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{OutputTokens: 11})
		body := `{"model":"gpt-\"4\"","messages":[{"role":"user","content":"hello, world"}],"n":2,"max_tokens":40}`
		r := send(ctx, s, chatPath, body)
		equal(t, "status", r.status, 200)
		equal(t, "type", r.header.Get("Content-Type"), "application/json")
		equal(t, "request id", r.header.Get("x-request-id"), "req_"+sim.RequestHash([]byte(body)))
		equal(t, "took", r.took, 200*time.Millisecond)
		golden(t, body, r.body, `{"id":"chatcmpl-HASH","object":"chat.completion","created":946684800,"model":"gpt-\"4\"","choices":[
{"index":0,"message":{"role":"assistant","content":"sim:HASH and and","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"},
{"index":1,"message":{"role":"assistant","content":"sim:HASH and and","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],
"usage":{"prompt_tokens":3,"completion_tokens":22,"total_tokens":25,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},
"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},
"service_tier":"default","system_fingerprint":null}`)
	})
}

func TestAnswersAreCutAtMaxTokens(t *testing.T) {
	for path, want := range map[string]string{
		chatPath:        `"finish_reason":"length"`,
		"/v1/responses": `"status":"incomplete","error":null,"incomplete_details":{"reason":"max_output_tokens"}`,
		"/v1/messages":  `"stop_reason":"max_tokens"`,
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, sim.Config{OutputTokens: 50})
			limit := "max_tokens"
			if path == "/v1/responses" {
				limit = "max_output_tokens"
			}
			r := send(ctx, s, path, `{"model":"m","messages":[{"content":"x"}],"input":"x","`+limit+`":20}`, "Anthropic-Version", "2023-06-01")
			contains(t, "body", r.body, want)
			equal(t, "output", s.Stats().OutputTokens, 20)
		})
	}
}

func TestResponse(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{OutputTokens: 10})
		body := `{"model":"gpt-5","input":"hello, world","max_output_tokens":40}`
		r := send(ctx, s, "/v1/responses", body)
		golden(t, body, r.body, `{"id":"resp_HASH","object":"response","created_at":946684800,"status":"completed","error":null,
"incomplete_details":null,"instructions":null,"max_output_tokens":40,"model":"gpt-5","output":[{"id":"msg_HASH","type":"message",
"status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"sim:HASH and"}]}],
"parallel_tool_calls":true,"previous_response_id":null,"tool_choice":"auto","tools":[],"usage":{"input_tokens":3,
"input_tokens_details":{"cached_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":13},"metadata":{}}`)
	})
}

func TestMessage(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{OutputTokens: 10})
		body := `{"model":"claude","max_tokens":40,"system":"1234","messages":[{"role":"user","content":"hello, world"}]}`
		r := send(ctx, s, "/v1/messages", body, "Anthropic-Version", "2023-06-01")
		equal(t, "request id", r.header.Get("request-id"), "req_"+sim.RequestHash([]byte(body)))
		golden(t, body, r.body, `{"id":"msg_HASH","type":"message","role":"assistant","model":"claude","content":[{"type":"text",
"text":"sim:HASH and"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":4,"cache_creation_input_tokens":0,
"cache_read_input_tokens":0,"output_tokens":10,"service_tier":"standard"}}`)
	})
}

func TestEmbeddingsAreTheSameInBothFormats(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{TPM: 1000})
		var numbers struct {
			Object string
			Data   []struct {
				Object    string
				Index     int
				Embedding []float32
			}
			Model string
			Usage map[string]int
		}
		r := send(ctx, s, "/v1/embeddings", `{"model":"e","input":["one","two"]}`)
		if err := json.Unmarshal([]byte(r.body), &numbers); err != nil {
			t.Fatal(err)
		}
		equal(t, "vectors", len(numbers.Data), 2)
		equal(t, "index", numbers.Data[1].Index, 1)
		equal(t, "length", len(numbers.Data[0].Embedding), 8)
		equal(t, "usage", fmt.Sprint(numbers.Usage), "map[prompt_tokens:2 total_tokens:2]")
		equal(t, "remaining", r.header.Get("x-ratelimit-remaining-tokens"), "998")
		if cmp.Equal(numbers.Data[0].Embedding, numbers.Data[1].Embedding) {
			t.Error("different prompts have the same vector")
		}

		r = send(ctx, s, "/v1/embeddings", `{"model":"e","input":[101,102,103]}`)
		equal(t, "vectors of one prompt in tokens", strings.Count(r.body, `"object":"embedding"`), 1)

		var coded struct{ Data []struct{ Embedding string } }
		r = send(ctx, s, "/v1/embeddings", `{"model":"e","input":"x","encoding_format":"base64"}`)
		if err := json.Unmarshal([]byte(r.body), &coded); err != nil {
			t.Fatal(err)
		}
		raw, err := base64.StdEncoding.DecodeString(coded.Data[0].Embedding)
		if err != nil || len(raw) != 32 {
			t.Fatalf("%d bytes, %v", len(raw), err)
		}
		for i := range 8 {
			if x := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])); !(x >= -1 && x <= 1) {
				t.Errorf("number %d is %v", i, x)
			}
		}
	})
}

// sse is one event of a stream.
type sse struct {
	name string
	data string
	at   time.Duration
}

// stream makes a streaming call and reads its events as they come.
func stream(ctx context.Context, t *testing.T, s *sim.Server, path, body string) []sse {
	t.Helper()
	begun := time.Now()
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, baseURL+path, strings.NewReader(body))
	r.Header.Set("Anthropic-Version", "2023-06-01")
	response, err := (&http.Client{Transport: s.Transport()}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	equal(t, "type", response.Header.Get("Content-Type"), "text/event-stream; charset=utf-8")
	var events []sse
	var event sse
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			event.name = name
		} else if data, ok := strings.CutPrefix(line, "data: "); ok {
			event.data = data
		} else if line == "" {
			event.at = time.Since(begun)
			events = append(events, event)
			event = sse{}
		} else {
			t.Errorf("line %q", line)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return events
}

// named gives the names of events, or the object of a chunk, runs shortened.
func named(events []sse) string {
	var names []string
	for _, e := range events {
		name := e.name
		if name == "" {
			name = e.data[:min(len(e.data), 6)]
		}
		if len(names) > 0 && names[len(names)-1] == name+"*" {
			continue
		}
		if len(names) > 0 && names[len(names)-1] == name {
			names[len(names)-1] = name + "*"
			continue
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func TestChatStream(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{OutputTokens: 20, PerToken: 10 * time.Millisecond})
		body := `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}`
		events := stream(ctx, t, s, chatPath, body)
		text, finish := "", ""
		for i, e := range events[:len(events)-1] {
			var chunk struct {
				ID      string
				Object  string
				Choices []struct {
					Delta        struct{ Role, Content string }
					FinishReason string `json:"finish_reason"`
				}
				Usage *struct {
					Prompt     int `json:"prompt_tokens"`
					Completion int `json:"completion_tokens"`
				}
			}
			if err := json.Unmarshal([]byte(e.data), &chunk); err != nil {
				t.Fatalf("%v in %s", err, e.data)
			}
			equal(t, "object", chunk.Object, "chat.completion.chunk")
			switch {
			case i == 0:
				equal(t, "role", chunk.Choices[0].Delta.Role, "assistant")
				equal(t, "first byte", e.at, 200*time.Millisecond)
			case i == len(events)-2:
				equal(t, "choices with the usage", len(chunk.Choices), 0)
				equal(t, "completion tokens", chunk.Usage.Completion, 20)
				equal(t, "prompt tokens", chunk.Usage.Prompt, 1)
			default:
				text += chunk.Choices[0].Delta.Content
				finish = chunk.Choices[0].FinishReason
				contains(t, "chunk", e.data, `"usage":null`)
			}
		}
		equal(t, "text", text, "sim:"+sim.RequestHash([]byte(body))+strings.Repeat(" and", 11))
		equal(t, "finish", finish, "stop")
		equal(t, "last event", events[len(events)-1].data, "[DONE]")
		equal(t, "whole time", events[len(events)-1].at, 400*time.Millisecond)
		equal(t, "events", len(events), 1+20+1+1+1)
		equal(t, "paid", s.Stats().Paid[sim.RequestHash([]byte(body))], 1)
	})
}

func TestResponseStream(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{OutputTokens: 100})
		body := `{"model":"m","input":"hi","stream":true}`
		events := stream(ctx, t, s, "/v1/responses", body)
		equal(t, "events", named(events), "response.created response.in_progress response.output_item.added "+
			"response.content_part.added response.output_text.delta* response.output_text.done response.content_part.done "+
			"response.output_item.done response.completed")
		text := ""
		for i, e := range events {
			var event struct {
				Type     string
				Sequence int `json:"sequence_number"`
				Delta    string
				Response *struct {
					Status string
					Usage  *struct {
						Output int `json:"output_tokens"`
					}
				}
			}
			if err := json.Unmarshal([]byte(e.data), &event); err != nil {
				t.Fatalf("%v in %s", err, e.data)
			}
			equal(t, "type", event.Type, e.name)
			equal(t, "sequence number", event.Sequence, i)
			text += event.Delta
			if i == len(events)-1 {
				equal(t, "status", event.Response.Status, "completed")
				equal(t, "output tokens", event.Response.Usage.Output, 100)
			}
		}
		equal(t, "text", text, "sim:"+sim.RequestHash([]byte(body))+strings.Repeat(" and", 91))
	})
}

func TestMessageStream(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{OutputTokens: 12})
		body := `{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"hi"}],"stream":true}`
		events := stream(ctx, t, s, "/v1/messages", body)
		equal(t, "events", named(events), "message_start content_block_start ping content_block_delta* content_block_stop message_delta message_stop")
		text := ""
		for _, e := range events {
			var event struct {
				Type    string
				Delta   struct{ Type, Text string }
				Message struct{ Usage map[string]any }
			}
			if err := json.Unmarshal([]byte(e.data), &event); err != nil {
				t.Fatalf("%v in %s", err, e.data)
			}
			equal(t, "type", event.Type, e.name)
			text += event.Delta.Text
			switch event.Type {
			case "message_start":
				equal(t, "input tokens", fmt.Sprint(event.Message.Usage["input_tokens"]), "1")
			case "message_delta":
				contains(t, "event", e.data, `"stop_reason":"max_tokens","stop_sequence":null},"usage":{"input_tokens":1,`)
				contains(t, "event", e.data, `"output_tokens":10,`)
			}
		}
		equal(t, "text", text, "sim:"+sim.RequestHash([]byte(body))+" and")
	})
}
