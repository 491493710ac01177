package pool_test

import (
	"runtime"
	"testing"
	"time"
)

// collect collects garbage until done.
func collect(tb testing.TB, done func() bool) {
	tb.Helper()
	for end := time.Now().Add(5 * time.Minute); !done(); runtime.GC() {
		if time.Now().After(end) {
			tb.Fatal("it is not given back")
		}
		runtime.Gosched()
	}
}
