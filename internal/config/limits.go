package config

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
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
	Requests *Window `json:"requests,omitempty" yaml:"requests"` // Request limit in another period, such as `100/10s`.
	Tokens   *Window `json:"tokens,omitempty" yaml:"tokens"`     // Token limit in another period, such as `50000/30s`.
}

// Window is a limit with its period, such as 100/10s.
type Window struct{ limits.Window }

// UnmarshalYAML reads a text.
func (w *Window) UnmarshalYAML(n ast.Node) error {
	text := ""
	if err := yaml.NodeToValue(n, &text); err != nil {
		return err
	}
	var err error
	if w.Window, err = limits.ParseWindow(text); err != nil {
		return &yaml.SyntaxError{Message: err.Error(), Token: n.GetToken()}
	}
	return nil
}

// WindowOf returns a pointer to the limit of a dimension with a stated period; nil if the dimension has none.
func (l *Limits) WindowOf(d limits.Dimension) **Window {
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

// UnmarshalYAML reads a number, or all of it.
func (l *Limit) UnmarshalYAML(n ast.Node) error {
	if _, ok := n.(ast.ScalarNode); ok {
		*l = Limit{Source: limits.SourceConfigured}
		return yaml.NodeToValue(n, &l.Value)
	}
	var all struct {
		Value      float64       `yaml:"value"`
		Source     limits.Source `yaml:"source"`
		Confidence float64       `yaml:"confidence"`
		At         instant       `yaml:"at"`
	}
	err := yaml.NodeToValue(n, &all, yaml.Strict())
	*l = Limit{all.Value, all.Source, all.Confidence, all.At.Time}
	return err
}

// instant is a time that is read strictly: the parser alone would take nonsense for none.
type instant struct{ time.Time }

// UnmarshalYAML reads a date and a time of day.
func (i *instant) UnmarshalYAML(n ast.Node) error {
	text := ""
	err := yaml.NodeToValue(n, &text)
	if err == nil {
		i.Time, err = time.Parse(time.RFC3339Nano, text)
	}
	if err != nil {
		return &yaml.TypeError{DstType: reflect.TypeFor[time.Time](), SrcType: reflect.TypeFor[string](), Token: n.GetToken()}
	}
	return nil
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
			*told.WindowOf(d) = (*w).Window
		}
	}
	told.Burst = time.Duration(l.Burst)
	return told, start
}

// check refuses what is no limit. The error is about the returned field.
func (l *Limits) check() (field string, err error) {
	none := l.Burst == 0
	for d, limit := range l.stated() {
		none = false
		v := limit.Value
		switch {
		case !(v > 0 && v == math.Trunc(v)):
			return d.String(), fmt.Errorf("%v is not a whole number above zero: omit the field if the limit is unknown", v)
		case v > largestLimit:
			return d.String(), fmt.Errorf("%v is above %d: omit the field if the limit is unknown", v, int(largestLimit))
		}
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
		if limit := *l.At(d); limit != nil && limit.Source == limits.SourceConfigured {
			return d.WindowName(), fmt.Errorf("%s and %s set the same limit: omit one of the two fields", d, d.WindowName())
		}
	}
	if none {
		return "rpm", errors.New("the limit is missing: add one, such as rpm: 500")
	}
	return "", nil
}

// check refuses what cannot be said of a limit. The error is about the returned part of it.
func (l *Limit) check() (part string, err error) {
	if !(l.Confidence >= 0 && l.Confidence <= 1) {
		return ".confidence", fmt.Errorf("%v is not between 0 and 1", l.Confidence)
	}
	switch l.Source {
	case limits.SourceConfigured, limits.SourceRegistry, limits.SourcePublished, limits.SourceHeader, limits.SourceRejection, limits.SourceMeasured, limits.SourceAtLeast:
		return "", nil
	}
	return ".source", fmt.Errorf("%q is not one of configured, registry, published, header, rejection, measured, verified-at-least", l.Source)
}
