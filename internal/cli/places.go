package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/work"
)

// ofExec reports whether a directory is that of a run of sluice exec.
func ofExec(dir string) bool {
	if dir == "" {
		return false
	}
	_, err := os.Stat(proc.StatePath(dir))
	return err == nil
}

// execDir returns the directory of a run of sluice exec that a name stands for: its own, or that of the results in it, which the
// run's summary names.
func execDir(name string) (dir string, ok bool) {
	if ofExec(name) {
		return name, true
	}
	if name == "" || filepath.Base(name) != filepath.Base(proc.ResultsPath("")) {
		return "", false
	}
	if _, err := os.Stat(work.StatePath(name)); err == nil {
		return "", false // it is the output of sluice run
	}
	dir = filepath.Dir(name)
	return dir, ofExec(dir)
}

// places returns where the results and the state of a run are: beside its output, links followed, or in its directory.
func places(output string) (results, state string) {
	if dir, ok := execDir(output); ok {
		return proc.ResultsPath(dir), proc.StatePath(dir)
	}
	output = linked(output)
	return output, work.StatePath(output)
}

// linked returns the target of a symbolic link, which may not exist yet; path if it is no link.
func linked(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	to, err := os.Readlink(path)
	switch {
	case err != nil:
		return path
	case filepath.IsAbs(to):
		return to
	}
	return filepath.Join(filepath.Dir(path), to)
}

// runsIn returns the outputs and directories of the runs whose state is in a directory, or in one of those in it.
func runsIn(dir string) (runs []string) {
	files := os.DirFS(dir) // its own name is no pattern then
	outputs, _ := fs.Glob(files, "*"+work.StatePath(""))
	for _, name := range outputs {
		runs = append(runs, filepath.Join(dir, strings.TrimSuffix(name, work.StatePath(""))))
	}
	states, _ := fs.Glob(files, filepath.ToSlash(proc.StatePath("*")))
	for _, name := range states {
		runs = append(runs, filepath.Join(dir, filepath.Dir(name)))
	}
	return runs
}
