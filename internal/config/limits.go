package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// Limits are the limits of an account, for one model or all models.
type Limits struct {
	Provider string `json:"provider,omitempty" yaml:"provider"` // Provider. "": any provider.
	Model    string `json:"model,omitempty" yaml:"model"`       // Model. "": all models.

	limits.Each[*Limit] `yaml:",inline"`

	Burst Duration `json:"burst,omitzero" yaml:"burst"` // Refill time of an empty token bucket.

	// Limits with a period that differs from a minute, in place of RPM and TPM. They are configured.
	Requests limits.Window `json:"requests,omitzero" yaml:"requests"` // Request limit in another period, such as `100/10s`.
	Tokens   limits.Window `json:"tokens,omitzero" yaml:"tokens"`     // Token limit in another period, such as `50000/30s`.
}

// WindowOf returns a pointer to the limit of a dimension with a stated period; nil if the dimension has none.
func (l *Limits) WindowOf(d limits.Dimension) *limits.Window {
	switch d {
	case limits.Requests:
		return &l.Requests
	case limits.Tokens:
		return &l.Tokens
	}
	return nil
}

// Limit is a limit with its origin. In a file, it can be a number, which is then configured.
type Limit struct {
	Value      float64       `json:"value" yaml:"value"`                     // Value of the limit.
	Source     limits.Source `json:"source" yaml:"source"`                   // Origin of the value, such as `header`.
	Confidence float64       `json:"confidence,omitempty" yaml:"confidence"` // Confidence from 0 to 1. 0 is not stated.
	At         time.Time     `json:"at,omitzero" yaml:"at"`                  // Time of the measurement.
}

// UnmarshalYAML reads a number, or all fields.
func (l *Limit) UnmarshalYAML(n ast.Node) error {
	if _, ok := n.(ast.ScalarNode); ok {
		*l = Limit{Source: limits.SourceConfigured}
		return yaml.NodeToValue(n, &l.Value)
	}
	type fields Limit
	*l = Limit{}
	return yaml.NodeToValue(n, (*fields)(l))
}

const longestBurst = Duration(24 * time.Hour) // as long as plans can be

// Split returns the configured limits, which are ceilings, and other limits, with which a client starts until responses correct them. An
// amount that merely passed without a rejection is neither: a client would keep to it if no response states a limit.
func (l *Limits) Split() (configured, start sluice.Limits) {
	configured.Requests, configured.Tokens, configured.Burst = l.Requests, l.Tokens, time.Duration(l.Burst)
	for d, ceiling := range configured.All() {
		switch limit := *l.At(d); {
		case limit == nil || limit.Source == limits.SourceAtLeast:
		case limit.Source == limits.SourceConfigured:
			*ceiling = int(limit.Value)
		default:
			*start.At(d) = int(limit.Value)
		}
	}
	return configured, start
}

// Amounts returns all limits without their sources.
func (l *Limits) Amounts() sluice.Limits {
	all := sluice.Limits{Requests: l.Requests, Tokens: l.Tokens, Burst: time.Duration(l.Burst)}
	for d, amount := range all.All() {
		if limit := *l.At(d); limit != nil {
			*amount = int(limit.Value)
		}
	}
	return all
}

// check refuses invalid limits. The error is about the returned field. Nil is valid.
func (l *Limits) check() (field string, err error) {
	switch {
	case l == nil:
		return "", nil
	case l.Burst > longestBurst:
		return "burst", fmt.Errorf("%v is more than a day: omit the field if the limit is unknown", time.Duration(l.Burst))
	case *l == Limits{Provider: l.Provider, Model: l.Model}:
		return "rpm", errors.New("the limit is missing: add one, such as rpm: 500")
	}
	for d := range new(sluice.Limits).All() {
		limit := *l.At(d)
		if limit == nil {
			continue
		}
		if part, err := limit.check(); err != nil {
			return d.String() + part, err
		}
		if w := l.WindowOf(d); w != nil && w.N > 0 && limit.Source == limits.SourceConfigured {
			return d.WindowName(), fmt.Errorf("%s and %s set the same limit: omit one of the two fields", d, d.WindowName())
		}
	}
	return "", nil
}

// sources are the values of the field source.
var sources = []limits.Source{limits.SourceConfigured, limits.SourceRegistry, limits.SourcePublished, limits.SourceHeader,
	limits.SourceRejection, limits.SourceMeasured, limits.SourceAtLeast}

// check refuses an invalid limit. The error is about the returned part of its path.
func (l *Limit) check() (part string, err error) {
	switch {
	case !(l.Value > 0 && l.Value == math.Trunc(l.Value)):
		return "", fmt.Errorf("%v is not a whole number above zero: omit the field if the limit is unknown", l.Value)
	case l.Value > limits.MaxLimit:
		return "", fmt.Errorf("%v is above %d: omit the field if the limit is unknown", l.Value, limits.MaxLimit)
	case !(l.Confidence >= 0 && l.Confidence <= 1):
		return ".confidence", fmt.Errorf("%v is not between 0 and 1", l.Confidence)
	case !slices.Contains(sources, l.Source):
		return ".source", fmt.Errorf("%q is not one of %s", l.Source, strings.ReplaceAll(strings.Trim(fmt.Sprint(sources), "[]"), " ", ", "))
	}
	return "", nil
}
