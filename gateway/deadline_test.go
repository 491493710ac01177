package gateway_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
)

// base makes exchanges in process: fn answers, in its own time.
type base func(w *piped, r *http.Request)

func (fn base) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	pr, pw := io.Pipe()
	w := &piped{pw: pw, ctx: r.Context(), head: make(chan *http.Response, 1)}
	stop := context.AfterFunc(r.Context(), func() { pw.CloseWithError(r.Context().Err()) })
	go func() {
		defer stop()
		fn(w, r)
		w.status(200, "")
		pw.CloseWithError(r.Context().Err())
	}()
	select {
	case resp := <-w.head:
		resp.Body = pr
		return resp, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// piped is what a base writes to.
type piped struct {
	pw   *io.PipeWriter
	ctx  context.Context
	head chan *http.Response
	once sync.Once
}

func (w *piped) status(code int, kind string) {
	w.once.Do(func() {
		w.head <- &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {kind}}, ContentLength: -1}
	})
}

// after writes a part of a stream once that time is over.
func (w *piped) after(d time.Duration, part string) {
	select {
	case <-time.After(d):
		w.status(200, "text/event-stream")
		_, _ = io.WriteString(w.pw, part)
	case <-w.ctx.Done():
	}
}

// ask serves a request in process. cut says that the connection was.
func ask(x *relayed, ctx context.Context, path, body string) (got reply) {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+path, strings.NewReader(body))
	defer func() {
		if v := recover(); v != nil {
			if v != http.ErrAbortHandler {
				panic(v)
			}
			got.cut = http.ErrAbortHandler
		}
		got.status, got.header, got.body = w.Code, w.Header(), w.Body.String()
	}()
	x.ServeHTTP(leaving{w, ctx}, r)
	return got
}

// leaving takes no more once its client is gone.
type leaving struct {
	*httptest.ResponseRecorder
	ctx context.Context
}

func (w leaving) Write(b []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, w.ctx.Err()
	}
	return w.ResponseRecorder.Write(b)
}

// within runs a test in a bubble, before a base.
func within(t *testing.T, fn base, change func(*setting), test func(t *testing.T, x *relayed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, relay(t, "http://up.test", func(s *setting) {
			s.Base = fn
			if change != nil {
				change(s)
			}
		}))
	})
}

// wire serves a gateway in a bubble. dial connects to it in memory.
func wire(t *testing.T, x *relayed) (dial func() net.Conn) {
	l := &pipes{make(chan net.Conn), make(chan struct{})}
	serve(t, x, l)
	return func() net.Conn {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close() })
		l.conns <- far
		return near
	}
}

// pipes is a listener whose connections are in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

const chatStream = `{"model":"m","stream":true,"messages":[]}`

func TestAnAnswerThatDoesNotBeginIsATimeout(t *testing.T) {
	for name, fn := range map[string]base{
		"no head": func(w *piped, r *http.Request) { w.after(time.Hour, "") },
		"no body": func(w *piped, r *http.Request) { w.after(20*time.Second, ""); w.after(time.Hour, "") },
	} {
		within(t, fn, func(s *setting) { s.Deadlines = gateway.Deadlines{FirstByte: 30 * time.Second, Idle: 5 * time.Second} },
			func(t *testing.T, x *relayed) {
				for _, body := range []string{chatStream, `{"model":"m"}`} {
					start := time.Now()
					got := ask(x, t.Context(), "/v1/chat/completions", body)
					if got.status != 504 || got.header.Get("X-Sluice-Error") != "first_byte_timeout" || got.cut != nil {
						t.Errorf("%s: %+v", name, got)
					}
					if took := time.Since(start); took < time.Minute || took > 62*time.Second { // two tries
						t.Errorf("%s: after %v", name, took)
					}
				}
			})
	}
}

