package gateway_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluice-llm/sluice/gateway"
)

// held answers requests once it is closed.
type held chan struct{}

func (h held) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-h:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	_, _ = io.Copy(io.Discard, r.Body)
	r.Body.Close()
	return document(200, chatAnswer), nil
}

// inPieces reads a text 1 KiB at a time.
func inPieces(text string) io.Reader {
	var all []io.Reader
	for piece := range slices.Chunk([]byte(text), 1<<10) {
		all = append(all, bytes.NewReader(piece))
	}
	return io.MultiReader(all...)
}

func TestBodiesBeyondTheRoomAreRefusedForNow(t *testing.T) {
	const room = 8 << 20
	for name, c := range map[string]struct {
		size         int
		chunked      bool
		alone, other int // requests of one tenant that wait, and of the next
	}{
		"short":         {size: 512 << 10, alone: 8, other: 4},
		"long":          {size: 3 << 19, alone: 3, other: 1},
		"of any length": {size: 400 << 10, chunked: true, alone: 8, other: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answers := make(held)
				r := newTenantRig(t, rigConfig{base: answers, tenants: equals(2), gateway: gateway.Config{MaxBodyMemory: room}})
				send := func(tenant, path string) *httptest.ResponseRecorder {
					req := r.request(t.Context(), tenant)
					text := strings.Replace(longBody(0, c.size-80), "alias", "m", 1)
					req.URL.Path, req.Body, req.ContentLength = path, io.NopCloser(strings.NewReader(text)), int64(len(text))
					if c.chunked {
						req.Body, req.ContentLength = io.NopCloser(inPieces(text)), -1
					}
					return r.do(req)
				}
				var waiting sync.WaitGroup
				wait := func(tenant string, want int) {
					var mu sync.Mutex
					refused := 0
					for range 20 {
						waiting.Go(func() {
							switch w := send(tenant, "/v1/chat/completions"); {
							case w.Code == 503 && w.Header().Get("X-Sluice-Error") == "bodies_full" && w.Header().Get("Retry-After") == "5":
								mu.Lock()
								refused++
								mu.Unlock()
							case w.Code != 200:
								t.Errorf("%s: %s", tenant, text(w))
							}
						})
						synctest.Wait()
					}
					if got := 20 - refused; got != want {
						t.Errorf("%s: %d requests wait, want %d", tenant, got, want)
					}
				}
				wait("tenant-0", c.alone)
				wait("tenant-1", c.other)
				if n := r.gateway.Taken(); n > room || n < int64((c.alone+c.other)*c.size/2) {
					t.Errorf("they take %d bytes", n)
				}
				if got := send("tenant-0", "/v1/messages"); got.Code != 503 || !strings.Contains(got.Body.String(), "overloaded_error") {
					t.Errorf("a client of Anthropic's API gets %s", text(got))
				}
				close(answers)
				waiting.Wait()
				if got := send("tenant-0", "/v1/chat/completions"); got.Code != 200 {
					t.Errorf("when all are over: %s", text(got))
				}
			})
		})
	}
}
