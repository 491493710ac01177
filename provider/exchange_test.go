package provider_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/sse"
	"github.com/sluice-llm/sluice/provider"
)

// tripper is a base of one function.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func reply(status int, body io.Reader, kv ...string) (*http.Response, error) {
	return &http.Response{StatusCode: status, Header: header(kv...), Body: io.NopCloser(body), ContentLength: -1}, nil
}

func replies(status int, body string, kv ...string) tripper {
	return func(*http.Request) (*http.Response, error) { return reply(status, strings.NewReader(body), kv...) }
}

const chatAnswer = `{"id":"c1","choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4}}`

// packed returns a text as gzip has it.
func packed(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	z.Close()
	return b.String()
}

// hang never answers.
func hang(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// stuck is a body that never ends.
type stuck struct {
	ctx context.Context
	io.Reader
}

func (s stuck) Read(p []byte) (int, error) {
	if n, err := s.Reader.Read(p); err == nil {
		return n, nil
	}
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func exchange(t *testing.T, ctx context.Context, base http.RoundTripper, cfg provider.ExchangeConfig) (provider.Answer, sluice.Outcome) {
	t.Helper()
	p := lookup(t, "openai")
	if cfg.Endpoint == provider.NoEndpoint {
		cfg.Endpoint = provider.ChatCompletions
	}
	cfg.Provider = p
	req, err := p.NewRequest(ctx, provider.Target{BaseURL: "http://127.0.0.1:1/v1", Key: "sk-test-0123456789", Endpoint: cfg.Endpoint, Model: "m"}, []byte(`{"model":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	return provider.Exchange(ctx, base, nil, req, cfg)
}

func TestExchangeSaysWhatTheAnswerMeant(t *testing.T) {
	sse, gzipped := []string{"content-type", "text/event-stream; charset=utf-8"}, []string{"content-encoding", "gzip"}
	cases := []struct {
		name   string
		base   tripper
		cfg    provider.ExchangeConfig
		kind   sluice.Kind
		finish string
		usage  sluice.Usage
		body   string // begins with
	}{
		{"a good answer", replies(200, chatAnswer), provider.ExchangeConfig{}, sluice.OK, "stop", sluice.Usage{Input: 9, Output: 4}, chatAnswer},
		{"a stream", replies(200, chatStream, sse...), provider.ExchangeConfig{Stream: true}, sluice.OK, "tool_calls", sluice.Usage{Input: 9, Output: 4}, `{"choices":[{`},
		{"a stream without its type", replies(200, chatStream), provider.ExchangeConfig{Stream: true}, sluice.OK, "tool_calls", sluice.Usage{Input: 9, Output: 4}, `{"choices":[{`},
		{"no stream though one was asked for", replies(200, chatAnswer, "content-type", "application/json"), provider.ExchangeConfig{Stream: true}, sluice.OK, "stop", sluice.Usage{Input: 9, Output: 4}, chatAnswer},
		{"a cut stream", replies(200, messageStream[:strings.Index(messageStream, "citation")], sse...), provider.ExchangeConfig{Endpoint: provider.Messages}, sluice.Network, "", sluice.Usage{Input: 15, CachedInput: 3, CacheWrite: 2, Output: 2, Estimated: true}, ""},
		{"a cut stream that did not state its input", replies(200, chatStream[:len(chatStream)/3], sse...), provider.ExchangeConfig{Cost: sluice.Cost{Input: 77}}, sluice.Network, "", sluice.Usage{Input: 77, Output: 2, Estimated: true}, ""},
		{"an overload in the middle", replies(200, messageStream[:700]+"\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n", sse...), provider.ExchangeConfig{Endpoint: provider.Messages}, sluice.Overloaded, "", sluice.Usage{Input: 15, CachedInput: 3, CacheWrite: 2, Output: 1, Estimated: true}, ""},
		{"a refusal", replies(429, `{"error":{"message":"Rate limit reached","type":"tokens"}}`), provider.ExchangeConfig{}, sluice.RateLimit, "", sluice.Usage{}, `{"error"`},
		{"an error in a good answer", replies(200, `{"error":{"message":"Overloaded","type":"overloaded_error"}}`), provider.ExchangeConfig{}, sluice.Overloaded, "", sluice.Usage{}, `{"error"`},
		{"an error beside what came of an answer", replies(200, `{"choices":[{"message":{"content":"par"},"finish_reason":"error"}],"error":{"code":429,"message":"Rate limit exceeded"},"usage":{"prompt_tokens":7,"completion_tokens":1}}`), provider.ExchangeConfig{}, sluice.RateLimit, "", sluice.Usage{Input: 7, Output: 1}, `{"choices"`},
		{"an error in words", replies(200, "Error: 429 Too Many Requests", "content-type", "text/plain"), provider.ExchangeConfig{}, sluice.ServerError, "", sluice.Usage{}, "Error"},
		{"an error of another form", replies(200, `{"code":429,"message":"Too many requests"}`), provider.ExchangeConfig{}, sluice.RateLimit, "", sluice.Usage{}, `{"code"`},
		{"a status of its own", replies(200, `{"choices":null,"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}`), provider.ExchangeConfig{}, sluice.QuotaExhausted, "", sluice.Usage{}, `{"choices"`},
		{"a page", replies(200, "<html>login</html>", "content-type", "text/html"), provider.ExchangeConfig{}, sluice.Blocked, "", sluice.Usage{}, "<html>"},
		{"half a JSON", replies(200, chatAnswer[:40]), provider.ExchangeConfig{}, sluice.ServerError, "", sluice.Usage{}, `{"id"`},
		{"nothing", replies(200, ""), provider.ExchangeConfig{}, sluice.ServerError, "", sluice.Usage{}, ""},
		{"a redirect", replies(307, "", "location", "https://elsewhere/"), provider.ExchangeConfig{}, sluice.BadRequest, "", sluice.Usage{}, ""},
		{"a byte order mark", replies(200, "\ufeff"+chatAnswer), provider.ExchangeConfig{}, sluice.OK, "stop", sluice.Usage{Input: 9, Output: 4}, chatAnswer},
		{"a compressed answer", replies(200, packed(t, chatAnswer), gzipped...), provider.ExchangeConfig{}, sluice.OK, "stop", sluice.Usage{Input: 9, Output: 4}, chatAnswer},
		{"an answer that only its header says is compressed", replies(200, chatAnswer, gzipped...), provider.ExchangeConfig{}, sluice.OK, "stop", sluice.Usage{Input: 9, Output: 4}, chatAnswer},
		{"a compressed stream", replies(200, packed(t, chatStream), append(sse, gzipped...)...), provider.ExchangeConfig{Stream: true}, sluice.OK, "tool_calls", sluice.Usage{Input: 9, Output: 4}, `{"choices":[{`},
		{"a compressed refusal", replies(400, packed(t, `{"error":{"code":"insufficient_quota"}}`), gzipped...), provider.ExchangeConfig{}, sluice.QuotaExhausted, "", sluice.Usage{}, `{"error"`},
		{"a compressed answer that is cut", replies(200, packed(t, chatAnswer)[:40], gzipped...), provider.ExchangeConfig{}, sluice.Network, "", sluice.Usage{}, ""},
		{"a compressed answer that is too long", replies(200, packed(t, strings.Repeat(" ", 4000)), gzipped...), provider.ExchangeConfig{MaxBytes: 2000}, sluice.BadRequest, "", sluice.Usage{}, ""},
		{"a compressed stream that is too long", replies(200, packed(t, strings.Repeat(": x\n\n", 1000)), append(sse, gzipped...)...), provider.ExchangeConfig{MaxBytes: 2000}, sluice.BadRequest, "", sluice.Usage{}, ""},
		{"too long an answer", replies(200, chatAnswer), provider.ExchangeConfig{MaxBytes: 20}, sluice.BadRequest, "", sluice.Usage{}, ""},
		{"too long a stream", replies(200, chatStream, sse...), provider.ExchangeConfig{MaxBytes: 200}, sluice.BadRequest, "", sluice.Usage{}, ""},
		{"a body that breaks", func(*http.Request) (*http.Response, error) {
			return reply(200, io.MultiReader(strings.NewReader(chatAnswer[:40]), iotest.ErrReader(errors.New("reset"))))
		}, provider.ExchangeConfig{}, sluice.Network, "", sluice.Usage{}, ""},
		{"a cut body", func(*http.Request) (*http.Response, error) {
			r, err := reply(200, strings.NewReader(chatAnswer[:len(chatAnswer)-1]))
			r.ContentLength = int64(len(chatAnswer))
			return r, err
		}, provider.ExchangeConfig{}, sluice.Network, "", sluice.Usage{}, ""},
		{"a whole body behind a wrong length", func(*http.Request) (*http.Response, error) {
			r, err := reply(200, strings.NewReader(chatAnswer))
			r.ContentLength = int64(len(chatAnswer)) + 1
			return r, err
		}, provider.ExchangeConfig{}, sluice.OK, "stop", sluice.Usage{Input: 9, Output: 4}, ""},
		{"a whole rejection behind a wrong length", func(*http.Request) (*http.Response, error) {
			return reply(400, io.MultiReader(strings.NewReader(`{"error":{"message":"no such thing","type":"invalid_request_error"}}`), iotest.ErrReader(io.ErrUnexpectedEOF)))
		}, provider.ExchangeConfig{}, sluice.BadRequest, "", sluice.Usage{}, ""},
		{"a panic", func(*http.Request) (*http.Response, error) { panic("boom") }, provider.ExchangeConfig{}, sluice.Internal, "", sluice.Usage{}, ""},
		{"neither answer nor error", func(*http.Request) (*http.Response, error) { return nil, nil }, provider.ExchangeConfig{}, sluice.Network, "", sluice.Usage{}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, o := exchange(t, t.Context(), c.base, c.cfg)
			if o.Kind != c.kind || (o.Err == nil) != (c.kind == sluice.OK) {
				t.Errorf("kind %v, want %v: %v", o.Kind, c.kind, o.Err)
			}
			if a.FinishReason != c.finish && c.kind == sluice.OK {
				t.Errorf("finish %q", a.FinishReason)
			}
			if o.Usage != c.usage {
				t.Errorf("usage %+v, want %+v", o.Usage, c.usage)
			}
			if !strings.HasPrefix(string(a.Body), c.body) {
				t.Errorf("body %.100q", a.Body)
			}
			if o.Unsent || o.Open {
				t.Errorf("%+v", o)
			}
		})
	}
}

func TestExchangeReadsHeaders(t *testing.T) {
	kv := []string{"x-request-id", "req_7", "retry-after", "3"}
	for k, v := range openAIHeaders() {
		kv = append(kv, k, v[0])
	}
	for _, status := range []int{200, 429} {
		a, o := exchange(t, t.Context(), replies(status, chatAnswer, kv...), provider.ExchangeConfig{})
		if a.RequestID != "req_7" || a.Status != status || len(o.Readings) != 2 {
			t.Errorf("%d: %+v %+v", status, a, o)
		}
		if wait := time.Duration(0); status == 200 && o.Wait != wait || status == 429 && o.Wait != 3*time.Second {
			t.Errorf("%d: wait %v", status, o.Wait)
		}
	}
}

func TestWhatNeverLeftIsUnsent(t *testing.T) {
	tlsServer := httptest.NewUnstartedServer(http.NotFoundHandler())
	tlsServer.Config.ErrorLog = log.New(io.Discard, "", 0)
	tlsServer.StartTLS()
	defer tlsServer.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	closing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }))
	defer closing.Close()
	cases := []struct {
		name, url string
		base      http.RoundTripper
		unsent    bool
	}{
		{"nobody listens", "http://127.0.0.1:1/v1", provider.NewBase(1), true},
		{"an unknown certificate", tlsServer.URL + "/v1", provider.NewBase(1), true},
		{"no TLS where there should be", strings.Replace(plain.URL, "http:", "https:", 1) + "/v1", provider.NewBase(1), true},
		{"no such host, without a trace", "http://x/v1", tripper(func(*http.Request) (*http.Response, error) {
			return nil, &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}
		}), true},
		{"no certificate, without a trace", "http://x/v1", tripper(func(*http.Request) (*http.Response, error) {
			return nil, &tls.CertificateVerificationError{Err: errors.New("bad")}
		}), true},
		{"a reset, without a trace", "http://x/v1", tripper(func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
		}), false},
		{"a connection that breaks", closing.URL + "/v1", provider.NewBase(1), false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := lookup(t, "openai")
			req, err := p.NewRequest(t.Context(), provider.Target{BaseURL: c.url, Key: "sk-test-0123456789", Endpoint: provider.ChatCompletions, Model: "m"}, []byte(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			_, o := provider.Exchange(t.Context(), c.base, nil, req, provider.ExchangeConfig{Provider: p, Endpoint: provider.ChatCompletions})
			if o.Kind != sluice.Network || o.Unsent != c.unsent {
				t.Errorf("%v, unsent %v: %v", o.Kind, o.Unsent, o.Err)
			}
		})
	}
}

func TestCancelledBeforeItLeftIsUnsent(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, o := exchange(t, ctx, provider.NewBase(1), provider.ExchangeConfig{})
	if o.Kind != sluice.Network || !o.Unsent || o.Err != context.Canceled {
		t.Errorf("%+v", o)
	}
}

func TestNetworkErrorsHoldNoKey(t *testing.T) {
	secret := errors.New(`Post "https://x/?key=abcdefgh1234": proxy said: plainsecret`)
	base := tripper(func(*http.Request) (*http.Response, error) { return nil, secret })
	_, o := exchange(t, t.Context(), base, provider.ExchangeConfig{Key: "plainsecret"})
	if o.Err == nil || strings.Contains(o.Err.Error(), "plainsecret") || strings.Contains(o.Err.Error(), "abcdefgh1234") {
		t.Error(o.Err)
	}
	if !errors.Is(o.Err, secret) {
		t.Error("the error it was is lost")
	}
	base = func(*http.Request) (*http.Response, error) {
		return nil, &url.Error{Op: "Post", URL: "https://x/strange-secret-place", Err: io.ErrUnexpectedEOF}
	}
	if _, o = exchange(t, t.Context(), base, provider.ExchangeConfig{}); o.Err.Error() != "unexpected EOF" {
		t.Errorf("the address is quoted: %v", o.Err)
	}
	_, o = exchange(t, t.Context(), replies(200, "plainsecret <html>"), provider.ExchangeConfig{Key: "plainsecret"})
	if strings.Contains(o.Err.Error(), "plainsecret") {
		t.Error(o.Err)
	}
}

func TestTooLongAnEventDoesNotQuoteTheLimitOfAnswers(t *testing.T) {
	stream := "data: " + strings.Repeat("x", sse.MaxEvent+1)
	_, o := exchange(t, t.Context(), replies(200, stream, "content-type", "text/event-stream"), provider.ExchangeConfig{})
	if o.Kind != sluice.BadRequest || o.Err != provider.ErrEventTooLong {
		t.Errorf("kind %v, error %v", o.Kind, o.Err)
	}
}

func TestRefusalsHoldNoKeyOfTheRun(t *testing.T) {
	for _, status := range []int{200, 401} {
		_, o := exchange(t, t.Context(), replies(status, `{"error":{"message":"no such key: plainsecret","type":"plainsecret"}}`), provider.ExchangeConfig{Key: "plainsecret"})
		if e, ok := errors.AsType[*provider.Error](o.Err); !ok || strings.Contains(e.Error()+e.Why.String(), "plainsecret") {
			t.Error(o.Err)
		}
	}
}

// A provider may give back all that it was sent, wherever it likes.
func TestAnAnswerThatGivesTheSecretsBackHoldsNone(t *testing.T) {
	answer := `{"choices":[{"message":{"content":"KEY and OTHER"},"finish_reason":"KEY OTHER"}],"usage":{"prompt_tokens":9,"completion_tokens":4}}`
	stream := `data: {"choices":[{"delta":{"content":"KEY and OTHER"},"finish_reason":"KEY OTHER"}]}` + "\n\ndata: [DONE]\n\n"
	refusal := `{"error":{"message":"KEY and OTHER","type":"OTHER"}}`
	for _, c := range []struct {
		status     int
		body, kind string
	}{{200, answer, "application/json"}, {200, stream, "text/event-stream"}, {400, refusal, "application/json"}} {
		body := strings.NewReplacer("KEY", "plainsecret", "OTHER", "zebra-in-a-header").Replace(c.body)
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1:1/v1/chat/completions", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer plainsecret")
		req.Header.Set("X-Gateway-Token", "zebra-in-a-header")
		a, o := provider.Exchange(t.Context(), replies(c.status, body, "Content-Type", c.kind, "X-Request-Id", "plainsecret zebra-in-a-header"), nil, req,
			provider.ExchangeConfig{Endpoint: provider.ChatCompletions, Key: "plainsecret"})
		text := fmt.Sprint(a.FinishReason, " ", a.RequestID, " ", string(a.Body), " ", o.Err)
		if strings.Contains(text, "plainsecret") || strings.Contains(text, "zebra-in-a-header") {
			t.Errorf("status %d, %s: %s", c.status, c.kind, text)
		}
	}
}

func TestAFinishReasonIsShort(t *testing.T) {
	a, _ := exchange(t, t.Context(), replies(200, strings.Replace(chatAnswer, "stop", strings.Repeat("x", 1<<20), 1)), provider.ExchangeConfig{})
	if len(a.FinishReason) == 0 || len(a.FinishReason) > 300 {
		t.Errorf("it has %d bytes", len(a.FinishReason))
	}
}

// The time to make a connection is not the provider's.
func TestTimeoutStartsWhenTheRequestLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := provider.NewBase(1)
		base.DialContext = func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(5 * time.Second)
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				io.Copy(io.Discard, far)
			}()
			return near, nil
		}
		defer base.CloseIdleConnections()
		start := time.Now()
		_, o := exchange(t, t.Context(), base, provider.ExchangeConfig{Timeout: 7 * time.Second})
		if o.Kind != sluice.Timeout || o.Unsent || time.Since(start) != 12*time.Second {
			t.Errorf("%v after %v: %v", o.Kind, time.Since(start), o.Err)
		}
	})
}

// A server says that its body is over only after the message is: the connection outlives that.
func TestConnectionIsUsedAgainAfterAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		base := provider.NewBase(1)
		base.DialContext = func(context.Context, string, string) (net.Conn, error) {
			dials++
			near, far := net.Pipe()
			go serveStream(far)
			return near, nil
		}
		defer base.CloseIdleConnections()
		tr, w := transport(t, base, nil)
		for range 3 {
			if _, o := exchange(t, t.Context(), base, provider.ExchangeConfig{}); o.Kind != sluice.OK {
				t.Fatal(o.Err)
			}
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:1/v1/chat/completions", strings.NewReader(chatRequest))
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			io.ReadFull(resp.Body, make([]byte, len(chatStream)))
			resp.Body.Close() // as SDKs do after the last event
		}
		w.ended(t, 3)
		if dials != 1 {
			t.Errorf("%d connections for 6 calls", dials)
		}
	})
}

