package find_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/sim"
)

// others make calls at a pace between two instants, until they are stopped.
func others(server *sim.Server, from time.Duration, perSecond float64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var calls sync.WaitGroup
	calls.Go(func() {
		for wait := from; ; wait = time.Duration(float64(time.Second) / perSecond) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			calls.Go(func() {
				body := strings.NewReader(`{"model":"m","max_tokens":50,"messages":[{"role":"user","content":"theirs"}]}`)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1/v1/chat/completions", body)
				if err != nil {
					panic(err)
				}
				if resp, err := server.Transport().RoundTrip(req); err == nil {
					resp.Body.Close()
				}
			})
		}
	})
	return func() { cancel(); calls.Wait() }
}

func TestOthersOnTheSameLimitAreNoticed(t *testing.T) {
	for name, c := range map[string]struct {
		row       row
		from      time.Duration
		perSecond float64
		told      bool
	}{
		"by the first headers":          {row{name: "headers", sim: sim.Config{RPM: 500}, stated: true}, 0, 10, true},
		"by a rate that is another":     {row{name: "rate", sim: sim.Config{RPM: 500, Burst: 10 * time.Second}}, 40 * time.Second, 20, true},
		"by a cap that is another":      {row{name: "cap", sim: sim.Config{Concurrency: 20}}, 0, 12, true},
		"and are not imagined":          {row{name: "headers", sim: sim.Config{RPM: 500}, stated: true}, time.Hour, 1, false},
		"and are not imagined, either":  {row{name: "cap", sim: sim.Config{Concurrency: 20}}, time.Hour, 1, false},
		"nor where nothing is stated":   {row{name: "rate", sim: sim.Config{RPM: 500, Burst: 10 * time.Second}}, time.Hour, 1, false},
		"nor where Anthropic states it": {row{name: "a", sim: sim.Config{ITPM: 40_000, OTPM: 90_000}, stated: true, dialect: "anthropic"}, time.Hour, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, server := c.row.search(t, 1)
				stop := others(server, c.from, c.perSecond)
				defer stop()
				time.Sleep(2 * time.Second)
				r, err := find.Auto(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				if told := strings.Contains(strings.Join(r.Notes, "\n"), "other processes"); told != c.told {
					t.Errorf("told: %t; %d workers, %q", told, r.Workers, r.Notes)
				}
			})
		})
	}
}
