package proc

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/fault"
)

// Names in the directory of a run, and in that of an item.
const (
	journalName = "results.jsonl"
	stateName   = "state.json"
	reportName  = "report.json"
	resultName  = "result.json"
	stdoutName  = "stdout.log"
	stderrName  = "stderr.log"
	failedName  = ".failed" // earlier tries of an item, by number
)

// ResultsPath returns where the results of the run in a directory are: a Result on each line. Beside them are the state, the
// report, and a directory for each item, with the Result of its last try, what that wrote, and in .failed what those before did.
func ResultsPath(dir string) string { return filepath.Join(dir, journalName) }

// StatePath returns where the state of the run in a directory is.
func StatePath(dir string) string { return filepath.Join(dir, stateName) }

// ReportPath returns where the report of the run in a directory is.
func ReportPath(dir string) string { return filepath.Join(dir, reportName) }

// mostName is how much of an id stands in the name of a directory.
const mostName = 48

// directoryOf returns the name of an item's directory: its line, and what of its id is harmless in a name.
func directoryOf(line int, id string) string {
	reduced := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, id[:min(len(id), mostName)])
	return strconv.Itoa(line) + "-" + reduced
}

// openDirectory makes the directory of a run, or finds that it is one: used says that a run was there before.
func openDirectory(dir string) (used bool, err error) {
	err = os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(dir, 0o700)
	}
	if !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.Name() == journalName || strings.HasPrefix(e.Name(), stateName) {
			return true, nil
		}
	}
	if len(entries) > 0 {
		return false, &DirectoryError{Dir: dir, Text: "contains a file that does not belong to a run: " + entries[0].Name(),
			Advice: "set --state to an empty or new directory"}
	}
	return false, os.Chmod(dir, 0o700)
}

// DirectoryError is returned for a directory that cannot be that of this run.
type DirectoryError struct{ Dir, Text, Advice string }

// Error names the directory.
func (e *DirectoryError) Error() string { return e.Dir + " " + e.Text }

// Hint says what can be done.
func (e *DirectoryError) Hint() string { return e.Advice }

// FaultCode is the code of the error in the catalogue of errors.
func (e *DirectoryError) FaultCode() string { return fault.Output }

// itemDir is the directory of one item: what its present or last try wrote, and those before under .failed.
type itemDir struct {
	name string // within that of the run
	path string // absolute
}

// begin makes it ready for a try: what the one before wrote goes under .failed.
func (d itemDir) begin() error {
	if err := own(d.path); err != nil {
		return err
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	n := len(entries)
	for _, e := range entries {
		if e.Name() == failedName {
			n--
		}
	}
	if n == 0 {
		return nil
	}
	aside, err := d.nextFailed()
	if err != nil {
		return err
	}
	known := false
	for _, e := range entries {
		switch e.Name() {
		case failedName:
			continue
		case resultName:
			known = true
		}
		from, to := filepath.Join(d.path, e.Name()), filepath.Join(aside, e.Name())
		err := os.Rename(from, to)
		if errors.Is(err, fs.ErrPermission) && own(from) == nil { // a directory that may not be written cannot be moved
			err = os.Rename(from, to)
		}
		if err != nil {
			return err
		}
	}
	if known {
		return nil
	}
	return writeJSON(filepath.Join(aside, resultName), map[string]State{"state": Interrupted})
}

// nextFailed makes the directory for the try that is over.
func (d itemDir) nextFailed() (string, error) {
	base := filepath.Join(d.path, failedName)
	if err := own(base); err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		dir := filepath.Join(base, strconv.Itoa(n))
		err := os.Mkdir(dir, 0o700)
		if err == nil || !errors.Is(err, fs.ErrExist) {
			return dir, err
		}
	}
}

// own makes a directory of ours, in the place of anything else that a command put there: through a link, the next try would
// write and move files elsewhere.
func own(path string) error {
	err := os.Mkdir(path, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.Mkdir(path, 0o700)
	case info.Mode()&0o700 != 0o700:
		return os.Chmod(path, 0o700)
	}
	return nil
}

// writeJSON replaces a file by one with a JSON document, so that whoever reads it sees the whole of one of them. What a command
// put under its names, a link or a directory, is removed.
func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	for end := time.Now().Add(filesWithin); ; time.Sleep(filesPause) {
		if err = putFile(path, append(b, '\n')); !short(err) || time.Now().After(end) {
			return err
		}
	}
}

// A process that has as many files open as it may waits for so long for others to be closed, and looks so often.
const (
	filesWithin = 5 * time.Second
	filesPause  = 10 * time.Millisecond
)

func putFile(path string, b []byte) error {
	draft := path + ".tmp" // the run's lock makes the name ours
	write := func() error { return atomicfile.Write(path, atomicfile.Options{Draft: draft, NoSync: true}, b) }
	err := write()
	for _, at := range []string{draft, path} {
		if info, wrong := os.Lstat(at); err != nil && wrong == nil && info.IsDir() && os.RemoveAll(at) == nil {
			err = write()
		}
	}
	return err
}
