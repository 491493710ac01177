package batchjob_test

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/provider"
)

// messageBatch is an answer of https://docs.anthropic.com/en/api/messages-batch-examples with this status and these counts.
func messageBatch(id, status string, processing, succeeded, errored, canceled, expired int, made time.Time) string {
	return fmt.Sprintf(`{"id":%q,"type":"message_batch","processing_status":%q,"request_counts":{"processing":%d,"succeeded":%d,"errored":%d,
		"canceled":%d,"expired":%d},"ended_at":null,"created_at":%q,"expires_at":"2024-09-25T18:37:24.100435Z","archived_at":null,
		"cancel_initiated_at":null,"results_url":null}`, id, status, processing, succeeded, errored, canceled, expired, made.UTC().Format(time.RFC3339Nano))
}

func TestAnthropicCreatesAsDocumented(t *testing.T) {
	made := time.Date(2024, 9, 24, 18, 37, 24, 100435000, time.UTC)
	s := serve(t, answer{body: messageBatch("msgbatch_1", "in_progress", 2, 0, 0, 0, 0, made)})
	api := s.api(t, "anthropic")
	f := api.Frame()
	file := f.Open
	for i, id := range []string{tag + "-0", tag + "-1"} {
		if i > 0 {
			file += f.Between
		}
		file += string(api.AppendRequest(nil, id, provider.Messages, []byte(`{"model":"claude-haiku-4-5", "stream":true,"max_tokens":16,"messages":[{"role":"user","content":"hi"}]}`)))
	}
	file += f.Close
	p := part(provider.Messages, file, 2)
	if id, err := api.Upload(t.Context(), p); id != "" || err != nil {
		t.Error(id, err)
	}
	b, err := api.Create(t.Context(), p, "")
	params := `"params":{"model":"claude-haiku-4-5","max_tokens":16,"messages":[{"role":"user","content":"hi"}]}`
	want := `{"requests":[{"custom_id":"0123456789ab-0",` + params + `},{"custom_id":"0123456789ab-1",` + params + `}]}`
	if c := s.seen[0]; err != nil || c.call != "POST /v1/messages/batches" || c.body != want || c.length != int64(len(want)) ||
		c.header.Get("X-Api-Key") != sentinel || c.header.Get("Anthropic-Version") != "2023-06-01" || c.header.Get("Content-Type") != "application/json" {
		t.Errorf("%v %+v", err, s.seen)
	}
	if want := (batchjob.Batch{ID: "msgbatch_1", Status: batchjob.Running, Requests: 2, Created: made,
		Expires: made.Add(24 * time.Hour)}); !reflect.DeepEqual(b, want) {
		t.Errorf("got  %+v\nwant %+v", b, want)
	}
}

func TestAnthropicStates(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		body string
		want batchjob.Status
	}{
		"running":             {messageBatch("b", "in_progress", 3, 0, 0, 0, 0, now), batchjob.Running},
		"being cancelled":     {messageBatch("b", "canceling", 3, 0, 0, 0, 0, now), batchjob.Cancelling},
		"done":                {messageBatch("b", "ended", 0, 2, 1, 0, 0, now), batchjob.Completed},
		"expired":             {messageBatch("b", "ended", 0, 2, 0, 0, 1, now), batchjob.Expired},
		"cancelled":           {messageBatch("b", "ended", 0, 2, 0, 1, 0, now), batchjob.Cancelled},
		"one that is unknown": {messageBatch("b", "resting", 3, 0, 0, 0, 0, now), batchjob.Running},
	} {
		b, err := serve(t, answer{body: tt.body}).api(t, "anthropic").Get(t.Context(), "b")
		if err != nil || b.Status != tt.want || b.Requests != 3 || tt.want.Ended() != (len(b.Results) == 1) {
			t.Errorf("%s: %+v %v", name, b, err)
		}
	}
}

