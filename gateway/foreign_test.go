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
		s.Hosts, s.Origins = []string{"gateway.example"}, []string{"https://app.example"}
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
	if got := post(t, front.URL+"/v1/chat/completions", `{"model":"m"}`, "Sec-Fetch-Site", "cross-site", "Origin", "https://app.example"); got.status != http.StatusOK {
		t.Errorf("a page of a listed origin: %d %s", got.status, got.body)
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
		s.Origins = []string{page}
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
