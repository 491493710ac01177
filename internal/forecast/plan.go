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
	Observed *Observed      `json:"observed,omitempty"`
	Forecast *plan.Forecast `json:"forecast,omitempty"`
	WhatIf   []Plan         `json:"what_if,omitempty"` // the plans for other tiers
}

// Source is where published limits are from.
type Source struct {
	URL      string `json:"url,omitempty"`
	Date     string `json:"date,omitempty"`
	Note     string `json:"note,omitempty"`
	Doubtful bool   `json:"doubtful"`
}

// Observed is what the events of an earlier run show of one lane.
type Observed struct {
	plan.Traffic
	Limits *config.Limits `json:"limits,omitempty"` // nil: none was met
	plan.Measured
}

// Ranking is the document of sluice plan --provider best.
type Ranking struct {
	By      string    `json:"by"`
	Ranked  []Plan    `json:"ranked"` // the best first
	LeftOut []LeftOut `json:"left_out,omitempty"`
}

// LeftOut is a tier that is not ranked.
type LeftOut struct {
	Provider string   `json:"provider"`
	Tier     string   `json:"tier"`
	Models   []string `json:"models,omitempty"`
	Why      string   `json:"why"`
}
