package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/term"
)

// newFile is a file that is written as a whole, or not at all: what it replaces stays until then. Nil is none.
type newFile struct {
	flag       string // that names it
	name, path string // as it was named, and where that leads
	mode       fs.FileMode
	replaces   bool // a file is there
}

// newFileFor finds out whether the file can be written, before a long look for what goes into it begins. It leaves nothing
// behind. No name is no file.
func newFileFor(flag, name string) (*newFile, error) {
	if name == "" {
		return nil, nil
	}
	f := &newFile{flag: flag, name: name, path: name, mode: 0o644}
	switch info, err := os.Stat(name); {
	case errors.Is(err, fs.ErrNotExist):
		if to, err := os.Readlink(name); err == nil { // a link would be replaced, and not what it leads to
			return nil, f.wrong(fmt.Errorf("%s is a link to %s, which does not exist", name, to))
		}
	case err != nil:
		return nil, f.wrong(err)
	case !info.Mode().IsRegular():
		return nil, f.wrong(fmt.Errorf("%s is not a regular file", name))
	default:
		if err := f.find(info); err != nil {
			return nil, f.wrong(err)
		}
	}
	if err := atomicfile.Probe(f.path); err != nil {
		return nil, f.wrong(err)
	}
	return f, nil
}

// find takes in the file that is there, which must be one that could be written: who made it read-only meant it.
func (f *newFile) find(info fs.FileInfo) error {
	was, err := os.OpenFile(f.name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	f.mode, f.replaces = info.Mode().Perm(), true
	f.path, err = filepath.EvalSymlinks(f.name)
	return errors.Join(err, was.Close())
}

// wrong says that the flag names what cannot be written.
func (f *newFile) wrong(err error) error {
	return fault.New(fault.File, fmt.Errorf("--%s: %w", f.flag, err), "name a writable file in an existing directory")
}

// write puts what fill writes in its place.
func (f *newFile) write(fill func(io.Writer) error) error {
	if f == nil {
		return nil
	}
	err := atomicfile.Fill(f.path, atomicfile.Options{Mode: f.mode}, func(file *os.File) error {
		err := fill(file)
		if f.replaces { // who may read it stays as it was
			err = errors.Join(err, file.Chmod(f.mode))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("--%s: %w", f.flag, err)
	}
	return nil
}

// checkSVG refuses a chart that would be something else by its name.
func checkSVG(name string) error {
	if strings.EqualFold(filepath.Ext(name), ".svg") {
		return nil
	}
	return fault.New(fault.Value, fmt.Errorf("--plot %q does not end in .svg", name), "name an SVG file, for example --plot chart.svg")
}

// keepsApart refuses a new file in the place of one that is read.
func keepsApart(flag, name string, read ...string) error {
	for _, other := range read {
		if regular.Same(name, other) {
			return fault.New(fault.Conflict, fmt.Errorf("--%s would replace the input %s", flag, other), "use another file for --%s", flag)
		}
	}
	return nil
}

// namedFile is a file that a flag or a setting names.
type namedFile struct {
	what, path string
	apart      bool // from all before it, and not only from the written ones
}

// checkApart refuses files that would overwrite each other, or one that is read.
func checkApart(named, written []namedFile) error {
	for i, a := range named {
		others := written
		if a.apart {
			others = named[:i]
		}
		for _, b := range others {
			if regular.Same(a.path, b.path) {
				return fault.New(fault.Conflict, fmt.Errorf("%s and %s are the same file %s", b.what, a.what, a.path), "use different files")
			}
		}
	}
	return nil
}

// draw writes a chart and says where it is.
func draw(s *term.Streams, chart *newFile, fill func(io.Writer) error) error {
	if chart == nil {
		return nil
	}
	if err := chart.write(fill); err != nil {
		return err
	}
	s.Errorf("sluice: the chart is in %s\n", chart.name)
	return nil
}
