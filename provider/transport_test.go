package provider_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// watched is a scheduler that notes how every try ended.
type watched struct {
	*sluice.Scheduler
	mu   sync.Mutex
	ends []sluice.Outcome
}

func (w *watched) Observe(e sluice.Event) {
	if e.Type == limits.EventSlotReleased {
		w.mu.Lock()
		w.ends = append(w.ends, e.Outcome)
		w.mu.Unlock()
	}
}

// ended returns how the tries ended, once none is in flight any more.
func (w *watched) ended(t *testing.T, tries int) []sluice.Outcome {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.Snapshot().Lanes {
		if l.InFlight != 0 {
			t.Errorf("lane %q: %d permits are out", l.Lane, l.InFlight)
		}
	}
	if len(w.ends) != tries {
		t.Fatalf("%d tries ended, want %d: %+v", len(w.ends), tries, w.ends)
	}
	return w.ends
}

func transport(t *testing.T, base http.RoundTripper, change func(*provider.Config, *sluice.Config)) (*provider.Transport, *watched) {
	t.Helper()
	w := &watched{}
	cfg := provider.Config{Provider: lookup(t, "openai"), Base: base, Timeout: 10 * time.Second}
	scfg := sluice.Config{Observer: w, Attempts: 3, MaxThrottles: 2}
	if change != nil {
		change(&cfg, &scfg)
	}
	s, err := sluice.New(scfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w.Scheduler, cfg.Scheduler = s, s
	tr, err := provider.NewTransport(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr, w
}

const chatRequest = `{"model":"m","messages":[{"role":"user","content":"12345678"}],"max_tokens":16}`

func call(ctx context.Context, t *testing.T, tr http.RoundTripper, url, body string) (*http.Response, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip, br")
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return nil, "", err
	}
	b, err := io.ReadAll(resp.Body)
	if e := resp.Body.Close(); err == nil {
		err = e
	}
	return resp, string(b), err
}

const chatURL = "http://x/v1/chat/completions"

func TestTransportPassesTheAnswerThrough(t *testing.T) {
	sse := []string{"content-type", "text/event-stream"}
	long := strings.Replace(chatAnswer, "hi", strings.Repeat("long ", 1<<18), 1)
	blocked := `{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":4}}`
	cases := []struct {
		name  string
		base  tripper
		body  string
		usage sluice.Usage
		url   string // of Gemini
	}{
		{"an answer of gemini", replies(200, contentWhole, ofJSON...), contentWhole, contentUsage, contentURL},
		{"a blocked prompt", replies(200, blocked, ofJSON...), blocked, sluice.Usage{Input: 4}, contentURL},
		{"events of gemini", replies(200, contentStream, ofEvents...), contentStream, contentUsage, contentEvents},
		{"an array byte by byte", func(*http.Request) (*http.Response, error) {
			return reply(200, iotest.OneByteReader(strings.NewReader(contentArray)), ofJSON...)
		}, contentArray, contentUsage, contentElements},
		{"an answer", replies(200, chatAnswer, "content-type", "application/json"), chatAnswer, sluice.Usage{Input: 9, Output: 4}, ""},
		{"a long answer", replies(200, long), long, sluice.Usage{Input: 9, Output: 4}, ""},
		{"a stream", replies(200, chatStream, sse...), chatStream, sluice.Usage{Input: 9, Output: 4}, ""},
		{"a stream byte by byte", func(*http.Request) (*http.Response, error) {
			return reply(200, iotest.OneByteReader(strings.NewReader(chatStream)), sse...)
		}, chatStream, sluice.Usage{Input: 9, Output: 4}, ""},
		{"a packed answer, unread", replies(200, "\x1f\x8b\x08", "content-encoding", "gzip"), "\x1f\x8b\x08", sluice.Usage{}, ""},
		{"a packed stream, unread", replies(200, "\x1f\x8b\x08", "content-encoding", "gzip", "content-type", "text/event-stream"), "\x1f\x8b\x08", sluice.Usage{}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			url, request, lane, change := chatURL, chatRequest, "m", func(*provider.Config, *sluice.Config) {}
			if c.url != "" {
				url, request, lane, change = c.url, contentRequest, "gemini-2.5-flash", geminis(nil)
			}
			var asked sluice.Call
			base := tripper(func(r *http.Request) (*http.Response, error) {
				if b, _ := io.ReadAll(r.Body); string(b) != request || r.URL.String() != url || r.Header.Get("Accept-Encoding") != "" {
					t.Errorf("sent %q %v", b, r.Header)
				}
				return c.base(r)
			})
			tr, w := transport(t, base, func(cfg *provider.Config, s *sluice.Config) {
				change(cfg, s)
				cfg.Call = func(_ *http.Request, call sluice.Call) sluice.Call { asked = call; return call }
			})
			resp, body, err := call(t.Context(), t, tr, url, request)
			if err != nil || resp.StatusCode != 200 || body != c.body {
				t.Fatalf("%v %.200q", err, body)
			}
			if resp.Header.Get("X-Should-Retry") != "" {
				t.Error("a good answer is marked")
			}
			if o := w.ended(t, 1)[0]; o.Kind != sluice.OK || o.Usage != c.usage {
				t.Errorf("%+v", o)
			}
			if asked.Lane != lane || asked.Cost != (sluice.Cost{Input: 2, MaxOutput: 16}) {
				t.Errorf("asked for %+v", asked)
			}
		})
	}
}

