// Package forecast has the documents that say what calls will take before they are made.
package forecast

import (
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/plan"
)

// Plan is the document of sluice plan: a plan, and whose limits it is made with.
type Plan struct {
	Provider string        `json:"provider,omitempty"`
	Tier     string        `json:"tier,omitempty"`
	Model    string        `json:"model,omitempty"`
	Limits   config.Limits `json:"limits"`
	Source   *Source       `json:"tier_source,omitempty"` // nil: the limits are not those of a tier
	plan.Plan
	Forecast *plan.Forecast `json:"forecast,omitempty"`
}

// Source is where published limits are from.
type Source struct {
	URL      string `json:"url,omitempty"`
	Date     string `json:"date,omitempty"`
	Note     string `json:"note,omitempty"`
	Doubtful bool   `json:"doubtful"`
}