func TestAnAnswerThatStopsIsBrokenOffInTheClientsWords(t *testing.T) {
	stops := base(func(w *piped, r *http.Request) {
		w.after(25*time.Second, "event: x\ndata: {}\n\n")
		w.after(4*time.Second, "event: y\ndata: {}\n\ndata: {\"half")
		w.after(time.Hour, "")
	})
	goesOn := base(func(w *piped, r *http.Request) {
		for w.ctx.Err() == nil {
			w.after(time.Second, "event: x\ndata: {}\n\n")
		}
	})
	cuts := base(func(w *piped, r *http.Request) {
		w.after(0, "event: x\ndata: {}\n\nevent: y\ndata: {}\n\ndata: {\"half")
		w.pw.CloseWithError(errors.New("connection reset by " + ours))
	})
	deadlines := gateway.Deadlines{FirstByte: 30 * time.Second, Idle: 5 * time.Second, Total: 50 * time.Second}
	for _, c := range []struct {
		base        base
		path        string
		after       time.Duration
		want, event string
	}{
		{stops, "/v1/chat/completions", 34 * time.Second, "idle_timeout", "data: {\"error\":{"},
		{stops, "/v1/messages", 34 * time.Second, "idle_timeout", "event: error\ndata: {\"error\":{"},
		{stops, "/v1/responses", 34 * time.Second, "idle_timeout", "event: error\ndata: {\"code\":\"idle_timeout\""},
		{goesOn, "/v1/messages", 50 * time.Second, "total_timeout", "event: error\ndata: {\"error\":{"},
		{cuts, "/v1/chat/completions", 0, "upstream_cut", "data: {\"error\":{"},
	} {
		within(t, c.base, func(s *setting) { s.Deadlines = deadlines }, func(t *testing.T, x *relayed) {
			start := time.Now()
			got := ask(x, t.Context(), c.path, chatStream)
			if got.status != 200 || got.cut == nil || time.Since(start) != c.after {
				t.Errorf("%s: %d, cut: %v, after %v", c.path, got.status, got.cut, time.Since(start))
			}
			at := strings.LastIndex(got.body, c.event)
			if at < 0 || !strings.HasSuffix(got.body[:at], "data: {}\n\n") || !strings.Contains(got.body[at:], c.want) || !strings.HasSuffix(got.body, "}\n\n") {
				t.Errorf("%s ends in %q", c.path, got.body)
			}
			if strings.Contains(got.body, ours) {
				t.Error("the event holds a key")
			}
			synctest.Wait()
			if ends := x.ended(); len(ends) != 1 || ends[0].Kind == sluice.OK || !ends[0].HasUsage {
				t.Errorf("the permit came back with %+v", ends)
			}
		})
	}
}

func TestTheTotalIsOfAllTriesWithoutTheQueue(t *testing.T) {
	hangs := base(func(w *piped, r *http.Request) { w.after(time.Hour, "") })
	within(t, hangs, func(s *setting) {
		s.Deadlines = gateway.Deadlines{FirstByte: 30 * time.Second, Total: 40 * time.Second, Queue: 10 * time.Minute}
		s.limits.Limits = sluice.Limits{RPM: 1, Burst: time.Second}
	}, func(t *testing.T, x *relayed) {
		start := time.Now()
		got := ask(x, t.Context(), "/v1/chat/completions", `{"model":"m"}`)
		if got.status != 504 || got.header.Get("X-Sluice-Error") != "total_timeout" || !strings.Contains(got.body, "40s") {
			t.Errorf("%+v", got)
		}
		if took := time.Since(start); took < 70*time.Second { // the second try waits its minute for the limit
			t.Errorf("after %v", took)
		}
	})
}

func TestAllWaitsOfACallAreBoundedTogether(t *testing.T) {
	throttles := base(func(w *piped, r *http.Request) {
		w.status(429, "application/json")
		_, _ = io.WriteString(w.pw, `{"error":{"message":"Rate limit reached, please try again in 20s","type":"requests","code":"rate_limit_exceeded"}}`)
	})
	within(t, throttles, func(s *setting) {
		s.Deadlines = gateway.Deadlines{Queue: 50 * time.Second}
	}, func(t *testing.T, x *relayed) {
		start := time.Now()
		got := ask(x, t.Context(), "/v1/messages", `{"model":"m"}`)
		took := time.Since(start) // the stated wait is tested after 0.25, 1, 2, 4, 8, 16 and 32 s: then its end is after the 50 s
		if tries := len(x.ended()); took < 31*time.Second || took > 42*time.Second || tries > 7 {
			t.Errorf("after %v and %d tries", took, tries)
		}
		if after, _ := strconv.Atoi(got.header.Get("Retry-After")); got.status != 429 || got.header.Get("X-Sluice-Error") != "quota_exhausted" || after < 15 || after > 20 ||
			got.header.Get("X-Sluice-Wait-Ms") != strconv.FormatInt(took.Milliseconds(), 10) || !strings.Contains(got.body, `"rate_limit_error"`) {
			t.Errorf("%+v", got)
		}
	})
}

func TestAnUpstreamThatKeepsFailingIsNotTakenForALimit(t *testing.T) {
	fails := base(func(w *piped, r *http.Request) { w.pw.CloseWithError(errors.New("connection reset")) })
	within(t, fails, func(s *setting) {
		s.Deadlines = gateway.Deadlines{Queue: 5 * time.Second}
	}, func(t *testing.T, x *relayed) {
		got, calls := reply{}, 0
		for calls < 10 && got.header.Get("X-Sluice-Error") != "upstream_failing" { // the pauses grow up to 8 s
			got = ask(x, t.Context(), "/v1/messages", `{"model":"m"}`)
			calls++
		}
		after, _ := strconv.Atoi(got.header.Get("Retry-After"))
		if got.status != 503 || calls < 5 || calls > 8 || after < 1 || after > 8 {
			t.Errorf("after %d calls: %+v", calls, got)
		}
	})
}

