package provider_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

func TestCostIsReadFromTheBody(t *testing.T) {
	const image = `"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUA"`
	cases := []struct {
		name     string
		endpoint provider.Endpoint
		body     string
		want     sluice.Cost
	}{
		{"text", provider.ChatCompletions, `{"model":"m","messages":[{"role":"user","content":"hello world"}],"max_tokens":16}`, sluice.Cost{Input: 3, MaxOutput: 16}},
		{"choices multiply the output", provider.ChatCompletions, `{"messages":[{"role":"user","content":"hell"}],"n":3,"max_completion_tokens":10}`, sluice.Cost{Input: 1, MaxOutput: 30}},
		{"nothing is one token", provider.ChatCompletions, `{}`, sluice.Cost{Input: 1}},
		{"parts", provider.ChatCompletions, `{"messages":[{"role":"user","content":[{"type":"text","text":"12345678"}]}]}`, sluice.Cost{Input: 2}},
		{"an image", provider.ChatCompletions, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":` + image + `,"detail":"high"}}]}]}`, sluice.Cost{Input: 1500}},
		{"an image by address", provider.ChatCompletions, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}]}`, sluice.Cost{Input: 1500}},
		{"a sound", provider.ChatCompletions, `{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAABBBBCCCC","format":"wav"}}]}]}`, sluice.Cost{Input: 1500}},
		{"a file", provider.ChatCompletions, `{"messages":[{"role":"user","content":[{"type":"file","file":{"filename":"a.pdf","file_data":` + image + `}}]}]}`, sluice.Cost{Input: 1500}},
		{"two images and text", provider.Responses, `{"input":[{"role":"user","content":[{"type":"input_text","text":"1234"},{"type":"input_image","image_url":` + image + `},{"type":"input_image","file_id":"f"}]}]}`, sluice.Cost{Input: 3001}},
		{"instructions and input", provider.Responses, `{"instructions":"12345678","input":"1234","max_output_tokens":99}`, sluice.Cost{Input: 3, MaxOutput: 99}},
		{"system", provider.Messages, `{"system":[{"type":"text","text":"1234"}],"messages":[{"role":"user","content":"1234"}],"max_tokens":7}`, sluice.Cost{Input: 2, MaxOutput: 7}},
		{"an image of anthropic", provider.Messages, `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}]}]}`, sluice.Cost{Input: 1500}},
		{"a document that is text", provider.Messages, `{"messages":[{"role":"user","content":[{"type":"document","source":{"media_type":"text/plain","data":"12345678","type":"text"}}]}]}`, sluice.Cost{Input: 2}},
		{"the address that a tool was given is text", provider.Messages, `{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"get","input":{"url":"https://example.com/a"}}]}]}`, sluice.Cost{Input: 6}},
		{"an image that a tool returned", provider.Messages, `{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"base64","data":"AAAA"}}]}]}]}`, sluice.Cost{Input: 1500}},
		{"embeddings have no output", provider.Embeddings, `{"model":"e","input":["1234","12345678"],"max_tokens":5}`, sluice.Cost{Input: 3}},
		{"embeddings of tokens", provider.Embeddings, `{"model":"e","input":[[1,2,3],[4,5]]}`, sluice.Cost{Input: 5}},
		{"gemini's contents and instruction", provider.GenerateContent, `{"systemInstruction":{"parts":[{"text":"12345678"}]},"contents":[{"role":"user","parts":[{"text":"1234"}]},{"role":"model","parts":[{"text":"1234","thoughtSignature":"c2lnbmF0dXJl"}]}],"generationConfig":{"maxOutputTokens":20,"candidateCount":3,"temperature":1}}`, sluice.Cost{Input: 4, MaxOutput: 60}},
		{"the same, spelt as protocol buffers are", provider.GenerateContent, `{"system_instruction":{"parts":{"text":"12345678"}},"contents":[{"parts":[{"text":"12345678","thought_signature":"c2ln"}]}],"generation_config":{"max_output_tokens":20,"candidate_count":3}}`, sluice.Cost{Input: 4, MaxOutput: 60}},
		{"gemini's images and files", provider.StreamGenerateContent, `{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgo="}},{"inline_data":{"mime_type":"image/png","data":"iVBORw0KGgo="}},{"fileData":{"mimeType":"audio/mp3","fileUri":"https://x/files/a"}},{"file_data":{"file_uri":"gs://a/b"}},{"text":"1234"}]}]}`, sluice.Cost{Input: 6001}},
		{"gemini's tools", provider.GenerateContent, `{"contents":[{"parts":[{"functionCall":{"name":"f","args":{"url":"abcdefghi"}}},{"functionResponse":{"name":"f","response":{"data":"abcd"}}}]}],"tools":[{"a":"bcd"}],"generationConfig":{"responseSchema":{"a":"bcd"}}}`, sluice.Cost{Input: 7}},
		{"gemini's embeddings have no output", provider.EmbedContent, `{"model":"models/e","content":{"parts":[{"text":"12345678"}]},"generationConfig":{"maxOutputTokens":9}}`, sluice.Cost{Input: 2}},
		{"many of them", provider.BatchEmbedContents, `{"requests":[{"model":"models/e","taskType":"RETRIEVAL_QUERY","content":{"parts":[{"text":"12345678"}]},"outputDimensionality":768},{"model":"models/e","content":{"parts":[{"text":"1234"}]}}]}`, sluice.Cost{Input: 3}},
		{"gemini's nonsense", provider.GenerateContent, `{"contents":7,"systemInstruction":null,"generationConfig":{"maxOutputTokens":1e400,"candidateCount":1e400}}`, sluice.Cost{Input: 1, MaxOutput: 1 << 40}},
		{"gemini's bounds in a list", provider.GenerateContent, `{"contents":[],"generationConfig":[9]}`, sluice.Cost{Input: 1}},
		{"tools cost their words", provider.ChatCompletions, `{"tools":[{"type":"function","function":{"name":"abcd"}}]}`, sluice.Cost{Input: 7}},
		{"escapes count as what they mean", provider.ChatCompletions, `{"messages":[{"content":"\u00e9\n\ud83d\ude00x"}]}`, sluice.Cost{Input: 2}},
		{"claims that are nonsense", provider.ChatCompletions, `{"messages":[],"n":-4,"max_tokens":-100}`, sluice.Cost{Input: 1}},
		{"claims that are not numbers", provider.ChatCompletions, `{"messages":null,"n":"8","max_tokens":{"a":[1]}}`, sluice.Cost{Input: 1}},
		{"claims beyond counting", provider.ChatCompletions, `{"n":9e99,"max_tokens":1e400}`, sluice.Cost{Input: 1, MaxOutput: 1 << 40}},
		{"spaces everywhere", provider.ChatCompletions, " {\n\t\"max_tokens\" : 1e2 , \"messages\" : [ { \"content\" : \"1234\" } ] } \r\n", sluice.Cost{Input: 1, MaxOutput: 100}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := provider.Estimate(c.endpoint, []byte(c.body))
			if err != nil || got.Cost != c.want {
				t.Errorf("%+v, want %+v (%v)", got.Cost, c.want, err)
			}
		})
	}
}