func TestAnthropicResults(t *testing.T) {
	api := serve(t).api(t, "anthropic")
	for _, tt := range []struct {
		line string
		want batchjob.Result
	}{
		{`{"custom_id":"x_a","result":{"type":"succeeded","message":{"id":"msg_1","type":"message"}}}`,
			batchjob.Result{ID: "x_a", Fate: batchjob.Answered, Status: 200, Body: []byte(`{"id":"msg_1","type":"message"}`)}},
		{`{"custom_id":"x_a","result":{"type":"errored","error":{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}}}`,
			batchjob.Result{ID: "x_a", Fate: batchjob.Answered, Status: 529, RequestID: "req_1", Body: []byte(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}`)}},
		{`{"custom_id":"x_a","result":{"type":"errored","error":{"type":"invalid_request_error","message":"no"}}}`,
			batchjob.Result{ID: "x_a", Fate: batchjob.Answered, Status: 400, Body: []byte(`{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`)}},
		{`{"custom_id":"x_a","result":{"type":"errored","error":{"type":"error","error":{"type":"new_error"}}}}`,
			batchjob.Result{ID: "x_a", Fate: batchjob.Answered, Body: []byte(`{"type":"error","error":{"type":"new_error"}}`)}},
		{`{"custom_id":"x_a","result":{"type":"expired"}}`, batchjob.Result{ID: "x_a", Fate: batchjob.PastWindow}},
		{`{"custom_id":"x_a","result":{"type":"canceled"}}`, batchjob.Result{ID: "x_a", Fate: batchjob.CalledOff}},
	} {
		got, err := api.ParseResult([]byte(tt.line))
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", tt.line, err, got, tt.want)
		}
	}
	for _, line := range []string{"", "null", `{"custom_id":"a"}`, `{"custom_id":"a","result":{}}`, `{"custom_id":"a","result":{"type":"succeeded"}}`,
		`{"custom_id":"a","result":{"type":"errored"}}`, `{"custom_id":"a","result":{"type":"odd"}}`, `{"result":{"type":"expired"}}`} {
		if r, err := api.ParseResult([]byte(line)); err == nil {
			t.Errorf("%s is read as %+v", line, r)
		}
	}
}

func TestAnthropicFindsBatchesOfTheSizeMadeSince(t *testing.T) {
	now := time.Now()
	at := func(id string, requests int, after time.Duration) string {
		return messageBatch(id, "in_progress", requests, 0, 0, 0, 0, now.Add(after))
	}
	s := serve(t, answer{body: `{"data":[` + at("a", 5, 9*time.Second) + "," + at("b", 4, 8*time.Second) + `],"has_more":true,"first_id":"a","last_id":"b"}`},
		answer{body: `{"data":[` + at("c", 5, time.Second) + "," + at("d", 5, -time.Hour) + `],"has_more":true,"last_id":"d"}`})
	found, err := s.api(t, "anthropic").Find(t.Context(), part(provider.Messages, "", 5), now)
	var ids []string
	for _, b := range found {
		ids = append(ids, b.ID)
	}
	if want := []string{"a", "c"}; err != nil || !reflect.DeepEqual(ids, want) {
		t.Errorf("%v: %v, want %v", err, ids, want)
	}
	if want := []string{"GET /v1/messages/batches?limit=100", "GET /v1/messages/batches?after_id=b&limit=100"}; !reflect.DeepEqual(s.calls(), want) {
		t.Errorf("%v, want %v", s.calls(), want)
	}
}

func TestAnthropicRefusesParts(t *testing.T) {
	for name, tt := range map[string]struct {
		answer
		kind  batchjob.ProblemKind
		lines map[int]string
	}{
		"a request": {answer{status: 400, body: `{"type":"error","error":{"type":"invalid_request_error","message":"requests.3.params.max_tokens: Field required"}}`},
			batchjob.Invalid, map[int]string{3: "requests.3.params.max_tokens: Field required"}},
		"all of it":   {answer{status: 400, body: `{"type":"error","error":{"type":"invalid_request_error","message":"requests: too short"}}`}, batchjob.Invalid, nil},
		"large":       {answer{status: 413, body: `{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}`}, batchjob.TooLarge, nil},
		"slow down":   {answer{status: 429, body: `{"type":"error","error":{"type":"rate_limit_error","message":"x"}}`, header: http.Header{"Retry-After": {"7"}}}, "", nil},
		"no capacity": {answer{status: 529, body: `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`}, "", nil},
	} {
		_, err := serve(t, tt.answer).api(t, "anthropic").Create(t.Context(), part(provider.Messages, "{}", 1), "")
		call, ok := errors.AsType[*sluice.CallError](err)
		p, is := errors.AsType[*batchjob.ProblemError](err)
		if !ok || is != (tt.kind != "") || is && (p.Kind != tt.kind || !reflect.DeepEqual(p.Lines, tt.lines)) {
			t.Errorf("%s: %+v %v", name, p, err)
		}
		if name == "slow down" && (call.Kind != sluice.RateLimit || call.Wait != 7*time.Second) || name == "no capacity" && call.Kind != sluice.Overloaded {
			t.Errorf("%s: %+v", name, call.Outcome)
		}
	}
}
