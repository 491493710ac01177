package batch_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/provider"
)

// asks is a line with that custom_id that asks that question.
func asks(id string, question int) string {
	return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":"What is %d?"}]}}`+"\n", id, question)
}

// asking is the lines of a file that ask these questions, with custom_ids from a prefix and the place.
func asking(prefix string, questions ...int) string {
	var b strings.Builder
	for i, q := range questions {
		b.WriteString(asks(fmt.Sprintf("%s%d", prefix, i), q))
	}
	return b.String()
}

func TestEqualRequestsAreSentOnce(t *testing.T) {
	for _, input := range []string{"file", "standard input"} {
		t.Run(input, func(t *testing.T) {
			text := asking("a", 1, 2, 1, 1, 3, 2)
			f, rt := newFiles(t, text), &stub{}
			cfg := f.config(t, rt)
			cfg.Cache = t.TempDir()
			if input != "file" {
				cfg.Input, cfg.Stdin = "-", strings.NewReader(text)
			}
			rep, err := run(t, cfg)
			if err != nil || rep.Total != 6 || rep.Done != 6 || rep.Cached != 3 || rep.CacheHits != 3 || rep.Left() != 0 || rt.count() != 3 || rep.Items != 6 {
				t.Fatalf("%+v, %d calls, error %v; want 6 done, 3 of them without a call", rep, rt.count(), err)
			}
			for id, r := range f.results(t) {
				s := r.Sluice
				if string(r.Response.Body) != chatAnswer || r.Response.RequestID != "req-1" || s.Kind != "ok" {
					t.Errorf("%s: %+v", id, r)
				}
				if s.Cached && (s.Attempts != 0 || s.InputTokens != 0 || s.OutputTokens != 0 || s.CostUSD == nil || *s.CostUSD != 0) {
					t.Errorf("%s made no call and took %+v", id, s)
				}
			}
			if rep.Finish["stop"] != 6 || rep.Usage.Input != 15 {
				t.Errorf("report %+v", rep)
			}
		})
	}
}

// TestEqualRequestsShareAFailure checks that items share the failure of one request, that a later run sends the request again, and
// that one rejection of many items does not stop the run.
func TestEqualRequestsShareAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 40
		f := newFiles(t, asking("a", make([]int, n)...))
		calls := 0
		cfg := f.config(t, roundTripper(func(r *http.Request) (*http.Response, error) {
			calls++
			time.Sleep(time.Second)
			return (&stub{status: 403, answer: `{"error":{"message":"no","type":"invalid_request_error"}}`}).RoundTrip(r)
		}))
		cfg.Cache = t.TempDir()
		rep, err := run(t, cfg)
		if err != nil || rep.Failed != n || calls != 2 { // such a rejection is tried once more at the end
			t.Fatalf("%+v, %d calls, %v: want all items to fail", rep, calls, err)
		}
		good := &stub{}
		cfg.Transport, cfg.RetryFailed = good, true
		rep, err = run(t, cfg)
		if err != nil || rep.Done != n || rep.Cached != n-1 || good.count() != 1 {
			t.Errorf("%+v, %d calls, %v: want all items to succeed", rep, good.count(), err)
		}
	})
}

func TestAHandlerThatEndsLeavesNobodyWaiting(t *testing.T) {
	f, rt := newFiles(t, asking("a", 1, 1, 1)), &stub{}
	cfg := f.config(t, rt)
	cfg.Cache = t.TempDir()
	cfg.Check = func(string, provider.Endpoint, []byte) error { panic("no") }
	if rep, err := run(t, cfg); err != nil || rep.Failed != 3 {
		t.Errorf("%+v, %v: want all items to fail", rep, err)
	}
}
