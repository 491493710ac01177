package command

import (
	"errors"
	"os"
	"os/exec"
	"time"
)

// limit is an error: there are no such limits.
func limit(*exec.Cmd, int64, time.Duration) (*os.File, error) {
	return nil, errors.New("limits of memory and processor time are not supported on Windows: leave them out")
}
