package provider_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/provider"
)

func TestReferenceOfProviders(t *testing.T) {
	all := provider.Published().All()
	var b strings.Builder
	b.WriteString("# Providers and limits\n\n`--provider` accepts a name or an alias. Without `--provider`, Sluice recognizes the provider from the model. If an address contains braces, set your address with `--base-url`.\n\n" +
		"name | aliases | address | key\n---|---|---|---\n")
	for _, p := range all {
		key := code(p.KeyEnv)
		if p.KeyOptional {
			key = strings.TrimPrefix(key+", or none", ", or ")
		}
		address := code([]string{p.BaseURL})
		if p.BaseURL == "" {
			address = code([]string{p.BaseForm})
		}
		fmt.Fprintf(&b, "`%s` | %s | %s | %s\n", p.Name, code(p.Aliases), address, key)
	}
	b.WriteString("\n## How providers count\n\nProviders count [declared](../explanation/how-rate-limits-work.md#what-counts-as-a-token) tokens (`max_tokens`) or actual output tokens against limits.\n\n" +
		"provider | tokens | cached input | note | source\n---|---|---|---|---\n")
	for _, p := range all {
		cached := "free"
		if p.CountsCached {
			cached = "counts"
		}
		fmt.Fprintf(&b, "`%s` | %s | %s | %s | %s\n", p.Name, p.Charge, cached, p.Note, cited(p.Source, p.Date, p.Doubtful))
	}
	b.WriteString("\n## Published limits\n\n`tier:` in the settings and `sluice plan --tier` use these published limits. Doubtful values are old, contradicted, or not from the provider.\n\n" +
		"provider | tier | models | limits | note | source\n---|---|---|---|---|---\n")
	for _, p := range all {
		for _, tier := range provider.Published().Tiers(p.Name) {
			var limits []string
			for d, n := range tier.Limits.All() {
				if *n > 0 {
					limits = append(limits, d.String()+" "+prose.Group(*n))
				}
			}
			models := "all"
			if of := tier.Families(); len(of) > 0 {
				models = code(of)
			}
			fmt.Fprintf(&b, "`%s` | `%s` | %s | %s | %s | %s\n", p.Name, tier.Tier, models, strings.Join(limits, ", "), tier.Note,
				cited(tier.Source, tier.Date, tier.Doubtful))
		}
	}
	b.WriteString("\n## Headers\n\nSluice reads these headers of each response. If two headers report the same limit, Sluice uses the first.\n\nlimit | limit header | remaining header | reset header\n---|---|---|---\n")
	for _, f := range provider.HeaderForms() {
		fmt.Fprintf(&b, "`%s` | %s | %s | %s\n", f.Dimension, named(f.Limit), named(f.Remaining), named(f.Reset))
	}
	suite.Generated(t, "../docs/reference/providers.md", b.String())
}

// code returns words as code, separated by commas.
func code(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "`" + strings.Join(words, "`, `") + "`"
}

// named returns the name of a header as code.
func named(name string) string {
	if name == "" {
		return ""
	}
	return "`" + strings.ToLower(name) + "`"
}

// cited returns an address as a link with its host.
func cited(source, date string, doubtful bool) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(source, "https://"), "/")
	text := fmt.Sprintf("[%s](%s), %s", host, source, date)
	if doubtful {
		text += "; doubtful"
	}
	return text
}
