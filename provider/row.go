package provider

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/errtext"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/limits"
)

// Row is the YAML form of a [Provider], with the same fields. For a known provider, a missing field keeps the current value. For a new
// provider, a missing field has its default.
type Row struct {
	Name           string             `yaml:"name"`
	Aliases        []string           `yaml:"aliases"`
	BaseURL        *string            `yaml:"base_url"`
	BaseForm       *string            `yaml:"base_form"`
	KeyEnv         []string           `yaml:"key_env"`
	KeyOptional    *bool              `yaml:"key_optional"`
	Auth           *Auth              `yaml:"auth"`
	Dialect        string             `yaml:"dialect"`
	OneDialect     *bool              `yaml:"one_dialect"`
	UsageUnasked   *bool              `yaml:"usage_unasked"`
	ChatBound      string             `yaml:"chat_bound"`
	Charge         string             `yaml:"charge"`
	CountsCached   *bool              `yaml:"counts_cached"`
	Query          *string            `yaml:"query"`
	Headers        []HeaderRow        `yaml:"headers"`
	Codes          map[string]string  `yaml:"codes"`
	UntrustedWaits []UntrustedWaitRow `yaml:"untrusted_waits"`
	Batches        *BatchesRow        `yaml:"batches"`
	Models         []string           `yaml:"models"`
	Tiers          []TierRow          `yaml:"tiers"`
	Source         string             `yaml:"source"`
	Date           string             `yaml:"date"`
	Note           string             `yaml:"note"`
	Doubtful       *bool              `yaml:"doubtful"`
}

// HeaderRow is the YAML form of a [HeaderForm]. The fields of a HeaderRow are strings, so that an error can name the invalid field.
type HeaderRow struct {
	Dimension string `yaml:"dimension"`
	Limit     string `yaml:"limit"`
	Remaining string `yaml:"remaining"`
	Reset     string `yaml:"reset"`
}

// UntrustedWaitRow is the YAML form of an [UntrustedWait]. Wait and Probe are durations with a unit, such as 24h.
type UntrustedWaitRow struct {
	Wait  string `yaml:"wait"`
	Probe string `yaml:"probe"`
}

// Count is an integer in a YAML file.
type Count int

// UnmarshalYAML reads an integer. UnmarshalYAML rejects a number such as 1.5, which the YAML parser would truncate.
func (c *Count) UnmarshalYAML(n ast.Node) error {
	if _, ok := n.(*ast.IntegerNode); !ok {
		return &yaml.TypeError{DstType: reflect.TypeFor[int](), SrcType: reflect.TypeFor[string](), Token: n.GetToken()}
	}
	return yaml.NodeToValue(n, (*int)(c))
}

// TierRow is the YAML form of a [Tier]. Limits have the same names as in sluice.Limits. Latency is a duration with a unit, such as 2s. A
// TierRow changes the tier with the same name and models, or adds a new tier.
type TierRow struct {
	Tier   string   `yaml:"tier"`
	Models []string `yaml:"models"`

	limits.Each[*Count] `yaml:",inline"`

	Price            string `yaml:"price"` // input and output price, written as IN/OUT, in US dollars per million tokens
	Latency          string `yaml:"latency"`
	TokensPerRequest *Count `yaml:"tokens_per_request"`
	Source           string `yaml:"source"`
	Date             string `yaml:"date"`
	Note             string `yaml:"note"`
	Doubtful         *bool  `yaml:"doubtful"`
}

// RowError reports an invalid field of a [Row].
type RowError struct {
	Row   int    // zero-based index of the row
	Field string // path of the field in the row, such as "tiers[1].rpm"
	Err   error  // reason
}

// Error returns the path of the invalid field and the reason.
func (e *RowError) Error() string { return fmt.Sprintf("providers[%d].%s: %v", e.Row, e.Field, e.Err) }

// Unwrap returns the underlying error.
func (e *RowError) Unwrap() error { return e.Err }

