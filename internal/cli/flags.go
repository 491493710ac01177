package cli

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/provider"
)

// flag is one row of a command's table of flags. Its checks, its help and its completion are made from the row.
type flag struct {
	name    string // with its letter, if it has one: "output,o"
	field   any    // pointer to the option, whose value is the default; an encoding.TextUnmarshaler; or a pflag.Value
	metavar string // the kind of its values, such as FILE; or the values: "plain|json", or of a list "a,b"
	help    string // at most 60 characters
	common  bool   // shown by -h, too
	without string // flags that cannot be given beside it, separated by spaces
	sets    string // fields of a library's Config, separated by spaces, whose errors are about this flag
	fix     string // what to do about such an error, or a text of the wrong form; "": see --help
}

// flagGroup is the flags below one heading of --help.
type flagGroup struct {
	title string
	flags []flag
}

// defined is the value of a flag, with its row and the heading above it.
type defined struct {
	pflag.Value
	flag
	group string
}

// rowOf returns the row of a flag. The row of one of cobra's own flags is empty.
func rowOf(f *pflag.Flag) defined {
	row, _ := f.Value.(defined)
	return row
}

// define gives a command the flags of its table, and has it refuse flags that cannot be combined.
func define(cmd *cobra.Command, groups ...flagGroup) {
	fs := cmd.Flags()
	fs.SortFlags = false
	for _, g := range groups {
		for _, row := range g.flags {
			name, letter, _ := strings.Cut(row.name, ",")
			f := fs.VarPF(defined{row.value(), row, g.title}, name, letter, row.help)
			if _, isSwitch := row.field.(*bool); isSwitch {
				f.NoOptDefVal = "true"
			}
			row.complete(cmd, name)
		}
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkConflicts(cmd.Flags()); err != nil {
			return err
		}
		return run(cmd, args)
	}
}

// checkConflicts refuses two flags that cannot be combined.
func checkConflicts(fs *pflag.FlagSet) (err error) {
	fs.Visit(func(f *pflag.Flag) {
		for _, other := range strings.Fields(rowOf(f).without) {
			if given := fs.Lookup(other); err == nil && given != nil && given.Changed && given.Value.String() != "false" && f.Value.String() != "false" {
				err = fault.New(fault.Conflict, fmt.Errorf("--%s and --%s cannot be combined", f.Name, other), "omit one of the two flags")
			}
		}
	})
	return err
}

// rule is a rule about the values of several flags.
type rule struct {
	broken     bool
	code       fault.Code
	text, hint string
}

// checkRules returns the error of the first broken rule.
func checkRules(rules ...rule) error {
	for _, r := range rules {
		if r.broken {
			return fault.New(r.code, errors.New(r.text), "%s", r.hint)
		}
	}
	return nil
}

// words returns the values that the flag takes; nil if it takes others.
func (f flag) words() []string {
	if words := strings.FieldsFunc(f.metavar, func(r rune) bool { return r == '|' || r == ',' }); len(words) > 1 && f.metavar == strings.ToLower(f.metavar) {
		return words
	}
	return nil
}

// value returns the flag's value, whose Set checks a text.
func (f flag) value() pflag.Value {
	words := f.words()
	switch field := f.field.(type) {
	case pflag.Value:
		return field
	case *bool:
		return optionOf(field, "", func(text string) (bool, error) {
			on, err := strconv.ParseBool(text)
			return on, wrongIf(err != nil, "is not true or false")
		})
	case *string:
		return optionOf(field, f.metavar, func(text string) (string, error) { return text, checkText(text, words) })
	case *[]string:
		return &option{kind: f.metavar, set: func(text string) error { return addTexts(field, text, words) }}
	case *int:
		return countFrom(field, 0)
	case *uint64:
		return optionOf(field, "N", func(text string) (uint64, error) {
			n, err := strconv.ParseUint(text, 0, 64)
			return n, wrongIf(err != nil, "is not a whole number from 0 that fits in 64 bits, such as 7")
		})
	case *float64:
		return numberFlag(field, "N", func(n float64) bool { return n >= 0 && !math.IsInf(n, 0) }, "is not a number from 0, such as 0.5")
	case *time.Duration:
		return durationFrom(field, 0)
	case encoding.TextUnmarshaler:
		o := &option{kind: f.metavar, set: func(text string) error { return cmp.Or(checkText(text, words), field.UnmarshalText([]byte(text))) }}
		if name, ok := field.(fmt.Stringer); ok {
			o.text = name.String()
		}
		return o
	}
	panic(fmt.Sprintf("--%s: %T is not a type of flags", f.name, f.field))
}

// option is the value of a flag.
type option struct {
	kind  string // of the values, as help shows it
	text  string // the last given value, or the default
	set   func(text string) error
	given []string
}

// String returns the last given value, or the default.
func (o *option) String() string { return o.text }

