package forecast_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/forecast"
)

// settings returns a file with a tier and providers with bounds of batches. A tier has 60 requests per minute, and prices of 1,000 dollars
// per million tokens of input and 2,000 of output, so that the input of a request costs 1 dollar. Batches cost half.
func settings(tier string) string {
	text := "providers:\n"
	if tier != "" {
		text = "tier: " + tier + "\n" + text
	}
	for name, bound := range map[string]string{
		"one": "", "whole": "api: openai", "thirty": "api: openai, requests: 30", "large": "api: openai, bytes: 42000",
		"pending": "api: openai, pending: 20",
	} {
		if bound != "" {
			bound = ", batches: {price: 0.5, " + bound + "}"
		}
		text += fmt.Sprintf("  - {name: %s, dialect: openai, auth: {header: Authorization}, base_url: 'http://127.0.0.1:1/v1', "+
			"tiers: [{tier: paid, rpm: 60, price: 1000/2000}]%s}\n", name, bound)
	}
	return text
}

const upstreams = `
upstreams:
  - {name: a, provider: openai-compatible, base_url: "http://127.0.0.1:1/v1", models: [m], limits: {rpm: 60}, price: 1000/2000}
  - {name: b, provider: openai-compatible, base_url: "http://127.0.0.1:2/v1", models: [m], %s price: 2000/2000}
`

func open(t *testing.T, text, provider string, flags sluice.Limits) *account.Accounts {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := account.Open(account.Config{
		Provider: provider, Sources: account.Sources{path}, Limits: flags, Purpose: account.Estimate,
		Hide: func(string) {}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err == nil {
		err = a.OpenUpstreams()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// dry is a dry run of n requests of about 1,000 tokens to each of the models.
func dry(t *testing.T, a *account.Accounts, n, maxTokens int, cfg batch.Config, models ...string) *forecast.DryRun {
	t.Helper()
	var lines strings.Builder
	prompt := strings.Repeat("x", 4000)
	for _, model := range models {
		for range n {
			fmt.Fprintf(&lines, `{"model":%q,"prompt":%q}`+"\n", model, prompt)
		}
	}
	cfg.Input, cfg.MaxTokens = filepath.Join(t.TempDir(), "in.jsonl"), maxTokens
	if err := os.WriteFile(cfg.Input, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := forecast.MakeDryRun(a, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestADryRunAddsUpItsLanes(t *testing.T) {
	const second = "limits: {rpm: 60},"
	for _, c := range []struct {
		settings, provider string
		flags              sluice.Limits
		maxTokens          int
		models             []string
		seconds            float64 // below zero: unknown
		least, most        float64 // below zero: unknown
	}{
		{settings("paid"), "one", sluice.Limits{}, 1000, []string{"m"}, 301, 300, 900},
		{settings("paid"), "one", sluice.Limits{}, 0, []string{"m"}, 301, 300, -1},
		{settings("paid"), "one", sluice.Limits{}, 1000, []string{"m", "n"}, 301, 600, 1800},
		{settings("paid"), "one", sluice.Limits{RPM: 60}, 1000, []string{"m", "n"}, 601, 600, 1800}, // ceilings hold for all models together
		{fmt.Sprintf(upstreams, second), "", sluice.Limits{}, 1000, []string{"m"}, 150.5, 300, 1200},
		{fmt.Sprintf(upstreams, ""), "", sluice.Limits{}, 1000, []string{"m"}, -1, 300, 1200},
		{settings(""), "openai", sluice.Limits{}, 1000, []string{"m"}, -1, -1, -1},
	} {
		d := dry(t, open(t, c.settings, c.provider, c.flags), 300, c.maxTokens, batch.Config{}, c.models...)
		seconds, least, most := -1.0, -1.0, -1.0
		if d.TimeS != nil {
			seconds = *d.TimeS
		}
		if d.Cost != nil {
			if least = d.Cost.Least; d.Cost.Most != nil {
				most = *d.Cost.Most
			}
		}
		if seconds != c.seconds || least != c.least || most != c.most {
			t.Errorf("%s %v: %v s, $%v to %v", c.provider, c.models, seconds, least, most)
		}
		if len(d.Models) != len(c.models) || (d.MaxOutputTokens == nil) != (c.maxTokens == 0) || (seconds < 0) != (d.Hint != "") {
			t.Errorf("%s: %+v", c.provider, d)
		}
	}
}

func TestBatchesAreFilledUpToTheirBounds(t *testing.T) {
	for _, c := range []struct {
		provider string
		batches  int
		boundBy  string
		turns    int
	}{
		{"whole", 1, "", 0}, {"thirty", 4, "", 0}, {"large", 10, "", 0}, {"pending", 1, "pending_requests", 5},
	} {
		d := dry(t, open(t, settings("paid"), c.provider, sluice.Limits{}), 100, 1000, batch.Config{Batches: &batch.Batches{}}, "m")
		b := d.Batches.Accounts[0]
		if b.Batches != c.batches || b.BoundBy != c.boundBy || b.Turns != c.turns || b.Requests != 100 || b.Tokens != d.InputTokens {
			t.Errorf("%+v", b)
		}
		if cost := d.Batches.Cost; cost == nil || cost.Least != d.Cost.Least/2 || *cost.Most != *d.Cost.Most/2 {
			t.Errorf("%s: cost %+v", c.provider, cost)
		}
	}
	cfg := batch.Config{Batches: &batch.Batches{}, Budget: batch.Budget{Deadline: time.Now().Add(time.Hour)}}
	if d := dry(t, open(t, settings("paid"), "one", sluice.Limits{}), 10, 10, cfg, "m"); len(d.Batches.Accounts) != 0 {
		t.Error("with a deadline, requests to a provider without a Batch API are not sent live")
	}
	if _, err := forecast.MakeDryRun(open(t, settings("paid"), "one", sluice.Limits{}), batch.Config{Batches: &batch.Batches{}}); err == nil {
		t.Error("a provider without a Batch API is accepted")
	}
}

func TestLiveRequestsTakeAsLongAsTheirLimitsSay(t *testing.T) {
	presumed := time.Duration((300/(500.0/60) + 2 - 1) * 1e9) // 500 requests per minute
	models := func() map[string]int { return map[string]int{"m": 10, "n": 10} }
	for _, c := range []struct {
		name, tier, provider string
		flags                sluice.Limits
		want                 time.Duration
	}{
		{"a limit for each model", "paid", "one", sluice.Limits{}, 301 * time.Second},
		{"a ceiling for all of them", "paid", "one", sluice.Limits{RPM: 60}, 601 * time.Second},
		{"an unknown limit", "", "one", sluice.Limits{}, presumed},
		{"an unknown account", "", "", sluice.Limits{RPM: 60}, presumed},
	} {
		live := forecast.LiveTime(open(t, settings(c.tier), c.provider, c.flags), 0, models)
		if got := live(600, 600_000); (got - c.want).Abs() > time.Millisecond {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if got := live(0, 0); got != 0 {
			t.Errorf("%s: no requests take %v", c.name, got)
		}
	}
}
