package provider_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

func TestModelsThatClientsMakeUpHaveFewLanes(t *testing.T) {
	up := upstream(t, "any", sluice.Config{})
	up.Provider, _ = provider.Lookup("openai")
	up.Models = nil // all that it is recognised for
	u := upstreams(t, provider.UpstreamsConfig{Upstreams: []provider.Upstream{up}})
	ask := func(model string) {
		_, err := u.Do(t.Context(), sluice.Call{Lane: model}, provider.ChatCompletions, func(_ context.Context, _ *sluice.Permit, via provider.Via) sluice.Outcome {
			if via.Model != model {
				t.Errorf("%s is sent as %s", model, via.Model)
			}
			return sluice.Outcome{}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3000 {
		ask(fmt.Sprintf("gpt-4o-%d", i))
	}
	n := len(up.Scheduler.Snapshot().Lanes)
	if n > 300 {
		t.Errorf("%d lanes: each has a file that stays open", n)
	}
	ask("gpt-4o-mini")
	if lanes := up.Scheduler.Snapshot().Lanes; len(lanes) != n+1 {
		t.Errorf("a model that is known has no lane of its own: %d, before %d", len(lanes), n)
	}
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