func TestThrottledCallsAreTriedAgain(t *testing.T) {
	for name, refusal := range map[string]tripper{
		"a 429":                    replies(429, `{"error":{"message":"Rate limit reached. Please try again in 1s","type":"tokens"}}`),
		"an overload in a 200":     replies(200, `{"error":{"message":"Overloaded","type":"overloaded_error"}}`),
		"an error before the text": replies(200, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n", "content-type", "text/event-stream"),
		"a cut answer": func(*http.Request) (*http.Response, error) {
			return reply(200, io.MultiReader(strings.NewReader(chatAnswer[:50]), iotest.ErrReader(io.ErrUnexpectedEOF)))
		},
		"an answer shorter than announced": func(*http.Request) (*http.Response, error) {
			r, err := reply(200, strings.NewReader(chatAnswer))
			r.ContentLength = int64(len(chatAnswer)) + 5
			return r, err
		},
		"a broken stream": func(*http.Request) (*http.Response, error) {
			return reply(200, iotest.ErrReader(io.ErrUnexpectedEOF), "content-type", "text/event-stream")
		},
		"a reset": func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
		"a panic": nil,

		"gemini: a limit":                      replies(429, contentLimited, ofJSON...),
		"gemini: a limit in an array":          replies(429, "["+contentLimited+"\n]", ofJSON...),
		"gemini: an overload":                  replies(503, contentOverload, ofJSON...),
		"gemini: an overload as first event":   replies(200, "data: "+contentOverload+"\r\n\r\n", ofEvents...),
		"gemini: an overload as first element": replies(200, "["+contentOverload, ofJSON...),
		"gemini: an array that is cut": func(*http.Request) (*http.Response, error) {
			return reply(200, iotest.DataErrReader(strings.NewReader(contentArray[:100])), ofJSON...)
		},
	} {
		url, request, answer, change := chatURL, chatRequest, chatAnswer, func(*provider.Config, *sluice.Config) {}
		if strings.HasPrefix(name, "gemini") {
			url, request, answer, change = contentElements, contentRequest, contentWhole, geminis(nil)
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				tr, w := transport(t, tripper(func(r *http.Request) (*http.Response, error) {
					if tries++; tries > 1 {
						return replies(200, answer)(r)
					}
					if refusal == nil {
						panic("boom")
					}
					return refusal(r)
				}), change)
				resp, body, err := call(t.Context(), t, tr, url, request)
				if name == "a panic" {
					if call, ok := errors.AsType[*sluice.CallError](err); !ok || call.Kind != sluice.Internal {
						t.Errorf("%v", err)
					}
					w.ended(t, 1)
					return
				}
				if err != nil || resp.StatusCode != 200 || body != answer {
					t.Fatalf("%v %q", err, body)
				}
				if ends := w.ended(t, 2); ends[0].Kind == sluice.OK || ends[1].Kind != sluice.OK {
					t.Errorf("%+v", ends)
				}
			})
		})
	}
}

func TestGivingUpReturnsTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const refusal = `{"error":{"message":"Rate limit reached","type":"tokens"}}`
		tr, w := transport(t, replies(429, refusal, "x-request-id", "req_9"), nil)
		resp, body, err := call(t.Context(), t, tr, chatURL, chatRequest)
		if err != nil || resp.StatusCode != 429 || body != refusal || resp.Header.Get("X-Request-Id") != "req_9" {
			t.Fatalf("%v %+v %q", err, resp, body)
		}
		if resp.Header.Get("X-Should-Retry") != "false" {
			t.Error("the SDK would try again")
		}
		w.ended(t, 3)
	})
	tr, w := transport(t, replies(400, `{"error":{"message":"bad","type":"invalid_request_error"}}`), nil)
	resp, _, err := call(t.Context(), t, tr, chatURL, chatRequest)
	if err != nil || resp.StatusCode != 400 || resp.Header.Get("X-Should-Retry") != "false" {
		t.Errorf("%v %+v", err, resp)
	}
	w.ended(t, 1)
}

func TestNetworkThatStaysAwayIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, w := transport(t, tripper(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }), nil)
		_, _, err := call(t.Context(), t, tr, chatURL, chatRequest)
		if gaveUp, ok := errors.AsType[*sluice.CallError](err); !ok || !errors.Is(err, io.ErrUnexpectedEOF) || gaveUp.Kind != sluice.Network {
			t.Error(err)
		}
		w.ended(t, 3)
	})
}

func TestEndOfTheCallersContextIsReturnedAsSuch(t *testing.T) {
	for name, base := range map[string]tripper{"before the head": hang, "while waiting": replies(429, `{"error":{"message":"Please try again in 1h","type":"tokens"}}`)} {
		tries := map[string]int{"before the head": 1, "while waiting": 2}[name] // an hour may be about one item, and is tested soon
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				tr, w := transport(t, base, nil)
				if _, _, err := call(ctx, t, tr, chatURL, chatRequest); err != context.DeadlineExceeded {
					t.Error(err)
				}
				w.ended(t, tries)
			})
		})
	}
}

func TestPackedRefusalIsJudgedByItsStatus(t *testing.T) {
	tr, w := transport(t, replies(401, "\x1f\x8b\x08 garbage", "content-encoding", "gzip"), nil)
	resp, body, err := call(t.Context(), t, tr, chatURL, chatRequest)
	if err != nil || resp.StatusCode != 401 || body != "\x1f\x8b\x08 garbage" {
		t.Errorf("%v %q", err, body)
	}
	if o := w.ended(t, 1)[0]; o.Kind != sluice.Auth || strings.Contains(o.Err.Error(), "garbage") {
		t.Errorf("%+v", o)
	}
}

