package provider_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

const chatStream = `data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":1,"delta":{"role":"assistant","content":"<b>"},"finish_reason":null}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]},"finish_reason":null}]}

data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}},{"index":1,"id":"call_2","type":"function","function":{"name":"g","arguments":"{}"}}]},"finish_reason":null}]}

data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","function":{"name":"f","arguments":"1}"}}]},"finish_reason":null}]}

data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"},{"index":1,"delta":{},"finish_reason":"stop"}]}

data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}

data: [DONE]

`

const chatWhole = `{"id":"c1","object":"chat.completion","created":7,"model":"m","choices":[
{"index":0,"message":{"role":"assistant","content":"Hello","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"call_2","type":"function","function":{"name":"g","arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls"},
{"index":1,"message":{"role":"assistant","content":"<b>"},"finish_reason":"stop"}],
"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}`

const messageStream = `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":2,"cache_read_input_tokens":3,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hmm"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hel"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"lo"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"citations_delta","citation":{"type":"char_location","cited_text":"x"}}}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"f","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\": "}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":42}}

event: message_stop
data: {"type":"message_stop"}

`

const messageWhole = `{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[
{"type":"thinking","thinking":"hmm","signature":"c2ln"},
{"type":"text","text":"Hello","citations":[{"type":"char_location","cited_text":"x"}]},
{"type":"tool_use","id":"toolu_1","name":"f","input":{"a":1}}],
"stop_reason":"tool_use","stop_sequence":null,
"usage":{"input_tokens":10,"cache_creation_input_tokens":2,"cache_read_input_tokens":3,"output_tokens":42}}`

const responseStream = `event: response.created
data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress","error":null,"output":[]}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","delta":"Hello"}

event: response.output_item.done
data: {"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"Hello"}]}}

event: response.completed
data: {"type":"response.completed","response":{"id":"resp_1","status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"Hello"}]}],"usage":{"input_tokens":8,"output_tokens":2,"input_tokens_details":{"cached_tokens":1}}}}

`

const responseWhole = `{"id":"resp_1","status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"Hello"}]}],"usage":{"input_tokens":8,"output_tokens":2,"input_tokens_details":{"cached_tokens":1}}}`

func sameJSON(t *testing.T, want, got []byte) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal(want, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(got, &b); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if d := cmp.Diff(a, b); d != "" {
		t.Error(d)
	}
}

func TestStreamsAreFoldedIntoWholeMessages(t *testing.T) {
	cases := []struct {
		name          string
		endpoint      provider.Endpoint
		stream, whole string
		finish        string
		usage         sluice.Usage
	}{
		{"chat", provider.ChatCompletions, chatStream, chatWhole, "tool_calls", sluice.Usage{Input: 9, Output: 4}},
		{"message", provider.Messages, messageStream, messageWhole, "tool_use", sluice.Usage{Input: 15, CachedInput: 3, CacheWrite: 2, Output: 42}},
		{"response", provider.Responses, responseStream, responseWhole, "completed", sluice.Usage{Input: 8, CachedInput: 1, Output: 2}},
	}
	for _, c := range cases {
		for how, r := range map[string]io.Reader{"at once": strings.NewReader(c.stream), "byte by byte": iotest.OneByteReader(strings.NewReader(c.stream)),
			"with data at the end": iotest.DataErrReader(strings.NewReader(c.stream))} {
			t.Run(c.name+" "+how, func(t *testing.T) {
				m, err := provider.Collect(c.endpoint, r, 1<<20)
				if err != nil || m.Fault != nil {
					t.Fatal(err, m.Fault)
				}
				sameJSON(t, []byte(c.whole), m.Body)
				if m.FinishReason != c.finish || m.Usage != c.usage || !m.HasUsage {
					t.Errorf("%q %+v", m.FinishReason, m.Usage)
				}
			})
		}
	}
}

