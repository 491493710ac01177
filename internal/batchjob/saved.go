package batchjob

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/atomicfile"
)

// savedVersion is the version of saved tables.
const savedVersion = 2

type saved struct {
	Version int   `json:"version"`
	Parts   []Row `json:"parts"`
}

func (f folder) table() string { return filepath.Join(string(f), "table.json") }

// save replaces the saved table. The new one is on disk when save returns.
func (f folder) save(rows []Row) error {
	text, err := json.Marshal(saved{Version: savedVersion, Parts: rows})
	if err != nil {
		return err
	}
	return atomicfile.Write(f.table(), atomicfile.Options{Draft: f.table() + ".tmp"}, text)
}

// Read reads the table that was saved in a directory. It is empty if the directory does not exist. An error is a *FileError.
func Read(dir string) ([]Row, error) {
	f := folder(dir)
	text, err := os.ReadFile(f.table())
	missing := errors.Is(err, fs.ErrNotExist)
	if missing && !f.hasItems() {
		return nil, nil
	}
	var rows []Row
	if err == nil {
		rows, err = parseRows(text)
	} else if missing {
		err = errors.New("the list of batches is missing, although requests of batches exist")
	}
	if err != nil {
		return nil, &FileError{Path: f.table(), Err: err, hint: fmt.Sprintf("restore %s, or use the version of Sluice that wrote it; "+
			"if the provider's console shows no pending batch, remove %s instead to send the items again", f.table(), dir)}
	}
	return rows, nil
}

// hasItems reports whether the directory has items of parts. A table is saved before.
func (f folder) hasItems() bool {
	names, _ := os.ReadDir(string(f))
	return slices.ContainsFunc(names, func(n fs.DirEntry) bool { return strings.HasSuffix(n.Name(), itemsSuffix) })
}

func parseRows(text []byte) ([]Row, error) {
	var s saved
	err := json.Unmarshal(text, &s)
	if _, whole := parseObject(text); whole && s.Version != savedVersion {
		return nil, errors.New("another version of Sluice saved the batches")
	}
	tags := make(map[string]bool)
	for i := range s.Parts {
		r := &s.Parts[i]
		if err == nil {
			err = r.check()
		}
		if err == nil && tags[r.Tag] {
			err = fmt.Errorf("the tag %s occurs twice", r.Tag)
		}
		tags[r.Tag] = true
	}
	if err != nil {
		return nil, fmt.Errorf("the list of batches is damaged: %w", err)
	}
	return s.Parts, nil
}

// FileError is the error of a file without which requests may be paid for twice.
type FileError struct {
	Path string
	Err  error
	hint string
}

// Error names the file.
func (e *FileError) Error() string { return fmt.Sprintf("%s: %v", e.Path, e.Err) }

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// Hint says what can be done.
func (e *FileError) Hint() string { return e.hint }
