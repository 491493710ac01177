//go:build unix

package term

import (
	"os"
)

// steerable reports whether a terminal understands escape sequences.
func steerable(*os.File) bool { return os.Getenv("TERM") != "dumb" }
