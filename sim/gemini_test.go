package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sluice-llm/sluice/sim"
)

const (
	geminiModel  = "/v1beta/models/gemini-2.5-flash"
	geminiPath   = geminiModel + ":generateContent"
	geminiStream = geminiModel + ":streamGenerateContent"
)

// geminiBody is a request of the given number of input tokens.
func geminiBody(name string, input, maxTokens int) string {
	text := name + strings.Repeat("x", max(0, 4*input-len(name)))
	limit := ""
	if maxTokens > 0 {
		limit = fmt.Sprintf(`,"generationConfig":{"maxOutputTokens":%d}`, maxTokens)
	}
	return fmt.Sprintf(`{"contents":[{"role":"user","parts":[{"text":%q}]}]%s}`, text, limit)
}

func TestGenerateContent(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{OutputTokens: 11, RPM: 100, ITPM: 1000})
		body := `{"contents":[{"parts":[{"text":"hello, world"}]}],"systemInstruction":{"parts":[{"text":"1234"}]},"generationConfig":{"candidateCount":2,"maxOutputTokens":40}}`
		r := send(ctx, s, geminiPath, body)
		equal(t, "status", r.status, 200)
		equal(t, "took", r.took, 200*time.Millisecond)
		golden(t, body, r.body, `{"candidates":[
{"content":{"parts":[{"text":"sim:HASH and and"}],"role":"model"},"finishReason":"STOP","index":0},
{"content":{"parts":[{"text":"sim:HASH and and"}],"role":"model"},"finishReason":"STOP","index":1}],
"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":22,"totalTokenCount":26,"promptTokensDetails":[{"modality":"TEXT","tokenCount":4}]},
"modelVersion":"gemini-2.5-flash","responseId":"HASH"}`)
		var names []string
		for name := range r.header {
			names = append(names, name)
		}
		slices.Sort(names)
		equal(t, "headers", strings.Join(names, " "), "Content-Length Content-Type Date")
		equal(t, "paid", s.Stats().Paid[sim.RequestHash([]byte(body))], 1)
	})
}

// Every spelling of one request that Google's JSON allows.
// https://protobuf.dev/programming-guides/json/
func TestGeminiFieldsHaveTwoNames(t *testing.T) {
	for _, body := range []string{
		`{"contents":[{"parts":[{"text":"hello, world"}]}],"systemInstruction":{"parts":[{"text":"1234"}]},"generationConfig":{"candidateCount":2,"maxOutputTokens":10}}`,
		`{"contents":[{"parts":[{"text":"hello, world"}]}],"system_instruction":{"parts":[{"text":"1234"}]},"generation_config":{"candidate_count":2,"max_output_tokens":10}}`,
		`{"contents":{"parts":{"text":"hello, world"}},"system_instruction":{"parts":{"text":"1234"}},"generationConfig":{"candidateCount":"2","maxOutputTokens":10.0}}`,
		`{"model":"models/other","stream":true,"contents":[{"parts":[{"text":"hello, world"},{"text":"1234"}]}],"generationConfig":{"candidate_count":2,"candidateCount":null,"maxOutputTokens":"1e1"}}`,
	} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			r := send(ctx, serve(t, sim.Config{}), strings.Replace(geminiPath, "v1beta", "v1", 1), body)
			contains(t, "body", r.body, `"finishReason":"MAX_TOKENS","index":1}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":20,"totalTokenCount":24,`)
			contains(t, "body", r.body, `"modelVersion":"gemini-2.5-flash"`)
		})
	}
}

// geminiPart is one part of a stream.
type geminiPart struct {
	Candidates []struct {
		Content struct {
			Parts []struct{ Text string }
			Role  string
		}
		FinishReason string
		Index        int
	}
	UsageMetadata struct{ PromptTokenCount, CandidatesTokenCount, TotalTokenCount int }
	ModelVersion  string
	ResponseID    string
}

// geminiParts reads the whole body of a stream, in either framing.
func geminiParts(t *testing.T, body string) (parts []geminiPart) {
	t.Helper()
	if strings.HasPrefix(body, "[") {
		if err := json.Unmarshal([]byte(body), &parts); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		return parts
	}
	for event := range strings.SplitSeq(strings.TrimSuffix(body, "\r\n\r\n"), "\r\n\r\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		var part geminiPart
		if err := json.Unmarshal([]byte(data), &part); err != nil || !ok {
			t.Fatalf("%v in %q", err, event)
		}
		parts = append(parts, part)
	}
	return parts
}

func TestGeminiStream(t *testing.T) {
	for query, kind := range map[string]string{"?alt=sse": "text/event-stream; charset=utf-8", "": "application/json", "?alt=json": "application/json"} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, sim.Config{OutputTokens: 30, PerToken: 10 * time.Millisecond})
			body := `{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"maxOutputTokens":20,"candidateCount":2}}`
			r := send(ctx, s, geminiStream+query, body)
			equal(t, "type", r.header.Get("Content-Type"), kind)
			equal(t, "took", r.took, 600*time.Millisecond)
			parts := geminiParts(t, r.body)
			equal(t, "parts", len(parts), 20+20+1)
			texts := [2]string{}
			for i, part := range parts {
				last := i == len(parts)-1
				for _, candidate := range part.Candidates {
					texts[candidate.Index] += candidate.Content.Parts[0].Text
					equal(t, "role", candidate.Content.Role, "model")
					equal(t, "finish", candidate.FinishReason, map[bool]string{true: "MAX_TOKENS"}[last])
				}
				equal(t, "tokens so far", part.UsageMetadata.CandidatesTokenCount, min(i+1, 40))
				equal(t, "tokens in all", part.UsageMetadata.TotalTokenCount, min(i+1, 40)+1)
				equal(t, "response id", part.ResponseID, sim.RequestHash([]byte(body)))
			}
			want := "sim:" + sim.RequestHash([]byte(body)) + strings.Repeat(" and", 11)
			equal(t, "texts", texts, [2]string{want, want})
			equal(t, "paid", s.Stats().Paid[sim.RequestHash([]byte(body))], 1)
		})
	}
}

