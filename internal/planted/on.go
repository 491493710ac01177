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

// Every reports true on every nth call with the name of the fault that SLUICE_PLANTED names.
func Every(name string, n int64) bool { return name == fault && asked.Add(1)%n == 0 }
