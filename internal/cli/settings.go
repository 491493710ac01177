package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/provider"
)

// settingsFlags name what is written down of accounts: files, and the tier whose limits are published.
type settingsFlags struct {
	config string
	limits string
	tier   string
}

func (f *settingsFlags) registerConfig(fs *pflag.FlagSet) {
	fs.StringVar(&f.config, "config", "", "file of providers, limits and upstreams (absent: $"+configVariable+", or sluice.yaml where one is)")
}

func (f *settingsFlags) register(fs *pflag.FlagSet) {
	f.registerConfig(fs)
	fs.StringVar(&f.limits, "limits", "", "file of limits to begin with; those that it calls told are ceilings")
	fs.StringVar(&f.tier, "tier", "", "begin with the limits that are published for this tier of the provider")
}

const (
	configVariable = "SLUICE_CONFIG"
	usualConfig    = "sluice.yaml"
)

// settings are what is written down of accounts.
type settings struct {
	registry *provider.Registry
	file     config.File    // the settings as they were read; without a Name there are none
	found    bool           // nobody named that file
	limits   *config.Limits // nil: none
	from     string         // the file that they are of
	asked    bool           // they were asked for by themselves, not with all settings
	used     atomic.Bool
	unasked  []foreignRow // rows of a file that nobody named which say where keys go; the registry has them
	rows     []provider.Row
	tier     string
	notes    []string   // for those who want to know where things come from
	doubts   []string   // for everybody
	files    fileStates // as they were before they were read
}

// open reads the files.
func (f *settingsFlags) open() (*settings, error) {
	s := &settings{tier: f.tier, files: make(fileStates)}
	file, err := f.openConfig(s)
	if err != nil {
		return nil, err
	}
	s.file, s.registry, s.limits, s.from = file, file.Registry(), file.Limits, file.Name
	if f.limits == "" {
		return s, nil
	}
	s.files.note(f.limits)
	own, err := config.LoadLimits(f.limits)
	if err != nil {
		return nil, unread(err, "--limits")
	}
	if own == nil {
		return nil, usageError(fmt.Errorf("%s has no limits", f.limits), "write them below limits:, such as limits: {rpm: 500}")
	}
	s.limits, s.from, s.asked = own, f.limits, true
	return s, nil
}

// openConfig reads the file of settings that is named, or the usual one.
func (f *settingsFlags) openConfig(s *settings) (config.File, error) {
	if f.config != "" {
		s.files.note(f.config)
		return load(f.config, "--config")
	}
	if name := os.Getenv(configVariable); name != "" {
		s.notes = append(s.notes, fmt.Sprintf("settings are those of %s, which $%s names", name, configVariable))
		s.files.note(name)
		return load(name, "$"+configVariable)
	}
	if _, err := os.Stat(usualConfig); errors.Is(err, fs.ErrNotExist) {
		return config.File{}, nil
	}
	s.files.note(usualConfig)
	file, err := load(usualConfig, "--config")
	if err != nil {
		return file, err
	}
	s.notes, s.found = append(s.notes, "settings are those of "+usualConfig), true
	s.unasked, s.rows = unasked(file)
	return file, nil
}

// foreignRow is a row of a file that nobody named.
type foreignRow struct {
	name  string // of the provider
	field string // that says more than tiers, with its path
	file  string
}

// send prepares for calls to be sent to the provider of that name, "" where each line's model decides. Rows that nobody
// asked for and that say where keys go are left out, with a warning. The run is refused if it would use one.
func (s *settings) send(name string) error {
	if len(s.unasked) == 0 {
		return nil
	}
	p, _ := s.registry.Lookup(name)
	for _, row := range s.unasked {
		if meant, _ := s.registry.Lookup(row.name); name == "" || meant.Name == p.Name && p.Name != "" {
			return usageError(fmt.Errorf("%s says more of %s than its tiers (%s), and was not asked for", row.file, row.name, row.field),
				"it may decide where keys are sent: look at it, and then name it: --config %s; or name another --provider", row.file)
		}
	}
	row := s.unasked[0]
	s.doubts = append(s.doubts, fmt.Sprintf("%s: %s says where keys are sent and was not asked for: left out, as is all else there of such providers (name it by --config to use it)",
		row.file, row.field))
	var err error
	s.registry, err = provider.Published().With(s.rows...)
	return err
}