func TestEmptyOutputOfAResponseIsFilledFromItsItems(t *testing.T) {
	stream := strings.Replace(responseStream, `"status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"Hello"}]}]`,
		`"status":"completed","error":null,"output":[]`, 1)
	m, err := provider.Collect(provider.Responses, strings.NewReader(stream), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	sameJSON(t, []byte(responseWhole), m.Body)
}

// Wherever a stream is cut before the event that says why the answer ended, it is known to be cut.
func TestCutStreamsAreKnown(t *testing.T) {
	for _, c := range []struct {
		endpoint provider.Endpoint
		stream   string
		end      string // from here on the message is whole
	}{
		{provider.ChatCompletions, chatStream, `"finish_reason":"tool_calls"`},
		{provider.Messages, messageStream, `"stop_reason":"tool_use"`},
		{provider.Responses, responseStream, `{"type":"response.completed"`},
	} {
		whole := strings.Index(c.stream, c.end) + strings.Index(c.stream[strings.Index(c.stream, c.end):], "\n")
		for i := 0; i < whole-1; i++ {
			if _, err := provider.Collect(c.endpoint, strings.NewReader(c.stream[:i]), 1<<20); !errors.Is(err, provider.ErrCut) {
				t.Fatalf("%v cut at %d: %v", c.endpoint, i, err)
			}
		}
		if _, err := provider.Collect(c.endpoint, strings.NewReader(c.stream[:whole]), 1<<20); err != nil {
			t.Errorf("%v whole at %d: %v", c.endpoint, whole, err)
		}
	}
}

func TestEveryChoiceHasToEnd(t *testing.T) {
	const open = `data: {"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}` + "\n\n"
	const first = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	const second = `data: {"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	if _, err := provider.Collect(provider.ChatCompletions, strings.NewReader(open+first), 1<<20); err != provider.ErrCut {
		t.Errorf("one of two: %v", err)
	}
	if _, err := provider.Collect(provider.ChatCompletions, strings.NewReader(open+first+second), 1<<20); err != nil {
		t.Errorf("both: %v", err)
	}
}

func TestChunksOfTheWrongTypesAreFolded(t *testing.T) {
	const begin, end = `data: {"choices":[{"index":0,"message":"x","delta":{"tool_calls":[{"index":{}},{"index":{}}]}}]}`, `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`
	m, err := provider.Collect(provider.ChatCompletions, strings.NewReader(begin+"\n\n"+end+"\n\n"), 1<<20)
	if all := provider.Replies(m.Body); err != nil || len(all) != 1 || all[0].Text != "a" {
		t.Errorf("%v: %s", err, m.Body)
	}
}

func TestErrorEventsEndTheStream(t *testing.T) {
	for name, c := range map[string]struct {
		endpoint provider.Endpoint
		event    string
	}{
		"anthropic":                    {provider.Messages, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"},
		"openai":                       {provider.ChatCompletions, "data: {\"error\":{\"message\":\"The server had an error\",\"type\":\"server_error\"}}\n\n"},
		"openrouter":                   {provider.ChatCompletions, "data: {\"error\":{\"code\":429,\"message\":\"slow\"},\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}]}\n\n"},
		"responses":                    {provider.Responses, "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"x\"}}}\n\n"},
		"only its name":                {provider.ChatCompletions, "event: error\ndata: something broke\n\n"},
		"gemini, an event":             {provider.StreamGenerateContent, "data: " + contentChunks[0] + "\r\n\r\ndata: " + contentOverload + "\r\n\r\n"},
		"gemini, an element":           {provider.StreamGenerateContent, "[" + contentChunks[0] + ",\r\n" + contentOverload + "]"},
		"gemini, an element, unclosed": {provider.StreamGenerateContent, "[" + contentChunks[0] + ",\r\n" + contentOverload},
		"gemini, alone":                {provider.StreamGenerateContent, contentOverload},
		"error as words":               {provider.ChatCompletions, "data: {\"error\":\"something broke\"}\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := provider.Collect(c.endpoint, strings.NewReader(c.event+"data: [DONE]\n\n"), 1<<20)
			if err != nil || m.Fault == nil {
				t.Errorf("%v %q", err, m.Fault)
			}
		})
	}
}

// The imitation of the providers writes its streams without any of our code.
func TestSimulatedStreamsCollectLikeWholeAnswers(t *testing.T) {
	server, err := sim.New(sim.Config{Latency: -1, OutputTokens: 20})
	if err != nil {
		t.Fatal(err)
	}
	rt := server.Transport()
	p := lookup(t, "sim")
	for e, body := range map[provider.Endpoint]string{
		provider.ChatCompletions: `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":50,"stream":true,"stream_options":{"include_usage":true}}`,
		provider.Responses:       `{"model":"m","input":"hi","max_output_tokens":50,"stream":true}`,
		provider.Messages:        `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":50,"stream":true}`,
		provider.CohereChat:      `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":50,"stream":true}`,
	} {
		req, err := p.NewRequest(t.Context(), provider.Target{Endpoint: e, Model: "m"}, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%v: %s", e, raw)
		}
		m, err := provider.Collect(e, bytes.NewReader(raw), 1<<20)
		if err != nil || !m.HasUsage || m.Usage.Output != 20 {
			t.Errorf("%v: %v %+v", e, err, m.Usage)
		}
		u, finish, ok := provider.ParseUsage(e, m.Body)
		if !ok || u != m.Usage || finish != m.FinishReason || !strings.Contains(string(m.Body), "sim:") {
			t.Errorf("%v: the message says %+v %q, the stream %+v %q: %s", e, u, finish, m.Usage, m.FinishReason, m.Body)
		}
	}
}

