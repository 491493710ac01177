package batchjob_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"mime/multipart"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/provider"
)

// batchObject is the example of https://platform.openai.com/docs/api-reference/batch/object, with our metadata.
const batchObject = `{"id":"batch_abc123","object":"batch","endpoint":"/v1/chat/completions","errors":null,"input_file_id":"file-abc123",
	"completion_window":"24h","status":"completed","output_file_id":"file-cvaTdG","error_file_id":"file-HOWS94","created_at":1711471533,
	"in_progress_at":1711471538,"expires_at":1711557933,"finalizing_at":1711493133,"completed_at":1711493163,"failed_at":null,
	"expired_at":null,"cancelling_at":null,"cancelled_at":null,"request_counts":{"total":100,"completed":95,"failed":5},
	"metadata":{"sluice_part":"0123456789ab"}}`

func TestOpenAIUploadsAndCreatesAsDocumented(t *testing.T) {
	s := serve(t, answer{body: `{"id":"file-abc123","object":"file","bytes":140,"created_at":1613779121,"filename":"0123456789ab.jsonl","purpose":"batch"}`},
		answer{body: batchObject})
	api := s.api(t, "openai")
	p := part(provider.ChatCompletions, "{\"a\":1}\n{\"b\":2}\n", 2)
	file, err := api.Upload(t.Context(), p)
	if err != nil || file != "file-abc123" {
		t.Fatal(file, err)
	}
	up := s.seen[0]
	_, params, err := mime.ParseMediaType(up.header.Get("Content-Type"))
	if err != nil || up.call != "POST /v1/files" || up.length != int64(len(up.body)) || up.header.Get("Authorization") != "Bearer "+sentinel || up.header.Get("X-Team") != "blue" {
		t.Fatalf("%v %+v", err, up)
	}
	form, err := multipart.NewReader(strings.NewReader(up.body), params["boundary"]).ReadForm(1 << 20)
	if err != nil || !reflect.DeepEqual(form.Value, map[string][]string{"purpose": {"batch"}}) || len(form.File["file"]) != 1 ||
		form.File["file"][0].Filename != tag+".jsonl" || form.File["file"][0].Size != p.Size {
		t.Fatalf("%v %+v %+v", err, form, form.File["file"][0])
	}
	b, err := api.Create(t.Context(), p, file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"input_file_id": "file-abc123", "endpoint": "/v1/chat/completions", "completion_window": "24h", "metadata": map[string]any{"sluice_part": tag}}
	var sent map[string]any
	if err := json.Unmarshal([]byte(s.seen[1].body), &sent); err != nil || s.seen[1].call != "POST /v1/batches" || !reflect.DeepEqual(sent, want) {
		t.Errorf("%v %+v", err, s.seen[1])
	}
	if want := (batchjob.Batch{ID: "batch_abc123", Tag: tag, File: "file-abc123", Status: batchjob.Completed, Requests: 100, Succeeded: 95, Failed: 5,
		Created: time.Unix(1711471533, 0).UTC(), Ended: time.Unix(1711493163, 0).UTC(), Expires: time.Unix(1711557933, 0).UTC(),
		Results: []string{"file-cvaTdG", "file-HOWS94"}}); !reflect.DeepEqual(b, want) {
		t.Errorf("got  %+v\nwant %+v", b, want)
	}
}

