//go:build unix

package cli_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/suite"
)

// moody is a provider that does by the model what it is asked: fine, fails, slow, throttles-once; streams where it is to.
type moody struct{ throttled atomic.Bool }

func (p *moody) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	asks := func(text string) bool { return strings.Contains(string(body), text) }
	w.Header().Set("Content-Type", "application/json")
	switch {
	case asks(`"fails"`):
		w.WriteHeader(http.StatusInternalServerError)
		io.WriteString(w, `{"error":{"message":"no","type":"server_error"}}`)
		return
	case asks(`"throttles-once"`) && !p.throttled.Swap(true):
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(529)
		io.WriteString(w, `{"error":{"message":"Overloaded","type":"overloaded_error"}}`)
		return
	case asks(`"slow"`):
		select {
		case <-r.Context().Done():
		case <-time.After(5 * time.Minute):
		}
		return
	case asks(`"stream":true`):
		w.Header().Set("Content-Type", "text/event-stream")
		for _, text := range []string{"a", "b", "c"} {
			fmt.Fprintf(w, `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%q}}]}`+"\n\n", text)
			w.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
		}
		io.WriteString(w, `data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}`+"\n\ndata: [DONE]\n\n")
		return
	}
	io.WriteString(w, `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`)
}

const moodySettings = `
upstreams:
  - {name: house, provider: openai-compatible, base_url: %q, key_file: house.key, models: {m: m-2026, fails: fails, slow: slow, throttles-once: throttles-once}, limits: {rpm: 60000, tpm: 9000000, concurrency: 9}, price: 1/2}
  - {name: all, provider: openai, base_url: %q, key_file: all.key}
serve: {models: {alias: m}, tenants: [%s]}
`

// startMoody serves a gateway in front of a moody provider, to tenants with keys.
func startMoody(t *testing.T, tenants ...string) (g *gatewayProcess, keys map[string]string) {
	web := httptest.NewServer(&moody{})
	t.Cleanup(web.Close)
	dir := t.TempDir()
	put(t, filepath.Join(dir, "house.key"), "key-of-the-house\n")
	put(t, filepath.Join(dir, "all.key"), "key-of-all-models\n")
	keys = make(map[string]string)
	lines := make([]string, len(tenants))
	for i, name := range tenants {
		keys[name], lines[i] = tenantLine(name, "")
	}
	put(t, filepath.Join(dir, "sluice.yaml"), fmt.Sprintf(moodySettings, web.URL+"/v1", web.URL+"/v1", strings.Join(lines, ", ")))
	return startGateway(t, dir, "--config", "sluice.yaml"), keys
}

// ask sends a chat, and returns the answer's status; 0: there was none before ctx ended.
func (g *gatewayProcess) ask(ctx context.Context, t *testing.T, key, body string) int {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// series are what /metrics has of one name: its labels and value.
type series struct {
	name   string
	labels map[string]string
	value  float64
}

func scrapeMetrics(t *testing.T, url string) (all []series) {
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	line, label := regexp.MustCompile(`(?m)^(\w+)(?:\{(.*)\})? (\S+)$`), regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		one := series{name: m[1], labels: make(map[string]string)}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			one.labels[l[1]] = l[2]
		}
		one.value, err = strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Errorf("%s: %v", m[0], err)
		}
		all = append(all, one)
	}
	return all
}

// documented are the metrics that tables of a page have.
func documented(t *testing.T, page string) (names []string) {
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `((?:sluice|gen_ai)_[a-z_]+)`").FindAllStringSubmatch(string(text), -1) {
		names = append(names, row[1])
	}
	return names
}

