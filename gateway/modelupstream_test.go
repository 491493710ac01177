package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// modelUpstream is a provider that does what it likes within what HTTP allows, and sees to it that the gateway does too.
type modelUpstream struct {
	t    testing.TB
	seed uint64
	sim  map[string]http.RoundTripper // by host

	mu     sync.Mutex
	bodies map[string]string // of requests, by their item
	tries  map[string]uint64
	open   map[*http.Request]bool
	rest   sync.WaitGroup // bodies that are still read after the answer came
}

// modelSlots are how many calls may be open, by what a request is of: its host, or its tenant.
var modelSlots = map[string]int{"one.test": 5, "two.test": 3, "narrow": 2}

func (u *modelUpstream) RoundTrip(r *http.Request) (*http.Response, error) {
	item := r.Header.Get("X-Client-Request-Id")
	u.mu.Lock()
	u.tries[item]++
	luck := rand.New(rand.NewPCG(u.seed, hashed(item)+u.tries[item]))
	u.open[r] = true
	u.countLocked()
	u.mu.Unlock()
	resp, err := u.answer(r, item, luck)
	if err != nil {
		u.leave(r)
		return nil, err
	}
	resp.Body = &modelBody{ReadCloser: resp.Body, over: func() { u.leave(r) }}
	return resp, nil
}

// countLocked checks that no more calls are open than may be. One whose context ended was given up.
func (u *modelUpstream) countLocked() {
	n := make(map[string]int)
	for r := range u.open {
		if r.Context().Err() == nil {
			n[r.URL.Host]++
			n[r.Header.Get("X-Whose")]++
		}
	}
	for of, most := range modelSlots {
		if n[of] > most {
			u.t.Errorf("%d calls are open of %s: %d may be", n[of], of, most)
		}
	}
}

func (u *modelUpstream) leave(r *http.Request) {
	u.mu.Lock()
	delete(u.open, r)
	u.mu.Unlock()
}

func (u *modelUpstream) answer(r *http.Request, item string, luck *rand.Rand) (*http.Response, error) {
	whole := []byte(echoOf(item))
	switch luck.IntN(10) {
	case 0, 1: // at once, and what is left of the request is read later, as a connection does that is still sending
		u.rest.Go(func() { u.check(r, item, 200*time.Millisecond, luck) })
		if strings.Contains(r.URL.Host, "two") {
			return answered(r, http.StatusInternalServerError, "application/json", io.NopCloser(strings.NewReader("{}"))), nil
		}
		return answered(r, http.StatusOK, "application/json", io.NopCloser(bytes.NewReader(whole))), nil
	case 2, 3, 4:
		u.check(r, item, 0, luck)
		if err := rest(r.Context(), time.Duration(luck.IntN(5000))*time.Millisecond); err != nil {
			return nil, err
		}
		if u.streams(item) {
			return answered(r, http.StatusOK, "text/event-stream", &echoStream{ctx: r.Context(), parts: echoParts(item), luck: luck}), nil
		}
		return answered(r, http.StatusOK, "application/json", io.NopCloser(bytes.NewReader(whole))), nil
	}
	return u.sim[r.URL.Host].RoundTrip(r)
}

func (u *modelUpstream) streams(item string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return strings.Contains(u.bodies[item], `"stream":true`)
}

// check reads a request's body, with pauses, and compares it with what the client sent.
func (u *modelUpstream) check(r *http.Request, item string, pause time.Duration, luck *rand.Rand) {
	defer r.Body.Close()
	var got []byte
	for buf := make([]byte, 8<<10); ; {
		n, err := r.Body.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			break
		}
		if pause > 0 {
			time.Sleep(time.Duration(luck.Int64N(int64(pause))))
			if luck.IntN(50) == 0 { // the connection broke
				return
			}
		}
	}
	text := strings.Replace(string(got), `,"stream_options":{"include_usage":true}`, "", 1)
	u.mu.Lock()
	defer u.mu.Unlock()
	if text != u.bodies[item] {
		u.t.Errorf("item %s is sent as %.100q", item, text)
	}
}

func answered(r *http.Request, status int, kind string, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: body, ContentLength: -1, Request: r}
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func hashed(item string) uint64 {
	n, _ := strconv.ParseUint(item, 10, 64)
	return n << 8
}

// echoLength is how often an answer says which item it is of: some are longer than is kept of one.
func echoLength(item string) int { return []int{3, 3000, 60_000, 300_000}[hashed(item)>>8%4] }

func echoOf(item string) string {
	return fmt.Sprintf(`{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"ECHO%s"},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":9,"completion_tokens":2}}`, strings.Repeat(" "+item, echoLength(item)))
}

func echoParts(item string) (parts []string) {
	for range min(echoLength(item), 300) {
		parts = append(parts, `data: {"id":"c","choices":[{"index":0,"delta":{"content":"ECHO `+item+`"},"finish_reason":null}]}`+"\n\n")
	}
	parts = append(parts, `data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n")
	return append(parts, usageChunk+"\n\n", "data: [DONE]\n\n")
}

// echoStream is a stream that comes in pieces of any size.
type echoStream struct {
	ctx   context.Context
	parts []string
	left  string
	luck  *rand.Rand
}

func (s *echoStream) Read(p []byte) (int, error) {
	if s.left == "" {
		if len(s.parts) == 0 {
			return 0, io.EOF
		}
		n := 1 + s.luck.IntN(len(s.parts))
		s.left, s.parts = strings.Join(s.parts[:n], ""), s.parts[n:]
		if err := rest(s.ctx, time.Duration(s.luck.IntN(3000))*time.Millisecond); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.left[:min(len(s.left), 1+s.luck.IntN(32<<10))])
	s.left = s.left[n:]
	return n, nil
}

func (s *echoStream) Close() error { return nil }

// modelBody is an answer's body, which ends once.
type modelBody struct {
	io.ReadCloser
	over func()
}

func (b *modelBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.over()
	}
	return n, err
}

func (b *modelBody) Close() error {
	b.over()
	return b.ReadCloser.Close()
}

// modelClient takes an answer, until it has enough.
type modelClient struct {
	header http.Header
	status int
	body   bytes.Buffer
	most   int           // bytes that it takes; 0: all
	slow   time.Duration // that it takes over each write
	cancel func()        // of its request: a server ends that when a write fails
}

var errModelGone = errors.New("broken pipe")

func (c *modelClient) Header() http.Header { return c.header }

func (c *modelClient) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
}

func (c *modelClient) Write(b []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	time.Sleep(c.slow)
	if c.most > 0 && c.body.Len()+len(b) > c.most {
		c.cancel()
		return 0, errModelGone
	}
	return c.body.Write(b)
}

func (c *modelClient) Flush() {}
