package gateway_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/sim"
)

// comeAgain is when a refusal says to come again; false if it is none of that kind.
func comeAgain(w *httptest.ResponseRecorder, kind string) (time.Time, bool) {
	ms, err := strconv.ParseInt(w.Header().Get("Retry-After-Ms"), 10, 64)
	whole, bad := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64)
	exact := err == nil && bad == nil && whole == (ms+999)/1000
	return time.Now().Add(time.Duration(ms) * time.Millisecond), exact && w.Code == http.StatusTooManyRequests && w.Header().Get("X-Sluice-Error") == kind
}

func within1s(d time.Duration) bool { return d.Abs() <= time.Second }

// Whoever is told that the queue is full is told when a call that joined it then would have been sent.
func TestAFullQueueSaysWhenItsTurnWouldHaveCome(t *testing.T) {
	// Slots come free three at a time.
	exact := map[string]time.Duration{"requests": 1100 * time.Millisecond, "slots": 3 * time.Second}
	for name, cfg := range map[string]rigConfig{
		"requests": {sim: sim.Config{RPM: 60, Burst: time.Second}, limits: sluice.Limits{RPM: 60}},
		"slots":    {sim: sim.Config{Concurrency: 3, Latency: 3 * time.Second}, limits: sluice.Limits{Concurrency: 3}},
	} {
		for _, others := range []int{0, 2} {
			t.Run(fmt.Sprint(name, " and ", others, " others"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg.tenants = equals(others + 1)
					cfg.gateway.Deadlines.Queue = time.Hour
					for i := range cfg.tenants {
						cfg.tenants[i].MaxQueue = 40
					}
					r := newTenantRig(t, cfg)
					r.call("tenant-0", "") // what a call takes is known
					time.Sleep(5 * time.Second)
					var calls sync.WaitGroup
					var mu sync.Mutex
					var last time.Time // when a call of tenant-0 left the queue
					for i := range 3 * 45 {
						if i == 3 { // those that are sent at once would take places in the queue for a moment
							synctest.Wait()
						}
						calls.Go(func() {
							begun := time.Now()
							w := r.send(offered{tenant: fmt.Sprint("tenant-", i%(others+1)), body: []byte(chatBody)}, 0, "/v1/chat/completions")
							if w.Code != http.StatusOK {
								return // the queue was full
							}
							ms, _ := strconv.Atoi(w.Header().Get("X-Sluice-Wait-Ms"))
							mu.Lock()
							defer mu.Unlock()
							if at := begun.Add(time.Duration(ms) * time.Millisecond); i%(others+1) == 0 && at.After(last) {
								last = at
							}
						})
					}
					synctest.Wait()
					refused := r.do(r.request(t.Context(), "tenant-0"))
					told, ok := comeAgain(refused, "queue_full")
					calls.Wait()
					if off := told.Sub(last.Add(time.Second)); !ok || off.Abs() > exact[name] {
						t.Errorf("%v: it is told to come %v after the turn that it would have had: %s", ok, off, text(refused))
					} else {
						t.Log(off)
					}
				})
			})
		}
	}
}

// Who may not wait for the end of a pause is told at once when to come; nothing of it counts as a failure of the upstream.
func TestARefusalIsInTimeAndNoFailureOfTheUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		traffic, ended := recorded()
		const lasts = 20 * time.Minute
		r := newTenantRig(t, rigConfig{
			sim:     sim.Config{Storms: []sim.Storm{{From: 10 * time.Second, To: 10*time.Second + lasts}}},
			tenants: []gateway.Tenant{{Name: "a"}, {Name: "slow", RPM: 1, MaxWait: 30 * time.Second}, {Name: "brief", Concurrency: 1, MaxWait: 100 * time.Millisecond}},
			gateway: gateway.Config{Traffic: traffic},
		})
		begun := time.Now()
		r.call("a", "")
		r.call("slow", "")
		if told, ok := comeAgain(r.do(r.request(t.Context(), "slow")), "quota_exhausted"); !ok || !within1s(told.Sub(begun.Add(time.Minute))) {
			t.Errorf("%v: of its own limit it is told to come at %v", ok, told.Sub(begun))
		}
		var open sync.WaitGroup
		open.Go(func() { r.call("brief", "") })
		synctest.Wait()
		if _, ok := comeAgain(r.do(r.request(t.Context(), "brief")), "queue_timeout"); !ok {
			t.Error("it had no timeout in the queue")
		}
		open.Wait()
		time.Sleep(time.Until(begun.Add(11 * time.Second)))
		end := begun.Add(10*time.Second + lasts)
		for time.Until(end) > 6*time.Minute { // later ones wait for the end
			refused := r.do(r.request(t.Context(), "a"))
			told, ok := comeAgain(refused, "quota_exhausted")
			if !ok { // a test of the stated wait came within its time, in vain
				told, ok = comeAgain(refused, "queue_timeout")
			}
			if !ok || time.Until(told) <= 0 || told.Sub(end) > 2*time.Second {
				t.Errorf("%v: it is told to come %v after the end: %s", ok, told.Sub(end), text(refused))
			}
			time.Sleep(13 * time.Second)
		}
		if sent := len(r.upstream.sent()); sent > 4+11 { // the stated wait is tested after 1, 2, 4 s and so on
			t.Errorf("%d calls went upstream: those that were refused here may not", sent)
		}
		for _, r := range ended() {
			if !slices.Contains([]string{"ok", "quota_exhausted", "queue_timeout"}, r.Kind) {
				t.Errorf("a request ended as %s", r.Kind)
			}
		}
		time.Sleep(time.Until(end.Add(time.Second)))
		r.call("a", "") // no breaker is open
	})
}
