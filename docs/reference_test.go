package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/sluice-llm/sluice/internal/suite"
)

//go:generate env SLUICE_TEST_WRITE=1 go test -count=1 -run TestReferenceOfJSON .

const jsonIntroduction = "# JSON\n\nField names end in their unit, such as `_ms`, `_s`, `_usd` or `_bytes`. Times have the RFC 3339 format. Unknown values are `null` or missing. " +
	"Documents are on standard output, progress and warnings on standard error. " +
	"[Stability](../stability.md) describes the promise for these fields.\n"

// jsonDocuments are the documents by their headings, with the Go types that they are made of.
var jsonDocuments = []struct{ heading, dir, name string }{
	{"sluice run --json", "internal/runinfo", "Summary"},
	{"sluice run --dry-run --json", "internal/forecast", "DryRun"},
	{"OUT.jsonl of sluice run", "batch", "Recording"},
	{"sluice answers", "internal/answers", "answer"},
	{"sluice run --progress json", "internal/runinfo", "Status"},
	{"sluice run --events", "internal/telemetry", "reference"},
	{"OUT.state.json", "internal/work", "State"},
	{"sluice status OUT --json", "internal/runinfo", "Stored"},
	{"sluice status --json", "internal/runinfo", "List"},
	{"sluice status --redis --json", "cluster", "Status"},
	{"sluice exec --json", "internal/runinfo", "ExecSummary"},
	{"report.json of sluice exec", "internal/proc", "Report"},
	{"results.jsonl of sluice exec", "internal/proc", "Result"},
	{"sluice report --json", "internal/telemetry", "Report"},
	{"sluice plan --json", "internal/forecast", "Plan"},
	{"sluice plan --list --json", "provider", "Listing"},
	{"sluice models --json", "internal/pricing", "Model"},
	{"sluice find --json and --output-file", "internal/find", "resultDocument"},
	{"sluice find --mode sweep --json", "internal/find", "sweepDocument"},
	{"sluice find --dry-run --json", "internal/find", "Forecast"},
	{"sluice find --from-provider --json", "provider", "AccountLimits"},
	{"sluice explain --json", "internal/explain", "Verdict"},
	{"sluice serve --json and --check --json", "internal/serve", "Description"},
	{"sluice serve --access-log", "gateway", "accessLine"},
	{"sluice serve --access-log, omitted lines", "gateway", "omittedLines"},
	{"sluice stress --json", "internal/stress", "Result"},
	{"sluice version --json", "internal/version", "Info"},
}

// commandSections returns the names of all commands, and their sections in the reference.
func commandSections(t *testing.T) (sections [][2]string) {
	t.Helper()
	b, err := os.ReadFile("reference/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	for section := range strings.SplitSeq(string(b), "\n## sluice ") {
		if name, text, ok := strings.Cut(section, "\n"); ok {
			sections = append(sections, [2]string{name, text})
		}
	}
	return sections[1:]
}

var (
	jsonFlag = regexp.MustCompile("`(--[a-z-]+)`")     // A flag stands without quotes, unlike a value.
	jsonRest = regexp.MustCompile(`(?m)^( *)… +(.*)$`) // Fields described above need no columns.
)

// jsonKinds are the JSON types of Go types that write themselves.
var jsonKinds = map[string]string{
	"string": "text", "bool": "true/false", "time.Time": "text", "time.Duration": "number", "json.RawMessage": "any",
	"plan.Seconds": "number", "limits.Millis": "number", "plan.Counts": "object", "limits.Window": "text",
}

// goType is a type expression in a directory, with the argument of a generic type.
type goType struct {
	expr ast.Expr
	dir  string
	arg  *goType
}

// jsonField is a field of a struct.
type jsonField struct {
	name, kind, text string
	of               goType // the struct of objects in it
}

// jsonPage writes the blocks of documents.
type jsonPage struct {
	testing.TB
	types map[string]ast.Expr // by directory and name, as "dir.Name"
	dirs  map[string]string   // of imports, by directory and name
	first map[jsonField]bool  // written fields
}

// load reads the types of a directory, also those of its tests.
func (j *jsonPage) load(dir string) {
	files, _ := filepath.Glob(filepath.Join("..", dir, "*.go"))
	j.dirs[dir+"."] = dir // it is read
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			j.Fatal(err)
		}
		for _, imported := range file.Imports {
			full := strings.Trim(imported.Path.Value, `"`)
			j.dirs[dir+"."+path.Base(full)] = strings.TrimPrefix(strings.TrimPrefix(full, "github.com/sluice-llm/sluice"), "/")
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok && j.types[dir+"."+spec.Name.Name] == nil {
						j.types[dir+"."+spec.Name.Name] = spec.Type
					}
				}
			case *ast.FuncDecl:
				if decl.Recv != nil && decl.Name.Name == "MarshalText" {
					j.types[dir+"."+fmt.Sprint(decl.Recv.List[0].Type)] = ast.NewIdent("string")
				}
			}
		}
	}
}

