package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/gateway"
)

// dashboard is a gateway at a socket, whose calls end at once, and its page at another.
func dashboard(t *testing.T) (g *gateway.Gateway, url, local string) {
	t.Helper()
	cfg := configOf(t, newScheduler(t, 2), tripper(func(*http.Request) string { return "yes" }))
	return serveAt(t, cfg)
}

// serveAt serves a gateway at a socket, and its page at another.
func serveAt(t *testing.T, cfg gateway.Config) (g *gateway.Gateway, url, local string) {
	t.Helper()
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	web, page := httptest.NewServer(g), httptest.NewServer(http.HandlerFunc(g.ServeUI))
	t.Cleanup(func() {
		g.Drain()
		for _, s := range []*httptest.Server{web, page} {
			s.CloseClientConnections()
			s.Close()
		}
	})
	return g, web.URL, page.URL
}

// fetch makes a request, and returns its status and answer.
func fetch(t *testing.T, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		return resp, "" // which has no end
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

func TestThePageShowsWhatWentThrough(t *testing.T) {
	_, url, local := dashboard(t)
	for range 2 {
		if resp, text := fetch(t, http.MethodPost, url+"/v1/chat/completions", hello); resp.StatusCode != 200 {
			t.Fatalf("%s %s", resp.Status, text)
		}
	}
	resp, text := fetch(t, http.MethodGet, local+"/ui", "")
	for _, want := range []string{`<td class="n">2</td>`, "house: m", "0 of 2", `aria-label="Requests per second"`, "<caption"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	for _, hidden := range []string{"<script>alert", "hello", "Pause", "style="} {
		if strings.Contains(text, hidden) {
			t.Errorf("the page has %s", hidden)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	if policy := resp.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
	for path, kind := range map[string]string{"/ui/style.css": "text/css", "/ui/script.js": "text/javascript"} {
		if resp, _ := fetch(t, http.MethodGet, local+path, ""); resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), kind) {
			t.Errorf("%s: %s %s", path, resp.Status, resp.Header.Get("Content-Type"))
		}
	}
}

func TestWhoOpensTheAddressIsToldWhereThePageIs(t *testing.T) {
	_, url, _ := dashboard(t)
	for _, path := range []string{"/", "/ui", "/metrics"} {
		if resp, text := fetch(t, http.MethodGet, url+path, ""); resp.StatusCode != 404 || !strings.Contains(text, "dashboard") {
			t.Errorf("%s: %s %s", path, resp.Status, text)
		}
	}
	if _, text := fetch(t, http.MethodGet, url+"/v1/nothing", ""); strings.Contains(text, "dashboard") {
		t.Errorf("an API's client is told of pages: %s", text)
	}
}

func TestThePageIsForItsOwnHostAndOrigin(t *testing.T) {
	g, _, local := dashboard(t)
	for _, path := range []string{"/ui", "/ui/events", "/ui/script.js"} {
		for _, header := range [][]string{{"Host", "rebound.example"}, {"Origin", "https://other.example"}, {"Origin", "null"}, {"Sec-Fetch-Site", "cross-site"}} {
			if resp, _ := fetch(t, http.MethodGet, local+path, "", header...); resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s with %s: %s", path, header, resp.Status)
			}
		}
		r, w := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil), httptest.NewRecorder()
		r.RemoteAddr = "10.1.2.3:999"
		if g.ServeUI(w, r); w.Code != http.StatusForbidden {
			t.Errorf("%s from another host: %d", path, w.Code)
		}
	}
	for _, path := range []string{"/ui/page.html", "/ui/../gateway.go"} {
		if resp, _ := fetch(t, http.MethodGet, local+path, ""); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

func TestEventsTellWhatChangesUntilTheGatewayDrains(t *testing.T) {
	t.Parallel()
	g, url, local := dashboard(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, local+"/ui/events", nil)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	next := func(want string) {
		for lines.Scan() {
			if strings.Contains(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("no event with %s: %v", want, lines.Err())
	}
	next(`No requests yet.`)
	fetch(t, http.MethodPost, url+"/v1/chat/completions", hello)
	next(`class=\"n\"\u003e1\u003c`)
	over, err := g.Swap(configOf(t, newScheduler(t, 1), nil))
	if err != nil {
		t.Fatal(err)
	}
	<-over // though the page is looked at
	g.Drain()
	for lines.Scan() {
	}
	if lines.Err() != nil {
		t.Error(lines.Err())
	}
}

func TestPagesThatGoLeaveNothing(t *testing.T) {
	_, _, local := dashboard(t)
	fetch(t, http.MethodGet, local+"/ui", "")
	http.DefaultClient.CloseIdleConnections()
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 16 {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, local+"/ui/events", nil)
		resp, err := http.DefaultClient.Do(r)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("page %d: %v %v", i+1, resp, err)
		}
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
			t.Fatalf("page %d: %v", i+1, err)
		}
	}
	cancel()
	for end := time.Now().Add(5 * time.Minute); runtime.NumGoroutine() > before; time.Sleep(20 * time.Millisecond) {
		http.DefaultClient.CloseIdleConnections()
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, before %d", runtime.NumGoroutine(), before)
		}
	}
}

func TestThePageHasTheBusiestOfManyTenantsAndLanes(t *testing.T) {
	traffic := gateway.NewTraffic(nil)
	shared := newScheduler(t, 2)
	cfg := configOf(t, shared, tripper(func(*http.Request) string { return "yes" }))
	cfg.Traffic = traffic
	_, _, local := serveAt(t, cfg)
	for i := range 200 {
		traffic.Note(fmt.Sprintf("tenant-%03d", i), i)
	}
	_, text := fetch(t, http.MethodGet, local+"/ui", "")
	if n := strings.Count(text, `dir="auto">tenant-`); n != 50 || strings.Contains(text, `<th scope="row" dir="auto">tenant-149`) {
		t.Errorf("%d tenants", n)
	}
	for _, want := range []string{`<th scope="row" dir="auto">tenant-150`, `<th scope="row" dir="auto">tenant-199`, "150 more rows"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %s", want)
		}
	}
}
