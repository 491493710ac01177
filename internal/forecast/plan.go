// Package forecast has the documents that say what calls will take before they are made.
package forecast

import (
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/plan"
)

// Plan is the document of sluice plan: a plan, and whose limits it is made with.
type Plan struct {
	Provider string        `json:"provider,omitempty"`    // Provider.
	Tier     string        `json:"tier,omitempty"`        // Tier.
	Model    string        `json:"model,omitempty"`       // Model.
	Limits   config.Limits `json:"limits"`                // Limits of the plan.
	Source   *Source       `json:"tier_source,omitempty"` // Source of the tier's limits. Nil: the limits are not of a tier.
	plan.Plan
	Forecast *plan.Forecast `json:"forecast,omitempty"` // Result of `--simulate`.
}

// Source is where published limits are from.
type Source struct {
	URL      string `json:"url,omitempty"`  // Address of the source.
	Date     string `json:"date,omitempty"` // Date of the source.
	Note     string `json:"note,omitempty"` // Note.
	Doubtful bool   `json:"doubtful"`       // The source is doubtful or missing.
}
