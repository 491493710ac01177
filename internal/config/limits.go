package config

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// Limits are those of one account, for one model or all of them.
type Limits struct {
	Provider string `json:"provider,omitempty" yaml:"provider"` // Provider. "": any provider.
	Model    string `json:"model,omitempty" yaml:"model"`       // Model. "": all models.

	limits.Each[*Limit] `yaml:",inline"`

	Burst Duration `json:"burst,omitzero" yaml:"burst"` // Refill time of an empty token bucket.

	// Limits with a period that differs from a minute, in place of RPM and TPM. They are configured.
	Requests *limits.Window `json:"requests,omitempty" yaml:"requests"` // Request limit in another period, such as `100/10s`.
	Tokens   *limits.Window `json:"tokens,omitempty" yaml:"tokens"`     // Token limit in another period, such as `50000/30s`.
}

// WindowOf returns a pointer to the limit of a dimension with a stated period; nil if the dimension has none.
func (l *Limits) WindowOf(d limits.Dimension) **limits.Window {
	switch d {
	case limits.Requests:
		return &l.Requests
	case limits.Tokens:
		return &l.Tokens
	}
	return nil
}

// Limit is one limit and where it is from. A file may write just its number, which is then told.
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

// stated yields the limits that there are, but for the burst.
func (l *Limits) stated() iter.Seq2[limits.Dimension, *Limit] {
	return func(yield func(limits.Dimension, *Limit) bool) {
		for d := range new(sluice.Limits).All() {
			if limit := *l.At(d); limit != nil && !yield(d, limit) {
				return
			}
		}
	}
}

const (
	longestBurst = Duration(24 * time.Hour) // as much as can be planned with
	largestLimit = 1e12                     // the same
)

// Split returns the limits that somebody told, which are ceilings, and others, which are a beginning that the provider's
// answers correct. What was merely used without a refusal is neither: a client that began with it would keep to it where
// nothing states a limit.
func (l *Limits) Split() (told, start sluice.Limits) {
	for d, limit := range l.stated() {
		switch limit.Source {
		case limits.SourceAtLeast:
		case limits.SourceConfigured:
			*told.At(d) = int(limit.Value)
		default:
			*start.At(d) = int(limit.Value)
		}
	}
	for d := range told.All() {
		if w := l.WindowOf(d); w != nil && *w != nil {
			*told.WindowOf(d) = **w
		}
	}
	told.Burst = time.Duration(l.Burst)
	return told, start
}

// check refuses what is no limit. The error is about the returned field.
func (l *Limits) check() (field string, err error) {
	if l == nil {
		return "", nil
	}
	none := l.Burst == 0
	for d, limit := range l.stated() {
		none = false
		if part, err := limit.check(); err != nil {
			return d.String() + part, err
		}
	}
	if l.Burst > longestBurst {
		return "burst", fmt.Errorf("%v is more than a day: omit the field if the limit is unknown", time.Duration(l.Burst))
	}
	for d := range new(sluice.Limits).All() {
		w := l.WindowOf(d)
		if w == nil || *w == nil {
			continue
		}
		none = false
		if **w == (limits.Window{}) {
			return d.WindowName(), errors.New("is empty: write it such as 100/10s")
		}
		if limit := *l.At(d); limit != nil && limit.Source == limits.SourceConfigured {
			return d.WindowName(), fmt.Errorf("%s and %s set the same limit: omit one of the two fields", d, d.WindowName())
		}
	}
	if none {
		return "rpm", errors.New("the limit is missing: add one, such as rpm: 500")
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
	case l.Value > largestLimit:
		return "", fmt.Errorf("%v is above %d: omit the field if the limit is unknown", l.Value, int(largestLimit))
	case !(l.Confidence >= 0 && l.Confidence <= 1):
		return ".confidence", fmt.Errorf("%v is not between 0 and 1", l.Confidence)
	case !slices.Contains(sources, l.Source):
		return ".source", fmt.Errorf("%q is not one of %s", l.Source, strings.ReplaceAll(strings.Trim(fmt.Sprint(sources), "[]"), " ", ", "))
	}
	return "", nil
}
