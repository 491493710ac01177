//go:build unix

package gateway_test

import (
	"net/http"
	"os"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/sluice-llm/sluice/gateway"
)

// A pipe in the place of the keys keeps whoever opens it until somebody writes to it.
func TestAPipeInThePlaceOfTheKeysIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "a"}}})
		pipe := string(r.file) + ".pipe"
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Skip(err)
		}
		if _, err := gateway.KeyFile(pipe).Tenants(); err == nil {
			t.Error("it is read")
		}
		if err := os.Rename(pipe, string(r.file)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if w := r.do(r.request(t.Context(), "a")); w.Code != http.StatusOK {
				t.Errorf("the keys of before do not hold: %s", text(w))
			}
		}
	})
}
