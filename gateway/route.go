package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/provider"
)

// Route says how requests of some paths are served.
type Route struct {
	Path string // how their paths begin, such as /v1/messages, however clients spell them; "" is all of them

	// PassKey sends the client's own credential upstream in place of the gateway's key. Its calls have lanes of their own then,
	// by the key's hash.
	PassKey bool

	// Early answers a stream with its head and comments when there was no answer for so long: so clients do not give up. What
	// goes wrong afterwards comes as an event. 0: not at all.
	Early time.Duration

	// Drain reads a stream on for so long when its client is gone, for the usage that its end states. 0: it is cut, and what
	// it used is estimated.
	Drain time.Duration
}

// Passthrough lets requests pass that are of no known API, to one upstream and with its key. Each costs a request.
type Passthrough struct {
	Method   string // "" is any
	Path     string // the path itself, or what comes before a slash in it, such as /v1/files
	Upstream string // by its name
}

// checkRoutes names what is wrong with routes and passthroughs.
func checkRoutes(cfg *Config) error {
	for i, r := range cfg.Routes {
		if err := r.Check(cfg.Routes[:i]); err != nil {
			return fmt.Errorf("gateway: route %q: %w", r.Path, err)
		}
	}
	for _, p := range cfg.Passthrough {
		switch {
		case len(p.Path) < 2 || p.Path[0] != '/' || strings.HasSuffix(p.Path, "/"):
			return fmt.Errorf("gateway: passthrough %q: a path begins with a slash and does not end in one", p.Path)
		case !slices.ContainsFunc(cfg.Upstreams.All(), func(up *provider.Upstream) bool { return up.Name == p.Upstream }):
			return fmt.Errorf("gateway: passthrough %q: there is no upstream %q", p.Path, p.Upstream)
		}
	}
	return nil
}

// handling is the first route that a call fits.
func (s *state) handling(to route) Route {
	for _, r := range s.cfg.Routes {
		if to.begins(r.Path) {
			return r
		}
	}
	return Route{}
}

// Check says what is wrong with a route that comes after those: one that no call would be handled by is a mistake, by which a client's
// key might stay where it is meant to go upstream.
func (r Route) Check(after []Route) error {
	if r.Path != "" && r.Path[0] != '/' || r.Early < 0 || r.Drain < 0 {
		return errors.New("a path begins with a slash, and Early and Drain are not negative")
	}
	if !reaches(r.Path) {
		return errors.New("no path that is served begins so: want a part of /v1/chat/completions, /v1/responses, /v1/embeddings, /v1/messages or /v1beta/models")
	}
	for _, before := range after {
		if strings.HasPrefix(strings.TrimPrefix(r.Path, "/v1"), strings.TrimPrefix(before.Path, "/v1")) {
			return fmt.Errorf("the route of %q before it has all of its calls: put this one first", before.Path)
		}
	}
	return nil
}

// reaches reports whether there are calls whose paths begin so.
func reaches(prefix string) bool {
	for path := range fixed {
		if (route{path: path}).begins(prefix) {
			return true
		}
	}
	const models = "/models/" // of Gemini, which any name may follow
	bare := strings.TrimPrefix(strings.TrimPrefix(prefix, "/v1"), "beta")
	return strings.HasPrefix(models, bare) || strings.HasPrefix(bare, models)
}

// passes is the passthrough that a request fits, or nil. A path that could lead out of it fits none.
func (s *state) passes(r *http.Request) *Passthrough {
	path := r.URL.Path
	switch r.Method {
	case http.MethodConnect, http.MethodTrace, "TRACK": // a tunnel, and what says which key came
		return nil
	}
	if len(s.cfg.Passthrough) == 0 || r.URL.RawPath != "" || strings.ContainsFunc(path, odd) || strings.Contains(path, "//") ||
		slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool { return strings.Trim(part, ".") == "" && part != "" }) {
		return nil
	}
	for i := range s.cfg.Passthrough {
		p := &s.cfg.Passthrough[i]
		rest, ok := strings.CutPrefix(path, p.Path)
		if ok && (rest == "" || rest[0] == '/') && (p.Method == "" || p.Method == r.Method) {
			return p
		}
	}
	return nil
}

// odd are characters by which servers read a path differently.
func odd(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`\;%?#`, c) }

// route is what a request asks for.
type route struct {
	path     string // as the provider's documents write it
	endpoint provider.Endpoint
	model    string // where the path names it
	models   bool   // the list of models, or the one named
	count    bool   // how many tokens the request has
}

// name is the path without what a client chooses in it.
func (to route) name() string {
	switch {
	case to.models:
		return "/v1/models"
	case to.count:
		return to.endpoint.CountPath()
	}
	return to.endpoint.String()
}

// begins reports whether the path begins so, with its version or without: however a client spells it, it is handled alike. Else who
// leaves out /v1 would be served with the upstream's key where clients are to send their own.
func (to route) begins(prefix string) bool {
	if strings.HasPrefix(to.path, prefix) {
		return true
	}
	bare := strings.TrimPrefix(strings.TrimPrefix(to.path, "/v1"), "beta")
	return strings.HasPrefix(bare, strings.TrimPrefix(prefix, "/v1"))
}

// fixed are the routes by the paths that name no model, and ofModel by the methods that are called of a model.
var fixed, ofModel = func() (fixed, ofModel map[string]route) {
	fixed, ofModel = make(map[string]route), make(map[string]route)
	for _, e := range provider.Endpoints() {
		for path, count := range map[string]bool{e.String(): false, e.CountPath(): true} {
			if _, method, ok := strings.Cut(path, "{model}:"); ok {
				ofModel[method] = route{endpoint: e, count: count}
			} else {
				fixed[path] = route{path: path, endpoint: e, count: count}
			}
		}
	}
	delete(fixed, "")
	delete(fixed, provider.Completions.String()) // no client in use asks for it
	return fixed, ofModel
}()

// routeOf finds out what a method and a path ask for. Clients whose base URL ends in /v1 and those whose does not are served alike.
func routeOf(method, path string) (route, bool) {
	if strings.HasPrefix(path, "/v1/v1/") || strings.HasPrefix(path, "/v1/v1beta/") {
		path = strings.TrimPrefix(path, "/v1")
	} else if _, known := fixed[path]; !known && !strings.HasPrefix(path, "/v1") {
		path = "/v1" + path
	}
	if to, ok := fixed[path]; ok && method == http.MethodPost {
		return to, true
	}
	rest, ok := strings.CutPrefix(path, "/v1beta/models")
	if !ok {
		rest, ok = strings.CutPrefix(path, "/v1/models")
	}
	if !ok || rest != "" && rest[0] != '/' {
		return route{}, false
	}
	name := strings.TrimPrefix(rest, "/")
	at := strings.LastIndexByte(name, ':')
	if to, ok := ofModel[name[at+1:]]; ok && at >= 0 {
		to.model, to.path = name[:at], "/v1beta/models/"+name
		_, err := to.endpoint.Path(to.model)
		return to, err == nil && method == http.MethodPost
	}
	if method != http.MethodGet && method != http.MethodHead {
		return route{}, false
	}
	return route{models: true, model: name}, true
}
