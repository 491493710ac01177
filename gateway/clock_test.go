package gateway_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/sim"
)

func TestABudgetHoldsAfterAClockThatWasWrong(t *testing.T) {
	for name, spent := range map[string]string{
		"nothing was spent then": `{"version":1,"tenants":{"a":{"day":{"period":"2036-07-01","usd":0},"month":{"period":"2036-07","usd":0}}}}`,
		"half of it was":         `{"version":1,"tenants":{"a":{"day":{"period":"2036-07-01","usd":0.0001},"month":{"period":"2036-07","usd":0.0001}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(24*time.Hour - 2*time.Minute) // the rig reads the file every 2 s: the day ends soon
				dir := t.TempDir()
				path := filepath.Join(dir, "spent.json")
				if err := os.WriteFile(path, []byte(spent), 0o600); err != nil {
					t.Fatal(err)
				}
				r := newTenantRig(t, rigConfig{dir: dir, sim: sim.Config{OutputTokens: 5}, tenants: []gateway.Tenant{{Name: "a", MaxCostDay: 0.0002}}})
				answered := 0
				var last *http.Response
				for range 40 {
					w := r.do(r.request(t.Context(), "a"))
					if w.Code == http.StatusOK {
						answered++
					}
					last = w.Result()
					time.Sleep(time.Second) // what was spent is written and read now and then
				}
				day, month := r.spentOf("a")
				if last.StatusCode != http.StatusTooManyRequests || day < 0.00017 || day > 0.0002 || month < day-1e-9 {
					t.Errorf("%d calls were answered, the last %d; %f and %f USD were spent of 0.0002", answered, last.StatusCode, day, month)
				}
				time.Sleep(2 * time.Minute)
				if w := r.do(r.request(t.Context(), "a")); w.Code != http.StatusOK {
					t.Errorf("the next day: %s", text(w))
				}
			})
		})
	}
}