func TestOpenAILinesAreAsDocumented(t *testing.T) {
	api := serve(t).api(t, "openai")
	for _, tt := range []struct{ id, body, want string }{
		{"a \"b\"\n", `{"model":"gpt-4o","messages":[]}`, `{"custom_id":"a \"b\"\n","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o","messages":[]}}`},
		{"a", `{"model":"m", "stream":true,"messages":[{"content":"x \n y","stream":true}],"stream_options":{"include_usage":true}}`,
			`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"content":"x \n y","stream":true}]}}`},
		{"a", ` {"str\u0065am":true} `, `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{}}`},
	} {
		got := string(api.AppendRequest([]byte("before"), tt.id, provider.ChatCompletions, []byte(tt.body)))
		if got != "before"+tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
	if f := api.Frame(); f != (batchjob.Frame{Between: "\n", Close: "\n"}) {
		t.Errorf("%+v", f)
	}
}

func TestOpenAIResults(t *testing.T) {
	api := serve(t).api(t, "openai")
	for _, tt := range []struct {
		line string
		want batchjob.Result
	}{
		{`{"id":"batch_req_1","custom_id":"r-2","response":{"status_code":200,"request_id":"req_c","body":{"id":"chatcmpl-9","choices":[]}},"error":null}`,
			batchjob.Result{ID: "r-2", Fate: batchjob.Answered, Status: 200, RequestID: "req_c", Body: []byte(`{"id":"chatcmpl-9","choices":[]}`)}},
		{`{"id":"batch_req_2","custom_id":"r-1","response":{"status_code":400,"request_id":"req_d","body":{"error":{"message":"no"}}},"error":null}`,
			batchjob.Result{ID: "r-1", Fate: batchjob.Answered, Status: 400, RequestID: "req_d", Body: []byte(`{"error":{"message":"no"}}`)}},
		{`{"id":"batch_req_123","custom_id":"r-3","response":null,"error":{"code":"batch_expired","message":"This request could not be executed before the completion window expired."}}`,
			batchjob.Result{ID: "r-3", Fate: batchjob.PastWindow, Body: []byte(`{"error":{"code":"batch_expired","message":"This request could not be executed before the completion window expired."}}`)}},
		{`{"custom_id":"r-4","response":null,"error":{"code":"batch_cancelled","message":"x"}}`,
			batchjob.Result{ID: "r-4", Fate: batchjob.CalledOff, Body: []byte(`{"error":{"code":"batch_cancelled","message":"x"}}`)}},
		{`{"custom_id":"r-5","error":"odd"}`, batchjob.Result{ID: "r-5", Fate: batchjob.Answered, Body: []byte(`{"error":"odd"}`)}},
	} {
		got, err := api.ParseResult([]byte(tt.line))
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", tt.line, err, got, tt.want)
		}
	}
	for _, line := range []string{"", "{", "null", "[]", `"a"`, `{"custom_id":"a"}`, `{"custom_id":7,"error":{}}`, `{"response":{"status_code":200,"body":{}}}`,
		`{"custom_id":"a","response":{"status_code":200,"body":{}}`, `{"custom_id":"a","response":[]}`} {
		if r, err := api.ParseResult([]byte(line)); err == nil {
			t.Errorf("%s is read as %+v", line, r)
		}
	}
}

// page is a page of batches that were made at these instants, counted in seconds.
func page(more bool, made ...int64) string {
	var batches []string
	for _, at := range made {
		of := "other"
		if at%10 == 7 {
			of = tag
		}
		batches = append(batches, fmt.Sprintf(`{"id":"batch_%d","status":"in_progress","created_at":%[1]d,"metadata":{"sluice_part":%q}}`, at, of))
	}
	return fmt.Sprintf(`{"object":"list","data":[%s],"has_more":%v}`, strings.Join(batches, ","), more)
}

func TestOpenAIFindsByTagOverPages(t *testing.T) {
	now := time.Now().Unix() / 10 * 10
	for name, tt := range map[string]struct {
		script []answer
		want   []string
		calls  []string
	}{
		"none": {[]answer{{body: page(false)}}, nil, []string{"limit=100"}},
		"on later pages": {[]answer{{body: page(true, now+9, now+8)}, {body: page(true, now+7, now+6)}, {body: page(false, now-3, now-4, now-13)}},
			[]string{fmt.Sprint("batch_", now+7), fmt.Sprint("batch_", now-3), fmt.Sprint("batch_", now-13)},
			[]string{"limit=100", fmt.Sprintf("after=batch_%d&limit=100", now+8), fmt.Sprintf("after=batch_%d&limit=100", now+6)}},
		"not beyond what is older": {[]answer{{body: page(true, now+7, now-9000)}}, []string{fmt.Sprint("batch_", now+7)}, []string{"limit=100"}},
		"oldest first": {[]answer{{body: page(true, now-9000, now-8000)}, {body: page(false, now+7)}}, []string{fmt.Sprint("batch_", now+7)},
			[]string{"limit=100", fmt.Sprintf("after=batch_%d&limit=100", now-8000)}},
		"a list that goes in a circle": {[]answer{{body: page(true, now+7)}, {body: page(true, now+7)}},
			[]string{fmt.Sprint("batch_", now+7), fmt.Sprint("batch_", now+7)}, []string{"limit=100", fmt.Sprintf("after=batch_%d&limit=100", now+7)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, tt.script...)
			found, err := s.api(t, "openai").Find(t.Context(), part(provider.ChatCompletions, "", 1), time.Unix(now, 0))
			var ids []string
			for _, b := range found {
				ids = append(ids, b.ID)
			}
			var calls []string
			for _, c := range tt.calls {
				calls = append(calls, "GET /v1/batches?"+c)
			}
			if err != nil || !reflect.DeepEqual(ids, tt.want) || !reflect.DeepEqual(s.calls(), calls) {
				t.Errorf("%v: %v, want %v; %v, want %v", err, ids, tt.want, s.calls(), calls)
			}
		})
	}
}

