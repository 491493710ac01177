package gateway_test

import (
	"net/http"
	"net/http/httptest"
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
