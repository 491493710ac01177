package serve_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/serve"
	"github.com/sluice-llm/sluice/limits"
)

func TestAddressesOfAGatewayAreChecked(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv(account.ConfigVariable, "")
	for _, c := range []struct{ listen, upstream, wrong string }{
		{"127.0.0.1:80", "http://localhost/v1", "of this gateway itself"},
		{"localhost:8787", "http://127.0.0.1:8787/v1", "of this gateway itself"},
		{"127.0.0.1:8787", "http://127.0.0.1:8788/v1", ""},
		{"127.0.0.1:443", "https://api.example.com/v1", ""},
		{"127.0.0.1:0", "http://127.0.0.1:1/v1", ""},
		{"0.0.0.0:8787", "http://127.0.0.1:1/v1", "may be reachable for others"},
		{":8787", "http://127.0.0.1:1/v1", "may be reachable for others"},
		{"[2001:db8::1]:8787", "http://127.0.0.1:1/v1", "may be reachable for others"},
		{"[::1]:8787", "http://127.0.0.1:1/v1", ""},
		{"8787", "http://127.0.0.1:1/v1", "is not an address"},
	} {
		_, err := serve.Check(serve.Config{
			Account:   account.Config{BaseURL: c.upstream, Hide: func(string) {}, Warn: func(string) {}},
			Flags:     config.Serve{Listen: c.listen, QueueTimeout: config.Duration(time.Minute), Metrics: "none"},
			Given:     func(flag string) bool { return flag == "listen" },
			LimitFlag: limits.Dimension.String,
			Logger:    slog.New(slog.DiscardHandler),
		})
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s before %s: %v, want %q", c.listen, c.upstream, err, c.wrong)
		}
	}
}
