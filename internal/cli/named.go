package cli

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// readNamed reads a small file or pipe that a flag names, of at most so many MiB. A device may have no end.
func readNamed(path string, mib int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if kind := info.Mode().Type(); kind != 0 && kind != fs.ModeNamedPipe {
		return nil, fmt.Errorf("%s is neither a file nor a pipe", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, mib<<20+1))
	if err == nil && int64(len(b)) > mib<<20 {
		err = fmt.Errorf("%s is larger than %d MiB", path, mib)
	}
	return b, err
}
