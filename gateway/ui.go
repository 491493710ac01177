package gateway

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/chart"
	"github.com/sluice-llm/sluice/internal/template"
)

//go:embed ui/script.js
var uiScript []byte

//go:embed ui/style.css
var uiStyle string

//go:embed ui/page.html
var uiPage string

// uiTemplate reads the page. It prints values only between tags and in quoted attributes.
var uiTemplate = sync.OnceValues(func() (*template.Template, error) { return template.ParseHTML("page", uiPage) })

// uiParts are the elements of the page that change, by their ids, and the templates of the same names.
var uiParts = [...]string{"figures", "charts", "uses", "lanes"}

const (
	uiEvery    = time.Second
	uiPatience = 10 * time.Second // with one who does not read
	mostWatch  = 16               // pages that are kept up to date at once: half of the connections that metrics get

	// uiPolicy lets the page load its own style and script, speak to the gateway, and nothing else.
	uiPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)

// ServeUI serves the dashboard under /ui. The dashboard shows the usage of all tenants. Serve the dashboard on a separate listener,
// because a reverse proxy may publish the listener for clients. ServeUI responds with 403 to requests from other hosts, through
// proxies or from pages of other origins.
func (g *Gateway) ServeUI(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", uiPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	get := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case !fromHere(r):
		answerText(w, http.StatusForbidden, "the dashboard accepts only connections from the gateway's host: forward a port to open it from another host")
	case (guard{}).refuses(r) != "":
		answerText(w, http.StatusForbidden, "the dashboard rejects requests from other pages: type its address instead of following a link")
	case get && (r.URL.Path == "/ui" || r.URL.Path == "/ui/"):
		h.Set("Content-Type", "text/html; charset=utf-8")
		page, err := g.view().page("page")
		if err != nil {
			g.log.Error("the dashboard cannot be shown", "error", err)
			answerText(w, http.StatusInternalServerError, "the dashboard cannot be shown")
			return
		}
		_, _ = w.Write(page)
	case get && r.URL.Path == "/ui/style.css":
		http.ServeContent(w, r, "style.css", time.Time{}, strings.NewReader(uiStyle+chart.Style()))
	case get && r.URL.Path == "/ui/script.js":
		http.ServeContent(w, r, "script.js", time.Time{}, bytes.NewReader(uiScript))
	case get && r.URL.Path == "/ui/events":
		g.serveEvents(w, r)
	default:
		answerText(w, http.StatusNotFound, "no such page")
	}
}

// page returns the page, or the part of it with that id.
func (v *view) page(id string) ([]byte, error) {
	t, err := uiTemplate()
	if err != nil {
		return nil, err
	}
	return t.Append(nil, id, v)
}

// serveEvents tells a page what changes, until it is closed or the gateway drains.
func (g *Gateway) serveEvents(w http.ResponseWriter, r *http.Request) {
	if g.watching.Add(1) > mostWatch {
		g.watching.Add(-1)
		answerText(w, http.StatusServiceUnavailable, "too many dashboard pages are open")
		return
	}
	defer g.watching.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Connection", "close") // its write deadline is not for others
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // the server's would end what lasts longer
	tick := time.NewTicker(uiEvery)
	defer tick.Stop()
	shown := make(map[string]string)
	for !g.draining.Load() {
		event, err := g.changes(shown)
		if err != nil {
			g.log.Error("the dashboard cannot be shown", "error", err)
			return
		}
		_ = out.SetWriteDeadline(time.Now().Add(uiPatience)) // what has no connection needs none
		if _, err := w.Write(event); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// changes is the event that tells what differs from what was shown, and notes it there.
func (g *Gateway) changes(shown map[string]string) ([]byte, error) {
	v := g.view()
	news := make(map[string]string)
	put := func(id, text string) {
		if shown[id] != text {
			shown[id], news[id] = text, text
		}
	}
	put("banner", v.Banner)
	for _, id := range uiParts {
		part, err := v.page(id)
		if err != nil {
			return nil, err
		}
		put(id, string(part))
	}
	if len(news) == 0 {
		return []byte(":\n\n"), nil
	}
	data, err := json.Marshal(news)
	return fmt.Appendf(nil, "data: %s\n\n", data), err
}