// serveStream answers every request on a connection with the same stream, the end of the body 20 ms late.
func serveStream(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		io.Copy(io.Discard, r.Body)
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(chatStream), chatStream)
		time.Sleep(20 * time.Millisecond)
		io.WriteString(c, "0\r\n\r\n")
	}
}

// TestAnAnswerThatCameOtherwiseMeansTheSame compares Judge with what Exchange says of the same answer.
func TestAnAnswerThatCameOtherwiseMeansTheSame(t *testing.T) {
	const key = "sk-sentinel-5d1f0c7e9b2a4836"
	for _, c := range []struct {
		name   string
		status int
		body   string
	}{
		{"a good answer", 200, chatAnswer},
		{"a refusal", 400, `{"error":{"message":"bad value near ` + key + `","type":"invalid_request_error"}}`},
		{"an error in a good status", 200, `{"error":{"message":"The server is overloaded","type":"server_error","code":"overloaded"}}`},
		{"no JSON", 200, `<html>`},
		{"no answer", 200, `{"choices":[{"message":{"content":null},"finish_reason":"stop"}]}`},
		{"no UTF-8", 200, strings.Replace(chatAnswer, "hi", "h\xff", 1)},
		{"a fault of theirs", 500, `{"error":{"message":"internal","type":"server_error"}}`},
	} {
		p := lookup(t, "openai")
		cfg := provider.ExchangeConfig{Provider: p, Endpoint: provider.ChatCompletions, Key: key}
		req, err := p.NewRequest(t.Context(), provider.Target{Key: key, Endpoint: provider.ChatCompletions, Model: "m"}, []byte(chatRequest))
		if err != nil {
			t.Fatal(err)
		}
		base := tripper(func(*http.Request) (*http.Response, error) {
			return reply(c.status, strings.NewReader(c.body), "content-type", "application/json", "x-request-id", "r1")
		})
		want, o := provider.Exchange(t.Context(), base, nil, req, cfg)
		got, judged := cfg.Judge(nil, c.status, "r1", []byte(c.body))
		if got.Status != want.Status || got.RequestID != want.RequestID || string(got.Body) != string(want.Body) || got.FinishReason != want.FinishReason {
			t.Errorf("%s: %+v, and live %+v", c.name, got, want)
		}
		if judged.Kind != o.Kind || judged.Usage != o.Usage || judged.HasUsage != o.HasUsage || fmt.Sprint(judged.Err) != fmt.Sprint(o.Err) {
			t.Errorf("%s: %+v, and live %+v", c.name, judged, o)
		}
		if strings.Contains(string(got.Body)+fmt.Sprint(judged.Err), key) {
			t.Errorf("%s: the key is in %s, %v", c.name, got.Body, judged.Err)
		}
	}
}

