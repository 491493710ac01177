// Package gateway provides an http.Handler in front of LLM providers. The handler queues each request until the provider's rate
// limits allow it, in a fair order among tenants. Clients in any language share these limits.
//
// The gateway passes the client's request to the upstream with the upstream's key, and returns the response unchanged. Rejections by
// the gateway have the error format of the client's API.
//
// New returns a Gateway for provider.Upstreams. Methods of a Gateway are safe for concurrent use.
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

// Config configures a Gateway. Only Upstreams is required.
type Config struct {
	Upstreams *provider.Upstreams // upstreams that receive the requests
	Base      http.RoundTripper   // HTTP transport to upstreams (default provider.NewBase(256))
	Header    http.Header         // headers to add to every upstream request, in place of headers with the same name

	// Tenants is the set of tenants. If Tenants is nil or has never had a tenant, the gateway requires no key, and should listen on
	// loopback only. The Gateway does not close Tenants: close Tenants after Wait.
	Tenants *Tenants

	// Models maps aliases, which clients can use as model names, to model names.
	Models map[string]string

	// Early is the time after which a waiting stream gets its headers, and a comment every 10 s, so that the client does not time
	// out. Later errors arrive as stream events. If Early is zero, only the upstream's response starts a stream.
	Early time.Duration

	// Passthrough lists paths outside the supported APIs that the gateway forwards.
	Passthrough []Passthrough

	Deadlines Deadlines // time limits of each request

	// MaxBodyMemory limits the memory for all request bodies, in bytes (default 256 MiB). A body above a quarter of the limit is
	// rejected with 413. If too little memory is free, the request is rejected with 503. One tenant gets at most half of the limit.
	MaxBodyMemory int64

	// Hosts lists additional accepted values of the Host header, with or without port. Loopback names are always accepted as Host.
	Hosts []string

	// Traffic counts the requests (default: a new Traffic, which the dashboard shows).
	Traffic *Traffic

	Logger *slog.Logger // logger for errors (nil: no log)
}

// Deadlines are the time limits of a request. Only Queue includes time in the queue. A zero field selects the default.
type Deadlines struct {
	Queue     time.Duration // maximum time in queues, over all attempts (default 5 min)
	FirstByte time.Duration // maximum time per attempt from sending the request to the start of the response (default 10 min)
	Idle      time.Duration // maximum time between two parts of a response (default 2 min)
	Total     time.Duration // maximum duration of all attempts of a request together (default: unlimited)
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

// Gateway is the http.Handler for the requests of clients. Create a Gateway with New. A Gateway is safe for concurrent use.
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

// New returns a Gateway. If a field of cfg is invalid, the error names the field.
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

// ServeHTTP serves a request of a client or one of the health checks /healthz and /readyz. ServeUI serves the dashboard.
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
				message: fmt.Sprintf("%s accepts %s, not %s", r.URL.Path, method, r.Method)}
		}
	}
	message := "unknown path: the gateway serves the chat, responses, embeddings, messages, generateContent and models APIs, " +
		"and the paths in the setting passthrough"
	switch r.URL.Path {
	case "/", "/ui", "/metrics":
		message += "; the dashboard and the metrics have a separate address, which the gateway prints at its start"
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
		answerText(w, http.StatusServiceUnavailable, "no upstream is available: each key is rejected or has no credit")
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

// Drain makes /readyz return 503, so that load balancers send no new requests. After Drain, the Gateway still serves new requests.
func (g *Gateway) Drain() { g.draining.Store(true) }

// Wait blocks until no request is in progress.
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
