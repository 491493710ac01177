package account_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
)

// write writes a settings file and returns the Config that reads it.
func write(t *testing.T, path, text string, purpose account.Purpose) account.Config {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return account.Config{
		Sources: account.Sources{path}, Purpose: purpose,
		Hide: func(string) {}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// scheduler opens the upstreams and returns the Scheduler of the first.
func scheduler(t *testing.T, a *account.Accounts, err error) *sluice.Scheduler {
	t.Helper()
	if err = errors.Join(err, a.OpenUpstreams()); err != nil {
		t.Fatal(err)
	}
	return a.Upstreams().All()[0].Scheduler
}

func TestLaterSettingsKeepOpenAccountsAndTheirLimitsUntilTheySettle(t *testing.T) {
	t.Setenv("A_KEY", "a")
	path := filepath.Join(t.TempDir(), "sluice.yaml")
	upstream := func(name, limits string) string {
		return "upstreams: [{name: " + name + ", provider: openai, key_env: A_KEY, limits: {" + limits + "}}]"
	}
	old, err := account.Open(write(t, path, upstream("one", "rpm: 60"), account.Serve))
	s := scheduler(t, old, err)
	write(t, path, upstream("renamed", "rpm: 90"), account.Serve)
	next, err := old.Again()
	if same := scheduler(t, next, err) == s; !same || s.Snapshot().Limits.RPM != 60 {
		t.Errorf("the Scheduler is the same: %t, with %+v", same, s.Snapshot().Limits)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	lines, err := next.Settle()
	if want := []string{"limits re-read (renamed): rpm 60 -> 90"}; err != nil || !slices.Equal(lines, want) || s.Snapshot().Limits.RPM != 90 {
		t.Errorf("%q, %v, want %q", lines, err, want)
	}
	write(t, path, upstream("renamed", "rpm: -1"), account.Serve)
	if _, err := next.Again(); err == nil {
		t.Error("wrong settings are read")
	}
	if err := next.Close(); err != nil || !errors.Is(s.Resume(), sluice.ErrClosed) {
		t.Errorf("%v, and the account without users is open", err)
	}
}

func TestAnEstimateNeedsNoKeysAndWritesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sluice.yaml")
	const upstreams = "upstreams: [{name: a, provider: openai, key_env: NO_A}, {name: b, provider: openai, key_env: NO_B}]"
	a, err := account.Open(write(t, path, upstreams, account.Estimate))
	scheduler(t, a, err)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
	a.Config.Purpose = account.Check
	if again, err := a.Again(); err != nil || again.OpenUpstreams() == nil {
		t.Errorf("a check does not miss the keys: %v", err)
	}
}

func TestSettingsThatAreReadAgainWarnOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sluice.yaml")
	cfg := write(t, path, "limits: {rpm: 9}", account.Send)
	var log strings.Builder
	cfg.Provider, cfg.Logger = "sim", slog.New(slog.NewTextHandler(&log, nil))
	a, err := account.Open(cfg)
	if err == nil {
		_, err = a.Scheduler(a.Provider)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	write(t, path, "limits: {provider: openai, rpm: 9}", account.Send)
	for range 2 {
		if _, err := a.Reread(); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "the limits are ignored"); n != 1 {
		t.Errorf("%d warnings, want 1: %s", n, &log)
	}
}
