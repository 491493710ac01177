package provider_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
)

// Whatever becomes of an open body, its permit comes back exactly once: a second Release panics.
func TestOpenBodyGivesItsPermitBackOnce(t *testing.T) {
	sse := []string{"content-type", "text/event-stream"}
	half := chatStream[:strings.Index(chatStream, "<b>")]
	open := func(r *http.Request) (*http.Response, error) {
		return reply(200, stuck{r.Context(), strings.NewReader(half)}, sse...)
	}
	said := chatStream[:strings.LastIndex(chatStream, "data: {")] // why it ends, and not yet what it used
	ending := func(r *http.Request) (*http.Response, error) {
		return reply(200, stuck{r.Context(), strings.NewReader(said)}, sse...)
	}
	cases := []struct {
		name string
		base tripper
		use  func(t *testing.T, body io.ReadCloser, cancel func())
		kind sluice.Kind
		out  int
	}{
		{"read to its end", replies(200, chatStream, sse...), func(t *testing.T, b io.ReadCloser, _ func()) { io.Copy(io.Discard, b); b.Close(); b.Close() }, sluice.OK, 4},
		{"never read, only closed", open, func(t *testing.T, b io.ReadCloser, _ func()) { b.Close(); b.Close() }, sluice.OK, 1},
		{"closed early", open, func(t *testing.T, b io.ReadCloser, _ func()) { io.ReadFull(b, make([]byte, 200)); b.Close() }, sluice.OK, 1},
		{"closed before its usage", ending, func(t *testing.T, b io.ReadCloser, _ func()) { io.ReadFull(b, make([]byte, len(said))); b.Close() }, sluice.OK, 1},
		{"cancelled before its usage", ending, func(t *testing.T, b io.ReadCloser, cancel func()) {
			io.ReadFull(b, make([]byte, len(said)))
			cancel()
			synctest.Wait()
		}, sluice.OK, 1},
		{"cut at a clean end", replies(200, half, sse...), func(t *testing.T, b io.ReadCloser, _ func()) { io.Copy(io.Discard, b); b.Close() }, sluice.Network, 1},
		{"broken", func(*http.Request) (*http.Response, error) {
			return reply(200, io.MultiReader(strings.NewReader(half), iotest.ErrReader(io.ErrUnexpectedEOF)), sse...)
		}, func(t *testing.T, b io.ReadCloser, _ func()) {
			if _, err := io.Copy(io.Discard, b); err != io.ErrUnexpectedEOF {
				t.Error(err)
			}
			b.Close()
		}, sluice.Network, 1},
		{"an error event in the middle", replies(200, half+"x\"}}]}\n\ndata: {\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n", sse...),
			func(t *testing.T, b io.ReadCloser, _ func()) { io.Copy(io.Discard, b); b.Close() }, sluice.Overloaded, 1},
		{"hanging, with a reader", open, func(t *testing.T, b io.ReadCloser, _ func()) {
			start := time.Now()
			_, err := io.Copy(io.Discard, b)
			if late, ok := err.(interface{ Timeout() bool }); !ok || !late.Timeout() || time.Since(start) != 10*time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		}, sluice.Timeout, 1},
		{"abandoned, neither read nor closed", open, func(*testing.T, io.ReadCloser, func()) { time.Sleep(11 * time.Second) }, sluice.Timeout, 1},
		{"cancelled, neither read nor closed", open, func(_ *testing.T, _ io.ReadCloser, cancel func()) { cancel(); synctest.Wait() }, sluice.Network, 1},
		{"cancelled under a reader", open, func(t *testing.T, b io.ReadCloser, cancel func()) {
			time.AfterFunc(time.Second, cancel)
			if _, err := io.Copy(io.Discard, b); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			b.Close()
		}, sluice.Network, 1},
		{"panicking", func(*http.Request) (*http.Response, error) {
			n := 0
			return reply(200, readerFunc(func(p []byte) (int, error) {
				if n++; n > 1 {
					panic("boom")
				}
				return copy(p, half), nil
			}), sse...)
		}, func(t *testing.T, b io.ReadCloser, _ func()) {
			defer func() {
				if recover() == nil {
					t.Error("the panic is swallowed")
				}
				b.Close()
			}()
			io.Copy(io.Discard, b)
		}, sluice.Internal, 1},
		{"read and closed at once", open, func(t *testing.T, b io.ReadCloser, cancel func()) {
			var wg sync.WaitGroup
			for _, do := range []func(){func() { io.Copy(io.Discard, b) }, func() { b.Close() }, cancel} {
				wg.Go(do)
			}
			wg.Wait()
		}, 255, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				// The head of the answer comes with a part of it, the rest when it is read.
				base := tripper(func(r *http.Request) (*http.Response, error) {
					resp, err := c.base(r)
					resp.Body = struct {
						io.Reader
						io.Closer
					}{&dribble{r: resp.Body, n: 200}, resp.Body}
					return resp, err
				})
				tr, w := transport(t, base, nil)
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, chatURL, strings.NewReader(chatRequest))
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				c.use(t, resp.Body, cancel)
				synctest.Wait()
				o := w.ended(t, 1)[0]
				if o.Kind != c.kind && c.kind != 255 || o.Usage.Output < 1 || c.out > 1 && o.Usage.Output != c.out || !o.HasUsage {
					t.Errorf("%v %+v: %v", o.Kind, o.Usage, o.Err)
				}
			})
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// dribble hands out the first event and a half, then whatever comes.
type dribble struct {
	r io.Reader
	n int
}

func (d *dribble) Read(p []byte) (int, error) {
	if d.n > 0 && len(p) > 400 {
		p = p[:400]
		d.n = 0
	}
	return d.r.Read(p)
}
