package config_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/limits"
)

func TestLimitsAreReadFromYAMLAndJSON(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	want := &config.Limits{
		Provider: "openai", Model: "gpt-4o",
		Each: limits.Each[*config.Limit]{
			RPM:         &config.Limit{Value: 500, Source: limits.SourceConfigured},
			TPM:         &config.Limit{Value: 30000, Source: limits.SourceHeader, Confidence: 0.9, At: at},
			Concurrency: &config.Limit{Value: 12, Source: limits.SourceMeasured},
		},
		Burst: config.Duration(1500 * time.Millisecond),
	}
	for name, text := range map[string]string{
		"block": `
limits:
  provider: openai
  model: gpt-4o
  rpm: 500
  tpm: {value: 30000, source: header, confidence: 0.9, at: 2026-11-21T10:00:00Z}
  concurrency:
    value: 12
    source: measured
  burst: 1.5s
`,
		"json": `{"limits":{"provider":"openai","model":"gpt-4o","rpm":500,"tpm":{"value":30000,"source":"header","confidence":0.9,
"at":"2026-11-21T10:00:00Z"},"concurrency":{"value":12,"source":"measured"},"burst":"1.5s"}}`,
	} {
		for _, form := range []string{text, "\xef\xbb\xbf" + text, strings.ReplaceAll(text, "\n", "\r\n"), "# by hand\n---\n" + text} {
			f, err := config.Parse(name, []byte(form))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := cmp.Diff(want, f.Limits); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
	told, start := want.Split()
	if told != (sluice.Limits{RPM: 500, Burst: 1500 * time.Millisecond}) || start != (sluice.Limits{TPM: 30000, Concurrency: 12}) {
		t.Errorf("told %+v, start %+v", told, start)
	}
}

func TestLimitsHavePeriods(t *testing.T) {
	f, err := config.Parse("x", []byte("limits: {requests: 100/10s, tokens: 50000/1m30s, rpm: {value: 9, source: header}}"))
	if err != nil {
		t.Fatal(err)
	}
	want := sluice.Limits{Requests: limits.Window{N: 100, Period: 10 * time.Second}, Tokens: limits.Window{N: 50000, Period: 90 * time.Second}}
	if told, start := f.Limits.Split(); told != want || start != (sluice.Limits{RPM: 9}) {
		t.Errorf("%+v %+v", told, start)
	}
}

func TestWhatWasUsedWithoutARefusalIsNoLimitToKeepTo(t *testing.T) {
	atLeast := func(v float64) *config.Limit { return &config.Limit{Value: v, Source: limits.SourceAtLeast} }
	var l config.Limits
	for d := range new(sluice.Limits).All() {
		*l.At(d) = atLeast(600)
	}
	if told, start := l.Split(); told != (sluice.Limits{}) || start != (sluice.Limits{}) {
		t.Errorf("told %+v, start %+v", told, start)
	}
}

func TestNothingIsNothing(t *testing.T) {
	for _, text := range []string{"", "\n\n", "# a comment\n", "---\n", "\xef\xbb\xbf", "null\n", "{}", "providers: []\n"} {
		f, err := config.Parse("x", []byte(text))
		if err != nil || f.Limits != nil || len(f.Providers) > 0 {
			t.Errorf("%q: %+v, %v", text, f, err)
			continue
		}
		if _, ok := f.Registry().Lookup("openai"); !ok {
			t.Errorf("%q: no registry", text)
		}
	}
}

func TestProvidersAreLaidOverThePublishedOnes(t *testing.T) {
	f, err := config.Parse("sluice.yaml", []byte(`
providers:
  - name: house
    base_url: http://10.0.0.1:8000/v1
    key_env: [HOUSE_KEY]
    key_optional: true
    models: [house-]
    headers:
      - {dimension: rpm, limit: x-house-limit, remaining: x-house-left}
    codes: {too_fast: rate_limit}
    untrusted_waits: [{wait: 1h, probe: 10s}]
    tiers:
      - {tier: normal, rpm: 100, price: 0.5/1, latency: 2s}
  - name: openai
    base_url: https://proxy.example.com/v1
`))
	if err != nil {
		t.Fatal(err)
	}
	p, ok := f.Registry().Recognise("house-7b")
	if !ok || p.BaseURL != "http://10.0.0.1:8000/v1" || !p.KeyOptional || p.Headers[0].Limit != "X-House-Limit" || p.Codes["toofast"] != sluice.RateLimit {
		t.Errorf("%+v", p)
	}
	if tier, err := f.Registry().Find("house", "normal", ""); err != nil || tier.Limits.RPM != 100 || tier.Latency.Duration != 2*time.Second || tier.Source != "sluice.yaml" {
		t.Errorf("%+v %v", tier, err)
	}
	if p, _ := f.Registry().Lookup("openai"); p.BaseURL != "https://proxy.example.com/v1" || p.KeyEnv[0] != "OPENAI_API_KEY" {
		t.Errorf("%+v", p)
	}
}

func TestErrorsNameLineAndField(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"aa: 1\nbb: 2\ncharge: 3\ncc: 4\ndd: 5\nee: 6\nff: 7\n", `f.yaml:1: unknown field "aa"`},
		{"limits:\n  rpm:\n    v1: 3\n    v2: 3\n    v3: 3\nzz: 4\nyy: 5\n", `f.yaml:3: unknown field "v1"`},
		{"zz: 4\nlimits:\n  rpm:\n    v1: 3\n    v2: 3\n    v3: 3\n", `f.yaml:1: unknown field "zz"`},
		{"limits:\n  rpm: 500\n  tmp: 3\n", `f.yaml:3: unknown field "tmp" (did you mean tpm`},
		{"limits:\r\n  rpm: 500\r\n  tmp: 3\r\n", `f.yaml:3: unknown field "tmp"`},
		{"limits:\n  rpm: 5\n  burst: 25h\n", `f.yaml:3: limits.burst: 25h0m0s is more than a day`},
		{"limits:\n  rpm: 5\n  tpm: 2e12\n", `f.yaml:3: limits.tpm: 2e+12 is above 1000000000000`},
		{"max_throttles: 0.9\n", `f.yaml:1: max_throttles: want a whole number`},
		{"provider: []\n", `f.yaml:1: field "provider" belongs below another field (did you mean providers?)`},
		{"rpm: 300\n", `f.yaml:1: field "rpm" belongs below another field`},
		{"limits:\n  rpm:\n    valeu: 3\n", `f.yaml:3: unknown field "valeu" (did you mean value?)`},
		{"providers:\n  - name: x\n    bas_url: http://a/v1\n", `f.yaml:3: unknown field "bas_url" (did you mean base_url?)`},
		{"providers:\n  - name: x\n    base_url: ftp://a/v1\n", `f.yaml:3: providers[0].base_url: this is not an http`},
		{"providers:\n  - name: x\n  - name: y\n    tiers:\n      - tier: a\n        rpm: -1\n", `f.yaml:6: providers[1].tiers[0].rpm: -1 is not above zero`},
		{"providers:\n  - name: x\n  - aliases: [y]\n", `f.yaml:3: providers[1].name: a provider needs a name`},
		{"providers:\n  - name: x\n    tiers:\n      - {tier: a, rpm: many}\n", `f.yaml:4: providers[0].tiers[0].rpm: want a whole number`},
		{"providers:\n  - name: x\n    tiers:\n      - {tier: a, rpm: 1.5}\n", `f.yaml:4: providers[0].tiers[0].rpm: want a whole number`},
		{"providers:\n  - name: x\n    key_optional: perhaps\n", `f.yaml:3: providers[0].key_optional: want true or false`},
		{"providers:\n  - name: x\n    untrusted_waits: [{wait: long, probe: 1m}]\n", `f.yaml:3: providers[0].untrusted_waits[0].wait: "long" is not a duration`},
		{"providers: openai\n", `f.yaml:1: providers: want a list`},
		{"providers:\n  house: {}\n", `f.yaml:2: providers: want a list`},
		{"providers:\n  - house\n", `f.yaml:2: providers[0]: want fields`},
		{"just a text\n", `f.yaml:1: want fields`},
		{"providers:\n  - name: [x]\n", `f.yaml:2: providers[0].name: want a text`},
		{"providers:\n  - name: x\n    codes: {a: slow}\n", `f.yaml:3: providers[0].codes: a: unknown kind "slow"`},
		{"limits:\n  rpm: 0\n", `f.yaml:2: limits.rpm: 0 is not a whole number above zero`},
		{"limits:\n  rpm: 1.5\n", `f.yaml:2: limits.rpm: 1.5 is not a whole number`},
		{"limits:\n  rpm: -3\n", `f.yaml:2: limits.rpm: -3`},
		{"limits:\n  rpm: .nan\n", `f.yaml:2: limits.rpm`},
		{"limits:\n  rpm: .inf\n", `f.yaml:2: limits.rpm`},
		{"limits:\n  rpm: 1e300\n", `f.yaml:2: limits.rpm`},
		{"limits:\n  rpm: 5\n  requests: 100/10s\n", `f.yaml:3: limits.requests: rpm and requests set the same limit: omit one of the two fields`},
		{"limits:\n  tokens: 50000\n", `f.yaml:2: limits.tokens: "50000" has no period: write it such as 100/10s`},
		{"limits:\n  tokens: 0/30s\n", `f.yaml:2: limits.tokens: "0" is not a whole number above zero`},
		{"limits:\n  requests: 100/10\n", `f.yaml:2: limits.requests: "10" is not a period with its unit`},
		{"limits:\n  requests: 100/48h\n", `f.yaml:2: limits.requests: the period 48h0m0s is not between 1s and 24h`},
		{"limits:\n  requests: [100]\n", `f.yaml:2: limits.requests: want a text`},
		{"limits:\n  burst: 0\n", `f.yaml:2: limits.burst: want a time above zero with its unit`},
		{"limits:\n  rpm: many\n", `f.yaml:2: limits.rpm: want a number`},
		{"limits:\n  rpm: {value: 3}\n", `f.yaml:2: limits.rpm.source: "" is not one of configured`},
		{"limits:\n  rpm: {value: 3, source: heard}\n", `f.yaml:2: limits.rpm.source: "heard"`},
		{"limits:\n  rpm: {value: 3, source: configured, confidence: 2}\n", `f.yaml:2: limits.rpm.confidence: 2`},
		{"limits:\n  rpm: {value: 3, source: configured, at: yesterday}\n", `f.yaml:2: limits.rpm.at: want an instant`},
		{"limits:\n  rpm: [1]\n", `f.yaml:2: limits.rpm: `},
		{"limits: [{rpm: 1}]\n", `f.yaml:1: limits: `},
		{"providers:\n  - name: x\n    tiers:\n      - {tier: a, rpm: 99999999999999999999}\n", `f.yaml:4: providers[0].tiers[0].rpm: `},
		{"limits:\n  rpm: 1\n  provider: opnai\n", `f.yaml:3: limits.provider: unknown provider "opnai" (did you mean openai?)`},
		{"limits: {}\n", `f.yaml:1: limits.rpm: the limit is missing`},
		{"limits:\n  rpm: 1\n  rpm: 2\n", `f.yaml:3: `},
		{"limits:\n\trpm: 1\n", `f.yaml:2: `},
		{"limits: [\n", `f.yaml:1: `},
		{"limits:\n  rpm: &a 1\n  tpm: *a\n", `f.yaml:2: anchors and references`},
		{"limits:\n  rpm: !!int 1\n", `f.yaml:2: tags`},
		{"limits: {rpm: 1}\n---\nlimits: {rpm: 2}\n", `f.yaml:3: the file contains a second document`},
		{"limits: " + strings.Repeat("[", 30) + strings.Repeat("]", 30), `f.yaml:1: is nested too deeply`},
		{"- - - - - - - - - - - - - - a\n", `f.yaml:1: is nested too deeply`},
		{"\xff\xfe", `f.yaml: is not UTF-8`},
		{strings.Repeat("#", 300<<10), `f.yaml: is larger than 256 KiB`},
	} {
		_, err := config.Parse("f.yaml", []byte(c.text))
		wrong, ok := errors.AsType[*config.Error](err)
		if !ok || !strings.Contains(wrong.Error(), c.want) || strings.Contains(wrong.Error(), "\n") {
			t.Errorf("%.60q: %v, want %s", c.text, err, c.want)
		}
	}
}

