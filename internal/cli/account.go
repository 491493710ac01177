package cli

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// accountFlags say where calls go, with which key and under which limits.
type accountFlags struct {
	provider     string
	baseURL      string
	model        string
	keyEnv       string
	keysFile     string
	headers      []string
	caFile       string
	limits       limitFlags
	maxThrottles int
}

func (f *accountFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.provider, "provider", "", strings.Join(provider.Names(), ", ")+" (absent: recognised from the model)")
	fs.StringVar(&f.baseURL, "base-url", "", "address of the API, as the provider's official SDK takes it")
	fs.StringVar(&f.model, "model", "", "model for lines that name none")
	fs.StringVar(&f.keyEnv, "key-env", "", "environment variable that holds the key (absent: the provider's usual one)")
	fs.StringVar(&f.keysFile, "keys-file", "", "file of NAME=value lines to find that variable in if the environment lacks it")
	fs.StringArrayVar(&f.headers, "header", nil, "header to send with every call, as 'Name: value' (repeatable)")
	fs.StringVar(&f.caFile, "ca-file", "", "certificates to trust besides the system's, in PEM")
	f.limits.register(fs)
	fs.IntVar(&f.maxThrottles, "max-throttles", 20, "give an item up when it was throttled more often than that")
}

// account is where calls go and how.
type account struct {
	provider  provider.Provider
	baseURL   string // "" is the provider's own
	key       string
	headers   http.Header
	limits    sluice.Limits
	transport http.RoundTripper
	secrets   []string // must never be printed
}

// open checks the flags. The model is what the input's first line says, where no flag does.
func (f *accountFlags) open(model string) (*account, error) {
	limits, err := f.limits.Limits()
	if err != nil {
		return nil, err
	}
	a := &account{baseURL: f.baseURL, limits: limits}
	if a.provider, err = f.choose(model); err != nil {
		return nil, err
	}
	if a.headers, err = parseHeaders(f.headers); err != nil {
		return nil, err
	}
	for name, values := range a.headers {
		if secretive(name) {
			for _, value := range values {
				a.secrets = append(a.secrets, strings.Fields(value)...) // "Bearer" and the key behind it
			}
		}
	}
	if a.provider.Name == "sim" {
		return a, a.imitate()
	}
	if a.key, err = f.findKey(a.provider); err != nil {
		return nil, err
	}
	if a.key != "" {
		a.secrets = append(a.secrets, a.key)
	}
	if a.transport, err = newTransport(f.caFile); err != nil {
		return nil, err
	}
	return a, a.check()
}

// choose returns the provider that the flags name, or else that the model belongs to, or else, where an address is
// given, what nearly every server imitates.
func (f *accountFlags) choose(model string) (provider.Provider, error) {
	names := strings.Join(provider.Names(), ", ")
	if f.provider != "" {
		p, ok := provider.Lookup(f.provider)
		switch {
		case !ok:
			return p, usageError(fmt.Errorf("unknown provider %q", f.provider), "--provider is one of %s", names)
		case f.baseURL == "" && p.BaseURL == "":
			return p, usageError(fmt.Errorf("--provider %s has no address of its own", p.Name),
				"say where it is, such as --base-url http://127.0.0.1:8000/v1")
		}
		return p, nil
	}
	if p, ok := provider.Recognise(model); ok {
		return p, nil
	}
	if f.baseURL != "" {
		p, _ := provider.Lookup("openai-compatible")
		return p, nil
	}
	if model == "" {
		return provider.Provider{}, usageError(errors.New("neither a flag nor the input's first line names a model"),
			"say which with --model, or say --provider, one of %s", names)
	}
	return provider.Provider{}, usageError(fmt.Errorf("model %q does not tell its provider", model),
		"say which with --provider, one of %s", names)
}

// findKey returns the key for p. Only a server that is not one of the providers may do without.
func (f *accountFlags) findKey(p provider.Provider) (string, error) {
	names := p.KeyEnv
	if f.keyEnv != "" {
		names = []string{f.keyEnv}
	}
	for _, name := range names {
		key, err := lookupKey(name, f.keysFile)
		if err != nil {
			return "", err
		}
		if strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
			return "", usageError(fmt.Errorf("the key in %s holds characters that no key has", name),
				"look for line breaks, quotes or spaces around it")
		}
		if key != "" {
			return key, nil
		}
	}
	if len(names) == 0 || p.Name == "openai-compatible" && f.keyEnv == "" {
		return "", nil
	}
	where := "in the environment"
	if f.keysFile != "" {
		where += " or in " + f.keysFile
	}
	return "", usageError(fmt.Errorf("no key for %s: %s is not set %s", p.Name, names[0], where),
		"export %s=..., or name another variable with --key-env, or try without a key: --provider sim", names[0])
}

// imitate makes the account that of a built-in imitation with limits such as a new account has. They are told to
// nobody but by the headers of its answers.
func (a *account) imitate() error {
	server, err := sim.New(sim.Config{
		Seed: 1, RPM: 900, Burst: 3 * time.Second, Concurrent: 30,
		Latency: 200 * time.Millisecond, Jitter: 0.2, OutputTokens: 80, OutputSigma: 0.4,
	})
	if err != nil {
		return err
	}
	a.transport = server.Transport()
	return nil
}

// check finds what makes every request impossible.
func (a *account) check() error {
	_, err := a.provider.NewRequest(context.Background(), a.baseURL, a.key, provider.ChatCompletions, nil, a.headers)
	if err != nil {
		return usageError(err, "an address looks like --base-url https://api.example.com/v1")
	}
	return nil
}

// name tells the account from others, without giving its key away.
func (a *account) name() string {
	base := a.baseURL
	if base == "" {
		base = a.provider.BaseURL
	}
	sum := sha256.Sum256([]byte(a.key))
	return base + "#" + hex.EncodeToString(sum[:6])
}

// stateDir is where what was learned of the account is kept; empty is nowhere.
func (a *account) stateDir() string {
	if a.provider.Name == "sim" {
		return ""
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "sluice")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "sluice")
}

// parseHeaders reads headers of the form "Name: value".
func parseHeaders(texts []string) (http.Header, error) {
	h := make(http.Header)
	for _, text := range texts {
		name, value, ok := strings.Cut(text, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		badName := name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
		badValue := strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
		if !ok || badName || badValue { // the text may hold a secret: it is not quoted
			return nil, usageError(errors.New("a --header is not of the form 'Name: value'"),
				"write --header 'X-Project: blue'")
		}
		h.Add(name, value)
	}
	return h, nil
}

// secretive reports whether a header of that name may hold a secret.
func secretive(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"auth", "key", "token", "secret", "cookie"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// newTransport returns a transport for many calls to one host, which trusts the certificates in that file too.
func newTransport(caFile string) (http.RoundTripper, error) {
	t := provider.NewBase(connections)
	if caFile == "" {
		return t, nil
	}
	const hint = "--ca-file takes certificates in PEM"
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, usageError(fmt.Errorf("certificates: %w", err), hint)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, usageError(fmt.Errorf("%s holds no certificate", caFile), hint)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool}
	return t, nil
}

// connections is how many are kept for reuse: as many calls as a run may have in flight.
const connections = 1024
