package cli

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// settingsFlags name the files of settings, and the tier whose published limits a plan starts from.
type settingsFlags struct {
	config []string
	tier   string
}

func (f *settingsFlags) configFlag() flag {
	return flag{name: "config", field: &f.config, metavar: "FILE", help: "Read settings; repeatable (default: $" + configVariable + ")"}
}

const configVariable = "SLUICE_CONFIG"

// settings are what the files of settings say of accounts.
type settings struct {
	registry *provider.Registry
	file     config.File // without a Name there is none
	used     atomic.Bool
	tier     string
	notes    []string      // where settings come from, for --verbose
	doubts   []string      // for everybody
	files    signals.Files // as they were before they were read
}

// names returns the files that hold settings: those of --config, or the one that the environment names.
func (f *settingsFlags) names() (names []string, from string) {
	if name := os.Getenv(configVariable); len(f.config) == 0 && name != "" {
		return []string{name}, "$" + configVariable
	}
	return f.config, "--config"
}

// open reads the files.
func (f *settingsFlags) open() (*settings, error) {
	names, from := f.names()
	s := &settings{files: make(signals.Files)}
	for _, name := range names {
		s.files.Note(name)
	}
	file, err := config.Load(names...)
	if err != nil {
		return nil, unread(err, from)
	}
	if from != "--config" {
		s.note(fmt.Sprintf("settings are read from %s, named by %s", file.Name, from))
	}
	s.file, s.registry, s.tier = file, file.Registry(), cmp.Or(f.tier, file.Tier)
	return s, nil
}

// unread returns the error about a file that a flag or variable names.
func unread(err error, from string) error {
	if fault.Is[*config.Error](err) {
		return err
	}
	return fault.New(fault.File, fmt.Errorf("%s: %w", from, err), "name a readable file")
}

// Apply sets the limits of c, for an account at p. Flags win over the file, and that over the tier, each where it states
// something. The model is that of --model, "" where lines name theirs.
func (s *settings) Apply(c *sluice.Config, p provider.Provider, model string, flags sluice.Limits) error {
	var told, start sluice.Limits
	if s.tier != "" {
		tier, err := s.published(p, model)
		if err != nil {
			return err
		}
		start = tier.Limits
	}
	ofOneModel := false
	written, err := s.limitsFor(p, model)
	if err != nil {
		return err
	}
	if written != nil {
		ceilings, beliefs := written.Split()
		told, start, ofOneModel = ceilings, over(beliefs, start), written.Model != ""
		s.used.Store(true)
	}
	c.Limits, c.Start = begin(flags, told, start)
	c.Account = c.Limits // what is told is a ceiling of all models together,
	if ofOneModel {
		c.Account = flags // unless it is told of one
	}
	return nil
}

// begin returns the ceilings and the beliefs of a client that is told limits by flags, and by files or tiers in one of both
// ways.
func begin(flags, told, start sluice.Limits) (ceilings, beliefs sluice.Limits) {
	ceilings = over(flags, told)
	return ceilings, without(start, ceilings)
}

// limitsFor returns the limits that the files have for that model at p; nil if there are none.
func (s *settings) limitsFor(p provider.Provider, model string) (*config.Limits, error) {
	if s.file.Limits == nil {
		return nil, nil
	}
	why, err := s.mismatch(p, model)
	if err != nil {
		return nil, err
	}
	if why != "" {
		s.doubts = withNote(s.doubts, "the limits are ignored: "+why)
		return nil, nil
	}
	return s.file.Limits, nil
}

// maxThrottles is the setting as a Config takes it, where zero is the default and a negative number is none.
func (s *settings) maxThrottles() int {
	switch stated := s.file.MaxThrottles; {
	case stated == nil:
		return 0
	case *stated == 0:
		return -1
	default:
		return *stated
	}
}

// published returns the limits of the tier.
func (s *settings) published(p provider.Provider, model string) (provider.Tier, error) {
	tier, err := s.registry.Find(p.Name, s.tier, model)
	if err != nil {
		return tier, fault.New(fault.Limits, fmt.Errorf("tier: %w", err),
			"use a published tier of the model, or set limits with --rpm and --tpm")
	}
	note := fmt.Sprintf("starts with the limits of tier %s of %s: %s (%s, %s)", tier.Tier, p.Name, limitWords(tier.Limits), tier.Source, tier.Date)
	if tier.Doubtful {
		note += ", which is doubtful: headers and rejections of the provider correct the limit"
		s.doubts = withNote(s.doubts, note)
		return tier, nil
	}
	s.note(note)
	return tier, nil
}

func (s *settings) note(text string) { s.notes = withNote(s.notes, text) }

func withNote(notes []string, text string) []string {
	if slices.Contains(notes, text) {
		return notes
	}
	return append(notes, text)
}

// mismatch says why the limits are not those of that model at p; "" if they are.
func (s *settings) mismatch(p provider.Provider, model string) (why string, err error) {
	if name := s.file.Limits.Provider; name != "" {
		of, ok := s.registry.Lookup(name)
		if !ok {
			return "", fault.New(fault.Settings, fmt.Errorf("%s: limits.provider: unknown provider %q%s", s.file.NameOf("limits.provider"), name, provider.DidYouMean(s.registry.Suggest(name))),
				"use one of %s", strings.Join(s.registry.Names(), ", "))
		}
		if of.Name != p.Name {
			return fmt.Sprintf("%s contains limits of %s, but the provider is %s", s.file.NameOf("limits.provider"), of.Name, p.Name), nil
		}
	}
	if of := s.file.Limits.Model; of != "" && model != "" && !sameModel(of, model) {
		return fmt.Sprintf("%s contains limits of %s, but --model is %s", s.file.NameOf("limits.model"), of, model), nil
	}
	return "", nil
}

// foreign reports whether a model has the limits of another.
func (s *settings) foreign(model string) bool {
	return s.file.Limits != nil && s.used.Load() && s.file.Limits.Model != "" && !sameModel(s.file.Limits.Model, model)
}

// sameModel reports whether two ids are of one model, or of versions of it.
func sameModel(a, b string) bool { return strings.EqualFold(family(a), family(b)) }

// family returns a model's id without the date that names one version of it.
func family(model string) string {
	model = strings.TrimSuffix(model, "-latest")
	for _, layout := range []string{"-2006-01-02", "-20060102"} {
		if rest := len(model) - len(layout); rest > 0 {
			if _, err := time.Parse(layout, model[rest:]); err == nil {
				return model[:rest]
			}
		}
	}
	return model
}

// over returns the limits above, and those below for quantities that have none above.
func over(above, below sluice.Limits) sluice.Limits {
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

// without returns the limits but those that others state.
func without(limits, others sluice.Limits) sluice.Limits {
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

// explainLimits says where limits come from, to whom asked for more, and to everybody what is doubtful of them.
func (a *accounts) explainLimits(s *term.Streams, verbose bool) {
	for _, doubt := range a.settings.doubts {
		s.Errorf("sluice: warning: %s\n", doubt)
	}
	for _, note := range a.settings.notes {
		if verbose {
			s.Errorf("sluice: %s\n", note)
		}
	}
}
