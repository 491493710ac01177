package provider_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/provider"
)

func TestTheProxyOfARequestIsTakenFromTheEnvironment(t *testing.T) {
	variables := []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUEST_METHOD"}
	for _, c := range []struct {
		env          string
		https, plain string // the proxies of requests by HTTPS and HTTP; the variable that is wrong
	}{
		{"", "", ""},
		{"ALL_PROXY=http://p:1", "http://p:1", "http://p:1"},
		{"all_proxy=socks5h://me:secret@p:1", "socks5h://me:secret@p:1", "socks5h://me:secret@p:1"},
		{"ALL_PROXY=socks5://p HTTPS_PROXY=https://q", "https://q", "socks5://p"},
		{"ALL_PROXY=socks5://p http_proxy=q:8080", "socks5://p", "http://q:8080"},
		{"ALL_PROXY=http://P all_proxy=http://p HTTPS_PROXY=", "http://p", "http://p"},
		{"HTTPS_PROXY=http://q", "http://q", ""},
		{"ALL_PROXY=http://p NO_PROXY=other.test,api.test", "", ""},
		{"ALL_PROXY=http://p no_proxy=.api.test", "http://p", "http://p"},
		{"ALL_PROXY=socks4://me:secret@p no_proxy=*", "", ""},
		{"ALL_PROXY=socks4://me:secret@p", "ALL_PROXY", "ALL_PROXY"},
		{"ALL_PROXY=http://me:secret@[::1 HTTP_PROXY=http://q", "ALL_PROXY", "http://q"},
		{"https_proxy=me:secret@", "HTTPS_PROXY", ""},
		{"HTTP_PROXY=http://me:secret@p:port ALL_PROXY=p", "http://p", "HTTP_PROXY"},
	} {
		for _, name := range variables {
			t.Setenv(name, "")
			t.Setenv(strings.ToLower(name), "")
		}
		for _, set := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(set, "=")
			t.Setenv(name, value)
		}
		base := provider.NewBase(1)
		for address, want := range map[string]string{"https://api.test/v1": c.https, "http://api.test/v1": c.plain, "http://127.0.0.1:1/v1": ""} {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, address, nil)
			u, err := base.Proxy(req)
			switch {
			case strings.HasSuffix(want, "_PROXY"):
				if err == nil || !strings.HasPrefix(err.Error(), want+" is not the URL of a proxy") || strings.Contains(err.Error(), "secret") {
					t.Errorf("%s: %s: %v, %v", c.env, address, u, err)
				}
			case err != nil, u == nil && want != "", u != nil && u.String() != want:
				t.Errorf("%s: %s: %v, %v, want %q", c.env, address, u, err, want)
			}
		}
	}
}