// With returns a copy of the registry with rows applied. Each row changes the provider with the same name, or adds a provider. In the copy,
// Recognise tries the models of rows first. If a row is invalid, the error is a *[RowError].
func (r *Registry) With(rows ...Row) (*Registry, error) {
	next := &Registry{names: make(map[string]int)}
	next.providers, next.tiers = r.All(), r.Tiers("")
	for name, i := range r.names {
		next.names[name] = i
	}
	for i := range rows {
		row := &rows[i]
		if field, err := next.apply(row); err != nil {
			return nil, &RowError{i, field, err}
		}
	}
	// What is new is found first.
	old := len(r.tiers)
	next.tiers = append(slices.Clone(next.tiers[old:]), next.tiers[:old]...)
	slices.SortStableFunc(next.tiers, func(a, b Tier) int {
		return next.names[bare(a.Provider)] - next.names[bare(b.Provider)]
	})
	for _, row := range rows {
		i := next.names[bare(row.Name)]
		for _, m := range row.Models {
			next.prefixes = append(next.prefixes, prefix{strings.ToLower(m), i})
		}
	}
	for _, p := range r.prefixes {
		changed := func(row Row) bool { return row.Models != nil && next.names[bare(row.Name)] == p.provider }
		if !slices.ContainsFunc(rows, changed) {
			next.prefixes = append(next.prefixes, p)
		}
	}
	return next, nil
}

// apply changes what the row names. The error is about the returned field.
func (r *Registry) apply(row *Row) (field string, err error) {
	if bare(row.Name) == "" {
		return "name", errors.New("a provider needs a name")
	}
	i, known := r.names[bare(row.Name)]
	if !known {
		i = len(r.providers)
		r.names[bare(row.Name)] = i
		r.providers = append(r.providers, Provider{Name: row.Name, CountsCached: true})
	}
	p := &r.providers[i]
	for k, alias := range row.Aliases {
		if of, taken := r.names[bare(alias)]; bare(alias) == "" || taken && of != i {
			return fmt.Sprintf("aliases[%d]", k), fmt.Errorf("%q is already the name of another provider", alias)
		}
		r.names[bare(alias)] = i
	}
	if field, err := p.change(row); err != nil {
		return field, err
	}
	if !known && row.Auth == nil {
		p.Auth = dialectFacts[p.Dialect].auth
	}
	for k := range row.Tiers {
		if field, err := r.applyTier(p.Name, &row.Tiers[k]); err != nil {
			return fmt.Sprintf("tiers[%d].%s", k, field), err
		}
	}
	return "", nil
}

// change changes what the row says of how the provider is spoken to.
func (p *Provider) change(row *Row) (field string, err error) {
	if row.Aliases != nil {
		p.Aliases = slices.Clone(row.Aliases)
	}
	if field, err := checkModels(row.Models); err != nil {
		return field, err
	}
	if row.Models != nil {
		p.Models = slices.Clone(row.Models)
	}
	if field, err := p.Batches.change(row.Batches); err != nil {
		return "batches" + field, err
	}
	if row.Query != nil && strings.ContainsFunc(*row.Query, func(r rune) bool { return r <= ' ' || r > '~' || r == '#' }) {
		return "query", errors.New("a query must not contain # or spaces: use %23 and %20")
	}
	if field, err := row.Auth.check(); err != nil {
		return field, err
	}
	set(&p.BaseForm, row.BaseForm)
	set(&p.Query, row.Query)
	set(&p.KeyOptional, row.KeyOptional)
	set(&p.OneDialect, row.OneDialect)
	set(&p.UsageUnasked, row.UsageUnasked)
	set(&p.CountsCached, row.CountsCached)
	set(&p.Doubtful, row.Doubtful)
	said(&p.Source, row.Source)
	said(&p.Date, row.Date)
	said(&p.Note, row.Note)
	if row.BaseURL != nil {
		if err := CheckBase(*row.BaseURL); err != nil {
			return "base_url", err
		}
		p.BaseURL = *row.BaseURL
	}
	if row.Auth != nil {
		p.Auth = Auth{Header: http.CanonicalHeaderKey(row.Auth.Header), Prefix: row.Auth.Prefix}
	}
	if row.KeyEnv != nil {
		for k, name := range row.KeyEnv {
			if !IsVariable(name) { // it may be a key: it is not quoted
				return fmt.Sprintf("key_env[%d]", k), errors.New("this is not the name of a variable, such as MY_API_KEY")
			}
		}
		p.KeyEnv = slices.Clone(row.KeyEnv)
	}
	if field, err := p.changeWords(row); err != nil {
		return field, err
	}
	return p.changeLists(row)
}