func TestKeysAreRefusedAndNotQuoted(t *testing.T) {
	const secret = "sk-proj-abcdefghijklmnop1234"
	for _, text := range []string{
		"providers:\n  - name: x\n    note: " + secret + "\n",
		"providers:\n  - name: x\n    key_env: [" + secret + "]\n",
		"providers:\n  - name: x\n    api_key: " + secret + "\n",
		"providers:\n  - name: x\n    auth: {header: Authorization, prefix: \"Bearer " + secret + "\"}\n",
		"providers:\n  - name: x\n    query: key=" + secret + "\n",
		"providers:\n  - name: x\n    " + secret + ": 1\n",
		secret + "\n",
		"providers:\n  - name: x\n    note: |\n      " + secret + "\n",
	} {
		_, err := config.Parse("f.yaml", []byte(text))
		wrong, ok := errors.AsType[*config.Error](err)
		if !ok || !strings.Contains(wrong.Hint(), "key_env") || strings.Contains(err.Error()+wrong.Hint(), "abcdefgh") {
			t.Errorf("%q: %v", text, err)
		}
	}
	_, err := config.Parse("f.yaml", []byte("providers:\n  - name: x\n    api_key: opaque\n"))
	if wrong, ok := errors.AsType[*config.Error](err); !ok || !strings.Contains(wrong.Hint(), "key_env") {
		t.Errorf("%v", err)
	}
	_, err = config.Parse("f.yaml", []byte("providers:\n  - name: x\n    key_env: [qW3opaquekeyofsomebody]\n"))
	if err == nil || strings.Contains(err.Error(), "opaque") || !strings.Contains(err.Error(), "f.yaml:3: providers[0].key_env[0]") {
		t.Errorf("%v", err)
	}
}

