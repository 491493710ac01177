package cli

// The texts of this file's subjects depend on clocks, terminals and luck when they are seen from outside: their tests
// are in the package.

import (
	"io"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

func TestTheHintOfARefusedKeyNamesThatProvidersVariable(t *testing.T) {
	for name, key := range map[string]string{"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": "a", "MISTRAL_API_KEY": "b"} {
		t.Setenv(name, key)
	}
	keys := openAccounts(t)
	for name, want := range map[string]string{
		"mistral":           "check the key in MISTRAL_API_KEY, then resume",
		"anthropic":         "check the key in ANTHROPIC_API_KEY, then resume",
		"openai-compatible": "name the variable of the key with --key-env, or check the key in --header, then resume",
	} {
		p, _ := provider.Lookup(name)
		if _, err := keys.Key(p); err != nil {
			t.Fatal(err)
		}
		refused := &work.StoppedError{Kind: sluice.Auth, Err: &provider.Error{Provider: name, Status: 401}}
		if e := explainRun(nil, keys, refused); !strings.HasPrefix(e.Hint, want) {
			t.Errorf("%s: hint %q, want %q", name, e.Hint, want)
		}
	}
}

// openAccounts opens accounts without flags.
func openAccounts(t *testing.T) *account.Accounts {
	t.Helper()
	a, err := (&accountFlags{}).open(term.New(nil, nil, io.Discard, io.Discard), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}