// Type returns the kind.
func (o *option) Type() string { return o.kind }

// Set reads a value.
func (o *option) Set(text string) error {
	o.text = text
	err := cmp.Or(checkText(text, nil), o.set(text))
	o.given = append(o.given, text)
	return err
}

// optionOf is an option of one type. Its default is the present value of the field, unless that is zero.
func optionOf[T comparable](field *T, kind string, parse func(string) (T, error)) *option {
	o := &option{kind: kind, set: func(text string) (err error) {
		*field, err = parse(text)
		return err
	}}
	var zero T
	if *field == zero {
		return o
	}
	o.text = fmt.Sprint(*field)
	if _, ok := any(field).(*time.Duration); ok { // no units of zero
		for _, end := range [...]string{"m0s", "h0m"} {
			if strings.HasSuffix(o.text, end) {
				o.text = o.text[:len(o.text)-2]
			}
		}
	}
	return o
}

// addTexts appends values. If there are words, one text can have several of them, separated by commas.
func addTexts(field *[]string, text string, words []string) error {
	values := []string{text}
	if words != nil {
		values = strings.Split(text, ",")
	}
	for _, v := range values {
		if err := checkText(v, words); err != nil {
			return err
		}
	}
	*field = append(*field, values...)
	return nil
}

// listOf is an option that can be repeated, and appends a value each time.
func listOf[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](field *[]T, kind string) *option {
	return &option{kind: kind, set: func(text string) error {
		var v T
		err := P(&v).UnmarshalText([]byte(text))
		*field = append(*field, v)
		return err
	}}
}

// countFrom is a whole number from minimum. A default below it stands for no value.
func countFrom(field *int, minimum int) *option {
	return optionOf(field, "N", func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if errors.Is(err, strconv.ErrRange) {
			return 0, badValue("is too large")
		}
		return n, wrongIf(err != nil || n < minimum, fmt.Sprintf("is not a whole number from %d", minimum))
	})
}

// durationFrom is a duration from minimum, which is 0 or 1.
func durationFrom(field *time.Duration, minimum time.Duration) *option {
	wrong := "is not a duration with its unit, such as 2s or 1m30s"
	if minimum > 0 {
		wrong = "is not a duration above zero with its unit, such as 2s or 1m30s"
	}
	return optionOf(field, "DURATION", func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		return d, wrongIf(err != nil || d < minimum, wrong)
	})
}

// numberFlag is a number that fits.
func numberFlag(field *float64, kind string, fits func(float64) bool, wrong string) *option {
	return optionOf(field, kind, func(text string) (float64, error) {
		n, err := strconv.ParseFloat(text, 64)
		return n, wrongIf(err != nil || !fits(n), wrong)
	})
}

// maxCost is the largest amount in US dollars, so that sums can be compared.
const maxCost = 1e9

// usd is an amount of money above zero.
func usd(field *float64) *option {
	return numberFlag(field, "USD", func(n float64) bool { return n > 0 && n <= maxCost }, "is not an amount above zero in USD, such as 2.50")
}

// shareOf is a part of all, from 0 to 1.
func shareOf(field *float64) *option {
	return numberFlag(field, "SHARE", func(n float64) bool { return n >= 0 && n <= 1 }, "is not a share from 0 to 1")
}

// namedValues is an option that sets one value of a table each time it is given, as NAME=VALUE. elsewhere are names of flags of their own.
func namedValues(elsewhere []string, rows []flag) *option {
	o := &option{kind: "NAME=N"}
	o.set = func(text string) error {
		name, given, ok := strings.Cut(text, "=")
		if !ok {
			return badValue("is not of the form NAME=VALUE")
		}
		var names []string
		for _, row := range rows {
			if names = append(names, row.name); row.name != name {
				continue
			}
			if slices.ContainsFunc(o.given, func(text string) bool { return strings.HasPrefix(text, name+"=") }) {
				return badValue("sets " + name + " a second time")
			}
			return row.value().Set(given)
		}
		near := provider.Nearest(name, names)
		if slices.Contains(elsewhere, name) {
			near = []string{"--" + name + " " + given}
		}
		return badValue(fmt.Sprintf("names none of %s%s", strings.Join(names, ", "), provider.DidYouMean(near)))
	}
	return o
}

// badValue says what is wrong with a value, as the end of a sentence that begins with the flag and its value.
type badValue string

func (e badValue) Error() string { return string(e) }

func wrongIf(wrong bool, text string) error {
	if wrong {
		return badValue(text)
	}
	return nil
}

// checkText refuses an empty value, which comes from a variable that is not set, and a value that is none of the words, if there are any.
func checkText(text string, words []string) error {
	switch {
	case words != nil && !slices.Contains(words, text):
		return badValue("is not one of " + strings.Join(words, ", "))
	case text == "":
		return badValue("is empty: omit the flag, or check the variable in its value")
	}
	return nil
}

