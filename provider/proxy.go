package provider

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// notProxy is the scheme that stands for the value of a variable that is not the URL of a proxy.
const notProxy = "not-a-proxy"

// proxies returns a function that chooses the proxy of a request by the variables of the environment. It fails for a request whose variable
// is not the URL of a proxy, by the name of the variable: the value may hold a password.
func proxies() func(*http.Request) (*url.URL, error) {
	env := httpproxy.FromEnvironment()
	env.HTTPProxy = cmp.Or(proxyIn("HTTP_PROXY"), proxyIn("ALL_PROXY"))
	env.HTTPSProxy = cmp.Or(proxyIn("HTTPS_PROXY"), proxyIn("ALL_PROXY"))
	choose := env.ProxyFunc()
	return func(r *http.Request) (*url.URL, error) {
		u, err := choose(r.URL)
		if u != nil && u.Scheme == notProxy {
			return nil, fmt.Errorf("%s is not the URL of a proxy: use http://HOST:PORT, or the scheme https, socks5 or socks5h", u.Host)
		}
		return u, err
	}
}

// proxyIn returns the URL of a proxy in a variable, whose name may be in lower case.
func proxyIn(name string) string {
	value := strings.TrimSpace(cmp.Or(os.Getenv(strings.ToLower(name)), os.Getenv(name)))
	if value != "" && !strings.Contains(value, "://") {
		value = "http://" + value
	}
	u, err := url.Parse(value)
	if value != "" && (err != nil || u.Hostname() == "" || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme)) {
		return notProxy + "://" + name
	}
	return value
}