// unasked parts the rows of a file that nobody named: those that hold more than the tiers of known providers, and the others.
// All but tiers has a say in where keys go, and the file may have come with somebody's project.
func unasked(file config.File) (foreign []foreignRow, own []provider.Row) {
	for i, row := range file.Providers {
		said := row
		if _, known := provider.Published().Lookup(row.Name); known {
			said.Name = ""
		}
		said.Tiers, said.Source, said.Date, said.Note, said.Doubtful = nil, "", "", "", nil
		field := ""
		for f, v := range reflect.ValueOf(said).Fields() {
			if field = f.Tag.Get("yaml"); field != "name" && !v.IsZero() {
				break
			}
			field = ""
		}
		switch {
		case reflect.ValueOf(said).IsZero():
			own = append(own, row)
		default:
			foreign = append(foreign, foreignRow{row.Name, fmt.Sprintf("providers[%d].%s", i, cmp.Or(field, "name")), file.Name})
		}
	}
	return foreign, own
}

// load reads a file that a flag or variable names.
func load(name, from string) (config.File, error) {
	file, err := config.Load(name)
	if err != nil {
		return file, unread(err, from)
	}
	return file, nil
}

// unread is the error about a file that a flag or variable names.
func unread(err error, from string) error {
	wrong, ok := errors.AsType[*config.Error](err)
	if !ok {
		return usageError(fmt.Errorf("%s: %w", from, err), "name a file that can be read")
	}
	return usageError(wrong, "%s", cmp.Or(wrong.Hint(), "mend the line; docs/providers.md and docs/serve.md show how such a file looks"))
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

// limitsFor returns the limits that are written down of that model at p; nil if there are none.
func (s *settings) limitsFor(p provider.Provider, model string) (*config.Limits, error) {
	if s.limits == nil {
		return nil, nil
	}
	why, err := s.mismatch(p, model)
	switch {
	case err != nil:
		return nil, err
	case why != "" && s.asked: // too high, they would be found out by refusals; too low, by nobody
		return nil, usageError(errors.New(why), "give a file of this one's limits, or leave --limits out")
	case why != "":
		s.note("the limits are left out: " + why)
		return nil, nil
	}
	return s.limits, nil
}

// published returns the limits of the tier.
func (s *settings) published(p provider.Provider, model string) (provider.Tier, error) {
	tier, err := s.registry.Find(p.Name, s.tier, model)
	if err != nil {
		return tier, usageError(fmt.Errorf("--tier: %w", err),
			"name a tier and, with --model, a model that it is published for, or tell limits by --rpm and --tpm")
	}
	note := fmt.Sprintf("begins with tier %s of %s: %s (%s, %s)", tier.Tier, p.Name, limitWords(tier.Limits), tier.Source, tier.Date)
	if tier.Doubtful {
		note += ", which is doubtful: headers and refusals will tell"
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
	if name := s.limits.Provider; name != "" {
		of, ok := s.registry.Lookup(name)
		if !ok {
			return "", usageError(fmt.Errorf("%s: limits.provider: unknown provider %q%s", s.from, name, provider.DidYouMean(s.registry.Suggest(name))),
				"it is one of %s", strings.Join(s.registry.Names(), ", "))
		}
		if of.Name != p.Name {
			return fmt.Sprintf("%s has the limits of %s, and this is %s", s.from, of.Name, p.Name), nil
		}
	}
	if of := s.limits.Model; of != "" && model != "" && !sameModel(of, model) {
		return fmt.Sprintf("%s has the limits of %s, and --model is %s", s.from, of, model), nil
	}
	return "", nil
}

// foreign reports whether a model has the limits of another.
func (s *settings) foreign(model string) bool {
	return s.limits != nil && s.used.Load() && s.limits.Model != "" && !sameModel(s.limits.Model, model)
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
func (a *accounts) explainLimits(s *streams, verbose bool) {
	for _, doubt := range a.settings.doubts {
		s.errorf("sluice: warning: %s\n", doubt)
	}
	for _, note := range a.settings.notes {
		if verbose {
			s.errorf("sluice: %s\n", note)
		}
	}
}