func TestOtherRequestsPassStraightThrough(t *testing.T) {
	var got []string
	tr, w := transport(t, tripper(func(r *http.Request) (*http.Response, error) {
		got = append(got, r.Method+" "+r.URL.Path)
		return replies(429, "no")(r)
	}), nil)
	client := tr.Client()
	for _, path := range []string{"/v1/models", "/v1/chat/completions"} {
		if resp, err := client.Get("http://x" + path); err != nil || resp.StatusCode != 429 || resp.Header.Get("X-Should-Retry") != "" {
			t.Errorf("%v %v", resp, err)
		}
	}
	for _, path := range []string{"/v1/threads/t/messages", "/v1/messages/count_tokens", "/v1/audio/speech"} {
		if resp, err := client.Post("http://x"+path, "", strings.NewReader("{}")); err != nil || resp.StatusCode != 429 {
			t.Errorf("%v %v", resp, err)
		}
	}
	if len(got) != 5 {
		t.Error(got)
	}
	w.ended(t, 0)
}

func TestCallIsToldToTheScheduler(t *testing.T) {
	var got sluice.Call
	tr, _ := transport(t, replies(200, chatAnswer), func(c *provider.Config, _ *sluice.Config) {
		c.Call = func(r *http.Request, call sluice.Call) sluice.Call { got = call; call.Tenant = "t"; return call }
	})
	call(t.Context(), t, tr, chatURL, chatRequest)
	if got.Lane != "m" || got.Cost != (sluice.Cost{Input: 2, MaxOutput: 16}) {
		t.Errorf("%+v", got)
	}
	call(t.Context(), t, tr, "http://x/openai/deployments/gpt/chat/completions?api-version=1", `{"messages":[]}`)
	if got.Lane != "gpt" {
		t.Errorf("%+v", got)
	}
	call(t.Context(), t, tr, chatURL, `not JSON`)
	if got.Cost.Input < 1 {
		t.Errorf("%+v", got)
	}
}

func TestLongRequestsAreRefused(t *testing.T) {
	tr, w := transport(t, replies(200, chatAnswer), func(c *provider.Config, _ *sluice.Config) { c.MaxBytes = 10 })
	if _, _, err := call(t.Context(), t, tr, chatURL, chatRequest); !errors.Is(err, provider.ErrRequestTooLong) {
		t.Error(err)
	}
	w.ended(t, 0)
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var stolen atomic.Bool
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Store(true) }))
	defer thief.Close()
	server := httptest.NewServer(http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	tr, w := transport(t, provider.NewBase(1), nil)
	resp, err := tr.Client().Post(server.URL+"/v1/messages", "", strings.NewReader("{}"))
	if err != nil || resp.StatusCode != 307 || stolen.Load() {
		t.Errorf("%v %v", resp, err)
	}
	if o := w.ended(t, 1)[0]; o.Kind != sluice.BadRequest || !strings.Contains(o.Err.Error(), "redirect") {
		t.Errorf("%+v", o)
	}
	plain := &http.Client{Transport: tr} // which follows what it is given
	for _, path := range []string{"/v1/messages", "/v1/models"} {
		req, err := http.NewRequest("POST", server.URL+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Api-Key", "secret")
		if resp, err := plain.Do(req); err != nil || resp.StatusCode != 307 || stolen.Load() {
			t.Errorf("%s: %v %v", path, resp, err)
		}
	}
}

func TestRealSocketsStreamAndFail(t *testing.T) {
	var tries atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if tries.Add(1)%2 == 1 {
			panic(http.ErrAbortHandler) // resets the connection
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, part := range strings.SplitAfter(chatStream, "\n\n") {
			io.WriteString(w, part)
			w.(http.Flusher).Flush()
		}
	}))
	defer server.Close()
	base := provider.NewBase(4)
	defer base.CloseIdleConnections()
	tr, w := transport(t, base, nil)
	for range 3 {
		_, body, err := call(t.Context(), t, tr, server.URL+"/v1/chat/completions", chatRequest)
		if err != nil || body != chatStream {
			t.Fatalf("%v %q", err, body)
		}
	}
	for i, o := range w.ended(t, 6) {
		if want := []sluice.Kind{sluice.Network, sluice.OK}[i%2]; o.Kind != want || o.Unsent {
			t.Errorf("try %d: %v %v", i, o.Kind, o.Err)
		}
	}
}