// resolve returns the JSON type of a Go type, and the struct of objects in it.
func (j *jsonPage) resolve(g goType) (kind string, of goType) {
	inner := func(e ast.Expr) goType { return goType{e, g.dir, g.arg} }
	switch e := g.expr.(type) {
	case *ast.StarExpr:
		return j.resolve(inner(e.X))
	case *ast.StructType:
		return "object", g
	case *ast.ArrayType:
		_, of = j.resolve(inner(e.Elt))
		return "list", of
	case *ast.MapType:
		_, of = j.resolve(inner(e.Value))
		return "object", of
	case *ast.IndexExpr:
		arg := inner(e.Index)
		return j.resolve(goType{e.X, g.dir, &arg})
	case *ast.SelectorExpr:
		if kind = jsonKinds[fmt.Sprint(e.X)+"."+e.Sel.Name]; kind != "" {
			return kind, of
		}
		return j.resolve(goType{e.Sel, j.dirs[g.dir+"."+fmt.Sprint(e.X)], g.arg})
	case *ast.Ident:
		if j.dirs[g.dir+"."] == "" {
			j.load(g.dir)
		}
		if spec := j.types[g.dir+"."+e.Name]; spec != nil && jsonKinds[path.Base(g.dir)+"."+e.Name] == "" {
			return j.resolve(inner(spec))
		}
		if kind = jsonKinds[e.Name] + jsonKinds[path.Base(g.dir)+"."+e.Name]; kind != "" {
			return kind, of
		}
		if strings.Contains(e.Name, "int") || strings.Contains(e.Name, "float") {
			return "number", of
		}
		if g.arg != nil {
			return j.resolve(*g.arg)
		}
	}
	return "any", of
}

// fields returns the fields of a struct in JSON, those of embedded structs in their places.
func (j *jsonPage) fields(g goType) (all []jsonField) {
	for _, f := range g.expr.(*ast.StructType).Fields.List {
		tag := ""
		if f.Tag != nil {
			tag = reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json")
		}
		name, _, _ := strings.Cut(tag, ",")
		kind, of := j.resolve(goType{f.Type, g.dir, g.arg})
		switch {
		case name == "-", name == "" && f.Names != nil && !f.Names[0].IsExported():
			continue
		case name == "" && f.Names == nil:
			all = append(all, j.fields(of)...)
			continue
		}
		text := f.Comment.Text()
		if text == "" {
			text = f.Doc.Text()
		}
		text, _, _ = strings.Cut(strings.Join(strings.Fields(text), " ")+" ", ". ")
		if n := len(strings.Fields(text)); name == "" || n == 0 || n > 14 {
			j.Errorf("%s: the field %v is %q in JSON, and its comment has %d words, not 1 to 14: %s", g.dir, f.Names, name, n, text)
		}
		all = append(all, jsonField{name, kind, strings.TrimRight(text, ". "), of})
	}
	return all
}

// rows returns a row for each field of a struct and, indented, of the structs in it. Fields described above are in again.
func (j *jsonPage) rows(g goType, indent string) (rows [][2]string, again []string) {
	for _, f := range j.fields(g) {
		if j.first[f] {
			again = append(again, f.name)
			continue
		}
		j.first[f] = true
		if f.of.expr == nil {
			rows = append(rows, [2]string{indent + f.name, f.kind + "\t" + f.text})
			continue
		}
		rows = append(rows, [2]string{indent + f.name + map[string]string{"list": "[]"}[f.kind], "\t" + f.text})
		below, known := j.rows(f.of, indent+"  ")
		rows = append(rows, below...)
		if known != nil {
			adjective := "additional "
			if below == nil {
				adjective = ""
			}
			rows = append(rows, [2]string{indent + "  …", "\t" + adjective + "fields: " + strings.Join(known, ", ")})
		}
	}
	return rows, again
}

func TestReferenceOfJSON(t *testing.T) {
	j := &jsonPage{t, make(map[string]ast.Expr), make(map[string]string), make(map[jsonField]bool)}
	var b strings.Builder
	b.WriteString(jsonIntroduction)
	for _, d := range jsonDocuments {
		_, root := j.resolve(goType{expr: ast.NewIdent(d.name), dir: d.dir})
		if root.expr == nil {
			t.Fatalf("%s has no struct %s", d.dir, d.name)
		}
		rows, again := j.rows(root, "")
		fmt.Fprintf(&b, "\n## %s\n", d.heading)
		if again != nil {
			fmt.Fprintf(&b, "\nDescribed above: `%s`.\n", strings.Join(again, "`, `"))
		}
		if rows == nil {
			continue
		}
		b.WriteString("\n```text\n")
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, row := range rows {
			fmt.Fprintf(w, "%s\t%s\n", row[0], strings.ReplaceAll(jsonFlag.ReplaceAllString(row[1], "$1"), "`", `"`))
		}
		w.Flush()
		b.WriteString("```\n")
	}
	for _, section := range commandSections(t) {
		has := func(d struct{ heading, dir, name string }) bool {
			return strings.HasPrefix(d.heading, "sluice "+section[0]+" ")
		}
		if strings.Contains(section[1], " --json ") && !slices.ContainsFunc(jsonDocuments, has) {
			t.Errorf("jsonDocuments has no document of sluice %s --json", section[0])
		}
	}
	suite.Generated(t, "reference/json.md", jsonRest.ReplaceAllString(b.String(), "$1($2)"))
}
