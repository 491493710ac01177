package command_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// starters are what starts a process, by the package that has it. exec.Cmd is one: its methods are.
var starters = map[string][]string{
	"os/exec":                  {"Command", "CommandContext", "Cmd"},
	"os":                       {"StartProcess"},
	"syscall":                  {"ForkExec", "StartProcess", "Exec", "RawSyscall", "RawSyscall6", "CreateProcess", "CreateProcessAsUser"},
	"golang.org/x/sys/unix":    {"Exec", "ForkExec"},
	"golang.org/x/sys/windows": {"CreateProcess", "CreateProcessAsUser"},
}

// TestRunAloneStartsCommands walks the source of the module, but for its tests and what it is developed with.
func TestRunAloneStartsCommands(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, other := os.Stat(filepath.Join(path, "go.mod"))
			if path != root && (other == nil || d.Name() == "testdata" || d.Name() == "scripts" || strings.HasPrefix(d.Name(), ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found := startsOf(t, path, src)
		switch filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator))) {
		case "internal/command/running.go":
			if !slices.Contains(found, "exec.CommandContext") {
				t.Errorf("%s starts nothing: %q", path, found)
			}
		default:
			// To pass a command on is not to start one.
			if strings.HasPrefix(filepath.ToSlash(path), "../../internal/command/") {
				found = slices.DeleteFunc(found, func(s string) bool { return s == "exec.Cmd" })
			}
			if len(found) > 0 {
				t.Errorf("%s starts commands, which internal/command.Run alone may: %q", path, found)
			}
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Errorf("%d files, %v", files, err)
	}
}

func TestStartsAreFound(t *testing.T) {
	for src, want := range map[string]int{
		`import "os/exec"; func f() { exec.Command("a").Run() }`:      1,
		`import other "os/exec"; var f = other.CommandContext`:        1,
		`import "os/exec"; func f() { (&exec.Cmd{Path: "a"}).Run() }`: 1,
		`import . "os/exec"`:                                                        1,
		`import "os/exec"; var f = exec.LookPath`:                                   0,
		`import "os"; var f = os.StartProcess; var g = os.FindProcess`:              1,
		`import "syscall"; var f, g = syscall.ForkExec, syscall.Exec`:               2,
		`import exec "example.com/other"; func f() { exec.Command("a") }`:           0,
		`import "golang.org/x/sys/windows"; var f = windows.CreateProcess`:          1,
		`type T struct{}; func (T) Command() {}; func f(exec T) { exec.Command() }`: 0,
	} {
		if got := startsOf(t, "x.go", []byte("package x; "+src)); len(got) != want {
			t.Errorf("%s: found %q, want %d", src, got, want)
		}
	}
}

func startsOf(t *testing.T, name string, src []byte) (found []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	imported := map[string][]string{} // by the name that the file has for it
	for _, i := range file.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		names, ok := starters[path]
		if !ok {
			continue
		}
		as := path[strings.LastIndexByte(path, '/')+1:]
		if i.Name != nil {
			as = i.Name.Name
		}
		if as == "." {
			found = append(found, `import . "`+path+`"`)
		}
		imported[as] = names
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && slices.Contains(imported[x.Name], s.Sel.Name) {
				found = append(found, x.Name+"."+s.Sel.Name)
			}
		}
		return true
	})
	return found
}
