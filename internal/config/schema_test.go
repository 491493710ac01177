package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

const schemaFile = "../../docs/sluice.schema.json"

func schema(t *testing.T) (document map[string]any, compiled *jsonschema.Schema) {
	f, err := os.Open(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	doc, err := jsonschema.UnmarshalJSON(f)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("sluice.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err = c.Compile("sluice.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return doc.(map[string]any), compiled
}

// judge has the schema look at a text of YAML.
func judge(t *testing.T, s *jsonschema.Schema, text string) error {
	// The converter takes what YAML 1.2 has for a number for a text.
	text = strings.NewReplacer(": 1e6", ": 1000000", ": 1e9", ": 1000000000").Replace(text)
	b, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(b)))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s.Validate(v)
}

// examples are the files of settings in documents and tests, by where they stand.
func examples(t *testing.T) map[string]string {
	all := make(map[string]string)
	documents, err := filepath.Glob("../../docs/guides/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(documents, "../../README.md") {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range strings.Split(string(b), "```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			all[filepath.Base(name)+" "+string(rune('a'+i))] = block
		}
	}
	scripts, err := filepath.Glob("../cli/testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range scripts {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split("\n"+string(b), "\n-- ")[1:] {
			file, text, _ := strings.Cut(part, " --\n")
			if strings.HasSuffix(file, ".yaml") {
				all[filepath.Base(name)+" "+file] = text
			}
		}
	}
	return all
}

var addresses = regexp.MustCompile(`\$\{[A-Z]+\}`)

func TestTheSchemaAcceptsWhatIsRead(t *testing.T) {
	suite.FullOnly(t)
	_, s := schema(t)
	n := 0
	for where, text := range examples(t) {
		text = addresses.ReplaceAllString(text, "http://a") // that the script fills in
		if _, err := config.Parse("x", []byte(text)); err != nil {
			continue // wrong on purpose
		}
		n++
		if err := judge(t, s, text); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
	if n < 12 {
		t.Errorf("only %d examples", n)
	}
	for _, p := range provider.Published().All() {
		if text := "providers: [{name: x, batches: {api: " + p.Batches.API + "}}]"; p.Batches.API != "" && judge(t, s, text) != nil {
			t.Errorf("the schema refuses %s", text)
		}
	}
	for _, text := range []string{
		"", "limits: {burst: 0.5s}", "limits: {requests: 100/10s}", "limits: {rpm: {value: 5, source: measured, at: 2026-01-01T00:00:00Z}}", "providers: []", "upstreams: []", "serve: {}",
		"prefer: cost", "serve: {drain_timeout: 1h2m3.5s, max_body_memory: 1 GiB}", "serve: {allow_host: ['a:80', '[::1]']}", "serve: {tenants: []}", "serve: {metrics: none}", "providers: [{name: x, dialect: cohere, headers: [{dimension: concurrency, limit: a, remaining: b}]}]",
	} {
		if _, err := config.Parse("x", []byte(text)); err != nil {
			t.Errorf("%s is not read: %v", text, err)
		}
		if err := judge(t, s, text); text != "" && err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What has the wrong shape is refused by both. What is wrong by what it means, such as an unknown provider, is for the parser.
func TestTheSchemaRefusesWrongShapes(t *testing.T) {
	_, s := schema(t)
	up, sum := "upstreams: [{provider: openai, ", strings.Repeat("ab", 32)
	tenant := "serve: {tenants: [{name: a, key_sha256: " + sum + ", "
	for _, text := range []string{
		"unknown: 1", "limits: {}", "limits: {tmp: 3}", "limits: {rpm: 0}", "limits: {rpm: 1.5}", "limits: {rpm: many}", "limits: {rpm: [1]}", "limits: {requests: 5}", "limits: {tokens: 5/m}", "limits: 5",
		"limits: {rpm: {value: 3}}", "limits: {rpm: {value: 3, source: heard}}", "limits: {rpm: {value: 3, source: configured, confidence: 2}}",
		"limits: {rpm: {value: 3, source: configured, at: yesterday}}", "limits: {rpm: {value: 3, source: configured, on: 1}}", "limits: {burst: 1e9}",
		"limits: {provider: openai}", "providers: openai", "providers: {house: {}}", "providers: [house]", "providers: [{aliases: [a]}]",
		"providers: [{name: x, base_url: 'ftp://a'}]", "providers: [{name: x, bas_url: a}]", "providers: [{name: x, key_env: [not-a-variable]}]",
		"providers: [{name: x, key_optional: perhaps}]", "providers: [{name: x, tiers: [{tier: a, rpm: -1}]}]", "providers: [{name: x, tiers: [{tier: a, rpm: 1.5}]}]",
		"providers: [{name: x, dialect: french}]", "providers: [{name: x, charge: maybe}]", "providers: [{name: x, chat_bound: length}]",
		"providers: [{name: x, untrusted_waits: [{wait: long, probe: 1m}]}]", "providers: [{name: x, headers: [{what: a}]}]", "providers: [{name: x, headers: [{dimension: concurrent, limit: a, remaining: b}]}]", "providers: [{name: x, headers: [{dimension: rpm, limit: a}]}]", "providers: [{name: x, auth: {heder: a}}]",
		"providers: [{name: x, codes: [a]}]", "upstreams: {}", "upstreams: [{name: a}]", up + "nmae: a}]", up + "name: a b}]", up + "account: a/b}]", up + "key: abc}]",
		up + "base_url: 'ftp://a'}]", up + "base_url: 'http://a/?b'}]", up + "key_env: not-a-variable}]", up + "key_env: [not-a-variable]}]", up + "key_env: A, key_file: b}]",
		up + "models: 7}]", up + "models: []}]", up + "models: {}}]", up + "models: {a: ''}}]", up + "limits: {rpm: 0}}]", up + "limits: {rpm: 1, model: a}}]",
		up + "limits: {rpm: 1, provider: a}}]", up + "price: 1}]", up + "price: -1/1}]", up + "price: a/b}]",
		"serve: 1", "serve: {listn: a}", "serve: {listen: 8787}", "serve: {listen: 127.0.0.1}", "serve: {metrics: here}", "serve: {allow_host: a}", "serve: {allow_host: ['']}",
		"serve: {allow_host: ['https://a']}", "serve: {models: [a]}", "serve: {models: {a: ''}}", "serve: {models: {'': a}}",
		"prefer: fastest", "serve: {passthrough: [{path: /v1/files, upstream: a, method: get}]}", "serve: {passthrough: [{path: /v1/files}]}", "serve: {queue_timeout: 30}", "serve: {queue_timeout: -3s}",
		"serve: {events: '-'}", "serve: {access_log: [a]}", "serve: {tenants: {a: b}}", "serve: {tenants: [{name: a}]}", "serve: {tenants: [{name: a/b, key_sha256: " + sum + "}]}", "serve: {tenants: [{name: a, key_sha256: abcd}]}",
		tenant + "key: a}]}", tenant + "rpm: 0}]}", tenant + "rpm: 1.5}]}", tenant + "weight: 0}]}", tenant + "priority: urgent}]}", tenant + "max_cost_day: -1}]}", tenant + "max_cost_month: 0}]}",
		tenant + "models: []}]}", tenant + "models: ['a*b']}]}", tenant + "models: ['']}]}", tenant + "models: ['*']}]}", tenant + "max_queue: 0}]}", tenant + "max_wait: 30}]}",
		"serve: {drain_timeout: soon}", "serve: {max_body_memory: 64}", "serve: {max_body_memory: 64MiBs}",
	} {
		if _, err := config.Parse("x", []byte(text)); err == nil {
			t.Errorf("%s is read", text)
		}
		if judge(t, s, text) == nil {
			t.Errorf("the schema accepts %s", text)
		}
	}
}

func TestTheSchemaHasTheFieldsOfTheStructs(t *testing.T) {
	doc, _ := schema(t)
	defs := doc["$defs"].(map[string]any)
	var compare func(path string, typ reflect.Type, node map[string]any)
	// object finds where the properties of a node are.
	var object func(node map[string]any) map[string]any
	object = func(node map[string]any) map[string]any {
		if node["properties"] != nil && node["additionalProperties"] == false {
			return node
		}
		if ref, ok := node["$ref"].(string); ok {
			return object(defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any))
		}
		for _, of := range []string{"oneOf", "allOf"} {
			list, _ := node[of].([]any)
			for _, one := range list {
				if found := object(one.(map[string]any)); found != nil {
					return found
				}
			}
		}
		return nil
	}
	compare = func(path string, typ reflect.Type, node map[string]any) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			if items, ok := node["items"].(map[string]any); ok && typ.Kind() == reflect.Slice {
				node = items
			}
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ.String() == "time.Time" || typ == reflect.TypeFor[limits.Window]() {
			return
		}
		shape := object(node)
		if shape == nil {
			t.Errorf("%s is no object without other fields", path)
			return
		}
		properties := shape["properties"].(map[string]any)
		var fields []string
		for _, field := range reflect.VisibleFields(typ) {
			name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
			if name == "" || name == "-" {
				continue
			}
			fields = append(fields, name)
			property, ok := properties[name].(map[string]any)
			if !ok {
				t.Errorf("%s has no %s", path, name)
				continue
			}
			if property["title"] == nil || property["description"] == nil {
				t.Errorf("%s.%s has no title or no description", path, name)
			}
			compare(path+"."+name, field.Type, property)
		}
		for name := range properties {
			if !slices.Contains(fields, name) {
				t.Errorf("%s has %s, which is nowhere read", path, name)
			}
		}
	}
	compare("file", reflect.TypeFor[config.File](), doc)
}
