package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/gateway"
)

func TestWhatAProxyBringsIsNotFromThisHost(t *testing.T) {
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) { whole(w, chatAnswer) }, func(s *setting) {
		s.Hosts, s.Dashboard = []string{"gateway.example"}, true
		s.Metrics = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "metrics") })
		s.Admin = &gateway.Admin{Key: "0123456789abcdef", Pause: func(bool) error { t.Error("paused"); return nil }}
	})
	for _, head := range []string{
		"Host: gateway.example", "Host: gateway.example:443", "Host: localhost\r\nX-Forwarded-For: 192.0.2.1", "Host: localhost\r\nForwarded: for=192.0.2.1",
		"Host: localhost\r\nX-Real-Ip: 192.0.2.1", "Host: localhost\r\nVia: 1.1 x",
	} {
		for _, line := range []string{"GET /ui", "GET /ui/events", "GET /metrics", "POST /ui/pause"} {
			conn := dial(t, front)
			send(t, conn, line+" HTTP/1.1\r\n"+head+"\r\nX-Sluice-Admin-Key: 0123456789abcdef\r\nConnection: close\r\n\r\n")
			if got := answer(t, conn); got.status != http.StatusForbidden && got.status != http.StatusNotFound {
				t.Errorf("%s, %q: %d %.60q", line, head, got.status, got.body)
			}
		}
	}
	for _, path := range []string{"/ui", "/metrics"} {
		conn := dial(t, front)
		send(t, conn, "GET "+path+" HTTP/1.1\r\nHost: 127.0.0.1:8787\r\n\r\n")
		if got := answer(t, conn); got.status != http.StatusOK {
			t.Errorf("%s: %d", path, got.status)
		}
	}
}

func TestWhoIsForeignIsToldInTheWordsOfItsAPI(t *testing.T) {
	_, front := served(t, func(http.ResponseWriter, *http.Request) { t.Error("it is sent") }, nil)
	for path, want := range map[string]string{
		"/v1/chat/completions": `"code":"forbidden"`, "/v1/messages": `"type":"permission_error"`,
		"/v1beta/models/m:generateContent": `"status":"PERMISSION_DENIED"`,
	} {
		got := post(t, front.URL+path, `{"model":"m"}`, "Origin", "https://other.example")
		if got.status != 403 || !strings.Contains(got.body, want) || got.header.Get("X-Sluice-Error") != "forbidden" {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

func TestPagesOfConfiguredOriginsMayReadAnswers(t *testing.T) {
	const page = "https://app.example"
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) { whole(w, chatAnswer) }, func(s *setting) {
		s.Origins, s.Dashboard = []string{page}, true
		s.Admin = &gateway.Admin{Key: "0123456789abcdef"}
	})
	body := `{"model":"m"}`
	got := do(t, "OPTIONS", front.URL+"/v1/chat/completions", "", "Origin", page, "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "authorization, content-type")
	h := got.header
	if got.status != 204 || h.Get("Access-Control-Allow-Origin") != page || h.Get("Access-Control-Allow-Headers") != "authorization, content-type" ||
		!strings.Contains(h.Get("Access-Control-Allow-Methods"), "POST") || h.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("before the call: %d %v", got.status, h)
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/nothing"} {
		if got := post(t, front.URL+path, body, "Origin", page); got.header.Get("Access-Control-Allow-Origin") != page || got.header.Get("Vary") != "Origin" {
			t.Errorf("%s: %d %v", path, got.status, got.header)
		}
	}
	for _, origin := range []string{"", "null", "https://evil.example", "https://app.example.evil.example", "http://app.example", "https://app.example:8443", front.URL} {
		var headers []string
		if origin != "" {
			headers = []string{"Origin", origin}
		}
		for _, method := range []string{"OPTIONS", "POST"} {
			got := do(t, method, front.URL+"/v1/chat/completions", body, headers...)
			if got.header.Get("Access-Control-Allow-Origin") != "" || (got.status == 403) != (origin != "" && origin != front.URL) {
				t.Errorf("%s of %q: %d %v", method, origin, got.status, got.header)
			}
		}
	}
	conn := dial(t, front)
	send(t, conn, "OPTIONS /ui/pause HTTP/1.1\r\nHost: localhost\r\nOrigin: "+page+"\r\nAccess-Control-Request-Method: POST\r\n\r\n")
	if got := answer(t, conn); got.header.Get("Access-Control-Allow-Origin") != "" || got.status < 400 {
		t.Errorf("a page of another origin may steer the gateway: %d %v", got.status, got.header)
	}
}

func TestNoTunnelIsOpenedToAnUpstream(t *testing.T) {
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the upstream is asked %s %s", r.Method, r.RequestURI)
	}, func(s *setting) { s.Passthrough = []gateway.Passthrough{{Path: "/v1/files", Upstream: "up"}} })
	for _, method := range []string{"CONNECT", "TRACE", "TRACK"} {
		conn := dial(t, front)
		send(t, conn, method+" /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		if got := answer(t, conn); got.status != http.StatusNotFound {
			t.Errorf("%s: %+v", method, got)
		}
	}
}
