package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
)

// newModels returns the command that prints the table of models.
func newModels(s *term.Streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "models [PATTERN]",
		Short: "Print prices and token limits of models",
		Long: `Print prices and token limits of models, by provider. Nothing is sent.

PATTERN matches any part of PROVIDER/MODEL, and * matches any text. Prices are US dollars per million tokens, from the
providers' pages on ` + pricing.Date + `. A ? marks a price without a source. Prices in the settings replace these prices.`,
		Example: `  sluice models gpt-4o
  sluice models 'anthropic/*sonnet'
  sluice models --json gemini-2.5 | jq .batch`,
		Args: atMost(1, "one pattern"),
		RunE: func(_ *cobra.Command, args []string) error {
			return printModels(s, strings.Join(args, ""), asJSON)
		},
	}
	define(cmd, flagGroup{"Output", []flag{{name: "json", field: &asJSON, help: "Print one JSON object per model", common: true}}})
	return cmd
}

func printModels(s *term.Streams, pattern string, asJSON bool) error {
	found := pricing.Matching(pattern)
	if len(found) == 0 {
		return &fault.Error{Code: fault.Failed, Err: fmt.Errorf("no model matches %q", pattern), Hint: "use a part of a name PROVIDER/MODEL, or list all models with sluice models"}
	}
	if asJSON {
		for i := range found {
			if err := s.JSONLine(found[i]); err != nil {
				return err
			}
		}
		return nil
	}
	var t term.Table
	t.Row("PROVIDER", "MODEL", "$ IN/OUT", "CACHED", "WRITE/1H", "BATCH", "FLEX", "PRIORITY", "CONTEXT", "OUTPUT", "SOURCE")
	rate := func(r *pricing.Rate) string {
		if r == nil {
			return "-"
		}
		return bothPrices(&r.Input, &r.Output)
	}
	size := func(tokens int) string {
		if tokens == 0 {
			return "-"
		}
		return prose.Group(tokens)
	}
	for i := range found {
		r := &found[i]
		source := cmp.Or(r.Source, "-")
		if r.Doubtful {
			source = "?"
		}
		t.Row(r.Provider, r.Name, rate(&r.Rate), priceText(&r.CachedInput), bothPrices(&r.CacheWrite, &r.CacheWriteHour),
			rate(r.Batch), rate(r.Flex), rate(r.Priority), size(r.MaxInput), size(r.MaxOutput), source)
	}
	return t.Print(s.Out)
}

// priceText writes a price; "-" if it is unknown.
func priceText(usd *float64) string {
	if usd == nil {
		return "-"
	}
	return strconv.FormatFloat(*usd, 'f', -1, 64)
}

// bothPrices writes two prices.
func bothPrices(a, b *float64) string {
	if a == nil && b == nil {
		return "-"
	}
	return priceText(a) + "/" + priceText(b)
}
