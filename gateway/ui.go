package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/template"
)

// Admin lets who knows a key steer the gateway at /ui.
type Admin struct {
	Key    string                  // which must not be ""
	Pause  func(paused bool) error // has nothing be sent any more, or again
	Paused func() bool             // reports whether nothing is sent. Nil: lanes tell
	Limits func(body []byte) error // sets limits as JSON names them
}

//go:embed ui/style.css ui/script.js
var uiFiles embed.FS

//go:embed ui/page.html
var uiPage string

// uiTemplate reads the page. It prints values only between tags and in quoted attributes.
var uiTemplate = sync.OnceValues(func() (*template.Template, error) { return template.ParseHTML("page", uiPage, nil) })

// uiParts are what changes of the page while it is looked at: elements, by their ids, and templates of the same name.
var uiParts = [...]string{"now", "lanes", "charts", "tenants", "kinds", "recent"}

const (
	uiEvery    = time.Second
	uiPatience = 10 * time.Second // with one who does not read
	mostWatch  = 16               // pages that are kept up to date at once: half of the connections that metrics get

	// uiPolicy lets the page load its own style and script, speak to the gateway, and nothing else.
	uiPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)

// ServeUI serves the dashboard and the actions of an Admin, at /ui and below. It tells who calls, and how much: so it belongs to
// a listener of its own, and not to the one of clients, which a reverse proxy may make public. It refuses other hosts, requests
// that a proxy brings, and pages of other origins.
func (g *Gateway) ServeUI(w http.ResponseWriter, r *http.Request) {
	cfg := &g.now.Load().cfg
	h := w.Header()
	h.Set("Content-Security-Policy", uiPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	get := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case !fromHere(r):
		answerText(w, http.StatusForbidden, "the dashboard is for the gateway's own host: forward a port to look from elsewhere")
	case (guard{}).refuses(r) != "":
		answerText(w, http.StatusForbidden, "the dashboard answers to its own page: open its address by hand, not by a link")
	case !cfg.Dashboard:
		answerText(w, http.StatusNotFound, "no such page")
	case get && (r.URL.Path == "/ui" || r.URL.Path == "/ui/"):
		h.Set("Content-Type", "text/html; charset=utf-8")
		page, err := g.view().page("page")
		if err != nil {
			g.log.Error("the dashboard cannot be shown", "error", err)
			answerText(w, http.StatusInternalServerError, "the dashboard cannot be shown")
			return
		}
		_, _ = w.Write(page)
	case get && (r.URL.Path == "/ui/style.css" || r.URL.Path == "/ui/script.js"):
		http.ServeFileFS(w, r, uiFiles, r.URL.Path[1:])
	case get && r.URL.Path == "/ui/events":
		g.serveEvents(w, r)
	case r.Method == http.MethodPost && cfg.Admin != nil:
		g.serveAdmin(w, r, cfg.Admin)
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
		answerText(w, http.StatusServiceUnavailable, "too many pages are open")
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
	put("state", v.State)
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

// serveAdmin does what an admin asks for. The key comes in a header, which no page of others can set.
func (g *Gateway) serveAdmin(w http.ResponseWriter, r *http.Request, a *Admin) {
	if !g.guesses.may(time.Now()) {
		w.Header().Set("Retry-After", "60")
		answerText(w, http.StatusTooManyRequests, "the admin key was wrong too often: wait a minute")
		return
	}
	given, want := sha256.Sum256([]byte(r.Header.Get("X-Sluice-Admin-Key"))), sha256.Sum256([]byte(a.Key))
	if a.Key == "" || subtle.ConstantTimeCompare(given[:], want[:]) != 1 {
		g.guesses.wrong(time.Now())
		answerText(w, http.StatusUnauthorized, "this is not the admin key")
		return
	}
	const longest = 64 << 10
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longest))
	if err != nil {
		answerText(w, http.StatusBadRequest, "the request could not be read")
		return
	}
	done := ""
	switch r.URL.Path {
	case "/ui/pause":
		done, err = "paused: calls wait, and open ones go on", a.Pause(true)
	case "/ui/resume":
		done, err = "resumed", a.Pause(false)
	case "/ui/limits":
		done, err = "limits set", a.Limits(body)
	default:
		answerText(w, http.StatusNotFound, "no such action")
		return
	}
	if err != nil {
		answerText(w, http.StatusBadRequest, err.Error())
		return
	}
	answerText(w, http.StatusOK, done)
}

// guesses bounds how fast the admin key can be guessed. The zero value has seen none.
type guesses struct {
	mu    sync.Mutex
	since time.Time // of the first that is counted
	n     int
}

const (
	mostGuesses = 10
	guessTime   = time.Minute
)

// may reports whether another key is looked at, a right one too: else guessing would only be quieter.
func (g *guesses) may(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n < mostGuesses || now.Sub(g.since) >= guessTime
}

func (g *guesses) wrong(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.since) >= guessTime {
		g.since, g.n = now, 0
	}
	g.n++
}
