package gateway

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

// guard refuses requests that a page in a browser makes on behalf of somebody else: those that address the gateway by a name
// which is not its own, as a rebound name does, and those of pages of other origins. It holds names beside loopback.
type guard map[string]bool

func newGuard(hosts []string) guard {
	g := make(guard)
	for _, h := range hosts {
		g[strings.ToLower(h)] = true
	}
	return g
}

// refuses says why a request is refused; "" lets it pass.
func (g guard) refuses(r *http.Request) string {
	if !g.own(r.Host) {
		return "the gateway does not accept this host name: add your host names to the setting allow_host"
	}
	const foreign = "web pages of other origins may not send requests to the gateway"
	origins := r.Header["Origin"]
	if len(origins) == 0 { // as of images, forms that get, and links
		switch r.Header.Get("Sec-Fetch-Site") {
		case "", "none", "same-origin":
			return ""
		}
		return foreign
	}
	if u, err := url.Parse(origins[0]); err != nil || len(origins) > 1 || !strings.EqualFold(u.Host, r.Host) {
		return foreign
	}
	return ""
}

// own reports whether a host, with or without a port, is a name of the gateway.
func (g guard) own(hostport string) bool {
	return isLoopback(hostport) || g[hostOf(hostport)] || g[strings.ToLower(hostport)]
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
