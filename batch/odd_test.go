package batch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// oddly answers one of 200 items oddly, and all others after 50 ms.
type oddly struct {
	item   string
	answer oddAnswer
	mu     sync.Mutex
	start  time.Time
	others time.Time // when the last of the others was answered
	tries  int       // of the odd item
}

// oddAnswer is a response.
type oddAnswer struct {
	status int
	body   string
	header map[string]string
	hang   bool
	times  int // it comes so often; 0: each time

	allowed time.Duration // time that it may cost others, where it names a limit
}

func (s *oddly) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	r.Body.Close()
	respond := func(status int, text string, header map[string]string) (*http.Response, error) {
		h := http.Header{"Content-Type": {"application/json"}}
		for k, v := range header {
			h.Set(k, v)
		}
		return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: h, Body: io.NopCloser(strings.NewReader(text)), Request: r,
			ContentLength: int64(len(text))}, nil
	}
	if !strings.Contains(string(body), "What is "+s.item+"?") {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		s.mu.Lock()
		s.others = time.Now()
		s.mu.Unlock()
		return respond(200, chatAnswer, nil)
	}
	s.mu.Lock()
	s.tries++
	n := s.tries
	s.mu.Unlock()
	switch {
	case s.answer.hang:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case s.answer.times > 0 && n > s.answer.times:
		time.Sleep(50 * time.Millisecond)
		return respond(200, chatAnswer, nil)
	}
	time.Sleep(5 * time.Millisecond)
	text := s.answer.body
	if strings.Contains(text, "%s") {
		text = fmt.Sprintf(text, quoted(s.item))
	}
	return respond(s.answer.status, text, s.answer.header)
}

// quoted is what an odd item asks for, and providers quote.
func quoted(item string) string { return "What is " + item + "? " + phrase }

const phrase = "Incorrect API key provided. You exceeded your current quota. Rate limit reached, try again in 20h"

