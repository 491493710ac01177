//go:build unix

package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/suite"
)

// paid is a provider that counts the answers that it gave.
type paid struct{ answers atomic.Int64 }

func (p *paid) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	time.Sleep(rand.N(30 * time.Millisecond))
	p.answers.Add(1)
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":20}}`)
}

// Budgets survive what kills the gateway: nothing that was answered is forgotten, and no more than what was open is charged
// beside it.
func TestBudgetsSurviveKills(t *testing.T) {
	suite.FullOnly(t)
	t.Parallel() // it mostly waits
	provider := &paid{}
	web := httptest.NewServer(provider)
	defer web.Close()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.key"), "the-key-of-the-upstream")
	key, tenant := tenantLine("alice", ", max_cost_day: 100, max_cost_month: 100")
	put(t, filepath.Join(dir, "sluice.yaml"), fmt.Sprintf(`upstreams: [{name: a, provider: openai-compatible, base_url: '%s/v1', key_file: a.key, models: [m], price: 1/2, limits: {rpm: 1000000, concurrency: 64}}]
serve: {tenants: [%s]}
`, web.URL, tenant))
	const clients = 16
	const used, mayUse = (10 + 2*20) / 1e6, (20 + 2*40) / 1e6 // of an answer; the input is estimated at 20 tokens at most
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	for kill := range suite.Size(2, 5) {
		g := startGateway(t, dir, "--config", "sluice.yaml")
		var calls sync.WaitGroup
		for range clients {
			calls.Go(func() {
				for {
					req, _ := http.NewRequest(http.MethodPost, g.url+"/v1/chat/completions", strings.NewReader(`{"model":"m","max_tokens":40,"messages":[{"role":"user","content":"hello"}]}`))
					req.Header.Set("Authorization", "Bearer "+key)
					resp, err := client.Do(req)
					if err != nil {
						return // it was killed
					}
					if _, err := io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode != http.StatusOK {
						t.Errorf("status %d", resp.StatusCode)
					}
					resp.Body.Close()
				}
			})
		}
		before := provider.answers.Load()
		time.Sleep(200*time.Millisecond + rand.N(200*time.Millisecond))
		await(t, "an answer", func() bool { return provider.answers.Load() > before })
		g.cmd.Process.Kill()
		g.cmd.Wait()
		calls.Wait()
		time.Sleep(50 * time.Millisecond) // what the provider had answers now
		spent, least := spentUSD(t, dir), float64(provider.answers.Load())*used
		const lead = 256 // calls' worth that the file may be ahead
		if most := least + float64((kill+1)*(clients+lead))*mayUse; spent < least-1e-9 || spent > most {
			t.Errorf("after kill %d, %.6f USD were spent as the file says: want %.6f to %.6f", kill+1, spent, least, most)
		}
		t.Logf("kill %d: %d answers, %.6f USD, in the file %.6f: %+.1f calls", kill+1, provider.answers.Load(), least, spent, (spent-least)/mayUse)
	}
	g := startGateway(t, dir, "--config", "sluice.yaml")
	g.stop(t)
	if spent, least := spentUSD(t, dir), float64(provider.answers.Load())*used; spent < least-1e-9 {
		t.Errorf("after another start %.6f USD were spent: want %.6f", spent, least)
	}
}

func spentUSD(t *testing.T, dir string) float64 {
	var doc struct {
		Tenants map[string]struct{ Month struct{ USD float64 } }
	}
	b, err := os.ReadFile(filepath.Join(dir, "sluice", "serve-spent.json"))
	if err != nil || json.Unmarshal(b, &doc) != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return doc.Tenants["alice"].Month.USD
}
