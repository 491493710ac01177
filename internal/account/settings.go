package account

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/provider"
)

// ConfigVariable is the environment variable of the default settings file.
const ConfigVariable = "SLUICE_CONFIG"

// Sources are where settings come from.
type Sources struct {
	Files []string // of --config (default: the file that ConfigVariable names)
	Tier  string   // account tier with the initial limits (default: the tier of the files)
}

// Settings are the content of the settings files, as it concerns accounts.
type Settings struct {
	Registry *provider.Registry
	File     config.File   // without a Name if there is no file
	Tier     string        // "" is none
	Files    signals.Files // as they were before they were read

	paths []string    // of the files
	used  atomic.Bool // Apply has used limits of the files

	mu      sync.Mutex
	remarks []remark
}

// Open reads the files.
func (s *Sources) Open() (*Settings, error) {
	names, from := s.Files, "--config"
	if name := os.Getenv(ConfigVariable); len(names) == 0 && name != "" {
		names, from = []string{name}, "$"+ConfigVariable
	}
	all := &Settings{Files: make(signals.Files), paths: names}
	for _, name := range names {
		all.Files.Note(name)
	}
	file, err := config.Load(names...)
	if fault.Is[*config.Error](err) {
		return nil, err
	}
	if err != nil {
		return nil, fault.New(fault.File, fmt.Errorf("%s: %w", from, err), "name a readable file")
	}
	if from != "--config" {
		all.Note(fmt.Sprintf("settings are read from %s, named by %s", file.Name, from))
	}
	all.File, all.Registry, all.Tier = file, file.Registry(), cmp.Or(s.Tier, file.Tier)
	return all, nil
}

// remark is a text about settings for users.
type remark struct {
	text  string
	level slog.Level
}

// Note adds a note for --verbose.
func (s *Settings) Note(text string) { s.remark(remark{text, slog.LevelInfo}) }

// Warn adds a warning.
func (s *Settings) Warn(format string, args ...any) {
	s.remark(remark{fmt.Sprintf(format, args...), slog.LevelWarn})
}

func (s *Settings) remark(r remark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.remarks, r) {
		s.remarks = append(s.remarks, r)
	}
}

// Explain logs the remarks so far: warnings, and notes as information.
func (s *Settings) Explain(log *slog.Logger) {
	s.mu.Lock()
	remarks := slices.Clone(s.remarks)
	s.mu.Unlock()
	for _, r := range remarks {
		log.Log(context.Background(), r.level, r.text)
	}
}

// Beside returns a path that a field of the settings names. A relative path starts at the directory of the file with the field; "-" stays.
func (s *Settings) Beside(field, path string) string {
	if path == "-" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(s.File.NameOf(field)), path)
}

// MaxThrottles returns the setting as a sluice.Config takes it: zero is the default, and a negative number is none.
func (s *Settings) MaxThrottles() int {
	switch stated := s.File.MaxThrottles; {
	case stated == nil:
		return 0
	case *stated == 0:
		return -1
	default:
		return *stated
	}
}

// Apply sets the limits of c for an account at p. Flags take precedence over the files, and the files over the tier, for each limit by
// itself. An account of upstreams with its own limits has no others. model is the one of --model; "" if items name theirs.
func (s *Settings) Apply(c *sluice.Config, p provider.Provider, account, model string, flags sluice.Limits) (err error) {
	var tier provider.Tier
	written, own := s.LimitsFor(p, account, model)
	if s.Tier != "" && !own {
		if tier, err = s.published(p, model); err != nil {
			return err
		}
	}
	switch {
	case written == nil:
		written = &config.Limits{}
	case !own:
		s.used.Store(true)
	}
	ceilings, beliefs := written.Split()
	c.Limits = Over(flags, ceilings)
	c.Start = Without(Over(beliefs, tier.Limits), c.Limits)
	if c.Account = c.Limits; written.Model != "" {
		c.Account = flags // limits of one model are not limits of all models together
	}
	return nil
}

// published returns the limits of the tier.
func (s *Settings) published(p provider.Provider, model string) (provider.Tier, error) {
	tier, err := s.Registry.Find(p.Name, s.Tier, model)
	if err != nil {
		return tier, fault.New(fault.Limits, fmt.Errorf("tier: %w", err),
			"use a published tier of the model, or set limits with --rpm and --tpm")
	}
	note := fmt.Sprintf("starts with the limits of tier %s of %s: %s (%s, %s)",
		tier.Tier, p.Name, prose.Limits(tier.Limits), tier.Source, tier.Date)
	if tier.Doubtful {
		s.Warn("%s, which is doubtful: headers and rejections of the provider correct the limit", note)
	} else {
		s.Note(note)
	}
	return tier, nil
}

// LimitsFor returns the limits of the files for a model at p; nil if there are none. If account is the label of an account of upstreams
// that has its own limits, it returns these.
func (s *Settings) LimitsFor(p provider.Provider, account, model string) (l *config.Limits, own bool) {
	for _, up := range s.File.Upstreams {
		if label(up) == account && up.Limits != nil {
			l, own = up.Limits, true
		}
	}
	if own || s.File.Limits == nil {
		return l, own
	}
	l = s.File.Limits
	if name := l.Provider; name != "" {
		if owner, _ := s.Registry.Lookup(name); owner.Name != p.Name {
			s.Warn("the limits are ignored: %s contains limits of %s, but the provider is %s",
				s.File.NameOf("limits.provider"), owner.Name, p.Name)
			return nil, false
		}
	}
	if model != "" && l.Model != "" && ModelKey(l.Model) != ModelKey(model) {
		s.Warn("the limits are ignored: %s contains limits of %s, but --model is %s", s.File.NameOf("limits.model"), l.Model, model)
		return nil, false
	}
	return l, false
}

// Foreign names the model of the limits in the files, and the file, if another model starts with them; "" if not.
func (s *Settings) Foreign(model string) string {
	if l := s.File.Limits; l != nil && s.used.Load() && l.Model != "" && ModelKey(l.Model) != ModelKey(model) {
		return l.Model + " in " + s.File.Name
	}
	return ""
}

// ModelKey returns the same key for all versions of a model: its id without the date of a version.
func ModelKey(model string) string {
	model = strings.ToLower(strings.TrimSuffix(model, "-latest"))
	for _, layout := range []string{"-2006-01-02", "-20060102"} {
		if rest := len(model) - len(layout); rest > 0 {
			if _, err := time.Parse(layout, model[rest:]); err == nil {
				return model[:rest]
			}
		}
	}
	return model
}

// Over returns the limits above, and those below for quantities without a limit above.
func Over(above, below sluice.Limits) sluice.Limits {
	for d, limit := range above.All() {
		if above.In(d).N != 0 {
			continue
		}
		*limit = *below.At(d)
		if w := above.WindowOf(d); w != nil {
			*w = *below.WindowOf(d)
		}
	}
	above.Burst = cmp.Or(above.Burst, below.Burst)
	return above
}

// Without returns the limits of quantities that others do not limit.
func Without(limits, others sluice.Limits) sluice.Limits {
	for d, limit := range limits.All() {
		if others.In(d).N != 0 {
			*limit = 0
		}
	}
	if others.Burst != 0 {
		limits.Burst = 0
	}
	return limits
}
