package gateway_test

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/sim"
)

// spentOf is what a tenant spent of this day and month.
func (r *tenantRig) spentOf(tenant string) (day, month float64) {
	for _, s := range r.tenants.States() {
		if s.Name == tenant {
			return s.DayUSD, s.MonthUSD
		}
	}
	r.t.Fatalf("no tenant %s", tenant)
	return 0, 0
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// usedUSD is what the imitation's answers of so many calls cost at the rig's prices.
func usedUSD(t *testing.T, bodies ...string) (usd float64) {
	t.Helper()
	for _, body := range bodies {
		var doc struct {
			Usage struct {
				Prompt     float64 `json:"prompt_tokens"`
				Completion float64 `json:"completion_tokens"`
			} `json:"usage"`
		}
		if err := json.Unmarshal([]byte(body), &doc); err != nil || doc.Usage.Completion == 0 {
			t.Fatalf("no usage in %s", body)
		}
		usd += (doc.Usage.Prompt + 2*doc.Usage.Completion) / 1e6
	}
	return usd
}

func TestABudgetIsReservedSettledAndBeginsAnewEachDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24*time.Hour - 2*time.Minute) // the rig reads its file every 2 s: the day ends soon
		traffic, ended := recorded()
		r := newTenantRig(t, rigConfig{sim: sim.Config{OutputTokens: 5}, tenants: []gateway.Tenant{{Name: "a", MaxCostDay: 0.0001}},
			gateway: gateway.Config{Traffic: traffic}})
		synctest.Wait()
		var open sync.WaitGroup
		var first string
		open.Go(func() { first = r.call("a", "").Body.String() })
		synctest.Wait()
		reserved, _ := r.spentOf("a")
		open.Wait()
		used := usedUSD(t, first)
		if day, month := r.spentOf("a"); !near(day, used) || !near(month, used) || reserved <= used {
			t.Errorf("reserved %v, spent %v and %v: the answer did cost %v", reserved, day, month, used)
		}
		if s := last(ended()); s.Tenant != "a" || s.Tries != 1 || s.Usage.Output != 5 || s.Usage.Input == 0 {
			t.Errorf("after a call with 5 tokens of output: %+v", s)
		}
		calls := 1
		for ; calls < 100; calls++ {
			w := r.do(r.request(t.Context(), "a"))
			if w.Code == http.StatusOK {
				continue
			}
			if kind := w.Header().Get("X-Sluice-Error"); w.Code != http.StatusTooManyRequests || kind != "quota_exhausted" {
				t.Fatal(text(w))
			}
			midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
			if after := w.Header().Get("Retry-After"); after == "" || !strings.Contains(w.Body.String(), midnight.Format(time.RFC3339)) {
				t.Errorf("it is to come again in %s s: %s", after, text(w))
			}
			break
		}
		day, _ := r.spentOf("a")
		if day > 0.0001 || day+reserved <= 0.0001 {
			t.Errorf("%d calls spent %v of 0.0001", calls, day)
		}
		time.Sleep(2 * time.Minute)
		r.call("a", "")
		if day, month := r.spentOf("a"); !near(day, used) || month <= day {
			t.Errorf("the next day it spent %v, and %v in the month", day, month)
		}
	})
}

func TestCallsAtOnceDoNotOvershootABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "a", MaxCostMonth: 0.0002}}})
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() { r.do(r.request(t.Context(), "a")) })
		}
		calls.Wait()
		if _, month := r.spentOf("a"); month > 0.0002 || month == 0 {
			t.Errorf("%v was spent of 0.0002", month)
		}
	})
}

// priced answers after a second with the same usage each time.
type priced string

func (p priced) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(time.Second)
	body := `{"choices":[{"message":{"content":"yes"},"finish_reason":"stop"}],"usage":` + string(p) + `}`
	return &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}, nil
}

// TestABudgetIsExceededByTheOpenCallsAtMost has calls wait whose input is estimated far too low, until responses show it.
func TestABudgetIsExceededByTheOpenCallsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const open, each, budget = 4, 0.02502, 0.1
		r := newTenantRig(t, rigConfig{base: priced(`{"prompt_tokens":25000,"completion_tokens":10}`), limits: sluice.Limits{Concurrency: open},
			tenants: []gateway.Tenant{{Name: "a", MaxCostDay: budget}}})
		var calls sync.WaitGroup
		var refused atomic.Int32
		for range 100 {
			calls.Go(func() {
				if w := r.do(r.request(t.Context(), "a")); w.Header().Get("X-Sluice-Error") == "quota_exhausted" {
					refused.Add(1)
				}
			})
		}
		calls.Wait()
		if day, _ := r.spentOf("a"); day > budget+open*each || int(refused.Load())+len(r.upstream.sent()) != 100 {
			t.Errorf("%v was spent of %v, %d calls were sent and %d refused", day, budget, len(r.upstream.sent()), refused.Load())
		}
	})
}