// flagError says which flag is wrong, and why.
func flagError(cmd *cobra.Command, err error) error {
	help := fmt.Sprintf("see %s --help", cmd.CommandPath())
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		return fault.New(fault.Usage, fmt.Errorf("%w%s", err, meantFlag(cmd, unknown.GetSpecifiedName())), "%s", help)
	}
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return fault.New(fault.Usage, err, "%s", help)
	}
	given := strings.TrimRight("--"+wrong.GetFlag().Name+" "+wrong.GetValue(), " ")
	if bad, ok := errors.AsType[badValue](err); ok {
		err = fmt.Errorf("%s %w", given, bad)
	} else {
		err = fmt.Errorf("%s: %w", given, wrong.Unwrap())
	}
	if wrong.GetValue() != "" {
		help = cmp.Or(rowOf(wrong.GetFlag()).fix, help)
	}
	return fault.New(fault.Value, err, "%s", help)
}

// Flags of which each command has one at most.
const (
	parallel = "--concurrency|--jobs|--max-workers|--slots"
	keyFiles = "--env-file|--keys-file"
)

// renamed are flags of other programs, by the flags for their purpose, of which a command has one.
var renamed = map[string]string{
	"quiet": "--progress none", "silent": "--progress none", "no-progress": "--progress none",
	"concurrency": parallel, "max-concurrency": parallel, "max-workers": parallel, "parallel": parallel, "threads": parallel, "workers": parallel,
	"jobs": parallel, "slots": parallel, "max-parallel": parallel, "requests-per-minute": "--rpm", "tokens-per-minute": "--tpm", "port": "--listen", "out": "--output", "output-file": "--output", "ca-file": "$SSL_CERT_FILE",
	"keys-file": keyFiles, "env-file": keyFiles, "dotenv": keyFiles, "limit": "--max-items", "sample": "--max-items", "first": "--max-items",
	"attempts": "--max-attempts", "retries": "--max-attempts", "max-retries": "--max-attempts", "retry": "--max-attempts",
	"api-base": "--base-url", "endpoint": "--base-url", "url": "--base-url", "api-key": "--key-env", "host": "--allow-host",
	"metrics-addr": "--metrics", "budget": "--max-cost", "max-budget": "--max-cost", "batch-api": "--batch", "dedupe": "--cache DIR", "temperature": "--set temperature=N",
	"itpm": "--rate-limit itpm=N", "otpm": "--rate-limit otpm=N", "rpd": "--rate-limit rpd=N", "tpd": "--rate-limit tpd=N",
	"burst-seconds": "--rate-limit burst=2s", "burst": "--rate-limit burst=2s", "retry-failed": "--redo failed",
}

// meantFlag suggests the flags of a command that an unknown name can mean.
func meantFlag(cmd *cobra.Command, name string) string {
	for now := range strings.SplitSeq(renamed[name], "|") {
		if own, _, _ := strings.Cut(strings.TrimPrefix(now, "--"), " "); own != "" && (own == now || cmd.Flags().Lookup(own) != nil) {
			return provider.DidYouMean([]string{now})
		}
	}
	var names, near []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	for _, n := range provider.Nearest(name, names) {
		near = append(near, "--"+n)
	}
	return provider.DidYouMean(near)
}

// complete has shells complete the flag's value: by its words, by providers, tiers or models, by files, or not at all.
func (f flag) complete(cmd *cobra.Command, name string) {
	words := f.words()
	isFile := slices.ContainsFunc([]string{"FILE", "DIR", "COMMAND"}, func(kind string) bool { return strings.Contains(f.metavar, kind) })
	if isFile && words == nil {
		return
	}
	err := cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		values := append(slices.Clone(words), published(cmd, name)...)
		return slices.DeleteFunc(values, func(v string) bool { return !strings.HasPrefix(v, begun) }), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // two flags have one name
	}
}

// published returns the values of the flag provider, tier or model, from the settings of the command line or, if they cannot be read, from
// the built-in ones. For another flag it returns nil.
func published(cmd *cobra.Command, flag string) (names []string) {
	if !slices.Contains([]string{"provider", "tier", "model"}, flag) {
		return nil
	}
	var from account.Sources
	if f := cmd.Flags().Lookup("config"); f != nil {
		from = rowOf(f).Value.(*option).given
	}
	registry, name := provider.Published(), ""
	if s, err := from.Open(slog.New(slog.DiscardHandler)); err == nil {
		registry = s.Registry
	}
	if flag == "provider" {
		return registry.Names()
	}
	if f := cmd.Flags().Lookup("provider"); f != nil {
		p, _ := registry.Lookup(f.Value.String())
		name = p.Name
	}
	for _, t := range registry.Tiers(name) {
		if flag == "tier" {
			names = append(names, t.Tier)
			continue
		}
		for _, m := range t.Families() {
			names = append(names, strings.TrimSuffix(m, "*"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
