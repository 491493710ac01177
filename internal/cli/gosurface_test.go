package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/sluice-llm/sluice"

// goSurface adds what the packages that anybody may import export, read from what the compiler exports.
func goSurface(t *testing.T, add func(string, ...any)) {
	list := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Name,Export", "./...")
	list.Dir = "../.."
	out, err := list.Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			err = fmt.Errorf("%w: %s", err, failed.Stderr)
		}
		t.Fatal(err)
	}
	exported := make(map[string]string)
	var public []string
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Name, Export string }
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exported[p.ImportPath] = p.Export
		rest, ours := strings.CutPrefix(p.ImportPath, module)
		if ours && p.Name != "main" && p.Export != "" && !strings.Contains(rest, "/internal/") { // without code, there is but a test
			public = append(public, p.ImportPath)
		}
	}
	if len(public) < 11 {
		t.Fatalf("only %d packages: %s", len(public), public)
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exported[path]) })
	for _, path := range public {
		p, err := from.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		packageSurface(p, add)
	}
}

func packageSurface(p *types.Package, add func(string, ...any)) {
	name := strings.TrimPrefix(strings.TrimPrefix(p.Path(), module), "/")
	if name == "" {
		name = "sluice"
	}
	qualified := func(of *types.Package) string {
		owner := of.Name()
		switch strings.TrimPrefix(of.Path(), module+"/internal/") { // whose aliases its types are for everybody
		case "gate":
			owner = "sluice"
		case "rows":
			owner = "batch"
		}
		if owner == p.Name() {
			return ""
		}
		return owner
	}
	line := func(format string, args ...any) { add("go "+name+": "+format, args...) }
	for _, id := range p.Scope().Names() {
		o := p.Scope().Lookup(id)
		if !o.Exported() {
			continue
		}
		switch o := o.(type) {
		case *types.Const:
			line("const %s %s", id, types.TypeString(o.Type(), qualified))
		case *types.TypeName:
			typeSurface(o, qualified, line)
		default:
			line("%s", types.ObjectString(o, qualified))
		}
	}
}

// typeSurface adds a type, its exported fields and its methods. An interface is one line, as whoever implements it needs all of it.
func typeSurface(o *types.TypeName, qualified types.Qualifier, line func(string, ...any)) {
	named, ok := types.Unalias(o.Type()).(*types.Named)
	if ok && o.IsAlias() && !strings.HasPrefix(named.Obj().Pkg().Path(), module+"/internal/") || !ok {
		line("%s", types.ObjectString(o, qualified))
		return
	}
	switch under := named.Underlying().(type) {
	case *types.Struct:
		line("type %s struct", o.Name())
		for f := range under.Fields() {
			if f.Exported() {
				line("type %s struct, %s %s", o.Name(), f.Name(), types.TypeString(f.Type(), qualified))
			}
		}
	case *types.Interface:
		line("type %s %s", o.Name(), types.TypeString(under, qualified))
		return
	default:
		line("type %s %s", o.Name(), types.TypeString(under, qualified))
	}
	value := types.NewMethodSet(named)
	for selection := range types.NewMethodSet(types.NewPointer(named)).Methods() {
		m := selection.Obj()
		if !m.Exported() {
			continue
		}
		receiver := "*" + o.Name()
		if value.Lookup(m.Pkg(), m.Name()) != nil {
			receiver = o.Name()
		}
		line("method (%s) %s%s", receiver, m.Name(), strings.TrimPrefix(types.TypeString(selection.Type(), qualified), "func"))
	}
}
