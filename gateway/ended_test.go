package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/gateway"
)

// TestWhatIsNoAnswerIsNotCountedAsOne gives the client what came, whatever that is. But who looks at the gateway is to see that the
// provider fails, though each of these has a good status.
func TestWhatIsNoAnswerIsNotCountedAsOne(t *testing.T) {
	const begun = `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n"
	whole := `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	stream := func(parts ...string) base {
		return func(w *piped, r *http.Request) {
			for _, part := range parts {
				w.after(time.Second, part)
			}
			w.pw.Close()
		}
	}
	answer := func(status int, kind, text string) base {
		return func(w *piped, r *http.Request) {
			w.status(status, kind)
			_, _ = w.pw.Write([]byte(text))
			w.pw.Close()
		}
	}
	for name, c := range map[string]struct {
		base   base
		path   string
		status int
		want   string
	}{
		"a stream":        {stream(begun, whole), "chat/completions", 200, gateway.KindOK},
		"an error in it":  {stream(begun, `data: {"error":{"message":"The server had an error","type":"server_error"}}`+"\n\n"), "chat/completions", 200, gateway.KindUpstream},
		"an overload":     {stream("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"), "messages", 200, gateway.KindUpstream},
		"a stream's half": {stream(begun), "chat/completions", 200, gateway.KindCut},
		"a page":          {answer(200, "text/html", "<html>log in</html>"), "chat/completions", 200, gateway.KindUpstream},
		"nothing":         {answer(200, "application/json", ""), "chat/completions", 200, gateway.KindUpstream},
		"not modified":    {answer(304, "", ""), "chat/completions", 304, gateway.KindOK},
		"a redirect":      {answer(307, "text/html", ""), "chat/completions", 307, gateway.KindUpstream},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, traffic, ended := watched(t, func(cfg *gateway.Config) { cfg.Base = c.base })
				w := httptest.NewRecorder()
				func() {
					defer aborted()
					g.ServeHTTP(w, request(t.Context(), "/v1/"+c.path, strings.Replace(hello, "{", `{"stream":true,`, 1)))
				}()
				if r := ended()[0]; w.Code != c.status || r.Kind != c.want {
					t.Errorf("the client got %d, and it counts as %s, want %s", w.Code, r.Kind, c.want)
				}
				if s := traffic.Snapshot(); (s.Uses[0].Failed == 0) != (c.want == gateway.KindOK) {
					t.Errorf("%d failed", s.Uses[0].Failed)
				}
			})
		})
	}
}