// full makes as many calls as may be open, and one that waits and gives up first; it returns the metrics of when it waited.
func (g *gatewayProcess) full(t *testing.T, key, body string) (all []series) {
	var calls sync.WaitGroup
	until := func(name string, value float64) {
		there := func(s series) bool { return s.name == name && s.value >= value }
		await(t, name, func() bool {
			all = scrapeMetrics(t, g.local(t)+"/metrics")
			return slices.ContainsFunc(all, there)
		})
	}
	patient, end := context.WithCancel(t.Context())
	defer end()
	impatient, leave := context.WithCancel(t.Context())
	defer leave()
	for range 9 {
		calls.Go(func() { g.ask(patient, t, key, body) })
	}
	until("sluice_in_flight", 9)
	calls.Go(func() { g.ask(impatient, t, key, body) })
	until("sluice_waiting", 1)
	standing := all
	leave()
	until("sluice_cancelled_total", 1)
	end()
	calls.Wait()
	return standing
}

func TestEveryMetricOfTheGatewayMovesAndHasBoundedLabels(t *testing.T) {
	suite.FullOnly(t)
	t.Parallel() // it mostly waits
	g, keys := startMoody(t, "amy", "bob")
	defer g.stop(t)
	chat := func(model string) string {
		return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hello"}]}`, model)
	}
	for range 3 {
		g.ask(t.Context(), t, keys["amy"], chat("m"))
		g.ask(t.Context(), t, keys["bob"], strings.Replace(chat("alias"), "{", `{"stream":true,`, 1))
	}
	if status := g.ask(t.Context(), t, keys["amy"], chat("throttles-once")); status != http.StatusOK {
		t.Fatalf("a call that was throttled once: %d\n%s", status, g.stderr)
	}
	g.ask(t.Context(), t, keys["amy"], chat("fails"))
	held := g.full(t, keys["amy"], chat("slow"))
	for i := range 30 {
		g.ask(t.Context(), t, keys["amy"], chat(fmt.Sprintf("of-a-client-%d", i)))
		g.ask(t.Context(), t, keys["amy"], chat(fmt.Sprintf("gpt-of-a-client-%d", i)))
		g.ask(t.Context(), t, fmt.Sprintf("slk-wrong-%d", i), chat("m"))
	}
	all := append(held, scrapeMetrics(t, g.local(t)+"/metrics")...)

	allowed := map[string][]string{
		"tenant": {"amy", "bob", "none"}, "lane": {"house: m-2026", "house: fails", "house: slow", "house: throttles-once", "all: other"},
		"model": {"m", "fails", "slow", "throttles-once", "other"}, "gen_ai_request_model": {"m", "fails", "slow", "throttles-once", "other"},
		"gen_ai_operation_name": {"chat"}, "gen_ai_token_type": {"input", "output"}, "direction": {"input", "output"},
		"dimension": {"rpm", "tpm", "itpm", "otpm", "rpd", "tpd", "concurrency", "unstated"}, "source": {"configured"},
	}
	moved := make(map[string]bool)
	for _, s := range all {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(s.name, "_count"), "_sum"), "_bucket")
		if s.value != 0 {
			moved[base], moved[s.name] = true, true
		}
		for label, value := range s.labels {
			if values := allowed[label]; values != nil && !slices.Contains(values, value) {
				t.Errorf("%s has %s=%q", s.name, label, value)
			}
		}
	}
	still := []string{"sluice_paused", "sluice_breaker_open", "sluice_cooldown_until_timestamp_seconds"} // no pause is on now
	items := []string{"sluice_items_total", "sluice_items_reused_total", "sluice_tokens_total", "sluice_cost_usd_total", "sluice_cost_estimated_usd_total", "sluice_input_items", "sluice_items_remaining"}
	for _, name := range documented(t, "reference/metrics.md") {
		there := slices.ContainsFunc(all, func(s series) bool { return strings.HasPrefix(s.name, name) })
		switch {
		case slices.Contains(items, name):
			if there {
				t.Errorf("%s is there, and counts nothing", name)
			}
		case !there:
			t.Errorf("%s is not there", name)
		case !moved[name] && !slices.Contains(still, name):
			t.Errorf("%s did not move", name)
		}
	}
}