// A provider whose clock is slow gives a batch an earlier instant than ours: its answers tell how slow.
func TestFindKnowsTheProvidersClock(t *testing.T) {
	slow := time.Now().Add(-3 * time.Hour).Truncate(10 * time.Second) // page tells ours by the last figure
	s := serve(t, answer{body: page(true, slow.Unix()+7, slow.Unix()-60), header: http.Header{"Date": {slow.UTC().Format(http.TimeFormat)}}},
		answer{body: page(false)})
	found, err := s.api(t, "openai").Find(t.Context(), part(provider.ChatCompletions, "", 1), time.Now())
	if err != nil || len(found) != 1 || len(s.calls()) != 2 {
		t.Errorf("%+v %v %v", found, err, s.calls())
	}
}

func TestOpenAIProblemsOfWholeBatches(t *testing.T) {
	for name, tt := range map[string]struct {
		errors string
		want   batchjob.Problem
	}{
		// https://github.com/openai/openai-python/issues/2084
		"no room": {`{"object":"list","data":[{"code":"token_limit_exceeded","line":null,"message":"Enqueued token limit reached for gpt-4o-mini in organization org-x. Limit: 2,000,000 enqueued tokens. Please try again once some in_progress batches have been completed.","param":null}]}`,
			batchjob.Problem{Kind: batchjob.NoRoom, Code: "token_limit_exceeded", Tokens: 2_000_000, Message: "Enqueued token limit reached for gpt-4o-mini in organization org-x. Limit: 2,000,000 enqueued tokens. Please try again once some in_progress batches have been completed."}},
		// https://learn.microsoft.com/answers/questions/2285577
		"no room for requests": {`{"data":[{"code":"limit_exceeded","message":"Enqueued request limit reached for m in organization org-x. Limit: 1,000,000 enqueued requests."}]}`,
			batchjob.Problem{Kind: batchjob.NoRoom, Code: "limit_exceeded", Message: "Enqueued request limit reached for m in organization org-x. Limit: 1,000,000 enqueued requests."}},
		"no room at Azure": {`{"data":[{"code":"token_limit_exceeded","message":"The number of enqueued tokens has surpassed the configured limit of 30K for the deployment 'gpt-4.1-batch'."}]}`,
			batchjob.Problem{Kind: batchjob.NoRoom, Code: "token_limit_exceeded", Tokens: 30_000, Message: "The number of enqueued tokens has surpassed the configured limit of 30K for the deployment 'gpt-4.1-batch'."}},
		"no room that is not said": {`{"data":[{"code":"token_limit_exceeded","message":"later"}]}`, batchjob.Problem{Kind: batchjob.NoRoom, Code: "token_limit_exceeded", Message: "later"}},
		"too large":                {`{"data":[{"code":"input_file_too_large","message":"big"}]}`, batchjob.Problem{Kind: batchjob.TooLarge, Code: "input_file_too_large", Message: "big"}},
		"lines": {`{"data":[{"code":"invalid_json_line","line":1,"message":"bad"},{"code":"duplicate_custom_id","line":3,"message":"twice"},{"code":"x","line":0},{"code":"x","line":[4]}]}`,
			batchjob.Problem{Kind: batchjob.Invalid, Code: "invalid_json_line", Message: "bad", Lines: map[int]string{0: "bad", 2: "twice"}}},
		"room wins over lines": {`{"data":[{"code":"x","line":1,"message":"bad"},{"code":"token_limit_exceeded","message":"later"}]}`,
			batchjob.Problem{Kind: batchjob.NoRoom, Code: "token_limit_exceeded", Message: "later"}},
		"money":         {`{"data":[{"code":"billing_hard_limit_reached","message":"Billing hard limit has been reached."}]}`, batchjob.Problem{Kind: batchjob.Broken, Code: "billing_hard_limit_reached", Message: "Billing hard limit has been reached."}},
		"a key in it":   {`{"data":[{"code":"x","message":"key ` + sentinel + ` is odd"}]}`, batchjob.Problem{Kind: batchjob.Invalid, Code: "x", Message: "key *** is odd"}},
		"nothing":       {`null`, batchjob.Problem{Kind: batchjob.Broken, Message: "the batch failed, and the provider gives no reason"}},
		"something odd": {`["a"]`, batchjob.Problem{Kind: batchjob.Broken, Message: "the batch failed, and the provider gives no reason"}},
	} {
		s := serve(t, answer{body: `{"id":"batch_1","status":"failed","errors":` + tt.errors + `}`})
		b, err := s.api(t, "openai").Get(t.Context(), "batch_1")
		if err != nil || b.Status != batchjob.Failed || b.Problem == nil || !reflect.DeepEqual(*b.Problem, tt.want) {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", name, err, b.Problem, tt.want)
		}
	}
}