// check refuses what no request can be sent with.
func (a *Auth) check() (field string, err error) {
	if a == nil || *a == (Auth{}) { // no key is sent
		return "", nil
	}
	other := func(r rune) bool {
		return r >= utf8.RuneSelf || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_!#$%&'*+-.^`|~", r)
	}
	if a.Header == "" || strings.ContainsFunc(a.Header, other) {
		return "auth.header", errors.New("this is not the name of a header, such as X-Api-Key")
	}
	switch name := http.CanonicalHeaderKey(a.Header); name {
	case "Host", "Content-Length", "Content-Type", "Transfer-Encoding", "Trailer", "Connection", "User-Agent", "Accept-Encoding":
		return "auth.header", fmt.Errorf("header %s cannot contain a key: use another header, such as X-Api-Key", name)
	}
	if strings.ContainsFunc(a.Prefix, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "auth.prefix", errors.New("the prefix must consist of printable ASCII characters")
	}
	return "", nil
}

// checkModels refuses prefixes of nothing.
func checkModels(prefixes []string) (field string, err error) {
	for k, p := range prefixes {
		if strings.TrimPrefix(p, "!") == "" {
			return fmt.Sprintf("models[%d]", k), errors.New("a prefix of model names must not be empty")
		}
	}
	return "", nil
}

// IsVariable reports whether name is valid for an environment variable with an API key: capital letters, digits and underscores. An invalid
// name may itself be a key, so messages must not quote an invalid name.
func IsVariable(name string) bool {
	other := func(r rune) bool { return (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' }
	return name != "" && len(name) <= 64 && (name[0] < '0' || name[0] > '9') && !strings.ContainsFunc(name, other)
}

// changeWords changes what is one of several words.
func (p *Provider) changeWords(row *Row) (field string, err error) {
	if row.Dialect != "" {
		d := slices.IndexFunc(dialectFacts[:], func(f facts) bool { return f.name == row.Dialect })
		if d < 0 {
			return "dialect", fmt.Errorf("unknown dialect %q: use openai, anthropic, gemini or cohere", row.Dialect)
		}
		p.Dialect = Dialect(d)
	}
	if b := row.ChatBound; b != "" && b != "max_tokens" && b != "max_completion_tokens" {
		return "chat_bound", fmt.Errorf("unknown bound %q: use max_tokens or max_completion_tokens", b)
	}
	said(&p.ChatBound, row.ChatBound)
	if row.Charge != "" {
		if err := p.Charge.UnmarshalText([]byte(row.Charge)); err != nil {
			return "charge", err
		}
	}
	return "", nil
}

// changeLists changes headers, codes and untrusted waits, each as a whole.
func (p *Provider) changeLists(row *Row) (field string, err error) {
	if row.Headers != nil {
		p.Headers = nil
	}
	for k, h := range row.Headers {
		form := HeaderForm{Limit: http.CanonicalHeaderKey(h.Limit), Remaining: http.CanonicalHeaderKey(h.Remaining),
			Reset: http.CanonicalHeaderKey(h.Reset)}
		if err := form.Dimension.UnmarshalText([]byte(h.Dimension)); err != nil || form.Dimension == limits.AnyDimension {
			return fmt.Sprintf("headers[%d].dimension", k), fmt.Errorf("unknown dimension %q: use rpm, tpm, itpm, otpm, rpd, tpd or concurrency", h.Dimension)
		}
		if h.Limit == "" || h.Remaining == "" {
			return fmt.Sprintf("headers[%d]", k), errors.New("limit and remaining must both be names of headers")
		}
		p.Headers = append(p.Headers, form)
	}
	if row.Codes != nil {
		p.Codes = make(map[string]sluice.Kind, len(row.Codes))
	}
	for _, code := range slices.Sorted(maps.Keys(row.Codes)) { // of several that are wrong the same is named each time
		name := row.Codes[code]
		var kind sluice.Kind
		if err := kind.UnmarshalText([]byte(name)); err != nil || kind == sluice.OK {
			return "codes", fmt.Errorf("%s: unknown kind %q: use a kind of failure, such as rate_limit or overloaded", code, name)
		}
		if errtext.PlainName(code) == "" {
			return "codes", fmt.Errorf("code %q contains neither letters nor digits", code)
		}
		p.Codes[errtext.PlainName(code)] = kind
	}
	if row.UntrustedWaits != nil {
		p.UntrustedWaits = nil
	}
	for k, u := range row.UntrustedWaits {
		wait, err := duration(u.Wait)
		if err != nil {
			return fmt.Sprintf("untrusted_waits[%d].wait", k), err
		}
		probe, err := duration(u.Probe)
		if err == nil && probe > wait {
			err = errors.New("the field probe must not be longer than the field wait")
		}
		if err != nil {
			return fmt.Sprintf("untrusted_waits[%d].probe", k), err
		}
		p.UntrustedWaits = append(p.UntrustedWaits, UntrustedWait{wait, probe})
	}
	return "", nil
}

// duration reads a time above zero.
func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a duration above zero, such as 2s or 24h", text)
	}
	return d, nil
}

