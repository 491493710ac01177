//go:build full

package docs_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/suite"
)

// imports are the packages that fragments use by their names.
var imports = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "log": "log", "os": "os", "slog": "log/slog", "time": "time",
	"sluice": "github.com/sluice-llm/sluice", "batch": "github.com/sluice-llm/sluice/batch", "cluster": "github.com/sluice-llm/sluice/cluster",
	"gateway": "github.com/sluice-llm/sluice/gateway", "plan": "github.com/sluice-llm/sluice/plan",
	"pool": "github.com/sluice-llm/sluice/pool", "limits": "github.com/sluice-llm/sluice/limits", "provider": "github.com/sluice-llm/sluice/provider",
	"sim":    "github.com/sluice-llm/sluice/sim",
	"openai": "github.com/openai/openai-go/v3", "option": "github.com/openai/openai-go/v3/option", "anthropic": "github.com/anthropics/anthropic-sdk-go",
}

// given is what fragments of Go may take for granted, where they do not declare it.
var given = map[string]string{
	"ctx":     "var ctx context.Context",
	"prompt":  "var prompt string",
	"attempt": "func attempt(context.Context, *sluice.Permit) (o sluice.Outcome) { return }",
	"client":  "var client interface { Ask(context.Context, string) (struct{ In, Out int }, error) }",
	"store":   "var store pool.Store",
	"post":    "func post(context.Context) (r *http.Response, err error) { return }",

	"scheduler":    "var scheduler *sluice.Scheduler",
	"attempt(ctx)": "func attempt(context.Context) (o sluice.Outcome) { return }",
}

// A source is a block of Go as a file.
type source struct {
	where string
	file  *ast.File
}

// compilable makes a file of a block: of a whole one, of declarations, or of statements.
func compilable(fset *token.FileSet, where, text string) (*ast.File, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "package ") {
		return parser.ParseFile(fset, where, text, 0)
	}
	body := text
	if _, err := parser.ParseFile(token.NewFileSet(), where, "package p\n"+text, 0); err != nil {
		body = "func _() {\n" + text + "\n}\n"
		if strings.Contains(text, "return err\n") {
			body = "func _() error {\n" + text + "\nreturn nil\n}\n"
		}
	}
	preamble := ""
	for _, name := range slices.Sorted(maps.Keys(given)) {
		used := regexp.MustCompile(`\b`+regexp.QuoteMeta(name)).MatchString(body) && (name != "attempt" || !strings.Contains(body, "attempt(ctx)"))
		declared := regexp.MustCompile(`(func |var |, |^|\n)` + regexp.QuoteMeta(name) + `(\(|, \w+ :?=| :?=)`).MatchString(body)
		if used && !declared {
			preamble += given[name] + "\n"
		}
	}
	head := "package p\n"
	for name, path := range imports {
		if regexp.MustCompile(`(^|[^.\w"])` + name + `\.[A-Z]`).MatchString(preamble + body) {
			head += "import " + name + " " + strconv.Quote(path) + "\n"
		}
	}
	return parser.ParseFile(fset, where, head+preamble+body, 0)
}

// exports are the files with which the compiler tells what packages export, by their paths. They are made where they are not there,
// by the modules of a directory and from what this machine has of them.
func exports(dir string, paths []string) (map[string]string, error) {
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, paths...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=readonly", "GOTOOLCHAIN=local")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.String())
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[path] = file
	}
	return files, nil
}

// compile says what the compiler would. That something is declared and not used, as things are in fragments, is no mistake.
func compile(fset *token.FileSet, file *ast.File, files map[string]string) (mistakes []error) {
	c := types.Config{
		Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
			if files[path] == "" {
				return nil, fmt.Errorf("there is no package %s", path)
			}
			return os.Open(files[path])
		}),
		Error: func(err error) {
			if e, ok := err.(types.Error); !ok || !e.Soft {
				mistakes = append(mistakes, err)
			}
		},
	}
	c.Check("p", fset, []*ast.File{file}, nil)
	return mistakes
}

func TestTheGoOfDocuments(t *testing.T) {
	fset := token.NewFileSet()
	ours, theirs := []source{}, []source{} // those that need official clients are compiled in the module of the examples
	for _, d := range documents(t) {
		for _, b := range d.blocks {
			if b.lang != "go" {
				continue
			}
			where := fmt.Sprintf("%s:%d", d.name, b.line)
			file, err := compilable(fset, where, b.text)
			switch {
			case err != nil:
				t.Errorf("%s: %v", where, err)
			case slices.ContainsFunc(paths(file), func(p string) bool { return !standardOrOurs(p) }):
				theirs = append(theirs, source{where, file})
			default:
				ours = append(ours, source{where, file})
			}
		}
	}
	compileAll(t, fset, root, ours)
	t.Run("with official clients", func(t *testing.T) {
		suite.FullOnly(t) // official clients take minutes to compile
		dir := filepath.Join(root, "examples")
		if _, err := exports(dir, []string{"./..."}); err != nil {
			t.Skipf("modules of official clients are missing: %v", err)
		}
		compileAll(t, fset, dir, theirs)
	})
}

// standardOrOurs reports whether a package is of the standard library or of ours.
func standardOrOurs(path string) bool {
	return !strings.Contains(path, ".") || strings.HasPrefix(path, "github.com/sluice-llm/sluice")
}

func paths(file *ast.File) (all []string) {
	for _, i := range file.Imports {
		if path, err := strconv.Unquote(i.Path.Value); err == nil {
			all = append(all, path)
		}
	}
	return all
}

// compileAll compiles files with the modules of a directory.
func compileAll(t *testing.T, fset *token.FileSet, dir string, all []source) {
	var needs []string
	for _, s := range all {
		needs = append(needs, paths(s.file)...)
	}
	slices.Sort(needs)
	files, err := exports(dir, slices.Compact(needs))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		for _, err := range compile(fset, s.file, files) {
			t.Errorf("%s: %v", s.where, err)
		}
	}
}

func TestTheGoOfThePackageCommentCompiles(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "sluice.go"))
	if err != nil {
		t.Fatal(err)
	}
	var text string
	comment, _, _ := strings.Cut(string(b), "package sluice\n")
	for line := range strings.Lines(comment) {
		if line, ok := strings.CutPrefix(line, "//\t"); ok {
			text += line
		}
	}
	fset := token.NewFileSet()
	file, err := compilable(fset, "sluice.go", text)
	if err != nil || text == "" {
		t.Fatalf("%v: %q", err, text)
	}
	compileAll(t, fset, root, []source{{"sluice.go", file}})
}

func TestWhatIsWrongWithGoIsFound(t *testing.T) {
	files, err := exports(root, []string{"github.com/sluice-llm/sluice", "context"})
	if err != nil {
		t.Skip(err)
	}
	for name, text := range map[string]string{
		"a type that is not there":  "s := sluice.Schedule{}\n",
		"a field that is not there": "c := sluice.Config{Limit: 5}\n",
		"a whole file":              "package main\n\nfunc main() { nothing() }\n",
		"a declaration":             "func f() int { return \"\" }\n",
		"a name of nobody's":        "x := elsewhere\n",
	} {
		fset := token.NewFileSet()
		file, err := compilable(fset, name, text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if len(compile(fset, file, files)) == 0 {
			t.Errorf("%s: nothing is found", name)
		}
	}
}
