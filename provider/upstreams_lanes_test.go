package provider_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// asking returns an upstream that serves all models of OpenAI, and a function that asks for one of them and returns the lane of the request.
func asking(t *testing.T) (*provider.Upstreams, func(tenant, model string) string) {
	up := upstream(t, "any", sluice.Config{})
	up.Provider, _ = provider.Lookup("openai")
	up.Models = nil // all that it is recognised for
	u := upstreams(t, provider.UpstreamsConfig{Upstreams: []provider.Upstream{up}})
	return u, func(tenant, model string) (lane string) {
		t.Helper()
		_, err := u.Do(t.Context(), sluice.Call{Lane: model, Tenant: tenant}, provider.ChatCompletions, func(_ context.Context, _ *sluice.Permit, via provider.Destination) sluice.Outcome {
			if via.Model != model {
				t.Errorf("%s is sent as %s", model, via.Model)
			}
			for _, l := range via.Upstream.Scheduler.Snapshot().Lanes {
				if l.InFlight > 0 {
					lane = l.Lane
				}
			}
			return sluice.Outcome{}
		})
		if err != nil {
			t.Fatal(err)
		}
		return lane
	}
}

func TestModelsThatAreNotKnownHaveFewLanesPerTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, ask := asking(t)
		u.AddModels("gpt-4o-ours")
		const shared = "other models of mallory"
		own := 0
		for i := range 1000 {
			model := fmt.Sprintf("gpt-4o-made-up-%d", i)
			switch lane := ask("mallory", model); lane {
			case model:
				own++
			case shared:
			default:
				t.Fatalf("%s has the lane %s", model, lane)
			}
		}
		if own != 200 {
			t.Errorf("%d models that nobody knows have lanes of their own, want 200", own)
		}
		// A version of the table of prices is known, and the same in other letters or of another date is not.
		for _, known := range []string{"gpt-4o", "gpt-4o-2024-08-06", "gpt-5-nano-2025-08-07", "gpt-4o-ours"} {
			if lane := ask("mallory", known); lane != known {
				t.Errorf("%s has the lane %s", known, lane)
			}
		}
		for _, unknown := range []string{"gpt-4o-2024-08-07", "GPT-4o", "gpt-4o-9999"} {
			if lane := ask("mallory", unknown); lane != shared {
				t.Errorf("%s has the lane %s", unknown, lane)
			}
			if lane := ask("alice", unknown); lane != unknown {
				t.Errorf("%s of another tenant has the lane %s", unknown, lane)
			}
		}
		if n := len(u.All()[0].Scheduler.Snapshot().Lanes); n != 200+1+4+3 {
			t.Errorf("%d lanes", n)
		}

		time.Sleep(23 * time.Hour)
		ask("alice", "GPT-4o")
		if lane := ask("mallory", "gpt-4o-new"); lane != shared {
			t.Errorf("within a day, one more model has the lane %s", lane)
		}
		time.Sleep(2 * time.Hour)
		if lane := ask("mallory", "gpt-4o-new"); lane != "gpt-4o-new" {
			t.Errorf("after a day, one more model has the lane %s", lane)
		}
		var left []string
		for _, l := range u.All()[0].Scheduler.Snapshot().Lanes {
			left = append(left, l.Lane)
		}
		if want := []string{"GPT-4o", "gpt-4o-new", shared}; !slices.Equal(left, want) {
			t.Errorf("lanes %q, want %q", left, want)
		}
	})
}

func TestAProviderThatIsRecognisedForNoModelServesAny(t *testing.T) {
	for name, want := range map[string]bool{"openai-compatible": true, "sim": true, "openai": false} {
		up := upstream(t, "any", sluice.Config{})
		up.Provider, _ = provider.Lookup(name)
		up.Models = nil
		u := upstreams(t, provider.UpstreamsConfig{Upstreams: []provider.Upstream{up}})
		if got := u.Serves("Qwen/Qwen3-8B", provider.ChatCompletions); got != want {
			t.Errorf("%s serves a model that nobody knows: %v, want %v", name, got, want)
		}
		if u.Serves("", provider.ChatCompletions) {
			t.Errorf("%s serves a model without a name", name)
		}
	}
}

func TestNamesThatAreNoModelsAreNotKept(t *testing.T) {
	up := upstream(t, "any", sluice.Config{})
	up.Provider, _ = provider.Lookup("openai")
	u := upstreams(t, provider.UpstreamsConfig{Upstreams: []provider.Upstream{up}})
	for i := range 200 {
		if u.Serves(fmt.Sprintf("gpt-4o-%d", i)+strings.Repeat("x", 1<<20), provider.ChatCompletions) {
			t.Fatal("such a model is served")
		}
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 64<<20 {
		t.Errorf("%d MiB are kept", m.HeapAlloc>>20)
	}
	runtime.KeepAlive(u)
}