// TestCallsThatDeclareNoMaximumHoldTheOutputThatIsUsual has one answer teach what the next may use.
func TestCallsThatDeclareNoMaximumHoldTheOutputThatIsUsual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{base: priced(`{"prompt_tokens":10,"completion_tokens":3000}`), tenants: []gateway.Tenant{{Name: "a", MaxCostDay: 1}}})
		held := func() float64 {
			before, _ := r.spentOf("a")
			req := r.request(t.Context(), "a")
			req.Body, req.ContentLength = bodyOf(strings.Replace(chatBody, `"max_tokens":10,`, "", 1))
			var call sync.WaitGroup
			call.Go(func() { r.do(req) })
			time.Sleep(500 * time.Millisecond)
			during, _ := r.spentOf("a")
			call.Wait()
			return during - before
		}
		if first, second := held(), held(); first < 4096*2e-6 || second < 3000*2e-6 || second > 3100*2e-6 {
			t.Errorf("the first call held %v, the second %v", first, second)
		}
	})
}

// TestAnAnswerWithoutUsageCostsItsEstimate has the record say that its cost is one.
func TestAnAnswerWithoutUsageCostsItsEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		traffic, ended := recorded()
		r := newTenantRig(t, rigConfig{base: priced(`null`), tenants: []gateway.Tenant{{Name: "a", MaxCostDay: 1}}, gateway: gateway.Config{Traffic: traffic}})
		r.call("a", "")
		day, _ := r.spentOf("a")
		if s := last(ended()); !s.HasCost || s.Estimated == 0 || s.Estimated != s.Cost || !near(s.Cost, day) {
			t.Errorf("%v was spent: %+v", day, s)
		}
	})
}

func TestWhatFailsCostsNothingAndWhatNobodyWaitedForIsEstimated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := newTenantRig(t, rigConfig{sim: sim.Config{Faults: sim.Faults{ServerError: 1}}, tenants: []gateway.Tenant{{Name: "a", MaxCostDay: 1, TPM: 6000}}})
		if w := failing.do(failing.request(t.Context(), "a")); w.Code < 500 {
			t.Errorf("every call fails, and: %s", text(w))
		}
		if day, _ := failing.spentOf("a"); !near(day, 0) {
			t.Errorf("a failed call did cost %v", day)
		}
		traffic, ended := recorded()
		r := newTenantRig(t, rigConfig{sim: sim.Config{PerToken: 100 * time.Millisecond}, tenants: []gateway.Tenant{{Name: "a", MaxCostDay: 1}}, gateway: gateway.Config{Traffic: traffic}})
		before := 0.0
		for body, after := range map[string]time.Duration{chatBody: 100 * time.Millisecond, strings.Replace(chatBody, `"max_tokens":10`, `"max_tokens":1000,"stream":true`, 1): 2 * time.Second} {
			ctx, cancel := contextAfter(t, after)
			req := r.request(ctx, "a")
			req.Body, req.ContentLength = bodyOf(body)
			r.do(req)
			cancel()
			time.Sleep(time.Minute) // the permit is back
			day, _ := r.spentOf("a")
			if s := last(ended()); day <= before || s.Estimated != s.Cost || !near(s.Cost, day-before) {
				t.Errorf("a call whose client left after %v did cost %v: %+v", after, day-before, s)
			}
			before = day
		}
	})
}

func TestABudgetNeedsPrices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "a", MaxCostDay: 1}, {Name: "b", MaxCostDay: 0.000001}, {Name: "c"}}})
		for tenant, want := range map[string]string{"a": "price_unknown", "b": "price_unknown", "c": ""} {
			req := r.request(t.Context(), tenant)
			req.Body, req.ContentLength = bodyOf(strings.Replace(chatBody, `"m"`, `"free"`, 1))
			if w := r.do(req); w.Header().Get("X-Sluice-Error") != want {
				t.Errorf("%s: %s", tenant, text(w))
			}
		}
		w := r.do(r.request(t.Context(), "b"))
		if w.Code != http.StatusForbidden || w.Header().Get("Retry-After") != "" || w.Header().Get("X-Should-Retry") != "false" {
			t.Errorf("a call above the whole budget: %s", text(w))
		}
	})
}

