package batchjob_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/provider"
)

// apiOf is the Batch API of a published provider at an address; "" is where nobody listens.
func apiOf(t testing.TB, name, base string) (batchjob.API, provider.Provider) {
	t.Helper()
	p, ok := provider.Lookup(name)
	if !ok {
		t.Fatalf("no provider %s", name)
	}
	if base == "" {
		base = "http://127.0.0.1:1"
	}
	api, err := batchjob.NewAPI(p, provider.Target{BaseURL: base, Key: sentinel}, http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	return api, p
}

// parsed is a line of results, what it says, and how the answer is classified.
type parsed struct {
	name, line string
	want       batchjob.Result // Body apart
	body       string
	kind       sluice.Kind
}

func (of *parsed) check(t *testing.T, api batchjob.API, p provider.Provider) {
	got, err := api.ParseResult([]byte(of.line))
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Body) != of.body {
		t.Errorf("body %s, want %s", got.Body, of.body)
	}
	if v := provider.Classify(p, got.Status, nil, got.Body, time.Now()); v.Kind != of.kind {
		t.Errorf("classified as %v (%v), want %v", v.Kind, v.Why, of.kind)
	}
	if got.ID != of.want.ID || got.Fate != of.want.Fate || got.Status != of.want.Status || got.RequestID != of.want.RequestID {
		t.Errorf("got %+v, want %+v", got, of.want)
	}
}

func result(id string, status int, requestID string) batchjob.Result {
	return batchjob.Result{ID: id, Fate: batchjob.Answered, Status: status, RequestID: requestID}
}

// TestLinesOfGemini: answers, and errors of google.rpc under both names.
func TestLinesOfGemini(t *testing.T) {
	api, p := apiOf(t, "gemini", "")
	const answer = `{"candidates":[{"content":{"parts":[{"text":"Paris"}],"role":"model"},"finishReason":"STOP"}],"responseId":"r1"}`
	for _, of := range []parsed{
		{"an answer", `{"response":` + answer + `,"key":"a"}`, result("a", 200, "r1"), answer, sluice.OK},
		{"an answer with a null error", `{"key":"a","error":null,"response":` + answer + `}`, result("a", 200, "r1"), answer, sluice.OK},
		{"an embedding", `{"key":"a","response":{"embedding":{"values":[0.5]}}}`, result("a", 200, ""), `{"embedding":{"values":[0.5]}}`, sluice.OK},
		{
			// https://github.com/googleapis/python-genai/issues/1341
			"an internal error", `{"key":"a","error":{"message":"An internal error has occurred. Please retry or report","code":13}}`,
			result("a", 500, ""), `{"error":{"message":"An internal error has occurred. Please retry or report","code":13}}`, sluice.ServerError,
		},
		{
			// https://github.com/googleapis/python-genai/issues/2693
			"a bad request", `{"key":"a","error":{"code":3,"message":"Request contains an invalid argument."}}`,
			result("a", 400, ""), `{"error":{"code":3,"message":"Request contains an invalid argument."}}`, sluice.BadRequest,
		},
		{"a status object", `{"key":"a","status":{"code":14,"message":"The service is unavailable."}}`, result("a", 503, ""),
			`{"error":{"code":14,"message":"The service is unavailable."}}`, sluice.Overloaded},
		{"an exhausted quota", `{"key":"a","error":{"code":8,"message":"Resource has been exhausted (e.g. check quota)."}}`, result("a", 429, ""),
			`{"error":{"code":8,"message":"Resource has been exhausted (e.g. check quota)."}}`, sluice.RateLimit},
		{"a late one", `{"key":"a","error":{"code":4,"message":"Deadline expired before operation could complete."}}`, result("a", 504, ""),
			`{"error":{"code":4,"message":"Deadline expired before operation could complete."}}`, sluice.Timeout},
		{"a status of HTTP", `{"key":"a","error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}`, result("a", 503, ""),
			`{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}`, sluice.Overloaded},
		{"a cancelled one", `{"key":"a","error":{"code":1,"message":"cancelled"}}`,
			batchjob.Result{ID: "a", Fate: batchjob.CalledOff, Status: 499}, `{"error":{"code":1,"message":"cancelled"}}`, sluice.BadRequest},
	} {
		t.Run(of.name, func(t *testing.T) { of.check(t, api, p) })
	}
	senseless(t, api, `{"response":{}}`, `{"key":"a"}`, `{"key":"","response":{}}`, `{"key":1,"response":{}}`, `{"key":"a","response":[]}`,
		`{"key":"a","error":"words"}`, `{"key":"a","response":{}`, `[]`, ``, `{"key":"a","response":{}}{}`)
}

func senseless(t *testing.T, api batchjob.API, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if r, err := api.ParseResult([]byte(line)); err == nil {
			t.Errorf("%s: read as %+v, want an error", line, r)
		}
	}
}
