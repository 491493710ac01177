package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/sluice-llm/sluice/internal/atomicfile"
)

// followed is where a name leads that may be a link, so that the link is not replaced.
func followed(path string) (string, error) {
	to, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	return to, err
}

// replaceFile puts a document in the place of a file, for its owner alone. The caller has the file's lock.
func replaceFile(path string, doc any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return err
	}
	return atomicfile.Write(path, atomicfile.Options{Draft: path + ".tmp"}, b.Bytes())
}
