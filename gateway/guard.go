package gateway

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

// guard refuses requests that a page in a browser makes on behalf of somebody else: those that address the gateway by a name
// which is not its own, as a rebound name does, and those of pages of other origins. The zero value knows loopback only.
type guard struct {
	hosts   map[string]bool // beside loopback
	origins map[string]bool
}

func newGuard(hosts, origins []string) guard {
	g := guard{hosts: make(map[string]bool), origins: make(map[string]bool)}
	for _, h := range hosts {
		g.hosts[strings.ToLower(h)] = true
	}
	for _, o := range origins {
		g.origins[strings.ToLower(strings.TrimSuffix(o, "/"))] = true
	}
	return g
}

// refuses says why a request is refused; "" lets it pass.
func (g guard) refuses(r *http.Request) string {
	if !g.own(r.Host) {
		return "the gateway is not addressed by this name: list it under hosts, if it is yours"
	}
	const foreign = "pages of this origin may not call the gateway: list it under origins, if it is yours"
	origins := r.Header["Origin"]
	if len(origins) == 0 { // as of images, forms that get, and links
		switch r.Header.Get("Sec-Fetch-Site") {
		case "", "none", "same-origin":
			return ""
		}
		return foreign
	}
	origin := strings.ToLower(origins[0])
	if len(origins) == 1 && g.origins[origin] {
		return ""
	}
	u, err := url.Parse(origin)
	if err != nil || len(origins) > 1 || u.Host == "" || !g.own(u.Host) || !strings.EqualFold(u.Host, r.Host) {
		return foreign
	}
	return ""
}

// share lets a page of a listed origin read the answer. It reports whether the request is only to ask for that.
func (g guard) share(h http.Header, r *http.Request) (asks bool) {
	origin := r.Header.Get("Origin")
	if !g.origins[strings.ToLower(origin)] {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "*")
	h.Add("Vary", "Origin")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	h.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
	h.Set("Access-Control-Max-Age", "600")
	return true
}

// own reports whether a host, with or without a port, is a name of the gateway.
func (g guard) own(hostport string) bool {
	return isLoopback(hostport) || g.hosts[hostOf(hostport)] || g.hosts[strings.ToLower(hostport)]
}

// hostOf is a host without its port.
func hostOf(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

func isLoopback(hostport string) bool {
	host := hostOf(hostport)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// fromHere reports whether a request comes from this host, rather than from a proxy on it that brings those of others.
func fromHere(r *http.Request) bool {
	for name := range r.Header {
		if ofProxy[name] || strings.HasPrefix(name, "X-Forwarded-") {
			return false
		}
	}
	return isLoopback(r.RemoteAddr) && isLoopback(r.Host)
}