func TestModelAndStreamAreRead(t *testing.T) {
	r, err := provider.Estimate(provider.ChatCompletions, []byte(`{"stream":true,"stream_options":{"include_usage":true},"service_tier":"flex","model":"a\u0062c","n":2}`))
	if err != nil || r.Model != "abc" || !r.Stream || r.N != 2 {
		t.Errorf("%+v %v", r, err)
	}
	r, err = provider.Estimate(provider.ChatCompletions, []byte(`{"stream":"true","model":7,"metadata":{"model":"no"}}`))
	if err != nil || r.Model != "" || r.Stream || r.N != 1 {
		t.Errorf("%+v %v", r, err)
	}
	r, err = provider.Estimate(provider.StreamGenerateContent, []byte(`{"stream":false,"generationConfig":{"candidateCount":4}}`))
	if err != nil || !r.Stream || r.N != 4 {
		t.Errorf("%+v %v", r, err)
	}
}

func TestBrokenJSONIsAnError(t *testing.T) {
	for _, body := range []string{"", "null", "[]", `"x"`, `{`, `{"a":1`, `{"a":1,}`, `{"a" 1}`, `{"a":01}`, `{"a":"` + "\n" + `"}`, `{"a":"\x"}`, `{"a":tru}`,
		`{"a":1}x`, `{"a":[1,]}`, `{,"a":1}`, `{"a":"\u12g4"}`, `{"a":.5}`, `{"a":1.}`, `{"a":-}`, `{"messages":[{"content":"abc}`, strings.Repeat(`{"a":[`, 20000)} {
		if r, err := provider.Estimate(provider.ChatCompletions, []byte(body)); !errors.Is(err, provider.ErrNotObject) || r.Cost.Input < 1 {
			t.Errorf("%.40q: %v", body, err)
		}
	}
}

