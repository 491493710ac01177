package docs_test

import (
	"bytes"
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/cli"
)

// forbidden are clauses in place of nouns, and words in place of terms.
var forbidden = regexp.MustCompile(`\b[Ww]hat (?:is|was|are|it|they|comes|no|one)\b[^?]*$|\b(?:nobody|whoever|whatever|so many|that of|those of|is told|goes on|go on|the engine|imitation|mend|refused for now|of one's own|no longer|not any more)\b`)

// longest is the maximum number of words of a sentence.
const longest = 30

var (
	sentenceEnd = regexp.MustCompile(`[.!?:;·](?:\s+|$)|\n\s*\n`)
	word        = regexp.MustCompile(`[\pL\pN][\pL\pN'’-]*`)
	inlineCode  = regexp.MustCompile("`[^`]*`")
	linkTarget  = regexp.MustCompile(`\]\([^)]*\)`)
)

// faults returns the sentences of a text that break a rule.
func faults(text string) (all []string) {
	text = linkTarget.ReplaceAllString(inlineCode.ReplaceAllString(text, "X"), "]")
	for _, s := range sentenceEnd.Split(text, -1) {
		s = strings.Join(strings.Fields(s), " ")
		switch {
		case forbidden.MatchString(s):
			all = append(all, forbidden.FindString(s)+" in: "+s)
		case len(word.FindAllString(s, -1)) > longest:
			all = append(all, "too long: "+s)
		}
	}
	return all
}

// root is the directory of the repository.
const root = ".."

// A document is a file of Markdown in the repository.
type document struct {
	name   string // its path from the root, with slashes
	text   string
	blocks []block
}

// A block is what stands between two fences.
type block struct {
	line int    // of its first fence
	lang string // empty: a diagram, or output
	text string
}

// documents returns the Markdown files of the repository, without fixtures of tests and copies of other projects.
func documents(t testing.TB) (all []document) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (d.Name() == "testdata" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		all = append(all, document{filepath.ToSlash(name), string(b), blocks(string(b))})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var fence = regexp.MustCompile("^( *)```+ *([A-Za-z0-9_-]*)")

// blocks returns the fenced blocks of a document.
func blocks(text string) (all []block) {
	var b *block
	indent := ""
	for i, line := range strings.Split(text, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case b == nil && m != nil:
			b, indent = &block{line: i + 1, lang: m[2]}, m[1]
		case b != nil && m != nil && m[2] == "":
			all = append(all, *b)
			b = nil
		case b != nil:
			b.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	return all
}

func TestProseOfDocuments(t *testing.T) {
	for _, d := range documents(t) {
		for _, f := range faults(prose(d.text)) {
			t.Errorf("%s: %s", d.name, f)
		}
	}
}

// prose returns a document without its blocks. Each cell of a table is a paragraph.
func prose(text string) string {
	var b strings.Builder
	inside := false
	for line := range strings.Lines(text) {
		switch {
		case fence.MatchString(line):
			inside = !inside
		case inside:
		case strings.Contains(line, " | "):
			b.WriteString("\n\n" + strings.ReplaceAll(line, "|", "\n\n"))
		case strings.HasPrefix(line, "#"), strings.HasPrefix(line, "- "):
			b.WriteString("\n\n" + line + "\n")
		default:
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestProseOfHelp(t *testing.T) {
	for _, section := range commandSections(t) {
		command := strings.TrimSpace(section[0])
		var stdout, stderr bytes.Buffer
		cli.Main(context.Background(), append(strings.Fields(command), "--help"), strings.NewReader(""), &stdout, &stderr)
		for _, f := range faults(strings.ReplaceAll(stdout.String(), "\n  ", "\n\n")) {
			t.Errorf("%s --help: %s", command, f)
		}
	}
}

// quoted are texts of other systems in the code, by their start, each with the reason why it keeps its words.
var quoted = map[string]string{
	"We could not parse the JSON body of your request.": "the simulator repeats OpenAI's message",
	"(?i)unsupported|not":                               "a regular expression over the messages of providers",
}

// longestMessage is the maximum number of words of a message; a longer text of code is a script, a table or input.
const longestMessage = 60

// TestProseOfCode checks messages, which are texts with a space, for forbidden words, and the comments of exported names.
func TestProseOfCode(t *testing.T) {
	fset := token.NewFileSet()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != ".." && (d.Name() == "testdata" || d.Name() == "examples" || strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, err := strconv.Unquote(lit.Value)
				if err == nil && isMessage(text) && forbidden.MatchString(text) {
					t.Errorf("%s: %s in: %s", fset.Position(lit.Pos()), forbidden.FindString(text), text)
				}
			}
			return true
		})
		if public[filepath.Base(filepath.Dir(path))] || filepath.Dir(path) == ".." {
			for pos, text := range exportedComments(file) {
				for _, f := range faults(text) {
					t.Errorf("%s: %s", fset.Position(pos), f)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func isMessage(text string) bool {
	for start := range quoted {
		if strings.HasPrefix(text, start) {
			return false
		}
	}
	return strings.Contains(text, " ") && len(word.FindAllString(text, -1)) <= longestMessage
}

// public are the directories whose comments are checked, besides the root.
var public = map[string]bool{"limits": true, "plan": true, "pool": true, "provider": true, "gateway": true, "cluster": true, "sim": true}

var codeLine = regexp.MustCompile(`(?m)^\t.*$`)

// exportedComments returns the comments of the package, its exported names and their exported fields.
func exportedComments(file *ast.File) map[token.Pos]string {
	all := make(map[token.Pos]string)
	add := func(comment *ast.CommentGroup, names ...*ast.Ident) {
		if comment != nil && (len(names) == 0 || slices.ContainsFunc(names, (*ast.Ident).IsExported)) {
			all[comment.Pos()] = codeLine.ReplaceAllString(comment.Text(), "")
		}
	}
	ast.FileExports(file)
	add(file.Doc)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			add(n.Doc, n.Name)
		case *ast.GenDecl:
			add(n.Doc)
		case *ast.TypeSpec:
			add(n.Doc, n.Name)
			add(n.Comment, n.Name)
		case *ast.ValueSpec:
			add(n.Doc, n.Names...)
			add(n.Comment, n.Names...)
		case *ast.Field:
			add(n.Doc, n.Names...)
			add(n.Comment, n.Names...)
		}
		return true
	})
	return all
}
