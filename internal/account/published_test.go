package account

// When limits are read again cannot be seen from outside within a test's time: this test is in the package.

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// respond answers every request.
type respond func() (status int, body string)

func (a respond) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := a()
	return &http.Response{
		StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r, ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

func TestPublishedLimitsAreReadEveryTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := sluice.New(sluice.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		anthropic, _ := provider.Lookup("anthropic")
		api, err := provider.LimitsAPIOf(anthropic, "")
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		start, reads, status, rpm := time.Now(), 0, 200, 600
		base := respond(func() (int, string) {
			mu.Lock()
			defer mu.Unlock()
			if reads++; time.Since(start)%(10*time.Minute) > time.Second {
				t.Errorf("a read after %v", time.Since(start))
			}
			const group = `{"group_type":"model_group","models":["m"],"limits":[{"type":"requests_per_minute","value":%d}]}`
			return status, fmt.Sprintf(`{"data":[`+group+`]}`, rpm)
		})
		read := LimitsReader(func(ctx context.Context) (*provider.AccountLimits, error) { return api.Read(ctx, base, "k", "") })
		var warnings []error
		end := read.follow(s, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			warnings = append(warnings, err)
		})
		publish := func(code, limit int) {
			mu.Lock()
			defer mu.Unlock()
			status, rpm = code, limit
		}
		permit, err := s.Acquire(t.Context(), sluice.Call{Lane: "m"})
		if err != nil {
			t.Fatal(err)
		}
		permit.Release(sluice.Outcome{})
		check := func(want int64) {
			t.Helper()
			if b := s.Snapshot().Lanes[0].Budgets; len(b) != 1 || b[0].Limit != want || b[0].Source != limits.SourcePublished {
				t.Errorf("after %v: %+v, want %d", time.Since(start), b, want)
			}
		}
		check(600)
		publish(200, 900)
		time.Sleep(10*time.Minute + time.Second)
		check(900)
		for _, code := range []int{500, 401, 200, 500} { // the limits that were read last stay
			publish(code, 100*code/50)
			time.Sleep(10 * time.Minute)
			if code == 200 {
				check(400)
			}
		}
		check(400)
		mu.Lock()
		if len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "500") {
			t.Errorf("warnings are %v, want one", warnings)
		}
		mu.Unlock()
		end()
		before := reads
		time.Sleep(time.Hour)
		if before != 6 || reads != before {
			t.Errorf("%d reads, and %d after the end", before, reads-before)
		}
	})
}
