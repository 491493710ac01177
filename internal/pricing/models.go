package pricing

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/sluice-llm/sluice/limits"
)

// Date is when the table of models was read from the pages that it names.
const Date = "2026-11-23"

//go:embed models.csv.gz
var packed []byte

// Model is a row of the table of models. Prices are US dollars per million tokens; an unknown one is left out of JSON.
type Model struct {
	Provider string `json:"provider"` // Provider.
	Name     string `json:"model"`    // Model.
	Mode     string `json:"mode"`     // `chat`, `responses`, `completion` or `embedding`.
	Rate
	CachedInput    float64 `json:"cached_input"`                // US dollars per million cached tokens.
	CacheWrite     float64 `json:"cache_write"`                 // US dollars per million cache-write tokens.
	CacheWriteHour float64 `json:"cache_write_1h"`              // US dollars per million one-hour cache-write tokens.
	Batch          *Rate   `json:"batch,omitempty"`             // Prices of the Batch API.
	Flex           *Rate   `json:"flex,omitempty"`              // Prices of the flex tier.
	Priority       *Rate   `json:"priority,omitempty"`          // Prices of the priority tier.
	MaxInput       int     `json:"max_input_tokens,omitempty"`  // Maximum input tokens. 0 is unknown.
	MaxOutput      int     `json:"max_output_tokens,omitempty"` // Maximum output tokens. 0 is unknown.
	Deprecated     string  `json:"deprecated,omitempty"`        // Shutdown date. "" is unknown.
	Provenance
}

// Provenance says where a price is from.
type Provenance struct {
	Source   string `json:"source,omitempty"` // Address of the source.
	Date     string `json:"date"`             // Date of the source.
	Doubtful bool   `json:"doubtful"`         // The source is doubtful or missing.
}

// toolPrices are the US dollars per web search that a provider runs itself, with the page that says so.
var toolPrices = map[string]struct {
	search float64
	source string
}{
	"anthropic": {10.0 / 1000, "https://platform.claude.com/docs/en/about-claude/pricing"},
	"openai":    {10.0 / 1000, "https://developers.openai.com/api/docs/pricing"},
}

// Models returns the table, ordered by provider and name. It must not be changed.
func Models() []Model { return readModels().rows }

// table is the table of models, with the places of the rows by provider and name.
type table struct {
	rows []Model
	at   map[[2]string]int
}

var readModels = sync.OnceValue(readTable)

func readTable() (t table) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		panic("pricing: models.csv.gz: " + err.Error()) // a test reads it
	}
	lines, err := csv.NewReader(r).ReadAll()
	if err != nil {
		panic("pricing: models.csv.gz: " + err.Error())
	}
	t = table{make([]Model, 0, len(lines)), make(map[[2]string]int, len(lines))}
	column := make(map[string]int)
	for i, name := range lines[0] {
		column[name] = i
	}
	for _, line := range lines[1:] {
		m := modelOf(func(name string) string { return line[column[name]] })
		t.at[[2]string{m.Provider, strings.ToLower(m.Name)}] = len(t.rows)
		t.rows = append(t.rows, m)
	}
	return t
}

// modelOf reads a row. Without a price of its own, input from a cache, or to one, costs as much as other input.
func modelOf(field func(name string) string) Model {
	number := func(name string) float64 {
		n, _ := strconv.ParseFloat(field(name), 64) // of nothing it is 0; a test reads all
		return n
	}
	m := Model{
		Provider: field("provider"), Name: field("model"), Mode: field("mode"), Rate: Rate{number("input"), number("output")},
		MaxInput: int(number("max_input_tokens")), MaxOutput: int(number("max_output_tokens")), Deprecated: field("deprecated"),
		Provenance: Provenance{field("source"), Date, !strings.HasPrefix(field("source"), "https://")},
	}
	price := func(name string, other float64) float64 {
		if field(name) == "" || m.Input == 0 {
			return other
		}
		return number(name)
	}
	m.CachedInput, m.CacheWrite = price("cached_input", m.Input), price("cache_write", m.Input)
	m.CacheWriteHour = price("cache_write_1h", m.CacheWrite)
	rate := func(service limits.Service) *Rate {
		r := Rate{number(service.String() + "_input"), number(service.String() + "_output")}
		if r.Input > 0 && (r.Output > 0 || m.Output == 0) { // half a rate is none
			return &r
		}
		return nil
	}
	m.Batch, m.Flex, m.Priority = rate(limits.ServiceBatch), rate(limits.ServiceFlex), rate(limits.ServicePriority)
	return m
}

// Price returns what the model costs.
func (m *Model) Price() *Price {
	part := func(usd float64) float64 {
		if m.Input == 0 {
			return 1
		}
		return usd / m.Input
	}
	p := Price{
		Cached: part(m.CachedInput), CacheWrite: part(m.CacheWrite), CacheWriteHour: part(m.CacheWriteHour),
		Search: toolPrices[m.Provider].search, MaxOutput: m.MaxOutput, Doubtful: m.Doubtful,
	}
	for s, r := range [limits.NumServices]*Rate{limits.ServiceStandard: &m.Rate, limits.ServiceBatch: m.Batch, limits.ServiceFlex: m.Flex, limits.ServicePriority: m.Priority} {
		if r != nil {
			p.Rates[s] = *r
		}
	}
	return &p
}

// Listed reports whether the table has a row of exactly that name for a provider.
func Listed(provider, model string) bool {
	t := readModels()
	i, ok := t.at[[2]string{provider, strings.ToLower(model)}]
	return ok && t.rows[i].Name == model
}

// dated is the end of the name of a model's version, such as -2024-08-06, @20250929, -0613, -001 or -latest.
var dated = regexp.MustCompile(`(-latest|-\d{4}-\d{2}-\d{2}|[-@]\d{8}|-\d{3,4})$`)

// Find returns the row of a model at a provider. A version without a row has the row of its model, an alias that names no version has the row
// of the newest one, and a fine-tuned model has the row of its base.
func Find(provider, model string) (Model, bool) {
	t := readModels()
	find := func(name string) (Model, bool) {
		i, ok := t.at[[2]string{provider, name}]
		if !ok {
			return Model{}, false
		}
		return t.rows[i], true
	}
	name := strings.ToLower(strings.TrimPrefix(model, "models/"))
	if base, ok := strings.CutPrefix(name, "ft:"); ok {
		base, _, _ = strings.Cut(base, ":")
		name = "ft:" + base
	}
	if m, ok := find(name); ok {
		return m, true
	}
	base := dated.ReplaceAllString(name, "")
	if m, ok := find(base); ok && base != name {
		return m, true
	}
	if base != name && !strings.HasSuffix(name, "-latest") {
		return Model{}, false // another version
	}
	var newest Model
	for i := range t.rows {
		m := &t.rows[i]
		if m.Provider != provider {
			continue
		}
		version, ok := strings.CutPrefix(strings.ToLower(m.Name), base)
		if ok && dated.FindString(version) == version && version > strings.ToLower(strings.TrimPrefix(newest.Name, base)) {
			newest = *m
		}
	}
	return newest, newest.Name != ""
}

// Matching returns the models whose provider/name contains a pattern, in which * stands for any text. Case does not matter.
func Matching(pattern string) (found []Model) {
	contains := regexp.MustCompile(`(?i)` + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`))
	for _, m := range Models() {
		if contains.MatchString(m.Provider + "/" + m.Name) {
			found = append(found, m)
		}
	}
	return found
}
