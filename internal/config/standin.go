// Package config reads what users write down. This is a stand-in for the limits file, until the package is merged.
package config

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/sluice-llm/sluice/provider"
)

// Limits are those of one account, for one model or all of them.
type Limits struct {
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`

	RPM        *Limit `json:"rpm,omitempty"`
	TPM        *Limit `json:"tpm,omitempty"`
	ITPM       *Limit `json:"itpm,omitempty"`
	OTPM       *Limit `json:"otpm,omitempty"`
	RPD        *Limit `json:"rpd,omitempty"`
	TPD        *Limit `json:"tpd,omitempty"`
	Concurrent *Limit `json:"concurrent,omitempty"`

	BurstSeconds *Limit `json:"burst_seconds,omitempty"`
}

// Source says how a limit came to be known.
type Source string

// Sources of limits.
const (
	SourceTold     Source = "told"
	SourceRegistry Source = "registry"
)

// Limit is one limit and where it is from.
type Limit struct {
	Value      float64   `json:"value"`
	Source     Source    `json:"source"`
	Confidence float64   `json:"confidence,omitempty"`
	At         time.Time `json:"at,omitzero"`
}

// File is what a file says.
type File struct {
	Limits *Limits `json:"limits"`
}

// Registry returns the published registry with the file's providers laid over it.
func (f *File) Registry() *provider.Registry { return provider.Published() }

// Load reads a file.
func Load(path string) (File, error) {
	var f File
	b, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}
