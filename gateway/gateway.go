// Package gateway is an http.Handler in front of LLM providers. It holds a request until the limits of the provider allow it, in
// a fair order among tenants, instead of answering 429. Clients in any language share one quota.
//
// The gateway passes the client's request to the upstream with the upstream's key, and returns the response unchanged. Its own
// rejections have the form of the client's API.
//
// New returns a Gateway for provider.Upstreams. Its methods are safe for concurrent use.
package gateway

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/provider"
)

// Config shapes a Gateway. Upstreams are what it needs.
type Config struct {
	Upstreams *provider.Upstreams
	Base      http.RoundTripper // makes the exchanges. Default: provider.NewBase(256)
	Header    http.Header       // is sent with every call, and wins over all others

	// Tenants are those that may call, by their keys. Nil, or if there never was one: whoever reaches the gateway, which is then for
	// loopback alone. They are closed by who opened them, after the calls.
	Tenants *Tenants

	// Models are names under which models may be asked for, and what they stand for.
	Models map[string]string

	// Early is the time after which a stream without an answer starts with its head and comments, so that its client keeps waiting.
	// Later errors come as events. Default: never
	Early time.Duration

	// Passthrough are requests of no known API that are served all the same.
	Passthrough []Passthrough

	Deadlines Deadlines

	// MaxBodyMemory bounds the bytes that the bodies of all requests take in memory. A body may take a quarter of it. A tenant gets no
	// more than is free beside, so one alone gets half. A request whose body has no room is refused with 503. Default 256 MiB
	MaxBodyMemory int64

	// Hosts are names by which the gateway may be addressed beside those of loopback.
	Hosts []string

	// Traffic counts the requests. Default: a new one, for the dashboard.
	Traffic *Traffic

	Logger *slog.Logger // nil discards
}

// Deadlines limit the time of a request. Only Queue counts the time in the queue.
type Deadlines struct {
	Queue     time.Duration // until it is sent. Default 5 min
	FirstByte time.Duration // from then until the answer begins. Default 10 min
	Idle      time.Duration // between two parts of the answer. Default 2 min
	Total     time.Duration // from when it is sent until the answer's end, over all tries. Default: not bounded
}

// maxBody is the longest body of a request, in bytes.
func (c *Config) maxBody() int64 { return c.MaxBodyMemory / 4 }

const (
	usualQueue     = 5 * time.Minute
	usualFirstByte = 10 * time.Minute
	usualIdle      = 2 * time.Minute

	writePatience = time.Minute      // until the client takes what is written to it
	bodyPatience  = 30 * time.Second // until its request's body is there, and a second more for each 8 KiB that came

	defaultMaxBodyMemory = 256 << 20
)

// Gateway serves clients. It is safe for concurrent use.
type Gateway struct {
	log     *slog.Logger
	now     atomic.Pointer[state]
	tenants *Tenants // they outlive what they are served with

	draining  atomic.Bool
	watching  atomic.Int64 // pages that are kept up to date
	rooms     rooms        // what bodies take
	unpacking sync.Mutex   // held while a body is decompressed: one decoder at a time is in memory

	// A count, not a sync.WaitGroup: a connection may begin a request while Wait waits.
	mu   sync.Mutex
	open int // requests
	idle sync.Cond
}

// New returns a Gateway, or an error that names the field of cfg that is wrong.
func New(cfg Config) (*Gateway, error) {
	cfg.Traffic = cmp.Or(cfg.Traffic, NewTraffic(nil))
	s, err := newState(cfg)
	if err != nil {
		return nil, err
	}
	g := &Gateway{log: cfg.Logger}
	g.idle.L = &g.mu
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if g.tenants = cfg.Tenants; g.tenants == nil {
		if g.tenants, err = OpenTenants(TenantsConfig{}); err != nil {
			return nil, err
		}
	}
	g.weigh(s)
	g.now.Store(s)
	return g, nil
}

