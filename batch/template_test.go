package batch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/batch"
)

func TestTemplatesMakePromptsOfFields(t *testing.T) {
	text := `{"custom_id":"a","question":"2 < \"3\"?\nWhy","n":1000000,"x":1e3,"deep":{"list":[1.50,null,"z"],"no":null},"ok":true,"none":null,"messages":[],"max_tokens":1,"body":1}` + "\n" +
		`{"question":"Two","system":"Be brief.","model":"other","n":0.10,"deep":{"list":[]},"ok":false,"none":"some"}` + "\n"
	for tmpl, want := range map[string][]string{
		"Q: {{.question}}":                                {"Q: 2 < \"3\"?\nWhy", "Q: Two"},
		"{{.n}}{{with .x}} {{end}}":                       nil, // the second row has no x
		"{{.n}} {{.ok}} [{{.none}}]":                      {"1000000 true []", "0.10 false [some]"},
		"{{if .none}}yes{{else}}no{{end}}":                {"no", "yes"},
		"{{json .deep}}{{json .question}}":                {`{"list":[1.50,null,"z"],"no":null}"2 < \"3\"?\nWhy"`, `{"list":[]}"Two"`},
		`l{{range .deep.list}}<{{.}}>{{end}}`:             {"l<1.50><><z>", "l"},
		`{{len .deep.list}} {{printf "%.3s" .question}}!`: {"3 2 <!", "0 Two!"},
		`{{define "q"}}({{.}}){{end}}{{template "q" .n}}`: {"(1000000)", "(0.10)"},
		`{{/* a comment */ -}} {{printf "%s|%q" .n .n}}`:  {`1000000|"1000000"`, `0.10|"0.10"`},
		`{{if eq .question "Two"}}{"prompt":"injected"}{{else}}","role":"system","x":"{{end}}`: {`","role":"system","x":"`, `{"prompt":"injected"}`},
	} {
		cfg := batch.Config{Input: writeInput(t, "in.jsonl", text), Model: "m", Template: tmpl}
		if want == nil {
			if _, err := requests(cfg); err == nil {
				t.Errorf("%s: no error", tmpl)
			}
			continue
		}
		bodies, ids := sentBodies(t, cfg)
		wantBodies := []string{chatBody("m", want[0], ""), chatBody("other", want[1], "Be brief.")}
		if diff := cmp.Diff(wantBodies, bodies) + cmp.Diff([]string{"2", "a"}, ids); diff != "" {
			t.Errorf("%s:\n%s", tmpl, diff)
		}
	}
}

