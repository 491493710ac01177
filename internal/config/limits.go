package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/sluice-llm/sluice"
)

// Limits are those of one account, for one model or all of them.
type Limits struct {
	Provider string `json:"provider,omitempty" yaml:"provider"` // "": of whatever provider
	Model    string `json:"model,omitempty" yaml:"model"`       // "": of all models

	RPM        *Limit `json:"rpm,omitempty" yaml:"rpm"`
	TPM        *Limit `json:"tpm,omitempty" yaml:"tpm"`
	ITPM       *Limit `json:"itpm,omitempty" yaml:"itpm"`
	OTPM       *Limit `json:"otpm,omitempty" yaml:"otpm"`
	RPD        *Limit `json:"rpd,omitempty" yaml:"rpd"`
	TPD        *Limit `json:"tpd,omitempty" yaml:"tpd"`
	Concurrent *Limit `json:"concurrent,omitempty" yaml:"concurrent"`

	BurstSeconds *Limit `json:"burst_seconds,omitempty" yaml:"burst_seconds"`
}

// Source says how a limit came to be known.
type Source string

// Sources of limits.
const (
	SourceTold     Source = "told"              // somebody said so: it is a ceiling
	SourceRegistry Source = "registry"          // published for the account's tier
	SourceHeader   Source = "header"            // the provider's answers stated it
	SourceMeasured Source = "measured"          // found out by trying
	SourceAtLeast  Source = "verified-at-least" // so much was used without a refusal
)

// Limit is one limit and where it is from. A file may write just its number, which is then told.
type Limit struct {
	Value      float64   `json:"value" yaml:"value"`
	Source     Source    `json:"source" yaml:"source"`
	Confidence float64   `json:"confidence,omitempty" yaml:"confidence"` // from 0 to 1; 0 is not stated
	At         time.Time `json:"at,omitzero" yaml:"at"`                  // when it became known
}

// UnmarshalYAML reads a number, or all of it.
func (l *Limit) UnmarshalYAML(n ast.Node) error {
	if _, ok := n.(ast.ScalarNode); ok {
		*l = Limit{Source: SourceTold}
		return yaml.NodeToValue(n, &l.Value)
	}
	var all struct {
		Value      float64 `yaml:"value"`
		Source     Source  `yaml:"source"`
		Confidence float64 `yaml:"confidence"`
		At         instant `yaml:"at"`
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

// each calls f for every limit that there is, with its name, until f fails.
func (l *Limits) each(f func(name string, limit *Limit) error) error {
	for _, row := range []struct {
		name  string
		limit *Limit
	}{
		{"rpm", l.RPM}, {"tpm", l.TPM}, {"itpm", l.ITPM}, {"otpm", l.OTPM}, {"rpd", l.RPD}, {"tpd", l.TPD},
		{"concurrent", l.Concurrent}, {burst, l.BurstSeconds},
	} {
		if row.limit == nil {
			continue
		}
		if err := f(row.name, row.limit); err != nil {
			return err
		}
	}
	return nil
}

const (
	burst = "burst_seconds"

	longestBurst = 24 * 60 * 60 // s; as much as can be planned with
	largestLimit = 1e12         // the same
)

// Split returns the limits that somebody told, which are ceilings, and all others, which are a beginning that the
// provider's answers correct.
func (l *Limits) Split() (told, start sluice.Limits) {
	l.each(func(name string, limit *Limit) error {
		to := &start
		if limit.Source == SourceTold {
			to = &told
		}
		switch name {
		case "rpm":
			to.RPM = int(limit.Value)
		case "tpm":
			to.TPM = int(limit.Value)
		case "itpm":
			to.ITPM = int(limit.Value)
		case "otpm":
			to.OTPM = int(limit.Value)
		case "rpd":
			to.RPD = int(limit.Value)
		case "tpd":
			to.TPD = int(limit.Value)
		case "concurrent":
			to.Concurrent = int(limit.Value)
		case burst:
			to.Burst = time.Duration(limit.Value * float64(time.Second))
		}
		return nil
	})
	return told, start
}

// check refuses what is no limit. The error is about the returned field.
func (l *Limits) check() (field string, err error) {
	none := true
	err = l.each(func(name string, limit *Limit) error {
		none = false
		field = name
		switch v := limit.Value; {
		case name == burst && !(v > 0):
			return fmt.Errorf("%v is no number of seconds above zero: leave out what is not known", v)
		case name == burst && v > longestBurst:
			return fmt.Errorf("%v is more seconds than a day has: leave out what is not known", v)
		case name != burst && !(v > 0 && v == math.Trunc(v)):
			return fmt.Errorf("%v is no whole number above zero: leave out what is not known", v)
		case v > largestLimit:
			return fmt.Errorf("%v is above %d: leave out what is not known", v, int(largestLimit))
		case !(limit.Confidence >= 0 && limit.Confidence <= 1):
			field += ".confidence"
			return fmt.Errorf("%v is not between 0 and 1", limit.Confidence)
		}
		switch limit.Source {
		case SourceTold, SourceRegistry, SourceHeader, SourceMeasured, SourceAtLeast:
			return nil
		}
		field += ".source"
		return fmt.Errorf("%q is not one of told, registry, header, measured, verified-at-least", limit.Source)
	})
	if err == nil && none {
		return "rpm", errors.New("no limit is there: state one, such as rpm: 500")
	}
	return field, err
}

// WriteLimits writes limits to a file for Load to read. The file is replaced as a whole, or not at all.
func WriteLimits(path string, l Limits) error {
	if field, err := l.check(); err != nil {
		return fmt.Errorf("limits.%s: %w", field, err)
	}
	for _, text := range []string{l.Provider, l.Model} {
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0xfffd }) {
			return fmt.Errorf("limits: %q is no name", text)
		}
	}
	data, err := json.MarshalIndent(struct {
		Limits Limits `json:"limits"`
	}{l}, "", "  ")
	if err != nil {
		return err
	}
	return replace(path, append(data, '\n'))
}

// replace puts data in the place of a file.
func replace(path string, data []byte) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp.Name())
		}
	}()
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
