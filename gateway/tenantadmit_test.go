package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/sim"
)

func TestATenantsOwnLimitsHoldAndOthersDoNotWaitForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "narrow", Concurrency: 2}, {Name: "slow", RPM: 60}, {Name: "free"}}})
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() { r.call("narrow", "") })
		}
		calls.Wait()
		if r.upstream.most != 2 {
			t.Errorf("%d calls were open at once: 2 may be", r.upstream.most)
		}
		begun := time.Now()
		for range 30 {
			calls.Go(func() { r.call("slow", "") })
		}
		synctest.Wait()
		r.call("free", "")
		if took := time.Since(begun); took > time.Second {
			t.Errorf("another tenant waited %v", took)
		}
		calls.Wait()
		if took := time.Since(begun); took < 28*time.Second || took > 33*time.Second {
			t.Errorf("30 calls at 60 a minute took %v", took)
		}
	})
}

func TestACallThatWaitsTooLongOrWhoseClientLeavesIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "a", Concurrency: 1, MaxWait: 10 * time.Second}, {Name: "b", MaxWait: 10 * time.Second}}})
		if err := r.scheduler.Pause(); err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for _, tenant := range []string{"a", "b"} {
			for i := range 30 {
				calls.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if i%2 == 0 {
						time.AfterFunc(time.Duration(i)*100*time.Millisecond, cancel)
					}
					begun := time.Now()
					w := r.do(r.request(ctx, tenant))
					if i%2 == 0 {
						if w.Body.Len() > 0 {
							t.Errorf("a client that left is answered: %s", text(w))
						}
						return
					}
					if kind := w.Header().Get("X-Sluice-Error"); w.Code != http.StatusTooManyRequests || kind != "queue_timeout" {
						t.Errorf("%s: %s", tenant, text(w))
					}
					if took := time.Since(begun); took < 10*time.Second || took > 11*time.Second {
						t.Errorf("%s: it waited %v", tenant, took)
					}
				})
			}
		}
		calls.Wait()
		if n := len(r.upstream.sent()); n > 0 {
			t.Errorf("%d calls went upstream", n)
		}
		if err := r.scheduler.Resume(); err != nil {
			t.Fatal(err)
		}
		r.call("a", "")
	})
}

func TestCallsThatWaitEndWhenTheResetTurnsOutToLieTooFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{
			sim: sim.Config{Latency: 3 * time.Second}, limits: sluice.Limits{Concurrency: 2},
			tenants: []gateway.Tenant{{Name: "a"}, {Name: "b", Concurrency: 4}, {Name: "slow", MaxWait: 4 * time.Minute}},
		})
		var calls sync.WaitGroup
		var asked atomic.Pointer[time.Time] // or the second pause came
		asked.Store(new(time.Now()))
		for i := range 60 { // some wait for a slot of the upstream, some for their turn, some for their tenant's limits
			calls.Go(func() {
				w := r.do(r.request(t.Context(), []string{"a", "b", "slow"}[i%3]))
				if w.Code == http.StatusOK {
					return
				}
				if took := time.Since(*asked.Load()); w.Header().Get("X-Sluice-Error") != "quota_exhausted" || took > 7*time.Second {
					t.Errorf("after %v: %s", took, text(w))
				}
			})
		}
		time.Sleep(4500 * time.Millisecond)
		if err := r.scheduler.PauseLane("m", pause(4*time.Minute+30*time.Second)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		slow, others := 0, 0
		for _, s := range r.tenants.States() {
			if s.Name == "slow" {
				slow = s.Waiting
			} else {
				others += s.Waiting
			}
		}
		if slow > 0 || others == 0 {
			t.Errorf("%d wait that may not wait so long, and %d that may", slow, others)
		}
		if err := r.scheduler.PauseLane("m", pause(time.Hour)); err != nil {
			t.Fatal(err)
		}
		asked.Store(new(time.Now()))
		calls.Wait()
		if n := len(r.upstream.sent()); n != 4 {
			t.Errorf("%d calls were sent: 4 could be", n)
		}
	})
}

func TestATenantOfHardlyAnyWeightIsToldToComeMuchLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{
			sim: sim.Config{Latency: 10 * time.Second}, limits: sluice.Limits{Concurrency: 1},
			tenants: []gateway.Tenant{{Name: "light", Weight: 1e-300, MaxQueue: 12}, {Name: "heavy"}},
		})
		ctx, leave := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for range 4 { // the upstream's usual time is known then
			r.call("heavy", "")
		}
		for i := range 60 { // of light's, those above twelve are refused
			calls.Go(func() { r.do(r.request(ctx, []string{"heavy", "light"}[i%2])) })
			if i == 0 {
				synctest.Wait() // it has the slot
			}
		}
		synctest.Wait()
		w := r.do(r.request(t.Context(), "light"))
		var seconds int
		fmt.Sscan(w.Header().Get("Retry-After"), &seconds)
		if w.Header().Get("X-Sluice-Error") != "queue_full" || seconds < 250 {
			t.Errorf("behind at least thirty calls of ten seconds: %s", text(w))
		}
		leave()
		calls.Wait()
	})
}

func TestARequestIsCalledByItsEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, ended := watched(t, func(cfg *gateway.Config) {
			cfg.Passthrough = []gateway.Passthrough{{Path: "/v1/files", Upstream: "house"}}
		})
		for i, c := range [][2]string{
			{"/chat/completions", "/v1/chat/completions"}, {"/v1/v1/chat/completions", "/v1/chat/completions"}, {"/responses", "/v1/responses"},
			{"/v1/embeddings", "/v1/embeddings"}, {"/v2/chat", "/v2/chat"}, {"/v1/messages", "/v1/messages"}, {"/v1/v1/messages", "/v1/messages"},
			{"/models/m:embedContent", "/v1beta/models/{model}:embedContent"}, {"/v1/models/m:delete", ""}, {"/v1beta/models/:generateContent", ""},
			{"/v1beta/models/a/b:generateContent", ""}, {"/v1//chat/completions", ""}, {"/v1/messages/batches", ""},
			{"/v1/v1/messages/count_tokens", "/v1/messages/count_tokens"},
			{"/v1/models/m:generateContent", "/v1beta/models/{model}:generateContent"}, {"/v1beta/models/m:countTokens", "/v1beta/models/{model}:countTokens"},
			{"/v1/files/secret", "/v1/files"}, {"/v1/nothing", ""},
		} {
			g.ServeHTTP(httptest.NewRecorder(), request(t.Context(), c[0], hello))
			if got := ended()[i].Endpoint; got != c[1] {
				t.Errorf("%s is %q, want %q", c[0], got, c[1])
			}
		}
	})
}

func TestARefusedRequestCountsForItsTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds []string
		traffic := gateway.NewTraffic(func(r *gateway.Record) { kinds = append(kinds, r.Tenant+" "+r.Kind) })
		r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "a", Models: []string{"m"}}}, gateway: gateway.Config{Traffic: traffic}})
		for _, body := range []string{chatBody, `{"model":"free"}`, `{`} {
			req := r.request(t.Context(), "a")
			req.Body, req.ContentLength = bodyOf(body)
			r.do(req)
		}
		models := r.request(t.Context(), "a")
		models.Method, models.URL.Path, models.Body, models.ContentLength = http.MethodGet, "/v1/models", http.NoBody, 0
		r.do(models)
		stranger := r.request(t.Context(), "a")
		stranger.Header.Set("Authorization", "Bearer slk-other")
		r.do(stranger)
		if got, want := fmt.Sprint(kinds), "[a ok a model_not_allowed a invalid_request a ok  invalid_api_key]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}
