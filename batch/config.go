package batch

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// check fills in defaults and names the field that is wrong.
func (cfg *Config) check() error {
	wrong := func(field string, err error) error { return &FieldError{Field: field, Err: err} }
	if err := cfg.checkInput(); err != nil {
		return err
	}
	switch {
	case cfg.Output == "":
		return wrong("Output", errMissing)
	case cfg.Scheduler == nil && cfg.Upstreams == nil && cfg.Remote == nil:
		return wrong("Scheduler", errMissing)
	case cfg.Remote != nil && cfg.Upstreams != nil:
		return wrong("Remote", errors.New("cannot be combined with Upstreams"))
	case cfg.Handler != nil && (cfg.Remote != nil || cfg.Batches != nil):
		return wrong("Handler", errors.New("cannot be combined with Remote or Batches"))
	case cfg.Timeout < 0:
		return wrong("Timeout", errors.New("is negative"))
	case cfg.Changed > ChangedKeep:
		return wrong("Changed", errUnknown)
	case cfg.Sync > work.SyncEach:
		return wrong("Sync", errUnknown)
	}
	if err := cfg.Budget.Check(cfg.Price != nil); err != nil {
		return wrong("Budget", err)
	}
	if err := cfg.checkChanged(); err != nil {
		return err
	}
	if err := cfg.checkBatches(); err != nil {
		return err
	}
	return nil
}

// complete sets the defaults of fields that every use needs.
func (cfg *Config) complete() {
	if cfg.Registry == nil {
		cfg.Registry = provider.Published()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Transport == nil {
		cfg.Transport = provider.NewBase(4096)
	}
}

func (cfg *Config) checkChanged() error {
	if cfg.Changed == ChangedRedo && cfg.Input == "-" {
		return &FieldError{Field: "Changed", Err: errors.New("redo needs an input file: standard input cannot be read in advance")}
	}
	return nil
}

// checkInput names the field that is wrong of those that reading the input takes.
func (cfg *Config) checkInput() error {
	wrong := func(field string, err error) error { return &FieldError{Field: field, Err: err} }
	switch {
	case cfg.Input == "":
		return wrong("Input", errMissing)
	case cfg.Input == "-" && cfg.Stdin == nil:
		return wrong("Stdin", errMissing)
	case cfg.MaxTokens < 0:
		return wrong("MaxTokens", errors.New("is negative"))
	case cfg.Limit < 0:
		return wrong("Limit", errors.New("is negative"))
	}
	cfg.complete()
	return nil
}

// promptOptions names the options that complete only prompts.
func (cfg *Config) promptOptions() (names []string) {
	if cfg.System != "" {
		names = append(names, "system")
	}
	if cfg.MaxTokens > 0 {
		names = append(names, "max-tokens")
	}
	if len(cfg.Set) > 0 {
		names = append(names, "set")
	}
	return names
}

// settable refuses names that lead nowhere, or into what is set as a whole.
func settable(name string, all map[string]json.RawMessage) error {
	top, _, _ := strings.Cut(name, ".")
	switch top {
	case "messages", "contents", "prompt", "custom_id", "model":
		return fmt.Errorf("%s cannot be set", name)
	}
	for i, c := range name + "." {
		if c != '.' {
			continue
		}
		if i == 0 || name[i-1] == '.' {
			return fmt.Errorf("%q is not the path of a field", name)
		}
		if _, whole := all[name[:i]]; whole && i < len(name) {
			return fmt.Errorf("%s and %s cannot both be set", name[:i], name)
		}
	}
	return nil
}
