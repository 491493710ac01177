package template_test

import (
	"encoding/json"
	"strings"
	"testing"
	oracle "text/template"

	"github.com/sluice-llm/sluice/internal/template"
)

type page struct {
	Title string
	Rows  []row
	Bad   bool
	n     int
}

type row struct{ Name, Text string }

// String shows that a value prints itself.
func (r row) String() string { return "row " + r.Name }

func data() map[string]any {
	return map[string]any{
		"a": "é<b>'\x01", "b": "b", "n": json.Number("7"), "x": json.Number("1.50"), "yes": true, "no": false, "": "",
		"list": []any{"x", json.Number("1.50"), true, []any{}, map[string]any{"k": "v"}}, "none": []any{},
		"deep": map[string]any{"z": "last", "a": map[string]any{"b": "leaf"}},
		"page": &page{Title: "T", Rows: []row{{"1", "one"}, {"2", "two"}}, Bad: true, n: 1},
	}
}

func TestTemplatesPrintAndFailAsThoseOfTextTemplate(t *testing.T) {
	for _, text := range []string{
		"", "text", "a {{- /* comment */ -}} b", "{{.a}}{{.n}}{{.x}}{{.yes}}{{.list}}{{.deep}}", "{{.deep.a.b}}{{(index .deep `a`).b}}{{$.deep.z}}",
		"{{1}} {{-2}} {{1.5}} {{1e3}} {{1e6}} {{0x1F}} {{0x1p-2}} {{0b11}} {{010}} {{1_000}} {{'a'}} {{true}} {{`raw`}} {{\"a\\n\"}}",
		"{{if .no}}1{{else if .none}}2{{else if .yes}}3{{else}}4{{end}}", "{{if 0}}1{{end}}{{if 0.0}}2{{end}}{{if .page}}3{{end}}{{if .n}}4{{end}}",
		"{{with .b}}{{.}}{{$.n}}{{end}}{{with .none}}1{{else with .deep}}{{.z}}{{else}}2{{end}}", "{{with $x := .b}}{{$x}}{{end}}{{if $x := .n}}{{$x}}{{end}}",
		"{{$x := 1}}{{if .yes}}{{$x = 2}}{{$y := 3}}{{$x := 4}}{{$x}}{{end}}{{$x}}", "{{$x := .deep}}{{$x.a.b}}",
		"{{range .list}}[{{.}}]{{end}}", "{{range $i, $e := .list}}{{$i}}={{$e}}{{end}}", "{{range $e := .list}}{{$e}}{{end}}", "{{range $k, $v := .deep}}{{$k}}={{$v}}{{end}}",
		"{{range .none}}1{{else}}{{$.b}}{{end}}{{range $x := .none}}1{{else}}{{$x}}{{end}}",
		"{{$x := 1}}{{range $x = .list}}{{end}}{{$x}}", "{{$i := 0}}{{$x := 1}}{{range $i, $x = .list}}{{if $i}}{{break}}{{end}}{{end}}{{$i}}{{$x}}",
		"{{range $i, $e := .list}}{{if eq $i 1}}{{continue}}{{end}}{{if gt $i 3}}{{break}}{{end}}{{.}}{{end}}",
		"{{range .list}}{{range $j, $e := $.list}}{{if $j}}{{break}}{{end}}{{.}}{{end}}{{.}}{{end}}",
		"{{define `t`}}({{.}}{{$}}){{end}}{{template `t` .n}}{{template `t` 1}}{{block `u` .b}}<{{.}}>{{end}}{{define `t`}}{{end}}", "{{define `t`}}t{{end}}{{template `t`}}",
		"{{and .yes .b}}{{and .no .nope}}{{or .yes .nope}}{{or .no .b}}{{.no | or false}}{{and}}", "{{not .no}}{{not .list}}{{not 1}}{{not nil}}", "{{or}}", "{{and 1 2 0 3}}",
		"{{eq .b `b`}}{{eq .n `7`}}{{eq 1 1.0}}", "{{eq 1 2 1}}{{eq 1 2 3}}{{ne .b .a}}{{eq .yes true}}{{eq .b nil}}{{eq nil nil}}", "{{eq .b}}", "{{eq .list .list}}", "{{eq .deep nil}}",
		"{{eq .n 7}}", "{{eq .n.Int64 7}}{{gt .x.Float64 1.0}}", "{{.x.Int64}}", "{{lt 1 2}}{{le 2 2}}{{gt 1 2}}{{ge 1 2}}{{lt `a` `b`}}{{lt 1.5 2.5}}", "{{lt 1 2.0}}", "{{lt true false}}", "{{lt .list 1}}",
		"{{index .list 0}}{{index .deep `a` `b`}}{{index .list 4 `k`}}{{index .b}}", "{{index .list 5}}", "{{index .list -1}}", "{{index .list `x`}}", "{{index .n 1 2}}",
		"{{len .a}}{{len .list}}{{len .deep}}", "{{len 3}}", "{{len nil}}", "{{print .b 1 2 .n nil}}{{println .b .n}}{{printf `%05d|%-5s|%q|%v|%*d` 7 .b .n .list 5 1}}", "{{printf}}", "{{print}}",
		"{{.a | print | len}}", "{{.b | printf `%s%s` .b}}", "{{print (print 1 2) (len .list)}}",
		"{{.page.Title}}{{.page.Bad}}{{range .page.Rows}}{{.Name}}{{.Text}}{{.}}{{end}}", "{{.page.n}}", "{{.page.Nope}}", "{{len .page.Rows}}{{with index .list 0}}{{.}}{{end}}",
		"{{.nope}}", "{{.deep.nope}}", "{{.b.c}}", "{{.b 1}}", "{{1 | .b}}", "{{$x := .b}}{{$x 1}}", "{{$x = 1}}", "{{range $x, $y = $x}}{{end}}", "{{range .b}}{{end}}", "{{range .yes}}{{end}}", "{{range 1.5}}{{end}}", "{{template `t`}}", "{{nofunc}}", "{{.a",
	} {
		var want strings.Builder
		parsed, wantErr := oracle.New("t").Option("missingkey=error").Parse(text)
		if wantErr == nil {
			wantErr = parsed.Execute(&want, data())
		}
		var got []byte
		tmpl, err := template.Parse("t", text)
		if err == nil {
			got, err = tmpl.Append(nil, "t", data())
		}
		if (err == nil) != (wantErr == nil) || err == nil && string(got) != want.String() {
			t.Errorf("%s:\n%q %v, want\n%q %v", text, got, err, want.String(), wantErr)
		}
	}
}