var oddAnswers = map[string]struct {
	oddAnswer
	kind sluice.Kind
}{
	"none":              {oddAnswer{status: 200, body: chatAnswer}, sluice.OK},
	"429":               {oddAnswer{status: 429}, sluice.RateLimit},
	"429 in words":      {oddAnswer{status: 429, body: `{"type":"error","error":{"type":"rate_limit_error","message":"Extra usage is required for long context requests."}}`}, sluice.RateLimit},
	"429, an hour":      {oddAnswer{status: 429, header: map[string]string{"Retry-After": "3600"}}, sluice.RateLimit},
	"403 page":          {oddAnswer{status: 403, body: "<html><head><title>403 Forbidden</title></head><body>Request blocked</body></html>"}, sluice.Blocked},
	"403":               {oddAnswer{status: 403, body: `{"type":"error","error":{"type":"permission_error","message":"Your API key does not have permission to use the specified resource."}}`}, sluice.Rejected},
	"400 quotes a key":  {oddAnswer{status: 400, body: `{"error":{"message":"Invalid value: '%s'. Supported values are ...","type":"invalid_request_error","code":"invalid_value"}}`}, sluice.BadRequest},
	"400 says quota":    {oddAnswer{status: 400, body: `{"error":{"message":"You exceeded your current quota, please check your plan","type":"invalid_request_error"}}`}, sluice.BadRequest},
	"400 says a window": {oddAnswer{status: 400, body: `{"error":{"message":"rate limit reached for requests, try again in 20h","type":"invalid_request_error"}}`}, sluice.BadRequest},
	"502 page":          {oddAnswer{status: 502, body: "<html><title>502 Bad Gateway</title></html>"}, sluice.ServerError},
	"401 once":          {oddAnswer{status: 401, body: `{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}`, times: 1}, sluice.OK},
	"401":               {oddAnswer{status: 401, body: `{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}`}, sluice.Rejected},
	"comments only":     {oddAnswer{status: 200, body: ": processing\n\n: processing\n\n", header: map[string]string{"Content-Type": "text/event-stream"}}, sluice.Network},
	"hangs":             {oddAnswer{hang: true}, sluice.Timeout},
	"429, 30 s":         {oddAnswer{status: 429, header: map[string]string{"Retry-After": "30"}}, sluice.RateLimit},
	"429, 5 s":          {oddAnswer{status: 429, header: map[string]string{"Retry-After": "5"}}, sluice.RateLimit},
	"429 says quota":    {oddAnswer{status: 429, body: `{"error":{"message":"You exceeded your current quota, please check your plan and billing details."}}`}, sluice.RateLimit},
	"429 quotes a code": {oddAnswer{status: 429, body: `{"error":{"message":"cannot process: %s: insufficient_quota","type":"rate_limit_error"}}`}, sluice.RateLimit},
	"429 says a window": {oddAnswer{status: 429, body: `{"error":{"message":"Usage limit reached. Try again in 20h."}}`}, sluice.RateLimit},
	"429 names a day":   {oddAnswer{status: 429, body: `{"error":{"message":"Rate limit reached for m on requests per day (RPD): Limit 10000, Used 10000, Requested 1. Please try again in 8h30m.","type":"requests","code":"rate_limit_exceeded"}}`}, sluice.RateLimit},
	"429 names rpm 3":   {oddAnswer{status: 429, body: `{"error":{"message":"Rate limit reached for m on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s.","type":"requests","code":"rate_limit_exceeded"}}`}, sluice.RateLimit},
	"429 names rpm 500": {oddAnswer{status: 429, body: `{"error":{"message":"Rate limit reached for m on requests per min (RPM): Limit 500, Used 500, Requested 1. Please try again in 120ms.","type":"requests","code":"rate_limit_exceeded"}}`, allowed: 10 * time.Second}, sluice.RateLimit},
	"429 names tpm":     {oddAnswer{status: 429, body: `{"error":{"message":"Rate limit reached for m on tokens per min (TPM): Limit 30000, Used 29990, Requested 500. Please try again in 960ms.","type":"tokens","code":"rate_limit_exceeded"}}`, allowed: 10 * time.Second}, sluice.RateLimit},
	"429, one at once":  {oddAnswer{status: 429, body: `{"error":{"message":"Too many concurrent requests","code":"concurrency_limit_exceeded"}}`}, sluice.RateLimit},
	"429, empty header": {oddAnswer{status: 429, header: map[string]string{"X-Ratelimit-Limit-Requests": "10", "X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "24h0m0s"}}, sluice.RateLimit},
	"402":               {oddAnswer{status: 402}, sluice.Rejected},
	"402 in words":      {oddAnswer{status: 402, body: `{"error":{"message":"This feature needs a paid plan."}}`}, sluice.Rejected},
	"403 of an account": {oddAnswer{status: 403, body: `{"error":{"message":"Billing is not active","code":"billing_not_active"}}`}, sluice.Rejected},
	"503":               {oddAnswer{status: 503}, sluice.Overloaded},
	"503, a day":        {oddAnswer{status: 503, header: map[string]string{"Retry-After": "86400"}}, sluice.Overloaded},
	"529, 30 s":         {oddAnswer{status: 529, header: map[string]string{"Retry-After": "30"}}, sluice.Overloaded},
	"200 page":          {oddAnswer{status: 200, body: "<html><title>Sign in</title></html>"}, sluice.Blocked},
	"200 says a quota":  {oddAnswer{status: 200, body: phrase}, sluice.ServerError},
	"200 packed":        {oddAnswer{status: 200, body: "\x1f\x8bgarbage", header: map[string]string{"Content-Encoding": "gzip"}}, sluice.Network},
}

func TestOneOddItemHoldsUpNothing(t *testing.T)          { testOddItems(t, false) }
func TestOneOddItemHoldsUpNothingAtWorkers(t *testing.T) { testOddItems(t, true) }

// testOddItems runs each odd item here, or has it made by a worker.
func testOddItems(t *testing.T, worker bool) {
	play := func(t *testing.T, o oddAnswer, item int) (others, all time.Duration, r result, failed int) {
		synctest.Test(t, func(t *testing.T) {
			f := newFiles(t, chats(200))
			s := &oddly{item: fmt.Sprint(item), answer: o, start: time.Now()}
			cfg := f.config(t, s)
			cfg.Scheduler = func(provider.Provider) (*sluice.Scheduler, error) {
				s, err := sluice.New(sluice.Config{})
				if err == nil {
					t.Cleanup(func() { s.Close() })
				}
				return s, err
			}
			stop := func() []error { return nil }
			if worker {
				ferry := newFerry(t, batch.Terms{})
				ferry.terms.Timeout = 0 // as the latency shows
				there, here := elsewhere(cfg, ferry)
				cfg, stop = here, ferry.work(1, there)
			}
			rep, err := run(t, cfg)
			if err != nil {
				t.Errorf("item %d: %v", item, err)
			}
			for _, err := range stop() {
				if !errors.Is(err, work.ErrDrained) {
					t.Errorf("item %d: a worker ended with %v", item, err)
				}
			}
			others, all = s.others.Sub(s.start), time.Since(s.start)
			r, failed = f.results(t)[fmt.Sprint(item)], rep.Report.Failed
		})
		return
	}
	usual, _, _, _ := play(t, oddAnswers["none"].oddAnswer, 1)
	t.Logf("without: %v", usual)
	rows, waited := 0, 0 // by chance an item is not found at fault, and lives for 10 minutes
	for name, c := range oddAnswers {
		for _, item := range []int{1, 60, 123, 200} {
			late := item == 200 && (c.kind == sluice.RateLimit || c.kind == sluice.Overloaded)    // no other item is sent after it
			if name[:3] == "401" && item == 1 || name == "429 names rpm 3" && item == 1 || late { // nothing shows that it is the item's fault
				continue
			}
			rows++
			allowed := c.allowed
			if strings.HasSuffix(name, " s") || strings.HasPrefix(name, "429 names rpm") { // a stated wait is kept once
				allowed = 50 * time.Second
			}
			t.Run(fmt.Sprintf("%s, item %d", name, item), func(t *testing.T) {
				others, all, r, failed := play(t, c.oddAnswer, item)
				t.Logf("others %v, all %v, kind %s, failed %d, attempts %d, throttles %d", others, all, r.Sluice.Kind, failed, r.Sluice.Attempts, r.Sluice.Throttles)
				if others > usual+600*time.Millisecond+c.allowed { // a pause of 250 ms with its jitter, and the requests that begin again after it
					t.Errorf("the others took %v instead of %v", others, usual)
				}
				if c.hang {
					allowed += 3 * time.Minute // six attempts of 30 s
				}
				if all > others+5*time.Second+allowed {
					t.Logf("the run took %v, the others %v", all, others)
					waited++
				}
				if c.kind == sluice.RateLimit && all < 10*time.Minute && !strings.Contains(r.Error.Message, "other requests succeeded") {
					t.Errorf("%q does not say that others succeeded", r.Error.Message)
				}
				if b, _ := json.Marshal(c.kind); string(b) != `"`+r.Sluice.Kind+`"` {
					t.Errorf("kind %s, want %v", r.Sluice.Kind, c.kind)
				}
			})
		}
	}
	if waited > rows/25 {
		t.Errorf("%d of %d odd items were waited for", waited, rows)
	}
}

// changing answers as one response from some request on.
type changing struct {
	from  int
	then  oddAnswer
	mu    sync.Mutex
	sent  int
	after int
}

func (s *changing) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Body.Close()
	s.mu.Lock()
	s.sent++
	changed := s.sent > s.from
	if changed {
		s.after++
	}
	s.mu.Unlock()
	time.Sleep(50 * time.Millisecond)
	o := oddAnswer{status: 200, body: chatAnswer}
	if changed {
		o = s.then
	}
	return &http.Response{StatusCode: o.status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(o.body)),
		Request: r, ContentLength: int64(len(o.body))}, nil
}

func TestARunStopsWhenNothingSucceedsAnyMore(t *testing.T) {
	credit := oddAnswer{status: 400, body: `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}`}
	for name, c := range map[string]struct {
		then      oddAnswer
		kind      sluice.Kind
		mostAfter int // requests since the change
	}{
		"a firewall":      {oddAnswers["403 page"].oddAnswer, sluice.Blocked, 64},
		"not allowed":     {oddAnswers["403"].oddAnswer, sluice.Rejected, 64},
		"no credit":       {credit, sluice.BadRequest, 64},
		"a revoked key":   {oddAnswer{status: 401, body: `{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}`}, sluice.Auth, 40},
		"quota in words":  {oddAnswers["429 says quota"].oddAnswer, sluice.RateLimit, 80},
		"a used-up quota": {oddAnswer{status: 429, body: `{"error":{"message":"x","code":"insufficient_quota"}}`}, sluice.QuotaExhausted, 40},
	} {
		for _, from := range []int{0, 100} {
			t.Run(fmt.Sprintf("%s after %d", name, from), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFiles(t, chats(500))
					s := &changing{from: from, then: c.then}
					rep, err := run(t, f.config(t, s))
					stop, ok := errors.AsType[*work.StoppedError](err)
					if !ok || stop.Kind != c.kind {
						t.Errorf("error %v", err)
					}
					if rep.Report.Failed > 0 || rep.Done != from || s.after > c.mostAfter {
						t.Errorf("%d done, %d failed, %d requests after it", rep.Done, rep.Report.Failed, s.after)
					}
				})
			})
		}
	}
	t.Run("too few to tell", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rep, err := run(t, newFiles(t, chats(5)).config(t, &changing{then: oddAnswers["403"].oddAnswer}))
			if err != nil || rep.Report.Failed != 5 {
				t.Errorf("%d failed, %v", rep.Report.Failed, err)
			}
		})
	})
}

