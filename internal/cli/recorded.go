package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/sluice-llm/sluice/work"
)

// failedIn counts the results in an output that are failures, those of earlier runs too.
func failedIn(output string) (failed int, err error) {
	f, err := os.Open(output)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := work.NewLineReader(f, 0)
	for {
		line, err := lines.Next()
		if err == io.EOF {
			return failed, nil
		}
		if err != nil {
			return failed, err
		}
		if !succeeded(line.Bytes) {
			failed++
		}
	}
}

// succeeded reports whether a result line is a success. Lines as they are written are told by their end, which costs
// next to nothing; others may have been through another program.
func succeeded(line []byte) bool {
	if bytes.HasSuffix(line, []byte(`"kind":"ok"}}`)) {
		return true
	}
	var result struct{ Error json.RawMessage }
	if err := json.Unmarshal(line, &result); err != nil {
		return true // not for here to judge
	}
	return len(result.Error) == 0 || string(result.Error) == "null"
}
