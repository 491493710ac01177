package runinfo

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/work"
)

// IsExecDir reports whether a directory has the state of a run of sluice exec.
func IsExecDir(dir string) bool {
	_, err := os.Stat(proc.StatePath(dir))
	return dir != "" && err == nil
}

// ExecDir returns the directory of a run of sluice exec. The name is the directory, or the results in it, which the summary names.
func ExecDir(name string) (dir string, ok bool) {
	if IsExecDir(name) {
		return name, true
	}
	if name == "" || filepath.Base(name) != filepath.Base(proc.ResultsPath("")) {
		return "", false
	}
	if _, err := os.Stat(work.StatePath(name)); err == nil {
		return "", false // it is the output of sluice run
	}
	dir = filepath.Dir(name)
	return dir, IsExecDir(dir)
}

// Places returns the paths of the results and the state of a run. Symbolic links are followed.
func Places(output string) (results, state string) {
	if dir, ok := ExecDir(output); ok {
		return proc.ResultsPath(dir), proc.StatePath(dir)
	}
	output = work.FollowLinks(output)
	return output, work.StatePath(output)
}

// outputsIn returns the outputs and directories of runs with a state in dir, or in a directory in it.
func outputsIn(dir string) (outputs []string) {
	files := os.DirFS(dir) // so that dir is not part of the pattern
	for _, suffix := range []string{work.StatePath(""), filepath.ToSlash(proc.StatePath("/"))} {
		states, _ := fs.Glob(files, "*"+suffix)
		for _, name := range states {
			outputs = append(outputs, filepath.Join(dir, strings.TrimSuffix(name, suffix)))
		}
	}
	return outputs
}