func TestPagesEscapeAllValuesExceptHTML(t *testing.T) {
	const hostile = `<b x='"'>&amp;`
	tmpl, err := template.ParseHTML("page", `<p class="{{.a}}">{{.a}}{{print .a}}</p>{{.html}}{{range .list}}{{.}}{{end}}`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tmpl.Append(nil, "page", map[string]any{"a": hostile, "html": template.HTML("<svg>"), "list": []any{hostile, 1}})
	const safe = "&lt;b x=&#39;&#34;&#39;&gt;&amp;amp;"
	if want := `<p class="` + safe + `">` + safe + safe + `</p><svg>` + safe + `1`; err != nil || string(got) != want {
		t.Errorf("%s %v, want %s", got, err, want)
	}
}

func TestTemplatesEnd(t *testing.T) {
	for _, text := range []string{
		"{{range 2000000000}}{{end}}",
		"{{define `a`}}{{template `b`}}{{end}}{{define `b`}}{{template `a`}}{{end}}{{template `a`}}",
		"{{template `t`}}",
		"{{$x := `xxxxxxxx`}}{{range .}}{{$x = print $x $x}}{{end}}",
		"{{$x := `xxxxxxxx`}}{{range .}}{{$x}}{{$x = print $x $x}}{{end}}",
		"{{html 1}}", "{{js 1}}", "{{urlquery 1}}", "{{call 1}}", "{{slice . 1}}",
	} {
		tmpl, err := template.Parse("t", text)
		if err == nil {
			_, err = tmpl.Append(nil, "t", make([]any, 60))
		}
		if err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