// hostile are files that parsers have broken at.
func hostile() []string {
	deep := strings.Repeat("[", 100000)
	var steps strings.Builder
	for i := range 600 {
		steps.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return []string{
		deep, deep + strings.Repeat("]", 100000), strings.Repeat("{a: ", 50000), strings.Repeat("- ", 100000),
		strings.Repeat("? ", 100000), strings.Repeat("!a ", 50000), strings.Repeat("a: ", 50000), steps.String(),
		"a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\n", "a: &a [*a]\n", "<<: *a\n",
		strings.Repeat("\"", 100000), strings.Repeat("'", 99999), strings.Repeat("a\n", 100000), strings.Repeat("|\n", 1000),
		strings.Repeat("# x\n", 60000), strings.Repeat("- a\n", 50000), strings.Repeat("\t", 1000), strings.Repeat("---\n", 50000),
		"limits: |\n" + strings.Repeat(" x\n", 80000), strings.Repeat(" ", 200000), strings.Repeat("k: v\n", 1000), "%YAML 9\n---\n",
		"\"\\u", "\"\\x", "limits: >-", "? \n: \n", "- - - - - - - - - - - - - - -\n", "!!binary x", "{", "}", "]", ":", "a:\n - b\n  - c", "\r", "*", "&",
	}
}

func TestHostileFilesHaveAnEnd(t *testing.T) {
	for _, text := range hostile() {
		_, err := config.Parse("x", []byte(text))
		if _, ok := errors.AsType[*config.Error](err); err != nil && !ok {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func TestMissingFileIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.yaml")
	if _, err := config.Load(path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	if _, err := config.Load(t.TempDir()); err == nil {
		t.Error("a directory is no file")
	}
}

func genLimit(whole bool) *rapid.Generator[*config.Limit] {
	return rapid.Custom(func(t *rapid.T) *config.Limit {
		if rapid.Bool().Draw(t, "absent") {
			return nil
		}
		l := &config.Limit{
			Value: float64(rapid.IntRange(1, 1e12).Draw(t, "value")),
			Source: rapid.SampledFrom([]limits.Source{limits.SourceConfigured, limits.SourceRegistry, limits.SourceHeader,
				limits.SourceRejection, limits.SourceMeasured, limits.SourceAtLeast}).Draw(t, "source"),
			Confidence: rapid.Float64Range(0, 1).Draw(t, "confidence"),
		}
		if !whole {
			l.Value = rapid.Float64Range(1e-9, 86400).Draw(t, "seconds")
		}
		if rapid.Bool().Draw(t, "dated") {
			l.At = time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "at"), rapid.Int64Range(0, 999999999).Draw(t, "nanos")).UTC()
		}
		return l
	})
}

func TestWrittenLimitsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"", "openai", "gpt-4o", "meta-llama/Llama-3.3-70B", "null", "1", "true", "a: b", "- x", "#", "\"q\"", "&a", "ü", "it's", " x ", "2026-01-01"})
		l := config.Limits{
			Provider: rapid.SampledFrom([]string{"", "openai"}).Draw(t, "provider"), Model: name.Draw(t, "model"),
			Burst: config.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "burst")),
		}
		for d := range new(sluice.Limits).All() {
			*l.At(d) = genLimit(true).Draw(t, d.String())
		}
		text, err := json.Marshal(map[string]config.Limits{"limits": l})
		if err != nil {
			t.Fatal(err)
		}
		f, err := config.Parse("limits.json", text)
		if err != nil {
			if told, start := l.Split(); told == (sluice.Limits{}) && start == (sluice.Limits{}) {
				return // no limits at all are refused
			}
			t.Fatal(err)
		}
		if diff := cmp.Diff(&l, f.Limits); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range hostile() {
		if len(text) < 4096 {
			f.Add([]byte(text))
		}
	}
	for _, text := range []string{
		"limits: {rpm: 500, tpm: {value: 3, source: header, at: 2026-01-01T00:00:00Z}}\n",
		"providers:\n  - name: x\n    base_url: http://a/v1\n    tiers:\n      - {tier: a, rpm: 3}\n",
		"upstreams:\n  - {provider: openai, key_file: k, base_url: 'https://a/v1'}\nserve:\n  listen: 127.0.0.1:0\n  allow_host: [a]\n",
		"serve: {models: {a: b}, queue_timeout: 1m, max_body_memory: 1MiB}\n",
		`{"limits":{"rpm":{"value":1,"source":"configured"}}}`, "limits:\r\n  rpm: 1\r\n", "\xef\xbb\xbf# x\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := config.Parse("x", data)
		if err == nil {
			file.Registry()
			if file.Limits != nil {
				if told, start := file.Limits.Split(); told == (sluice.Limits{}) && start == (sluice.Limits{}) {
					t.Error("limits that limit nothing")
				}
			}
			return
		}
		if _, ok := errors.AsType[*config.Error](err); !ok || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q", err)
		}
	})
}