func TestGeminiStreamIsCut(t *testing.T) {
	for _, path := range []string{geminiPath, geminiStream, geminiStream + "?alt=sse"} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, sim.Config{Faults: sim.Faults{Cut: 1}})
			r := send(ctx, s, path, geminiBody("a", 1, 50))
			if r.status != 200 || len(r.body) == 0 || r.err != io.ErrUnexpectedEOF {
				t.Errorf("a cut is %d, %v after %q", r.status, r.err, r.body)
			}
			equal(t, "faulted", s.Stats().Faulted, 1)
		})
	}
}

func TestGeminiEmbeddings(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{PerToken: time.Second})
		var one struct{ Embedding struct{ Values []float32 } }
		r := send(ctx, s, geminiModel+":embedContent", `{"model":"models/e","content":{"parts":[{"text":"12345"}]}}`)
		if err := json.Unmarshal([]byte(r.body), &one); err != nil {
			t.Fatal(err)
		}
		equal(t, "length", len(one.Embedding.Values), 8)
		equal(t, "took", r.took, 200*time.Millisecond)

		var many struct{ Embeddings []struct{ Values []float32 } }
		r = send(ctx, s, geminiModel+":batchEmbedContents", `{"requests":[{"content":{"parts":[{"text":"1234"}]}},{"content":{"parts":[{"text":"5678"}]}}]}`)
		if err := json.Unmarshal([]byte(r.body), &many); err != nil {
			t.Fatal(err)
		}
		equal(t, "vectors", len(many.Embeddings), 2)
		if cmp.Equal(many.Embeddings[0], many.Embeddings[1]) {
			t.Error("different prompts have the same vector")
		}
		equal(t, "input", s.Stats().InputTokens, 2+2)
	})
}

func TestCountingTokensIsNoCall(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{RPM: 1})
		for _, body := range []string{
			`{"contents":[{"parts":[{"text":"hello, world"}]}]}`,
			`{"generateContentRequest":{"contents":[{"parts":[{"text":"hello, "}]}],"systemInstruction":{"parts":[{"text":"world"}]}}}`,
		} {
			r := send(ctx, s, geminiModel+":countTokens", body)
			equal(t, "body", r.body, `{"totalTokens":3,"promptTokensDetails":[{"modality":"TEXT","tokenCount":3}]}`)
		}
		equal(t, "requests", s.Stats().Requests, 0)
	})
}

func TestGeminiModelsAreListed(t *testing.T) {
	s := serve(t, sim.Config{Models: []string{"gemini-2.5-flash"}})
	for target, want := range map[string]string{
		"/v1beta/models":    `{"models":[{"name":"models/gemini-2.5-flash",`,
		"/v1/models?key=me": `{"models":[{"name":"models/gemini-2.5-flash",`,
		"/v1/models":        `{"object":"list",`,
	} {
		response, err := (&http.Client{Transport: s.Transport()}).Get(baseURL + target)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if !strings.HasPrefix(string(body), want) || !json.Valid(body) {
			t.Errorf("%s answers %s", target, body)
		}
	}
}

// quoted is a body that Google sent or documents.
func quoted(t *testing.T, name string) any {
	t.Helper()
	file, err := os.ReadFile("testdata/gemini.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]struct{ Body any }
	if err := json.Unmarshal(file, &all); err != nil || all[name].Body == nil {
		t.Fatal(name, err)
	}
	return all[name].Body
}

// shape adds the paths of v to paths, each with its kind. Elements of an array
// share a path, but for details, which have a type each.
func shape(paths map[string]bool, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		if kind, ok := v["@type"].(string); ok {
			at += "<" + kind + ">"
		}
		for name, member := range v {
			shape(paths, at+"."+name, member)
		}
	case []any:
		for _, element := range v {
			shape(paths, at+"[]", element)
		}
	default:
		paths[fmt.Sprintf("%s %T", at, v)] = true
	}
}

func TestGeminiBodiesHaveTheShapeOfQuotedOnes(t *testing.T) {
	for name, test := range map[string]struct {
		path   string
		config sim.Config
	}{
		"standard": {geminiPath, sim.Config{}},
		"chunk":    {geminiStream, sim.Config{}},
		"quota":    {geminiPath, sim.Config{ITPM: 60, Changes: []sim.Change{{Factor: 0.2}}}},
		"key":      {geminiPath, sim.Config{Key: "right"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := serve(t, quick(test.config))
				r := send(ctx, s, test.path, geminiBody("a", 12, 0), "X-Goog-Api-Key", "wrong")
				if name == "quota" {
					r = send(ctx, s, test.path, geminiBody("b", 12, 0))
				}
				var got any
				if err := json.Unmarshal([]byte(r.body), &got); err != nil {
					t.Fatal(err)
				}
				if parts, ok := got.([]any); ok {
					got = parts[0]
				}
				have, want := map[string]bool{}, map[string]bool{}
				shape(have, "", got)
				shape(want, "", quoted(t, name))
				for path := range want {
					if !have[path] {
						t.Errorf("%s is missing in %s", path, r.body)
					}
				}
			})
		})
	}
}
