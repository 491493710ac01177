package batch_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-llm/sluice/batch"
)

// person is a schema of which much can be missed.
const person = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"type": "object",
	"required": ["name", "age"],
	"properties": {
		"name": {"type": "string", "pattern": "^[A-Z]"},
		"age": {"type": "integer", "minimum": 0},
		"tags": {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": true},
		"boss": {"$ref": "#"},
		"pet": {"$ref": "#/$defs/pet"}
	},
	"additionalProperties": false,
	"$defs": {"pet": {"oneOf": [{"type": "string"}, {"const": 7}]}}
}`

func schema(t testing.TB, doc string) *batch.Schema {
	t.Helper()
	s, err := batch.ParseSchema([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSchemaChecksAnswers(t *testing.T) {
	s := schema(t, person)
	const ok = `{"name":"Ada","age":36}`
	for _, c := range []struct {
		name, text string
		want       string // a part of the error; "" is none
	}{
		{"the whole text", ok, ""},
		{"space around it", "\ufeff \n" + ok + "\r\n\t ", ""},
		{"a block", "```json\n" + ok + "\n```", ""},
		{"a block with text around it", "Here you are:\n\n```json\n" + ok + "\n```\n\nAnything else?", ""},
		{"a block of no language", "```\n" + ok + "\n```", ""},
		{"a block on one line", "```json " + ok + "```", ""},
		{"a block on one line, close", "```" + ok + "```", ""},
		{"a block with more beside its fence", "```json title=\"x\"\n" + ok + "\n```", ""},
		{"a block with CRLF", "```json\r\n" + ok + "\r\n```\r\n", ""},
		{"a block without its end", "```json\n" + ok, ""},
		{"the first block that is JSON", "```python\nprint(1)\n```\n```json\n" + ok + "\n```\n```json\n{}\n```", ""},
		{"the first block that is JSON, though it does not fit", "```\n{}\n```\n```\n" + ok + "\n```", "at the top level: missing properties"},
		{"fences within a text", "```json\n{\"name\":\"A```json\",\"age\":1}\n```", ""},
		{"fences within the text of the whole", `{"name":"A` + "```" + `{}","age":1}`, ""},
		{"text before it", "Sure! " + ok, "is not JSON"},
		{"two values", ok + ok, "is not JSON"},
		{"half of it", ok[:10], "is not JSON"},
		{"a block of half of it", "```json\n" + ok[:10] + "\n```", "is not JSON"},
		{"nothing", "", "is not JSON"},
		{"fences alone", "``````", "is not JSON"},
		{"thoughts", "<think>\nNot {\"name\":\"ada\"}.\n</think>\n\n" + ok, ""},
		{"thoughts without their first mark", "Ada, I would say.\n</think>" + ok, ""},
		{"several thoughts", "<thinking>a</thinking>{\"name\":\"ada\"}<thinking>b</thinking>\n" + ok, ""},
		{"thoughts in other marks", "[THINK]a[/THINK]" + ok, ""},
		{"thoughts with a namespace, and a block", "<seed:think>a</seed:think>\nHere:\n```json\n" + ok + "\n```", ""},
		{"a mark in the answer", "<think>a</think>{\"name\":\"A</think>\",\"age\":1}", ""},
		{"a mark in an answer without thoughts", "```json\n{\"name\":\"A</think>\",\"age\":1}\n```", ""},
		{"thoughts, and an answer that does not fit", "<think>" + ok + "</think>{}", "at the top level: missing properties"},
		{"thoughts that do not end", "<think>\n```json\n" + ok + "\n```", "is not JSON"},
		{"second thoughts that do not end", "<think>a</think><think>\n" + ok, "is not JSON"},
		{"second thoughts about the answer", "```json\n" + ok + "\n```\n<think>b</think>Sorry.", "is not JSON"},
		{"thoughts alone", "<think>" + ok + "</think>", "is not JSON"},
		{"thoughts in special tokens", "<|begin_of_thought|>a<|end_of_thought|>\n<|begin_of_solution|>" + ok + "<|end_of_solution|>", ""},
		{"thoughts in other special tokens", "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>" + ok + "<|END_RESPONSE|>", ""},
		{"thoughts in tokens like elements", "<|thinking|>a<|/thinking|>" + ok + "<|im_end|>", ""},
		{"thoughts in tokens that do not end", "<|START_THINKING|>" + ok, "is not JSON"},
		{"thoughts in tokens alone", "<|begin_of_thought|>" + ok + "<|end_of_thought|>", "is not JSON"},
		{"channels", "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>" + ok + "<|return|>", ""},
		{"channels with a format", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>" + ok, ""},
		{"channels without an answer", "<|channel|>analysis<|message|>```json\n" + ok + "\n```", "is not JSON"},
		{"channels with a call", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=f<|message|>" + ok, "is not JSON"},
		{"thoughts of other names", "<analysis>a</analysis><antThinking>b</antThinking><scratchpad>{}</scratchpad>\n" + ok, ""},
		{"thoughts of another name that do not end", "<scratchpad>\n```json\n" + ok + "\n```", "is not JSON"},
		{"an element around the answer", "<think>a</think><answer>\n" + ok + "\n</answer>", ""},
		{"an element around an answer that is cut", "<think>a</think><answer>" + ok[:10] + "</answer>", "is not JSON"},
		{"an element around the answer that does not end", "<think>a</think><answer>" + ok, ""},
		{"an element that does not end", "<plan>" + ok, "is not JSON"},
		{"two answers", "<answer>" + ok + "</answer><answer>{}</answer>", "is not JSON"},
		{"thoughts after the answer", "```json\n" + ok + "\n```\n<analysis>b</analysis>", ""},
		{"thoughts without number", strings.Repeat("</think>"+ok, 10_000), ""},
		{"a type", `{"name":"Ada","age":"36"}`, "does not match the schema: at /age: got string, want integer"},
		{"a place deep within", `{"name":"Ada","age":36,"boss":{"name":"Bo","age":1,"tags":["a","x"]}}`, "at /boss/tags/1: value must be one of 'a', 'b'"},
		{"a member that is missing", `{"name":"Ada"}`, "at the top level: missing property 'age'"},
		{"a member too many", `{"name":"Ada","age":1,"x/y":1}`, "at the top level: additional properties 'x/y' not allowed"},
		{"a pattern", `{"name":"ada","age":1}`, "at /name: 'ada' does not match pattern"},
		{"a bound", `{"name":"Ada","age":-1}`, "at /age: minimum: got -1, want 0"},
		{"neither of two", `{"name":"Ada","age":1,"pet":8}`, "at /pet: got number, want string; at /pet: value must be 7"},
		{"an integer as a float", `{"name":"Ada","age":36.0}`, ""},
		{"a number without measure", `{"name":"Ada","age":1e1000000}`, "a number beyond 1e400"},
		{"a number without end", `{"name":"Ada","age":` + strings.Repeat("1", 2000) + `}`, "a number beyond 1e400"},
		{"an exponent without measure", `{"name":"Ada","age":1e99999999999999999999}`, "a number beyond 1e400"},
		{"an exponent in a text", `{"name":"A1e1000000","age":1}`, ""},
		{"a text that is no UTF-8", "{\"name\":\"A\xff\",\"age\":1}", "is not JSON"},
		{"a lone surrogate", `{"name":"A\ud800","age":1}`, ""},
		{"brackets without end", strings.Repeat("[", 200_000), "is not JSON"},
		{"brackets", strings.Repeat("[", 9000) + strings.Repeat("]", 9000), "at the top level: got array, want object"},
		{"a fault deep within", strings.Repeat(`{"name":"A","age":1,"boss":`, 3000) + "1" + strings.Repeat("}", 3000), "/boss/boss/"},
		{"bosses without end", strings.Repeat(`{"name":"A","age":1,"boss":`, 3000) + ok + strings.Repeat("}", 3000), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := s.Check(c.text)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestMessagesOfASchemaAreShort(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	s := schema(t, `{"type":"object","additionalProperties":{"enum":["`+long+`"]}}`)
	err := s.Check(`{"` + long + `":1,"b":1,"c":1,"d":1,"e":1}`)
	if err == nil || len(err.Error()) > 1000 || !strings.HasSuffix(err.Error(), "and 2 more") {
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
}

func TestBooleanSchemas(t *testing.T) {
	if err := schema(t, `true`).Check(`[1]`); err != nil {
		t.Error(err)
	}
	if err := schema(t, "\ufefffalse").Check(`[1]`); err == nil || !strings.Contains(err.Error(), "at the top level: false schema") {
		t.Error(err)
	}
	if err := schema(t, `{"$ref":"#"}`).Check(`[1]`); err == nil { // it refers to itself for ever
		t.Error("a cycle fits")
	}
}

func TestSchemasOfOtherDrafts(t *testing.T) {
	for _, c := range []struct{ doc, fits, misses string }{
		{`{"$schema":"http://json-schema.org/draft-04/schema#","id":"http://x.example/a.json","minimum":1,"exclusiveMinimum":true}`, `2`, `1`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{"$id":"a.json","type":"null"}},"items":[{"$ref":"a.json"}]}`, `[null]`, `[1]`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","format":"date"}`, `"2026-02-28"`, `"2026-02-30"`},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema","$anchor":"a","dependentRequired":{"x":["y"]}}`, `{}`, `{"x":1}`},
		{`{"prefixItems":[{"type":"string"}],"format":"date"}`, `["a"]`, `[1]`},
		{`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, `{"type":"string"}`, `{"type":"strng"}`},
		{`{"$id":"https://x.example/a.json","$defs":{"b":{"$id":"b.json","type":"string"}},"$ref":"https://x.example/b.json"}`, `"x"`, `1`},
	} {
		s := schema(t, c.doc)
		if err := s.Check(c.fits); err != nil {
			t.Errorf("%s: %v", c.doc, err)
		}
		if err := s.Check(c.misses); err == nil {
			t.Errorf("%s fits %s", c.misses, c.doc)
		}
	}
}

func TestParseSchemaRefusesWhatIsNone(t *testing.T) {
	for _, c := range []struct{ doc, want string }{
		{``, "is empty"},
		{" \n", "is empty"},
		{"\n{\n\"type\":", "is not valid JSON: error at line 3"},
		{`{} {}`, "is not valid JSON"},
		{`[]`, "is not a schema: at the top level: got "},
		{`null`, "is not a schema: at the top level: got "},
		{`{"type":"objekt"}`, "is not a schema: at /type: value must be one of"},
		{`{"properties":{"a":{"required":true}}}`, "is not a schema: at /properties/a/required: got boolean, want array"},
		{`{"properties":{"a":{"pattern":"(?=x)"}}}`, "at /properties/a/pattern"},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","patternProperties":{"(?=x)":{}}}`, "(?=x)"},
		{`{"properties":{"a":{"$ref":"b.json#/x"}}}`, `"b.json" refers to another document`},
		{`{"items":[{"$ref":"file:///etc/passwd"}],"$schema":"http://json-schema.org/draft-07/schema#"}`, `"file:///etc/passwd" refers to another document`},
		{`{"$id":"https://x.example/d/a.json","$ref":"#/$defs/a~1b","$defs":{"a/b":{"allOf":[{"$ref":"../b.json"}]}}}`, `"https://x.example/b.json" refers to another document`},
		{`{"$dynamicRef":"https://x.example/a#m"}`, `"https://x.example/a" refers to another document`},
		{`{"$schema":"https://x.example/meta"}`, `"https://x.example/meta" refers to another document`},
		{`{"$ref":"#/$defs/a"}`, `"schema#/$defs/a" not found`},
		{`{"$ref":"#a"}`, `"schema#a" not found`},
		{`{"$id":"::"}`, "id"},
	} {
		_, err := batch.ParseSchema([]byte(c.doc))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "sluice:") {
			t.Errorf("%s: error %v, want %q", c.doc, err, c.want)
		}
	}
}

func TestASchemaReadsNoOtherFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.json")
	if err := os.WriteFile(path, []byte(`{"type":"string"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"file://" + path, path, "file:" + path} {
		doc := `{"properties":{"a":{"$ref":` + asJSON(ref) + `}}}`
		if _, err := batch.ParseSchema([]byte(doc)); err == nil || !strings.Contains(err.Error(), "refers to another document") {
			t.Errorf("%s: error %v", doc, err)
		}
	}
}

func TestASchemaIsSafeForConcurrentUse(t *testing.T) {
	s := schema(t, person)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if err := s.Check(`{"name":"Ada","age":36,"tags":["a","b"],"boss":{"name":"B","age":1}}`); err != nil {
					t.Error(err)
				}
				if err := s.Check(`{"name":"ada","age":"x","tags":["a","a"],"pet":8}`); err == nil {
					t.Error("fits")
				}
			}
		})
	}
	wg.Wait()
}

func FuzzSchemaCheck(f *testing.F) {
	for _, s := range []string{`{"name":"Ada","age":36}`, "```json\n{}\n```", "a ```[\"```\"", `1e5`, "```json {\"name\":1e401}"} {
		f.Add(s)
	}
	s := schema(f, person)
	f.Fuzz(func(t *testing.T, text string) {
		plain, block := s.Check(text), s.Check("```json\n"+text+"\n```")
		if plain == nil && block != nil {
			t.Errorf("%q fits, but not in a block: %v", text, block)
		}
	})
}