func TestAStreamMayBeAnsweredEarly(t *testing.T) {
	early := func(s *setting) {
		s.Early = 5 * time.Second
		s.Deadlines = gateway.Deadlines{FirstByte: 30 * time.Second}
		s.limits.Limits.Concurrency = 1
	}
	slow := base(func(w *piped, r *http.Request) { w.after(26*time.Second, chatChunks); w.after(0, "data: [DONE]\n\n") })
	within(t, slow, early, func(t *testing.T, x *relayed) {
		got := ask(x, t.Context(), "/v1/chat/completions", chatStream)
		if got.status != 200 || got.body != strings.Repeat(": waiting\n", 3)+chatChunks+"data: [DONE]\n\n" || got.cut != nil ||
			got.header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
			t.Errorf("%+v", got)
		}
		if got := ask(x, t.Context(), "/v1/chat/completions", `{"model":"m"}`); strings.Contains(got.body, "waiting") {
			t.Errorf("a request without a stream gets %q", got.body)
		}
	})
	within(t, base(func(w *piped, r *http.Request) { w.after(6*time.Second, chatChunks) }), early, func(t *testing.T, x *relayed) {
		client := &modelClient{header: http.Header{}, slow: 3 * time.Second} // it takes the comment from second 5 to 8
		x.ServeHTTP(client, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/chat/completions", strings.NewReader(chatStream)))
		if got := client.body.String(); got != ": waiting\n"+chatChunks {
			t.Errorf("a slow client gets %q", got)
		}
	})
	refuses := base(func(w *piped, r *http.Request) {
		time.Sleep(6 * time.Second)
		w.status(400, "application/json")
		_, _ = io.WriteString(w.pw, `{"error":{"message":"no such tool","type":"invalid_request_error"}}`)
	})
	within(t, refuses, early, func(t *testing.T, x *relayed) {
		got := ask(x, t.Context(), "/v1/chat/completions", chatStream)
		if got.status != 200 || got.cut == nil || !strings.HasPrefix(got.body, ": waiting\ndata: {\"error\":{") || !strings.Contains(got.body, "no such tool") {
			t.Errorf("%+v", got)
		}
	})
	hangs := base(func(w *piped, r *http.Request) { w.after(time.Hour, "") })
	within(t, hangs, early, func(t *testing.T, x *relayed) {
		if got := ask(x, t.Context(), "/v1/responses", chatStream); got.cut == nil || !strings.Contains(got.body, "event: error\ndata: {\"code\":\"first_byte_timeout\"") {
			t.Errorf("%+v", got)
		}
	})
}

func TestWhenTheClientGoesTheUpstreamIsCutAndItsUsageEstimated(t *testing.T) {
	var cancelled time.Duration
	stream := base(func(w *piped, r *http.Request) {
		start := time.Now()
		w.after(0, chatChunks[:strings.Index(chatChunks, "\n\n")+2])
		w.after(5*time.Second, usageChunk+"\n\ndata: [DONE]\n\n")
		cancelled = time.Since(start)
	})
	within(t, stream, nil, func(t *testing.T, x *relayed) {
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, leave)
		ask(x, ctx, "/v1/chat/completions", chatStream)
		x.Wait()
		synctest.Wait()
		ends := x.ended()
		if len(ends) != 1 || !ends[0].HasUsage || ends[0].Usage.Output != 1 || !ends[0].Abandoned || cancelled != 2*time.Second {
			t.Errorf("the upstream ends after %v, with %+v", cancelled, ends)
		}
	})
}

// The second request comes while Wait waits for the first.
func TestWaitWaitsForRequestsThatComeMeanwhile(t *testing.T) {
	slow := base(func(w *piped, r *http.Request) { w.after(10*time.Second, chatChunks); w.pw.Close() })
	within(t, slow, nil, func(t *testing.T, x *relayed) {
		begun := time.Now()
		for _, wait := range []time.Duration{0, 5 * time.Second} {
			go func() {
				time.Sleep(wait)
				ask(x, t.Context(), "/v1/chat/completions", chatStream)
			}()
		}
		time.Sleep(time.Second)
		if x.Wait(); time.Since(begun) < 15*time.Second {
			t.Errorf("it waited for %v", time.Since(begun))
		}
	})
}
