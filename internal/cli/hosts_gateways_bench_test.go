//go:build unix

package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkGatewaysAndBatch has two gateways and a run share the lane of one key by a real engine. The run and a tenant of the first
// gateway want more than there is; another tenant of each gateway calls now and then, and says what it waits:
//
//	go test ./internal/cli -run '^$' -bench GatewaysAndBatch -benchtime 1x -timeout 0
func BenchmarkGatewaysAndBatch(b *testing.B) {
	const rpm, long, interactive = 3000, 60 * time.Second, 4.0 // calls a second of that tenant, at each gateway
	for b.Loop() {
		h := newHosts(b, 0, 0)
		h.startEngine(h.dir)
		up := startServer(b, h.dir, "sluice", "sim", "--rpm", strconv.Itoa(rpm), "--rate-limit", "burst=1s", "--latency", "200ms")
		gateways, keys := h.gateways(b, up.url, rpm)
		prompts := filepath.Join(h.dir, "prompts.jsonl")
		if err := os.WriteFile(prompts, promptLines(20*rpm), 0o600); err != nil {
			b.Fatal(err)
		}
		run := h.sluice("run", "run", prompts, "-o", h.out, "--provider", "openai-compatible", "--base-url", up.url+"/v1", "--key-env", "OPENAI_API_KEY",
			"--rpm", strconv.Itoa(rpm), "--redis", h.redis(), "--progress", "none")
		begun := time.Now()
		var calls sync.WaitGroup
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200}}
		for range 64 { // always waiting
			calls.Go(func() {
				for time.Since(begun) < long {
					h.call(client, gateways[0].url, keys["bulk"])
				}
			})
		}
		var mu sync.Mutex
		var waits []float64
		for i, g := range gateways {
			for n := range int(interactive * long.Seconds()) {
				calls.Go(func() {
					time.Sleep(time.Until(begun.Add(time.Duration((float64(n) + float64(i)/2) / interactive * float64(time.Second)))))
					if ms, ok := h.call(client, g.url, keys["interactive"]); ok {
						mu.Lock()
						waits = append(waits, ms)
						mu.Unlock()
					}
				})
			}
		}
		calls.Wait()
		took := time.Since(begun).Seconds()
		run.Process.Signal(os.Interrupt)
		run.Wait()
		l := &offeredLoad{}
		slices.Sort(waits)
		if len(waits) == 0 {
			b.Fatal("no call of the interactive tenant was answered")
		}
		b.ReportMetric(l.stats(b, up, "answered")/(rpm/60*took), "of-the-quota")
		b.ReportMetric(l.stats(b, up, "throttled"), "upstream-429")
		b.ReportMetric(waits[len(waits)/2], "interactive-p50-ms")
		b.ReportMetric(waits[len(waits)*95/100], "interactive-p95-ms")
		b.ReportMetric(float64(2*int(interactive*long.Seconds())-len(waits)), "interactive-failed")
	}
}

// gateways starts two, with a key for each of two tenants.
func (h *hosts) gateways(b *testing.B, provider string, rpm int) (gateways []server, keys map[string]string) {
	keys = make(map[string]string)
	var bulk, interactive string
	keys["bulk"], bulk = tenantLine("bulk", "")
	keys["interactive"], interactive = tenantLine("interactive", ", priority: high")
	settings := fmt.Sprintf("upstreams: [{name: u, provider: openai-compatible, base_url: %q, key_file: key, models: [m], limits: {rpm: %d}}]\nserve: {redis: %q, tenants: [%s, %s]}\n",
		provider+"/v1", rpm, h.redis(), bulk, interactive)
	for name, text := range map[string]string{"sluice.yaml": settings, "key": sentinelKey} {
		if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for range 2 {
		gateways = append(gateways, startServer(b, h.dir, "sluice", "serve", "--config", "sluice.yaml", "--listen", "127.0.0.1:0"))
	}
	return gateways, keys
}

// call makes a call by way of a gateway and returns how long it waited there.
func (h *hosts) call(client *http.Client, url, key string) (waitMS float64, ok bool) {
	req, err := http.NewRequest(http.MethodPost, url+"/v1/chat/completions", strings.NewReader(`{"model":"m","max_tokens":16,"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		return 0, false
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := client.Do(req)
	if err != nil {
		return 0, false
	}
	defer resp.Body.Close()
	var body json.RawMessage
	if json.NewDecoder(resp.Body).Decode(&body) != nil || resp.StatusCode != http.StatusOK {
		return 0, false
	}
	waitMS, err = strconv.ParseFloat(resp.Header.Get("X-Sluice-Wait-Ms"), 64)
	return waitMS, err == nil
}
