package gateway_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/provider"
)

func TestStreamsThatAnHTTP2UpstreamResets(t *testing.T) {
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-Mode") {
		case "early": // it answers, and takes no more of the body
			whole(w, chatAnswer)
			return
		case "head":
			panic(http.ErrAbortHandler)
		case "middle":
			_, _ = io.Copy(io.Discard, r.Body)
			events(w, strings.SplitAfterN(chatChunks, "\n\n", 2)[0])
			panic(http.ErrAbortHandler)
		case "goaway":
			w.Header().Set("Connection", "close")
		}
		_, _ = io.Copy(io.Discard, r.Body)
		whole(w, chatAnswer)
	}))
	up.EnableHTTP2 = true
	up.StartTLS()
	t.Cleanup(up.Close)
	base := provider.NewBase(4)
	t.Cleanup(base.CloseIdleConnections)
	base.TLSClientConfig = up.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	x := relay(t, up.URL, func(s *setting) { s.Base, s.limits.Attempts = base, 1 })
	front := httptest.NewServer(x)
	t.Cleanup(front.Close)
	long := `{"model":"m","stream":true,"x":"` + strings.Repeat("x", 3<<20) + `"}`
	for range 3 {
		for _, mode := range []string{"early", "goaway", "middle"} {
			got := post(t, front.URL+"/v1/chat/completions", long, "X-Mode", mode)
			if got.status != http.StatusOK || mode == "middle" && !strings.Contains(got.body, "upstream_cut") || strings.Contains(got.body, ours) {
				t.Errorf("%s: %d %v %.300s", mode, got.status, got.cut, got.body)
			}
		}
	}
	if got := post(t, front.URL+"/v1/chat/completions", long, "X-Mode", "head"); got.status != http.StatusBadGateway {
		t.Errorf("%+v", got)
	}
}
