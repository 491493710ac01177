package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/gateway"
)

func TestTheDashboardIsNotAtTheAddressOfClients(t *testing.T) {
	cfg := configOf(t, newScheduler(t, 2), tripper(func(*http.Request) string { return "yes" }))
	cfg.Hosts = []string{"gateway.example"}
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(g) // whose peers all are of this host, as those of a reverse proxy on it
	defer front.Close()
	for _, host := range []string{"gateway.example", "localhost", "127.0.0.1:8787"} {
		for _, line := range []string{"GET /ui", "GET /ui/", "GET /ui/events", "GET /ui/script.js", "GET /metrics"} {
			conn := dial(t, front)
			send(t, conn, line+" HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
			if got := answer(t, conn); got.status != http.StatusNotFound {
				t.Errorf("%s of %s: %d %.60q", line, host, got.status, got.body)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if got := do(t, http.MethodGet, front.URL+path, ""); got.status != http.StatusOK {
			t.Errorf("%s: %d", path, got.status)
		}
	}
}

func TestWhatAProxyBringsIsNotFromThisHost(t *testing.T) {
	_, _, local := dashboard(t)
	for _, header := range [][2]string{
		{"Host", "gateway.example"}, {"Host", "gateway.example:443"}, {"X-Forwarded-For", "192.0.2.1"}, {"Forwarded", "for=192.0.2.1"},
		{"X-Real-Ip", "192.0.2.1"}, {"Via", "1.1 x"}, {"X-Forwarded-Host", "x"}, {"Cf-Connecting-Ip", "192.0.2.1"},
	} {
		for _, path := range []string{"/ui", "/ui/events"} {
			resp, text := fetch(t, http.MethodGet, local+path, "", header[0], header[1])
			if resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s, %q: %s %.60q", path, header, resp.Status, text)
			}
		}
	}
	if resp, _ := fetch(t, http.MethodGet, local+"/ui", "", "Host", "127.0.0.1:9464"); resp.StatusCode != http.StatusOK {
		t.Errorf("of this host: %s", resp.Status)
	}
}

func TestABrowsersRequestForAnotherSiteIsRefusedWithoutOriginToo(t *testing.T) {
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) { whole(w, chatAnswer) }, func(s *setting) {
		s.Hosts = []string{"gateway.example"}
	})
	for site, refused := range map[string]bool{"cross-site": true, "same-site": true, "Cross-Site": true, "none": false, "same-origin": false} {
		for path, method := range map[string]string{"/v1/chat/completions": "POST", "/v1/models": "GET", "/healthz": "GET"} {
			for _, host := range []string{"localhost", "gateway.example"} {
				resp, text := fetch(t, method, front.URL+path, `{"model":"m"}`, "Host", host, "Sec-Fetch-Site", site)
				if (resp.StatusCode == http.StatusForbidden) != refused {
					t.Errorf("%s %s of %s, %s: %s %s", method, path, host, site, resp.Status, text)
				}
			}
		}
	}
	for _, method := range []string{"OPTIONS", "POST", "GET"} {
		got := do(t, method, front.URL+"/v1/chat/completions", `{"model":"m"}`, "Origin", "https://app.example", "Access-Control-Request-Method", "POST")
		if got.status != http.StatusForbidden || got.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s of a page of another origin: %d %v", method, got.status, got.header)
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
