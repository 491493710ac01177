//go:build unix

package gateway_test

import (
	"context"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/gateway"
)

// Each attempt to write what was spent may take seconds where the file or its lock hangs. Calls that want it at once share one also
// if it fails.
func TestCallsWhoseBudgetCannotBeWrittenDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "a", BudgetDay: 1}}})
	path := string(r.file) + ".spent"
	if err := syscall.Mkfifo(path, 0o600); err != nil { // who reads it waits until somebody writes
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
	over := make(chan struct{})
	go func() { calls.Wait(); close(over) }()
	attempts := 0
	for !closed(over) {
		if pipe, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil { // somebody reads
			attempts++
			_, _ = pipe.WriteString("nothing")
			pipe.Close()
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if attempts > n/2 {
		t.Errorf("%d calls needed %d attempts", n, attempts)
	}
}
