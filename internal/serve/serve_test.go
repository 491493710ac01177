package serve_test

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/serve"
	"github.com/sluice-llm/sluice/limits"
)

// check checks a gateway of these accounts.
func check(t *testing.T, listen string, accounts account.Config) (*serve.Description, error) {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	accounts.Hide = func(string) {}
	return serve.Check(serve.Config{
		Account:   accounts,
		Flags:     config.Serve{Listen: listen, QueueTimeout: time.Minute, Metrics: "none"},
		Given:     func(flag string) bool { return flag == "listen" },
		LimitFlag: limits.Dimension.String,
		Logger:    slog.New(slog.DiscardHandler),
	})
}

func TestAddressesOfAGatewayAreChecked(t *testing.T) {
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
		_, err := check(t, c.listen, account.Config{BaseURL: c.upstream})
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s before %s: %v, want %q", c.listen, c.upstream, err, c.wrong)
		}
	}
}

func TestTheOriginOfALimitIsItsFlagOrFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sluice.yaml")
	const text = "tier: paid\nlimits: {rpm: 7}\nproviders: [{name: openai-compatible, tiers: [{tier: paid, rpm: 60, tpm: 5000}]}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := check(t, "127.0.0.1:0", account.Config{
		BaseURL: "http://127.0.0.1:1/v1", Sources: account.Sources{path}, Limits: sluice.Limits{Concurrency: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]serve.Limit{
		"rpm":         {Value: 7, Source: limits.SourceConfigured, From: path},
		"tpm":         {Value: 5000, Source: limits.SourceRegistry, From: path + ": tier"},
		"concurrency": {Value: 3, Source: limits.SourceConfigured, From: "concurrency"},
	}
	if got := d.Upstreams[0].Limits; !maps.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
