package gate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTheGateIsPure looks for what the gate may not have: a clock, a goroutine, a lock, a timer, a channel.
func TestTheGateIsPure(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range impurities(t, name, src) {
			t.Errorf("%s: %s", name, s)
		}
	}
}

func TestImpuritiesAreFound(t *testing.T) {
	for src, want := range map[string]int{
		`import "time"; var _ = time.Now`:                            1,
		`import "time"; func f() { time.Sleep(1); <-time.After(2) }`: 3,
		`import clock "time"; var _ = clock.Until`:                   1,
		`import . "time"`:                       1,
		`import "sync"`:                         1,
		`import "sync/atomic"`:                  1,
		`import "context"`:                      1,
		`func f() { go f() }`:                   1,
		`var c chan int`:                        1,
		`type T struct { Ready chan struct{} }`: 0,
		`type T struct { Other chan struct{} }`: 1,
		`func f(c T) { c.Ready <- x }`:          1,
		`func f() { select {} }`:                1,
		`import "time"; func f(t time.Time) bool { return t.After(t) || t.IsZero() }`: 0,
	} {
		if got := impurities(t, "x.go", []byte("package x; "+src)); len(got) != want {
			t.Errorf("%s: found %q, want %d", src, got, want)
		}
	}
}

func impurities(t *testing.T, name string, src []byte) (found []string) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	at := func(n ast.Node, what string) { found = append(found, fset.Position(n.Pos()).String()+" "+what) }
	clock := "time"
	for _, imp := range file.Imports {
		path := strings.Trim(imp.Path.Value, `"`)
		switch path {
		case "time":
			if imp.Name != nil {
				clock = imp.Name.Name
			}
			if clock == "." {
				at(imp, "imports time by a dot")
			}
		case "sync", "sync/atomic", "context", "runtime", "os", "syscall", "unsafe":
			at(imp, "imports "+path)
		}
	}
	allowed := map[ast.Node]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if len(n.Names) == 1 && slices.Contains([]string{"Ready", "Withdrawn"}, n.Names[0].Name) { // which the Scheduler waits for
				allowed[n.Type] = true
			}
		case *ast.ChanType:
			if !allowed[n] {
				at(n, "has a channel")
			}
		case *ast.GoStmt:
			at(n, "starts a goroutine")
		case *ast.SelectStmt:
			at(n, "selects")
		case *ast.SendStmt:
			at(n, "sends")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				at(n, "receives")
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == clock && slices.Contains([]string{"Now", "Since", "Until", "After", "AfterFunc",
				"Sleep", "Tick", "NewTimer", "NewTicker", "Timer", "Ticker"}, n.Sel.Name) {
				at(n, "uses time."+n.Sel.Name)
			}
		}
		return true
	})
	return found
}