func TestTemplatesOfTablesAndText(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    batch.Config
		bodies []string
		ids    []string
	}{
		"table": {batch.Config{Input: writeInput(t, "in.csv", "Question text,model,custom_id\n\"a\nb\",,x\n,m2,\n"), Template: `<{{index . "Question text"}}>`},
			[]string{chatBody("m", "<a\nb>", ""), chatBody("m2", "<>", "")}, []string{"4", "x"}},
		"lines of text": {batch.Config{Input: writeInput(t, "in.txt", "one \n\n two\n"), Template: "<{{.line}}>"},
			[]string{chatBody("m", "<one>", ""), chatBody("m", "<two>", "")}, []string{"1", "3"}},
	} {
		c.cfg.Model = "m"
		bodies, ids := sentBodies(t, c.cfg)
		if diff := cmp.Diff(c.bodies, bodies) + cmp.Diff(c.ids, ids); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// requests are what the lines of an input ask for, and the error that reading them ended with.
func requests(cfg batch.Config) (all []batch.Request, err error) {
	if cfg.Model == "m" {
		cfg.Model = "gpt-4o"
	}
	_, err = batch.ReadPreview(cfg, func(r batch.Request) error {
		all = append(all, r)
		return nil
	})
	return all, err
}

func TestTemplatesThatCannotMakeAPrompt(t *testing.T) {
	path := writeInput(t, "in.csv", "id,text\n1,\"a\nb\"\n2,c\n")
	cases := map[string]string{
		"{{.nope}}":                              `line 2: template p.tmpl:1:2: in {{.nope}}: no field "nope"`,
		"x\n{{if eq .id \"2\"}}{{.gone}}{{end}}": `line 4: template p.tmpl:2:19: in {{.gone}}: no field "gone"`,
		`{{index . "nope"}}`:                     `line 2: template p.tmpl:1:2: in {{index . "nope"}}: index: no field "nope"`,
		"{{.text.deep}}":                         "line 2: template p.tmpl:1:7:",
		"{{if false}}x{{end}} ":                  "line 2: the prompt is empty",
		"{{range 2000000000}}{{end}}":            "range can't iterate over",
		`{{define "a"}}{{template "b"}}{{end}}{{define "b"}}{{template "a"}}{{end}}{{template "a"}}`: "calls itself",
		`{{template "p.tmpl"}}`: "calls itself",
		`{{$x := "xxxxxxxx"}}` + strings.Repeat("{{$x = print $x $x}}", 60): "makes a text longer than 64 MiB",
	}
	for tmpl, want := range cases {
		_, err := requests(batch.Config{Input: path, Model: "m", Template: tmpl, TemplateName: "p.tmpl"})
		if _, ok := errors.AsType[*batch.InputError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", tmpl, err, want)
		}
	}
	_, err := requests(batch.Config{Input: path, Model: "m", Template: "{{.nope}}"})
	if wrong, ok := errors.AsType[*batch.InputError](err); !ok || wrong.Hint != "use a field of the row: id, text" {
		t.Errorf("%#v", err)
	}
}

func TestTemplatesThatDoNotParse(t *testing.T) {
	cases := map[string]string{
		"What about {x}?":   "Template: p.tmpl contains no field",
		"a\n{{.b":           "Template: p.tmpl:2: unclosed action",
		"{{nofunc .a}}":     `Template: p.tmpl:1: function "nofunc" not defined`,
		"{{env `HOME`}}":    `function "env" not defined`,
		"{{if .a}}":         "Template: p.tmpl:1: unexpected EOF",
		"{{truncate 1 .a}}": `function "truncate" not defined`,
	}
	for tmpl, want := range cases {
		_, err := requests(batch.Config{Input: writeInput(t, "in.txt", "x\n"), Model: "m", Template: tmpl, TemplateName: "p.tmpl"})
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%.80s: %v, want %s", tmpl, err, want)
		}
	}
}

func TestAChangedTemplateShowsAsChangedRequests(t *testing.T) {
	f := newFiles(t, "")
	cfg := f.config(t, &stub{})
	cfg.Input, cfg.Model, cfg.Template = writeInput(t, "in.csv", "custom_id,a\nx,1\ny,2\n"), "m", "{{.a}}"
	if rep, err := run(t, cfg); err != nil || rep.Done != 2 {
		t.Fatal(rep, err)
	}
	cfg.Template = `{{if eq .a "2"}}two{{else}}{{.a}}{{end}}`
	_, err := run(t, cfg)
	if changed, ok := errors.AsType[*batch.ChangedError](err); !ok || changed.Number != 3 || changed.More != 0 {
		t.Errorf("%v", err)
	}
	cfg.Changed = batch.ChangedRedo
	if rep, err := run(t, cfg); err != nil || rep.Done != 1 || rep.Already != 1 {
		t.Error(rep, err)
	}
}

// FuzzTemplate: whatever a template makes of whatever object ends, is no longer than a line, and never <no value>.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{
		"{{.a}}", "{{json .}}", `{{range $k, $v := .}}{{$k}}={{$v}}{{end}}`, `{{index .b 0}}`, "{{range .b}}{{.}}{{end}}",
		`{{define "x"}}{{.}}{{end}}{{template "x" .c}}`, "{{.a | print 1}}", "{{len .}}{{not .n}}{{and .a .b}}", "{{printf `%v %s %d` .a .b .c}}",
	} {
		f.Add(seed, []byte(`{"a":"é\u0000x","b":[1,null,{"z":2}],"c":-1.50e+10,"n":null,"a":"twice"}`))
	}
	f.Fuzz(func(t *testing.T, text string, object []byte) {
		if !json.Valid(object) || !utf8.Valid(object) || len(strings.TrimSpace(string(object))) == 0 || strings.TrimSpace(string(object))[0] != '{' {
			return
		}
		if strings.Contains(text, "%") {
			return // widths of formats are the template's own
		}
		out, err := batch.Render(text, object)
		if err == nil && (len(out) > 64<<20 || strings.Contains(out, "<no value>") && !strings.Contains(text+string(object), "no")) {
			t.Fatalf("%q of %q is %.200q", text, object, out)
		}
	})
}
