package gateway_test

import (
	"bufio"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/provider"
)

// FuzzRequest sends whatever is a request to a gateway, and looks at what an upstream sees of it.
func FuzzRequest(f *testing.F) {
	const body = `{"model":"m","messages":[]}`
	for _, line := range []string{
		"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + theirs,
		"POST http://localhost/v1/messages?beta=true&key=" + theirs + " HTTP/1.1\r\nHost: x\r\nConnection: X-Api-Key, x\r\nX-Api-Key: " + theirs,
		"GET /v1/files/a?x=1&api_key=" + theirs + ";b HTTP/1.1\r\nHost: 127.0.0.1:99\r\nReferer: http://x/?key=" + theirs,
		"POST /v1/files/%2e%2e/models HTTP/1.0\r\nHost: [::1]\r\nCookie: a=" + theirs,
		"PUT //v1/files/../x HTTP/1.1\r\nHost: localhost\r\nX-Goog-Api-Key: " + theirs,
		"POST /v1beta/models/m:streamGenerateContent?alt=sse&key=" + theirs + " HTTP/1.1\r\nHost: localhost",
		"CONNECT /v1/files HTTP/1.1\r\nHost: localhost", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nOrigin: null",
	} {
		f.Add([]byte(line+"\r\nContent-Length: 27\r\n\r\n"), []byte(body))
	}
	s, err := sluice.New(sluice.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	p, _ := provider.Lookup("openai-compatible")
	ups, err := provider.NewUpstreams(provider.UpstreamsConfig{Upstreams: []provider.Upstream{{
		Name: "up", Provider: p, BaseURL: "http://up.test/base/v1", Scheduler: s, Models: map[string]string{"m": "m"},
		Keys: []provider.Key{{From: "KEY", Value: ours}},
	}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, head, body []byte) {
		g, err := gateway.New(gateway.Config{
			Upstreams: ups, Base: strict(t, head), Logger: slog.New(slog.DiscardHandler),
			Passthrough: []gateway.Passthrough{{Path: "/v1/files", Upstream: "up"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(head) + string(body))))
		if err != nil {
			return
		}
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		func() {
			defer aborted()
			g.ServeHTTP(w, r)
		}()
		if strings.Contains(w.Body.String(), ours) {
			t.Errorf("%q is answered %s", head, w.Body)
		}
	})
}

// strict is an upstream that looks at what comes of a request.
func strict(t *testing.T, head []byte) roundTrip {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		seen, _ := io.ReadAll(r.Body)
		r.Body.Close()
		at := r.URL.EscapedPath()
		if r.URL.Host != "up.test" || !strings.HasPrefix(at, "/base/v1") || path.Clean(r.URL.Path) != r.URL.Path || at != r.URL.Path {
			t.Errorf("%q goes to %s", head, r.URL)
		}
		if got := r.Header["Authorization"]; len(got) != 1 || got[0] != "Bearer "+ours || r.Host != "" && r.Host != "up.test" {
			t.Errorf("%q goes to %q with %q", head, r.Host, got)
		}
		if strings.Contains(r.URL.String(), theirs) && strings.Contains(string(head), "key="+theirs) && !strings.Contains(r.URL.Path, theirs) {
			t.Errorf("%q: the upstream sees %s", head, r.URL)
		}
		if r.ContentLength >= 0 && r.ContentLength != int64(len(seen)) || len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 {
			t.Errorf("%q: %d bytes of %d, %v, %v", head, len(seen), r.ContentLength, r.TransferEncoding, r.Trailer)
		}
		return &http.Response{StatusCode: 400, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
}
