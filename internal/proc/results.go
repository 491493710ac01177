package proc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/work"
)

// Results reads the results in the directory of a run, in the order of the items. A run may be writing them.
func Results(dir string) ([]*Result, error) {
	file, err := regular.Open(ResultsPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the run has none yet
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []*Result
	for reader := bufio.NewReader(file); ; {
		line, err := reader.ReadBytes('\n')
		if err == io.EOF {
			break // what stands there is not whole yet
		}
		if err != nil {
			return nil, err
		}
		r, _, err := readResult(line)
		if err != nil {
			return nil, &work.JournalError{Path: file.Name(), Line: len(all) + 1, Err: err}
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b *Result) int { return int(a.Line - b.Line) })
	return all, nil
}

// Said returns what an item's command wrote to its standard output, without the newline at its end, or what a process that
// stays answered: a string without its quotes, anything else as JSON. dir is that of the run.
func (r *Result) Said(dir string) (string, error) {
	if r.Result != nil {
		if r.Result[0] == '"' {
			return string(jsonscan.Unquote(r.Result)), nil
		}
		return string(r.Result), nil
	}
	file, err := regular.Open(filepath.Join(dir, directoryOf(int(r.Line), r.ID), stdoutName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // of a process that answered nothing
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	b, err := io.ReadAll(file)
	return string(bytes.TrimSuffix(b, []byte("\n"))), err
}