// ServeHTTP serves one request of a client. /healthz and /readyz are here, too, but not the dashboard: see ServeUI.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.count(1)
	defer g.count(-1)
	on := g.take()
	setPatience(w, r)
	defer on.done()
	setWaited(w.Header(), 0)
	if len(r.TransferEncoding) > 0 {
		// The server drops a Content-Length beside it. A proxy before it may have counted by that, and taken for the body what would be
		// read here as the next request (RFC 9112, section 6.1).
		w.Header().Set("Connection", "close")
	}
	if text := on.guard.refuses(r); text != "" {
		v := on.visit(w, r)
		defer on.takeRest(v)
		defer v.leave()
		refuse(v, provider.DialectOf(r), refusal{status: http.StatusForbidden, kind: "forbidden", message: text})
		return
	}
	switch r.URL.Path {
	case "/healthz":
		answerText(w, http.StatusOK, "ok")
		return
	case "/readyz":
		g.answerReady(w, on)
		return
	}
	v := on.visit(w, r)
	defer on.takeRest(v)
	defer v.leave()
	route, ok := routeOf(r.Method, r.URL.Path)
	if p := on.passes(r); !ok && p != nil {
		v.record.Endpoint = p.Path
		g.call(v, r, on).passOn(p)
		v.whole = true
		return
	}
	if !ok {
		refuse(v, provider.DialectOf(r), on.lost(w.Header(), r))
		return
	}
	v.record.Endpoint = route.name()
	g.serve(v, r, route, on)
	v.whole = true
}

// lost is what a request is told whose path or method the gateway does not serve.
func (s *state) lost(header http.Header, r *http.Request) refusal {
	for _, method := range [...]string{http.MethodPost, http.MethodGet} {
		if method == http.MethodGet && strings.Contains(r.URL.Path, ":") {
			break // a method of Gemini's that nobody knows
		}
		if _, ok := routeOf(method, r.URL.Path); ok { // else it would not be lost
			header.Set("Allow", method)
			return refusal{status: http.StatusMethodNotAllowed, kind: "method_not_allowed",
				message: fmt.Sprintf("%s takes %s, not %s", r.URL.Path, method, r.Method)}
		}
	}
	message := "no such path here: the gateway serves the chat, responses, embeddings, messages, generateContent and models APIs, " +
		"and others pass if they are listed under passthrough"
	switch r.URL.Path {
	case "/", "/ui", "/metrics":
		message += "; its dashboard and metrics have an address of their own, which it prints when it starts"
	}
	return refusal{status: http.StatusNotFound, kind: "not_found", message: message}
}

// answerReady says whether clients should be sent here. Limits that are reached and pauses are no reason not to: calls wait.
func (g *Gateway) answerReady(w http.ResponseWriter, on *state) {
	leftOut := func(up provider.UpstreamReport) bool { return up.Exclusion != nil }
	all := on.cfg.Upstreams.Report()
	switch {
	case g.draining.Load():
		answerText(w, http.StatusServiceUnavailable, "draining")
	case len(slices.DeleteFunc(all, leftOut)) == 0:
		answerText(w, http.StatusServiceUnavailable, "no upstream can be used: their keys are rejected or spent")
	default:
		answerText(w, http.StatusOK, "ready")
	}
}

// setPatience bounds how long the client may take over what it sends and what it is sent. What a request is refused for before its
// body was read is said no sooner than the server has seen to the body.
func setPatience(w http.ResponseWriter, r *http.Request) {
	control, now := http.NewResponseController(w), time.Now()
	_ = control.SetWriteDeadline(now.Add(writePatience)) // what has no connection needs none
	if r.ContentLength != 0 {
		_ = control.SetReadDeadline(now.Add(bodyPatience))
	}
}

// Drain has readiness fail, so that no more clients are sent here; those that come are served.
func (g *Gateway) Drain() { g.draining.Store(true) }

// Wait waits until all requests are over.
func (g *Gateway) Wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.open > 0 {
		g.idle.Wait()
	}
}

func (g *Gateway) count(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open += n; g.open == 0 {
		g.idle.Broadcast()
	}
}

func answerText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}