func TestSwitchedProtocolsAreNoAnswer(t *testing.T) {
	never := readerFunc(func([]byte) (int, error) {
		t.Error("the body of an answer that is none was read: it may never end")
		return 0, io.EOF
	})
	base := tripper(func(*http.Request) (*http.Response, error) { return reply(101, never) })
	if _, o := exchange(t, t.Context(), base, provider.ExchangeConfig{}); o.Kind != sluice.Network {
		t.Errorf("kind %v, want network", o.Kind)
	}
}

func TestARequestIDThatEchoesTheKeyIsStruck(t *testing.T) {
	const key = "sk-sentinel-0123456789"
	for _, status := range []int{200, 400} {
		a, _ := exchange(t, t.Context(), replies(status, `{"choices":[{}]}`, "X-Request-Id", "req-"+key), provider.ExchangeConfig{Key: key})
		if strings.Contains(a.RequestID, "sentinel") {
			t.Errorf("status %d: request id %q holds the key", status, a.RequestID)
		}
	}
}

func TestAnEndlessRefusalIsJudgedByItsBeginning(t *testing.T) {
	endless := readerFunc(func(p []byte) (int, error) { return copy(p, strings.Repeat("x", len(p))), nil })
	for status, want := range map[int]sluice.Kind{429: sluice.RateLimit, 500: sluice.ServerError} {
		base := tripper(func(*http.Request) (*http.Response, error) { return reply(status, endless, "Retry-After", "7") })
		if _, o := exchange(t, t.Context(), base, provider.ExchangeConfig{}); o.Kind != want {
			t.Errorf("status %d: kind %v, want %v", status, o.Kind, want)
		}
	}
}
