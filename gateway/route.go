package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/provider"
)

// Passthrough forwards requests of unsupported APIs to one upstream, with its key. A forwarded request counts as one request.
type Passthrough struct {
	Method   string `yaml:"method"`   // HTTP method (default: any)
	Path     string `yaml:"path"`     // path to forward, including all paths below, such as /v1/files; no slash at the end
	Upstream string `yaml:"upstream"` // name of the upstream
}

// checkPassthrough names the wrong passthrough.
func checkPassthrough(cfg *Config) error {
	for _, p := range cfg.Passthrough {
		switch {
		case len(p.Path) < 2 || p.Path[0] != '/' || strings.HasSuffix(p.Path, "/"):
			return fmt.Errorf("gateway: passthrough %q: the path must begin with a slash, and must not end with a slash", p.Path)
		case !slices.ContainsFunc(cfg.Upstreams.All(), func(up *provider.Upstream) bool { return up.Name == p.Upstream }):
			return fmt.Errorf("gateway: passthrough %q: there is no upstream %q", p.Path, p.Upstream)
		}
	}
	return nil
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

// fixed are the routes by the paths that name no model, and ofModel by the methods that are called of a model.
var fixed, ofModel = func() (fixed, ofModel map[string]route) {
	fixed, ofModel = make(map[string]route), make(map[string]route)
	for _, e := range provider.Endpoints() {
		for path, count := range map[string]bool{e.String(): false, e.CountPath(): true} {
			if _, method, ok := strings.Cut(path, "{model}:"); ok {
				ofModel[method] = route{endpoint: e, count: count}
			} else {
				fixed[path] = route{endpoint: e, count: count}
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
		to.model = name[:at]
		_, err := to.endpoint.Path(to.model)
		return to, err == nil && method == http.MethodPost
	}
	if method != http.MethodGet && method != http.MethodHead {
		return route{}, false
	}
	return route{models: true, model: name}, true
}
