//go:build unix

package gateway_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/gateway"
)

// Each attempt to write what was spent may take seconds where the file or its lock hangs. Calls that want it at once share one also
// if it fails.
func TestCallsWhoseBudgetCannotBeWrittenDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	t.Cleanup(func() { close(done) }) // after the gateway has ended: it may still read
	r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "a", MaxCostDay: 1}}})
	path := r.spent
	if err := syscall.Mkfifo(path, 0o600); err != nil { // who reads it waits until somebody writes
		t.Skip(err)
	}
	other := filepath.Join(t.TempDir(), "pipe") // for those who wait when the path is removed
	if err := os.Link(path, other); err != nil {
		t.Skip(err)
	}
	const n = 20
	var calls sync.WaitGroup
	for range n {
		calls.Go(func() { r.do(r.request(context.Background(), "a")) })
	}
	for r.tenants.States()[0].Open < n {
		time.Sleep(time.Millisecond)
	}
	var attempts atomic.Int32
	go func() {
		time.Sleep(300 * time.Millisecond) // all calls wait for the first attempt
		for ; !closed(done); time.Sleep(100 * time.Millisecond) {
			if pipe, err := os.OpenFile(other, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil { // somebody reads
				attempts.Add(1)
				_, _ = pipe.WriteString("nothing")
				pipe.Close()
			}
		}
	}()
	calls.Wait()
	if a := attempts.Load(); a >= n {
		t.Errorf("%d calls needed %d attempts", n, a)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
