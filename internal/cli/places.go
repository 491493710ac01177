package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-llm/sluice/proc"
	"github.com/sluice-llm/sluice/work"
)

// ofExec reports whether a directory is that of a run of sluice exec.
func ofExec(dir string) bool {
	if dir == "" {
		return false
	}
	for _, name := range []string{proc.StatePath(dir), proc.StatePath(dir) + ".bak"} {
		if _, err := os.Stat(name); err == nil {
			return true
		}
	}
	return false
}

// places returns where the results and the state of a run are: beside its output, or in its directory.
func places(output string) (results, state string) {
	if ofExec(output) {
		return proc.ResultsPath(output), proc.StatePath(output)
	}
	return output, work.StatePath(output)
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
