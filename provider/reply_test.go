package provider_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-llm/sluice/provider"
)

// saidReply is what a test expects of one choice.
type saidReply struct {
	text, content, finish, refusal string
	calls                          []string
	other                          bool
	sorts                          string // cut, filtered, refused, empty
}

func sortsOf(r provider.Reply) string {
	var all []string
	for _, s := range []struct {
		is   bool
		name string
	}{{r.Cut(), "cut"}, {r.Filtered(), "filtered"}, {r.Refused(), "refused"}, {r.Empty(), "empty"}} {
		if s.is {
			all = append(all, s.name)
		}
	}
	return strings.Join(all, " ")
}

func TestRepliesOfEveryDialect(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       []saidReply
	}{
		{"a chat completion", `{"choices":[{"index":0,"message":{"role":"assistant","content":"a\n\"b\"","refusal":null,"annotations":[]},"finish_reason":"stop"}],"usage":{}}`,
			[]saidReply{{text: "a\n\"b\"", finish: "stop"}}},
		{"several choices, in the order of their indices", `{"choices":[{"index":1,"message":{"content":"b"},"finish_reason":"length"},{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}`,
			[]saidReply{{text: "a", finish: "stop"}, {text: "b", finish: "length", sorts: "cut"}}},
		{"content in parts, thoughts left out", `{"choices":[{"message":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"text":"a","type":"text"},{"type":"text","text":"b"}],"reasoning_content":"hm"}}]}`,
			[]saidReply{{text: "ab"}}},
		{"tool calls of chat", `{"choices":[{"message":{"content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"type":"custom","custom":{"name":"g","input":"x"}}]},"finish_reason":"tool_calls"}]}`,
			[]saidReply{{calls: []string{`{"a":1}`, "x"}, content: "{\"a\":1}\nx", finish: "tool_calls"}}},
		{"text beside a tool call", `{"choices":[{"message":{"content":"so","function_call":{"name":"f","arguments":"{}"}}}]}`,
			[]saidReply{{text: "so", content: "so", calls: []string{"{}"}}}},
		{"a call without arguments", `{"choices":[{"message":{"tool_calls":[{"function":{"name":"f"}}]}}]}`,
			[]saidReply{{calls: []string{"{}"}, content: "{}"}}},
		{"a refusal of chat", `{"choices":[{"message":{"content":null,"refusal":"I can't."},"finish_reason":"stop"}]}`,
			[]saidReply{{finish: "stop", refusal: "I can't.", sorts: "refused empty"}}},
		{"a filter of chat", `{"choices":[{"message":{"content":""},"finish_reason":"content_filter"}]}`,
			[]saidReply{{finish: "content_filter", refusal: "content_filter", sorts: "filtered empty"}}},
		{"an answer that is spoken", `{"choices":[{"message":{"content":null,"audio":{"data":"AAAA","transcript":"hi"}},"finish_reason":"stop"}]}`,
			[]saidReply{{finish: "stop", other: true}}},
		{"an old completion", `{"object":"text_completion","choices":[{"text":"a","index":0,"finish_reason":"length"},{"text":"b","index":1}]}`,
			[]saidReply{{text: "a", finish: "length", sorts: "cut"}, {text: "b"}}},
		{"a response", `{"object":"response","status":"completed","text":{"format":{"type":"text"}},"output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},{"content":[{"type":"output_text","text":"a"},{"type":"output_text","text":"b"}],"type":"message"}],"incomplete_details":null}`,
			[]saidReply{{text: "ab", finish: "completed"}}},
		{"a response that is cut off", `{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[{"type":"reasoning","summary":[]}]}`,
			[]saidReply{{finish: "max_output_tokens", sorts: "cut empty"}}},
		{"a response that is filtered", `{"output":[],"incomplete_details":{"reason":"content_filter"},"status":"incomplete"}`,
			[]saidReply{{finish: "content_filter", refusal: "content_filter", sorts: "filtered empty"}}},
		{"a response that refuses", `{"status":"completed","output":[{"type":"message","content":[{"type":"refusal","refusal":"No."}]}]}`,
			[]saidReply{{finish: "completed", refusal: "No.", sorts: "refused empty"}}},
		{"calls of a response", `{"status":"completed","output":[{"arguments":"{\"a\":1}","type":"function_call","name":"f"},{"type":"custom_tool_call","input":"x"}]}`,
			[]saidReply{{calls: []string{`{"a":1}`, "x"}, content: "{\"a\":1}\nx", finish: "completed"}}},
		{"an image of a response", `{"status":"completed","output":[{"type":"image_generation_call","result":"AAAA"}]}`,
			[]saidReply{{finish: "completed", other: true}}},
		{"a message", `{"type":"message","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"a","citations":[{"cited_text":"z"}]},{"type":"text","text":"b"}],"stop_reason":"end_turn"}`,
			[]saidReply{{text: "ab", finish: "end_turn"}}},
		{"a tool use", `{"type":"message","content":[{"type":"tool_use","id":"t","name":"f","input": {"a": 1}}],"stop_reason":"tool_use"}`,
			[]saidReply{{calls: []string{`{"a": 1}`}, content: `{"a": 1}`, finish: "tool_use"}}},
		{"a message that refuses", `{"type":"message","content":[],"stop_reason":"refusal","stop_details":{"type":"refusal","category":"cyber","explanation":"not that"}}`,
			[]saidReply{{finish: "refusal", refusal: "not that", sorts: "refused empty"}}},
		{"a message that refuses and says no more", `{"content":[{"type":"text","text":"I"}],"stop_reason":"refusal"}`,
			[]saidReply{{text: "I", finish: "refusal", refusal: "refusal", sorts: "refused"}}},
		{"a message that fills the context", `{"content":[{"type":"text","text":"I"}],"stop_reason":"model_context_window_exceeded"}`,
			[]saidReply{{text: "I", finish: "model_context_window_exceeded", sorts: "cut"}}},
		{"content of Gemini", `{"candidates":[{"content":{"parts":[{"text":"hm","thought":true},{"thought":false,"text":"a"},{"text":"b"}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{}}`,
			[]saidReply{{text: "ab", finish: "STOP"}}},
		{"a call of Gemini", `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1}},"thoughtSignature":"s"}]},"finishReason":"STOP"}]}`,
			[]saidReply{{calls: []string{`{"a":1}`}, content: `{"a":1}`, finish: "STOP"}}},
		{"an image of Gemini", `{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]},"finishReason":"STOP"}]}`,
			[]saidReply{{finish: "STOP", other: true}}},
		{"Gemini's filter", `{"candidates":[{"finishReason":"SAFETY","finishMessage":"unsafe","index":0}]}`,
			[]saidReply{{finish: "SAFETY", refusal: "unsafe", sorts: "filtered empty"}}},
		{"a message of Gemini's that is no refusal", `{"candidates":[{"finishMessage":"bad call","finishReason":"MALFORMED_FUNCTION_CALL"}]}`,
			[]saidReply{{finish: "MALFORMED_FUNCTION_CALL", sorts: "empty"}}},
		{"a prompt that Gemini blocks", `{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":3}}`,
			[]saidReply{{finish: "PROHIBITED_CONTENT", refusal: "PROHIBITED_CONTENT", sorts: "filtered empty"}}},
		{"a prompt that Gemini blocks for another reason", `{"promptFeedback":{"blockReasonMessage":"no","blockReason":"OTHER"}}`,
			[]saidReply{{finish: "OTHER", refusal: "no", sorts: "filtered empty"}}},
		{"the chunks of Gemini", `[{"candidates":[{"content":{"parts":[{"text":"a"}]},"index":0},{"content":{"parts":[{"text":"x"}]},"index":1}]},{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"MAX_TOKENS","index":0}],"promptFeedback":{"safetyRatings":[]}}]`,
			[]saidReply{{text: "ab", finish: "MAX_TOKENS", sorts: "cut"}, {text: "x"}}},
		{"names with escapes", `{"choi\u0063es":[{"m\u0065ssage":{"content":"a"}}]}`, []saidReply{{text: "a"}}},
		{"an empty list of content", `{"type":"message","content":[],"stop_reason":"end_turn"}`, []saidReply{{finish: "end_turn", sorts: "empty"}}},
		{"nothing but space", `{"choices":[{"message":{"content":" \n"}}]}`, []saidReply{{text: " \n", sorts: "empty"}}},
		{"embeddings", `{"object":"list","data":[{"embedding":[0.1]}]}`, nil},
		{"embeddings of Gemini", `{"embedding":{"values":[0.1]}}`, nil},
		{"an error", `{"error":{"message":"no","content":["x"]}}`, nil},
		{"no JSON", `<html>`, nil},
		{"half an answer", `{"choices":[{"message":{"content":"a"}}]`, nil},
		{"nothing", ``, nil},
		{"things of other kinds", `{"choices":[1,null,{"message":"a","index":"x"}],"content":"a","output":{},"promptFeedback":3}`, []saidReply{{sorts: "empty"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []saidReply
			for _, r := range provider.Replies([]byte(c.body)) {
				got = append(got, saidReply{text: r.Text, content: r.Content(), finish: r.Finish, refusal: r.Refusal, calls: r.Calls, other: r.Other, sorts: sortsOf(r)})
			}
			for i := range c.want {
				if c.want[i].content == "" {
					c.want[i].content = c.want[i].text
				}
			}
			if d := cmp.Diff(c.want, got, cmp.AllowUnexported(saidReply{}), cmpopts.EquateEmpty()); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

func TestMessagesWithinMessagesAreNotRead(t *testing.T) {
	// A body of nothing but them would else be read once for each.
	const depth = 3000
	body := `{"output":` + strings.Repeat(`[{"type":"message","content":`, depth) + `"x"` + strings.Repeat(`}]`, depth) + `}`
	if got := provider.Replies([]byte(body)); len(got) != 1 || got[0].Text != "" {
		t.Errorf("%+v", got)
	}
}

// FuzzReplies looks at whether spaces change anything.
func FuzzReplies(f *testing.F) {
	for _, s := range []string{
		`{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}`,
		`{"content":[{"type":"text","text":"a"}],"stop_reason":"refusal"}`,
		`{"output":[{"type":"message","content":[{"type":"output_text","text":"a"}]}],"status":"completed"}`,
		`[{"candidates":[{"content":{"parts":[{"text":"a","thought":true}]},"finishReason":"STOP"}]}]`,
		`{"promptFeedback":{"blockReason":"OTHER"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		replies := provider.Replies(body)
		if len(replies) > 0 && !json.Valid(body) {
			t.Fatalf("%q is no JSON and has replies %+v", body, replies)
		}
		var compact bytes.Buffer
		if json.Compact(&compact, body) == nil {
			same := cmp.Options{cmp.AllowUnexported(provider.Reply{}), cmpopts.IgnoreFields(provider.Reply{}, "Calls")} // whose JSON has spaces
			if d := cmp.Diff(replies, provider.Replies(compact.Bytes()), same); d != "" {
				t.Fatalf("without spaces: %s", d)
			}
		}
		for _, r := range replies {
			if r.Empty() && strings.TrimSpace(r.Content()) != "" {
				t.Fatalf("%+v is empty", r)
			}
		}
	})
}

func TestTurnsAreAppended(t *testing.T) {
	for _, c := range []struct {
		name     string
		e        provider.Endpoint
		body     string
		want     string // "" is unchanged
		noAnswer bool
	}{
		{name: "chat", e: provider.ChatCompletions, body: `{"model":"m","messages":[{"role":"user","content":"q"}],"n":1}`,
			want: `{"model":"m","messages":[{"role":"user","content":"q"},{"role":"assistant","content":"A"},{"role":"user","content":"E"}],"n":1}`},
		{name: "chat without an answer", e: provider.ChatCompletions, body: `{"messages":[{"role":"user","content":"q"}]}`, noAnswer: true,
			want: `{"messages":[{"role":"user","content":"q"},{"role":"user","content":"E"}]}`},
		{name: "no messages at all", e: provider.ChatCompletions, body: `{"messages":[ ]}`,
			want: `{"messages":[ {"role":"assistant","content":"A"},{"role":"user","content":"E"}]}`},
		{name: "the last of two members counts", e: provider.ChatCompletions, body: `{"messages":[1],"m\u0065ssages":[{}]}`,
			want: `{"messages":[1],"m\u0065ssages":[{},{"role":"assistant","content":"A"},{"role":"user","content":"E"}]}`},
		{name: "messages", e: provider.Messages, body: `{"messages":[{"role":"user","content":[{"type":"text","text":"q"}]}]}`,
			want: `{"messages":[{"role":"user","content":[{"type":"text","text":"q"}]},{"role":"assistant","content":"A"},{"role":"user","content":"E"}]}`},
		{name: "responses with a list", e: provider.Responses, body: `{"input":[{"role":"user","content":"q"}],"stream":true}`,
			want: `{"input":[{"role":"user","content":"q"},{"role":"assistant","content":"A"},{"role":"user","content":"E"}],"stream":true}`},
		{name: "responses with a text", e: provider.Responses, body: `{"input" : "q\n\"x\"" ,"a":"input"}`,
			want: `{"input" : [{"role":"user","content":"q\n\"x\""},{"role":"assistant","content":"A"},{"role":"user","content":"E"}] ,"a":"input"}`},
		{name: "Gemini", e: provider.GenerateContent, body: `{"contents":[{"parts":[{"text":"q"}]},{"role":"model","parts":[]},{}]}`,
			want: `{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[]},{"role":"user"},{"role":"model","parts":[{"text":"A"}]},{"role":"user","parts":[{"text":"E"}]}]}`},
		{name: "a stream of Gemini", e: provider.StreamGenerateContent, body: `{"contents":[]}`,
			want: `{"contents":[{"role":"model","parts":[{"text":"A"}]},{"role":"user","parts":[{"text":"E"}]}]}`},
		{name: "a body without a conversation", e: provider.Responses, body: `{"prompt":{"id":"p"}}`},
		{name: "contents that are no list", e: provider.GenerateContent, body: `{"contents":{"parts":[]}}`},
		{name: "messages that are a text", e: provider.ChatCompletions, body: `{"messages":"x"}`},
		{name: "embeddings", e: provider.Embeddings, body: `{"input":"x"}`},
		{name: "no JSON", e: provider.ChatCompletions, body: `{"messages":[]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer, user := `say "{}" \ `+"\u0001\n", `at /"a": <no>`
			said := strings.NewReplacer(`"A"`, quoted(answer), `"E"`, quoted(user))
			if c.noAnswer {
				answer = " \n"
			}
			body := []byte(c.body)
			got, ok := provider.AppendTurns(body, c.e, answer, user)
			if ok != (c.want != "") || ok && string(got) != said.Replace(c.want) {
				t.Errorf("%v\n%s\nwant\n%s", ok, got, said.Replace(c.want))
			}
			if string(body) != c.body {
				t.Errorf("the body was changed to %s", body)
			}
		})
	}
}

// quoted returns a text as JSON.
func quoted(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}

// FuzzAppendTurns looks at whether what it makes is JSON with the same members otherwise.
func FuzzAppendTurns(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"q"}],"a":1}`), uint8(provider.ChatCompletions), "a", "u")
	f.Add([]byte(`{"input":"q"}`), uint8(provider.Responses), "\"", "\\")
	f.Add([]byte(`{"contents":[{},{"parts":[]}]}`), uint8(provider.GenerateContent), "", "\xff")
	f.Fuzz(func(t *testing.T, body []byte, e uint8, answer, user string) {
		got, ok := provider.AppendTurns(body, provider.Endpoint(e), answer, user)
		if !ok {
			return
		}
		var before, after map[string]any
		if err := json.Unmarshal(body, &before); err != nil {
			t.Fatalf("took %q: %v", body, err)
		}
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("made %q of %q: %v", got, body, err)
		}
		for _, name := range []string{"messages", "input", "contents"} {
			delete(before, name)
			delete(after, name)
		}
		if d := cmp.Diff(before, after); d != "" {
			t.Errorf("other members changed: %s", d)
		}
	})
}