func FuzzCollect(f *testing.F) {
	f.Add("event: x\r\ndata: {\"a\":1}\r\n\r\n: c\n\ndata: [DONE]\n\n")
	f.Add("data: a\ndata: b\n\n\rdata")
	f.Add("\xef\xbb\xbfdata: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n")
	f.Add("data: {\"type\":\"content_block_start\",\"index\":-1,\"content_block\":{}}\n\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		for _, e := range []provider.Endpoint{provider.ChatCompletions, provider.Responses, provider.Messages, provider.CohereChat} {
			m, err := provider.Collect(e, strings.NewReader(stream), 1<<20)
			if u := m.Usage; u.Input < 0 || u.Output < 0 || u.CachedInput < 0 {
				t.Errorf("%+v", u)
			}
			if err == nil && m.Fault == nil && m.Body == nil && e != provider.Responses && !strings.Contains(stream, "[DONE]") && !strings.Contains(stream, "message_stop") &&
				!strings.Contains(stream, "response.") && !strings.Contains(stream, "stop_reason") && !strings.Contains(stream, "finish") && !strings.Contains(stream, "message") {
				t.Errorf("%v: nothing was collected, without an error", e)
			}
		}
	})
}

func TestBytesThatAreNotUTF8AreReplaced(t *testing.T) {
	events := func(data ...string) string {
		return "data: " + strings.Join(data, "\n\ndata: ") + "\n\ndata: [DONE]\n\n"
	}
	delta := func(text string) string { return `{"choices":[{"delta":{"content":"` + text + `"}}]}` }
	for _, test := range []struct {
		name   string
		e      provider.Endpoint
		status int
		kind   string
		body   string
		want   string // a part of the body
	}{
		{"whole", provider.ChatCompletions, 200, "application/json", "{\"x\xff\":1,\"choices\":[{\"message\":{\"content\":\"caf\xe9 \xc3\\ud83d!\"}}]}", `{"x�":1,"choices":[{"message":{"content":"caf� �\ufffd!"}}]}`},
		{"a rejection", provider.ChatCompletions, 400, "application/json", "{\"error\":{\"message\":\"caf\xe9\"}}", `{"error":{"message":"caf�"}}`},
		{"a stream", provider.ChatCompletions, 200, "text/event-stream", events(delta("caf\xe9 \xff"), "{\"x\xff\":1}"), `"content":"caf� �"`},
	} {
		base := func(*http.Request) (*http.Response, error) {
			return reply(test.status, iotest.OneByteReader(strings.NewReader(test.body)), "content-type", test.kind)
		}
		a, o := exchange(t, t.Context(), tripper(base), provider.ExchangeConfig{Endpoint: test.e})
		if (o.Kind == sluice.OK) != (test.status == 200) || !strings.Contains(string(a.Body), test.want) || !jsonscan.Valid(a.Body) {
			t.Errorf("%s: %v, %q, want %q", test.name, o.Err, a.Body, test.want)
		}
	}
}
