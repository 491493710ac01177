package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/fault"
)

// Output is a file that is written as a whole, or not at all. The file that it replaces stays until then.
type Output struct {
	Name     string // as given
	Replaces bool   // a file exists

	label, path string
	mode        fs.FileMode
}

// Plan checks that a file can be written, before a long computation of its content. It leaves nothing behind. label names the file in
// errors, such as --plot. Without a name, it returns nil.
func Plan(label, name string) (*Output, error) {
	if name == "" {
		return nil, nil
	}
	o := &Output{Name: name, label: label, path: name, mode: 0o644}
	err := o.check()
	if err == nil {
		err = atomicfile.Probe(o.path)
	}
	if err != nil {
		return nil, fault.New(fault.File, fmt.Errorf("%s: %w", label, err), "name a writable file in an existing directory")
	}
	return o, nil
}

// check finds the file that exists. A read-only file is refused, because its owner protects it.
func (o *Output) check() error {
	info, err := os.Stat(o.Name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if to, err := os.Readlink(o.Name); err == nil { // the link would be replaced, and not its target
			return fmt.Errorf("%s is a link to %s, which does not exist", o.Name, to)
		}
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", o.Name)
	}
	f, err := os.OpenFile(o.Name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	o.mode, o.Replaces = info.Mode().Perm(), true
	o.path, err = filepath.EvalSymlinks(o.Name)
	return errors.Join(err, f.Close())
}

// Write writes the file. A file that it replaces keeps its mode.
func (o *Output) Write(fill func(io.Writer) error) error {
	err := atomicfile.Fill(o.path, atomicfile.Options{Mode: o.mode}, func(f *os.File) error {
		err := fill(f)
		if o.Replaces {
			err = errors.Join(err, f.Chmod(o.mode))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", o.label, err)
	}
	return nil
}

// KeepApart refuses an output that would replace an input.
func KeepApart(label, output string, inputs ...string) error {
	for _, in := range inputs {
		if Same(output, in) {
			return fault.New(fault.Conflict, fmt.Errorf("%s would replace the input %s", label, in), "use another file for %s", label)
		}
	}
	return nil
}

// Named is a file with its name in errors.
type Named struct {
	What, Path string
	Own        bool // it cannot be the same file as any other, such as an output
}

// Apart refuses two names of one file, unless neither of them is Own.
func Apart(files ...Named) error {
	for i, b := range files {
		for _, a := range files[:i] {
			if (a.Own || b.Own) && Same(a.Path, b.Path) {
				return fault.New(fault.Conflict, fmt.Errorf("%s and %s are the same file %s", a.What, b.What, b.Path), "use different files")
			}
		}
	}
	return nil
}