func TestWhatWasSpentSurvivesAndIsSharedByProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		one := newTenantRig(t, rigConfig{dir: dir, tenants: []gateway.Tenant{{Name: "a", MaxCostDay: 1}}})
		two := newTenantRig(t, rigConfig{dir: dir, tenants: one.list})
		two.keys = one.keys
		a := usedUSD(t, one.call("a", "").Body.String(), one.call("a", "").Body.String())
		b := usedUSD(t, two.call("a", "").Body.String())
		time.Sleep(7 * time.Second) // until then the file has a lead
		third, err := gateway.OpenTenants(gateway.TenantsConfig{Tenants: one.list, Spent: one.spent})
		if err != nil {
			t.Fatal(err)
		}
		one.set() // the settings have lost the tenant, and get it again
		one.set(one.list...)
		for name, of := range map[string]*gateway.Tenants{"one": one.tenants, "two": two.tenants, "a third": third} {
			if s := of.States(); len(s) != 1 || !near(s[0].DayUSD, a+b) {
				t.Errorf("%s says %+v: %v was spent", name, s, a+b)
			}
		}
		if err := third.Close(); err != nil {
			t.Error(err)
		}
		for _, damaged := range []string{`{"version":1,"ten`, `{"version":1,"tenants":{"a":{"month":{"usd":-5}}}}`} {
			if err := os.WriteFile(one.spent, []byte(damaged), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := gateway.OpenTenants(gateway.TenantsConfig{Tenants: one.list, Spent: one.spent}); err == nil || !strings.Contains(err.Error(), one.spent) {
				t.Errorf("a damaged account is taken: %v", err)
			}
		}
		if err := os.Remove(one.spent); err != nil {
			t.Fatal(err)
		}
	})
}

func TestBudgetsBeginAnewAtMidnightOfUTC(t *testing.T) {
	date := func(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, time.UTC) }
	for _, tt := range []struct {
		tenant gateway.Tenant
		spent  time.Time
		anew   time.Time
	}{
		{gateway.Tenant{MaxCostDay: 1}, date(2026, 3, 1).Add(time.Hour), date(2026, 3, 2)},
		{gateway.Tenant{MaxCostDay: 1}, date(2026, 12, 31).Add(24*time.Hour - 1), date(2027, 1, 1)},
		{gateway.Tenant{MaxCostMonth: 1}, date(2026, 1, 1), date(2026, 2, 1)},
		{gateway.Tenant{MaxCostMonth: 1}, date(2028, 2, 29).Add(23 * time.Hour), date(2028, 3, 1)},
		{gateway.Tenant{MaxCostDay: 1, MaxCostMonth: 1}, date(2026, 12, 5), date(2027, 1, 1)},
	} {
		for _, zone := range []*time.Location{time.UTC, time.FixedZone("east", 9*3600), time.FixedZone("west", -7*3600)} {
			purse := gateway.NewPurse()
			if _, ok := purse.Reserve(tt.spent.In(zone), &tt.tenant, 0.9); !ok {
				t.Fatalf("%+v: nothing may be spent", tt)
			}
			for _, now := range []time.Time{tt.spent, tt.anew.Add(-1)} {
				if until, ok := purse.Reserve(now.In(zone), &tt.tenant, 0.2); ok || !until.Equal(tt.anew) {
					t.Errorf("%+v: at %v: it begins anew %v, %v", tt, now.In(zone), until, ok)
				}
			}
			if _, ok := purse.Reserve(tt.anew.In(zone), &tt.tenant, 0.9); !ok {
				t.Errorf("%+v: at %v it has not begun anew", tt, tt.anew.In(zone))
			}
		}
	}
}

// What a call may cost is written before it is sent, and more than that; what it did cost, once no others come.
func TestACallIsInTheFileBeforeItIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "a", MaxCostDay: 1}}})
		written := func() float64 {
			var doc struct {
				Tenants map[string]struct{ Day struct{ USD float64 } }
			}
			b, err := os.ReadFile(r.spent)
			if err != nil || json.Unmarshal(b, &doc) != nil {
				t.Fatalf("%v: %s", err, b)
			}
			return doc.Tenants["a"].Day.USD
		}
		var calls sync.WaitGroup
		var used string
		calls.Go(func() { used = r.call("a", "").Body.String() })
		time.Sleep(100 * time.Millisecond) // half of what the provider takes
		if spent, _ := r.spentOf("a"); spent == 0 || written() < spent || written() > spent+0.01 {
			t.Errorf("%v is in the file while a call is open that may cost %v", written(), spent)
		}
		calls.Wait()
		time.Sleep(5 * time.Second)
		if want := usedUSD(t, used); !near(written(), want) {
			t.Errorf("%v is in the file after a call that did cost %v", written(), want)
		}
	})
}

func TestABudgetsFirstCallThatIsNotSentCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "a", MaxCostDay: 1}}})
		if err := r.scheduler.Pause(); err != nil {
			t.Fatal(err)
		}
		ctx, leave := contextAfter(t, 10*time.Second)
		defer leave()
		r.do(r.request(ctx, "a"))
		time.Sleep(10 * time.Second) // it is written, and read
		if day, month := r.spentOf("a"); !near(day, 0) || !near(month, 0) {
			t.Errorf("a call that was not sent did cost %f, and %f in the month", day, month)
		}
		if err := r.scheduler.Resume(); err != nil {
			t.Fatal(err)
		}
	})
}
