package gateway_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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
	bodies := gateway.Bodies{Most: 2 << 20, Memory: 16 << 10, MemoryTotal: 64 << 10, DiskTotal: 8 << 20, Dir: t.TempDir()}
	for name, c := range map[string]struct {
		size             int
		chunked          bool
		alone, other     int // requests of one tenant that wait, and of the next
		inMemory, onDisk int
	}{
		"short":            {size: 10 << 10, alone: 3 + 4, other: 2 + 2, inMemory: 5, onDisk: 6},
		"long":             {size: 100 << 10, alone: 4, other: 2, onDisk: 6},
		"longer":           {size: 3 << 19, alone: 3, other: 1, onDisk: 4},
		"of any length":    {size: 9 << 10, chunked: true, alone: 2 + 4, other: 1 + 2, inMemory: 3, onDisk: 6},
		"long, any length": {size: 100 << 10, chunked: true, alone: 4, other: 2, onDisk: 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answers := make(held)
				r := newTenantRig(t, rigConfig{base: answers, tenants: equals(2), gateway: gateway.Config{Bodies: bodies}})
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
				memory, disk := r.gateway.Taken()
				if memory > bodies.MemoryTotal || disk > bodies.DiskTotal || memory < int64(c.inMemory*c.size/2) || disk < int64(c.onDisk)<<20 {
					t.Errorf("they take %d bytes of memory and %d of the disk", memory, disk)
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

func TestABodyThatCannotBeKeptIsRefusedForNow(t *testing.T) {
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) { t.Error("it is sent") }, func(s *setting) {
		s.Bodies.Dir = filepath.Join(t.TempDir(), "missing")
	})
	for _, body := range []string{longBody(0, 2<<20), longBody(0, 30<<20)} { // more than the network keeps
		got := post(t, front.URL+"/v1/chat/completions", body)
		if got.status != 503 || got.header.Get("X-Sluice-Error") != "bodies_full" || got.header.Get("Retry-After") == "" {
			t.Errorf("%+v", got)
		}
	}
}