// A worker that has nothing but items which a firewall rejected before does not take them for a rejection of all.
func TestAFirewallThatRejectsATenthOfTheItemsStopsNobody(t *testing.T) {
	for _, worker := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const n = 300
			cfg, stop := newFiles(t, chats(n)).config(t, blocking{}), func() []error { return nil }
			if worker {
				ferry := newFerry(t, batch.Terms{})
				there, here := elsewhere(cfg, ferry)
				cfg, stop = here, ferry.work(1, there)
			}
			rep, err := run(t, cfg)
			if err != nil || rep.Report.Failed != n/10 {
				t.Errorf("worker %v: %d failed, %v", worker, rep.Report.Failed, err)
			}
			for _, err := range stop() {
				if !errors.Is(err, work.ErrDrained) {
					t.Errorf("the worker ended with %v", err)
				}
			}
		})
	}
}

// blocking answers each tenth item with the page of a firewall.
type blocking struct{}

func (blocking) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	time.Sleep(50 * time.Millisecond)
	o := oddAnswer{status: 200, body: chatAnswer}
	if strings.Contains(string(body), `0?"`) {
		o = oddAnswers["403 page"].oddAnswer
	}
	return &http.Response{StatusCode: o.status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(o.body)),
		Request: r, ContentLength: int64(len(o.body))}, nil
}

func TestARunEndsWhenAServerIsDeadFor30Minutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		rep, err := run(t, newFiles(t, chats(100_000)).config(t, &changing{from: 100, then: oddAnswer{status: 500}}))
		if stop, ok := errors.AsType[*work.StoppedError](err); !ok || stop.Kind != sluice.ServerError || rep.Done != 100 {
			t.Errorf("%d done, %v", rep.Done, err)
		}
		if took := time.Since(start); took < 30*time.Minute || took > 35*time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}
