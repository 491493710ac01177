//go:build planted

package planted

import (
	"os"
	"sync/atomic"
)

var (
	fault = os.Getenv("SLUICE_PLANTED")
	asked atomic.Int64
)

// Every reports true each nth time that it is asked for the fault that the environment names.
func Every(name string, n int64) bool { return name == fault && asked.Add(1)%n == 0 }