func TestEveryLimitOfAFileIsReachedByItsName(t *testing.T) {
	for d := range new(sluice.Limits).All() {
		f, err := config.Parse("x.yaml", []byte("limits: {"+d.String()+": 7}"))
		if err != nil || *f.Limits.At(d) == nil {
			t.Fatalf("%v: %+v, %v", d, f.Limits, err)
		}
		told, start := f.Limits.Split()
		if *told.At(d) != 7 || start != (sluice.Limits{}) {
			t.Errorf("%v: told %+v, start %+v", d, told, start)
		}
	}
}

// A later file wins, field by field; its providers come on top.
func TestLaterFilesWin(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tenants := "tenants: [{name: ci, key_sha256: " + strings.Repeat("ab", 32) + "}]"
	first := write("a.yaml", "max_throttles: 3\nlimits: {rpm: 5, tpm: 100}\nserve: {drain_timeout: 3s, "+tenants+"}\nproviders: [{name: mine, base_url: 'http://127.0.0.1:1/v1', dialect: openai}]")
	second := write("b.yaml", "limits: {rpm: 7}\nserve: {drain_timeout: 5s}\nupstreams: [{provider: mine, models: [m]}]")
	f, err := config.Load(first, second, write("empty.yaml", ""))
	if err != nil {
		t.Fatal(err)
	}
	if f.Limits.RPM.Value != 7 || f.Limits.TPM.Value != 100 || *f.MaxThrottles != 3 || len(f.Upstreams) != 1 || len(f.Providers) != 1 {
		t.Errorf("%+v", f)
	}
	if g, err := config.Load(first, write("c.yaml", "limits: {model: other, rpm: 7}")); err != nil || g.Limits.RPM.Value != 7 || g.Limits.TPM != nil {
		t.Errorf("limits of another model: %+v, %v", g.Limits, err)
	}
	if _, err := config.Load(write("f.yaml", "limits: {provider: mine, rpm: 5}"), first); err != nil {
		t.Errorf("a provider of a later file: %v", err)
	}
	third := write("d.yaml", "\nserve: {passthrough: [{path: /v1/a, upstream: mine}]}")
	want := third + ":2: serve.passthrough[0].upstream: no upstream is named"
	if _, err := config.Load(first, third, second, write("e.yaml", "upstreams: [{provider: openai}]")); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if f.Serve.DrainTimeout != 5*time.Second || len(f.Serve.Tenants) != 1 {
		t.Errorf("%+v", f.Serve)
	}
	for field, want := range map[string]string{"max_throttles": first + ":1:", "serve.tenants[0].rpm": first + ":3:", "limits.rpm": second + ":1:"} {
		if got := f.At(field, errors.New("x")).Error(); !strings.HasPrefix(got, want) {
			t.Errorf("%s is named as %q, want %q", field, got, want)
		}
	}
}

// A document of find gives its limits and nothing else.
func TestADocumentOfFindIsReadForItsLimits(t *testing.T) {
	f, err := config.Parse("x.json", []byte(`{"recommended_workers": 3, "findings": {"rpm": 1}, "limits": {"rpm": {"value": 5, "source": "header"}}}`))
	if err != nil || f.Limits.RPM.Value != 5 {
		t.Errorf("%+v, %v", f.Limits, err)
	}
	if f, err = config.Parse("x.json", []byte(`{"recommended_workers": 0, "runs": [], "model": "m", "provider": "openai"}`)); err != nil || f.Limits != nil {
		t.Errorf("of a sweep in which no worker passed: %+v, %v", f.Limits, err)
	}
	if _, err = config.Parse("x.json", []byte("recommended_workers: 4\nbogus: true")); err == nil || !strings.HasPrefix(err.Error(), `x.json:2: unknown field "bogus"`) {
		t.Error(err)
	}
}