func TestOpenAIRefusesParts(t *testing.T) {
	for name, tt := range map[string]struct {
		answer
		kind batchjob.ProblemKind // "" is none of the part
	}{
		"wrong":        {answer{status: 400, body: `{"error":{"message":"Invalid value: 'x'","type":"invalid_request_error","param":"endpoint","code":"invalid_value"}}`}, batchjob.Invalid},
		"too large":    {answer{status: 413, body: `{"error":{"message":"Request body is too large"}}`}, batchjob.TooLarge},
		"a proxy":      {answer{status: 413, body: `<html>413 Request Entity Too Large</html>`}, batchjob.TooLarge},
		"no room":      {answer{status: 429, body: `{"error":{"message":"Enqueued token limit reached for gpt-4o. Limit: 90,000 enqueued tokens.","code":"token_limit_exceeded"}}`}, batchjob.NoRoom},
		"slow down":    {answer{status: 429, body: `{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}`, header: http.Header{"Retry-After": {"7"}}}, ""},
		"key":          {answer{status: 401, body: `{"error":{"message":"Incorrect API key provided: ` + sentinel + `","code":"invalid_api_key"}}`}, ""},
		"money":        {answer{status: 429, body: `{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`}, ""},
		"its fault":    {answer{status: 500, body: `{"error":{"message":"The server had an error"}}`}, ""},
		"no such path": {answer{status: 404, body: `{"error":{"message":"Not Found"}}`}, ""},
	} {
		api := serve(t, tt.answer).api(t, "openai")
		_, err := api.Create(t.Context(), part(provider.ChatCompletions, "", 1), "file-1")
		call, ok := errors.AsType[*sluice.CallError](err)
		if !ok || strings.Contains(err.Error(), sentinel) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p, is := errors.AsType[*batchjob.ProblemError](err)
		if is != (tt.kind != "") || is && p.Kind != tt.kind || is && p.Message == "" {
			t.Errorf("%s: %+v %v", name, p, err)
		}
		if name == "no room" && p.Tokens != 90_000 || name == "slow down" && (call.Kind != sluice.RateLimit || call.Wait != 7*time.Second) || call.Unsent {
			t.Errorf("%s: %+v %+v", name, p, call.Outcome)
		}
	}
}

func TestOpenAIUnknownCancelAndRemove(t *testing.T) {
	missing := answer{status: 404, body: `{"error":{"message":"No batch found with id 'batch_x'.","type":"invalid_request_error"}}`}
	s := serve(t, missing)
	if _, err := s.api(t, "openai").Get(t.Context(), "a/../b"); !errors.Is(err, batchjob.ErrUnknown) || s.calls()[0] != "GET /v1/batches/a%2F..%2Fb" {
		t.Errorf("%v %v", err, s.calls())
	}
	if err := serve(t, missing).api(t, "openai").Fetch(t.Context(), "file-1", &strings.Builder{}); !errors.Is(err, batchjob.ErrGone) {
		t.Error(err)
	}
	s = serve(t, answer{status: 409, body: `{"error":{"message":"Cannot cancel a batch with status 'completed'."}}`}, answer{body: batchObject})
	if err := s.api(t, "openai").Cancel(t.Context(), "batch_abc123"); err != nil || s.calls()[0] != "POST /v1/batches/batch_abc123/cancel" {
		t.Errorf("%v %v", err, s.calls())
	}
	if err := serve(t, missing).api(t, "openai").Cancel(t.Context(), "x"); !errors.Is(err, batchjob.ErrUnknown) {
		t.Error(err)
	}
}