func FuzzEstimate(f *testing.F) {
	f.Add(`{"model":"m","messages":[{"role":"user","content":"hello world"}],"max_tokens":16}`)
	f.Add(`{"system":[{"type":"text","text":"1234"}],"messages":[{"content":[{"type":"image","source":{"type":"base64","data":"AAAA"}}]}],"tools":[{"a":1}]}`)
	f.Add(`{"input":[[1,2],"data:x",{"image_url":{"url":"x"}}],"n":1e400,"stream_options":{"include_usage":true}}`)
	f.Add(`{"a":"\ud83d\ude00\n","b":[true,false,null,-0.5e+7]}`)
	f.Add(`{"a":"` + "\x01" + `"}`)
	f.Add(`{"contents":[{"parts":[{"text":"a"},{"inlineData":{"data":"AA"}}]}],"generation_config":{"maxOutputTokens":1e99,"candidateCount":-1}}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, e := range []provider.Endpoint{provider.ChatCompletions, provider.Responses, provider.Embeddings, provider.Messages, provider.GenerateContent} {
			r, err := provider.Estimate(e, []byte(body))
			object := strings.HasPrefix(strings.TrimLeft(body, " \t\r\n"), "{") && json.Valid([]byte(body))
			if (err == nil) != object {
				t.Fatalf("error %v, valid %v", err, object)
			}
			if r.Cost.Input < 1 || r.Cost.MaxOutput < 0 || r.N < 1 || r.Cost.MaxOutput > 1<<40 || r.Cost.Input > 1+1500*len(body) {
				t.Fatalf("%+v", r)
			}
			var m struct{ Model string }
			if object && json.Unmarshal([]byte(body), &m) == nil && r.Model != m.Model && strings.Count(strings.ToLower(body), "model") == 1 && !strings.Contains(body, `\`) && strings.Contains(body, `"model"`) {
				t.Fatalf("model %q, want %q", r.Model, m.Model)
			}
		}
	})
}

func TestACompressedRequestIsEstimatedByItsContent(t *testing.T) {
	var got sluice.Call
	tr, _ := transport(t, replies(200, chatAnswer), func(c *provider.Config, _ *sluice.Config) {
		c.Call = func(_ *http.Request, call sluice.Call) sluice.Call { got = call; return call }
	})
	var body bytes.Buffer
	w := gzip.NewWriter(&body)
	io.WriteString(w, chatRequest)
	w.Close()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, chatURL, &body)
	req.Header.Set("Content-Encoding", "gzip")
	if resp, err := tr.RoundTrip(req); err != nil || got.Lane != "m" || got.Cost != (sluice.Cost{Input: 2, MaxOutput: 16}) {
		t.Errorf("%+v, %v, %v", got, resp, err)
	}
}