// CheckBase returns an error if base is not an http or https URL, or has a user, a query or a fragment. An empty base is valid.
func CheckBase(base string) error {
	u, err := url.Parse(base)
	switch {
	case base == "":
		return nil
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("this is not an http or https URL, such as http://127.0.0.1:8000/v1")
	case u.User != nil:
		return errors.New("a base URL must not contain a user or a password")
	case strings.ContainsAny(base, "?#"):
		return errors.New("a base URL must not contain ? or #: write the query in the field query")
	}
	return nil
}

// applyTier changes the tier of that name for the same models, or adds one.
func (r *Registry) applyTier(provider string, row *TierRow) (field string, err error) {
	if bare(row.Tier) == "" {
		return "tier", errors.New("a tier needs a name")
	}
	if field, err := checkModels(row.Models); err != nil {
		return field, err
	}
	i := slices.IndexFunc(r.tiers, func(t Tier) bool {
		return t.Provider == provider && bare(t.Tier) == bare(row.Tier) && slices.Equal(t.Models, row.Models)
	})
	if i < 0 {
		i = len(r.tiers)
		r.tiers = append(r.tiers, Tier{Provider: provider, Tier: row.Tier, Models: slices.Clone(row.Models)})
	}
	return r.tiers[i].change(row)
}

// change changes what the row says of a tier.
func (t *Tier) change(row *TierRow) (field string, err error) {
	for d, limit := range t.Limits.All() {
		if err := setCount(limit, *row.At(d)); err != nil {
			return d.String(), err
		}
	}
	if err := setCount(&t.TokensPerRequest, row.TokensPerRequest); err != nil {
		return "tokens_per_request", err
	}
	if row.Price != "" {
		rate, err := pricing.ParseRate(row.Price)
		if err != nil {
			return "price", err
		}
		t.PriceIn, t.PriceOut = &rate.Input, &rate.Output
	}
	if row.Latency != "" {
		if t.Latency.Duration, err = duration(row.Latency); err != nil {
			return "latency", err
		}
	}
	set(&t.Doubtful, row.Doubtful)
	said(&t.Source, row.Source)
	said(&t.Date, row.Date)
	said(&t.Note, row.Note)
	return "", nil
}

// setCount is set for a number above zero.
func setCount(field *int, to *Count) error {
	if to != nil && *to <= 0 {
		return fmt.Errorf("%d is not above zero: omit the field if the number is unknown", *to)
	}
	set(field, (*int)(to))
	return nil
}

// set changes a field to what a row says of it, if it does.
func set[T any](field, to *T) {
	if to != nil {
		*field = *to
	}
}

// said changes a text that a row does not leave out.
func said(field *string, to string) {
	if to != "" {
		*field = to
	}
}
