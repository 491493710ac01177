package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// offeredLoad is four times what a provider allows, for a quarter of a minute, by four tenants of the same weight.
type offeredLoad struct {
	name, provider, path string
	sim                  []string
	told                 string  // in the settings; "": limits are in headers alone
	perSecond            float64 // what the provider allows, of requests or tokens,
	burst                float64 // and seconds of it that its buckets hold
	calls                float64 // a second
	stream               bool
	cost                 func(max int) float64 // of a call that allows so much output; nil: what was produced
}

// BenchmarkGatewayLoad has four tenants offer four times a provider's limits, over sockets and with programs of their own. It is to
// be run once:
//
//	go test -run '^$' -bench GatewayLoad -benchtime 1x -timeout 0 ./internal/cli
func BenchmarkGatewayLoad(b *testing.B) {
	for _, l := range []offeredLoad{
		{name: "requests", provider: "openai", path: "/v1/chat/completions", sim: []string{"--rpm", "6000", "--rate-limit", "burst=1s"},
			told: ", limits: {rpm: 6000}", perSecond: 100, burst: 1, calls: 400, cost: func(int) float64 { return 1 }},
		{name: "requests-streamed", provider: "openai", path: "/v1/chat/completions", sim: []string{"--rpm", "3000", "--rate-limit", "burst=1s"},
			perSecond: 50, burst: 1, calls: 200, stream: true, cost: func(int) float64 { return 1 }},
		{name: "tokens-mixed", provider: "openai", path: "/v1/chat/completions", sim: []string{"--tpm", "1500000", "--rate-limit", "burst=1s"},
			told: ", limits: {tpm: 1500000}", perSecond: 25000, burst: 1, calls: 313, cost: func(max int) float64 { return float64(max) }},
		{name: "output-streamed", provider: "anthropic", path: "/v1/messages",
			sim:       []string{"--rate-limit", "itpm=1000000", "--rate-limit", "otpm=600000", "--charge", "actual", "--rate-limit", "burst=1s", "--output-tokens", "200", "--output-sigma", "0.5"},
			perSecond: 10000, burst: 1, calls: 220, stream: true},
	} {
		b.Run(l.name, l.run)
	}
}

// start begins the provider and the gateway, with four tenants.
func (l *offeredLoad) start(b *testing.B) (up, g server, keys []string) {
	dir := b.TempDir()
	up = startServer(b, dir, append([]string{"sluice", "sim"}, l.sim...)...)
	base := up.url + "/v1"
	if l.provider == "anthropic" {
		base = up.url
	}
	keys, tenants := make([]string, 4), make([]string, 4)
	for i := range keys {
		keys[i], tenants[i] = tenantLine(fmt.Sprint("tenant-", i), "")
	}
	settings := fmt.Sprintf("upstreams: [{name: u, provider: %s, base_url: %q, key_file: key, models: [m]%s}]\nserve: {tenants: [%s]}\n",
		l.provider, base, l.told, strings.Join(tenants, ", "))
	for name, text := range map[string]string{"sluice.yaml": settings, "key": "a-key-of-the-upstream"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return up, startServer(b, dir, "sluice", "serve", "--config", "sluice.yaml", "--listen", "127.0.0.1:0"), keys
}

func (l *offeredLoad) run(b *testing.B) {
	up, g, keys := l.start(b)
	const long = 15 * time.Second
	const answer = 250 * time.Millisecond // what an answer takes to come
	var mu sync.Mutex
	used, failed, wrong := make([]float64, len(keys)), 0, ""
	begun := time.Now()
	var calls sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4096}}
	defer client.CloseIdleConnections()
	n := int(l.calls * long.Seconds())
	for i := range n {
		time.Sleep(time.Until(begun.Add(time.Duration(float64(i) / l.calls * float64(time.Second)))))
		calls.Go(func() {
			most := min(2000, int(250*math.Exp(0.7*rand.NormFloat64()))+1)
			err := l.call(client, g.url, keys[i%len(keys)], most)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed++
				wrong = err.Error()
			} else if l.cost != nil && time.Since(begun) < long+answer {
				used[i%len(keys)] += l.cost(most)
			}
		})
	}
	time.Sleep(time.Until(begun.Add(long + answer)))
	mu.Lock()
	sum, squares := 0.0, 0.0
	for _, u := range used {
		sum, squares = sum+u, squares+u*u
	}
	mu.Unlock()
	if l.cost == nil {
		sum = l.stats(b, up, "output_tokens")
	} else {
		b.ReportMetric(sum*sum/squares/float64(len(used)), "jain")
	}
	calls.Wait()
	if failed > 0 {
		b.Errorf("%d of %d calls failed, as: %s", failed, n, wrong)
	}
	b.ReportMetric(sum/(l.perSecond*(l.burst+long.Seconds())), "of-the-quota")
	b.ReportMetric(l.stats(b, up, "throttled"), "upstream-429")
	b.ReportMetric(float64(failed), "failed")
	b.ReportMetric(float64(n), "calls")
	b.ReportMetric(time.Since(begun).Seconds(), "s")
	b.ReportMetric(0, "ns/op")
}

func (l *offeredLoad) call(client *http.Client, url, key string, most int) error {
	body := fmt.Sprintf(`{"model":"m","max_tokens":%d,"stream":%t,"messages":[{"role":"user","content":"hello there %d"}]}`, most, l.stream, most)
	req, err := http.NewRequest(http.MethodPost, url+l.path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Anthropic-Version", "2023-06-01")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %s", resp.StatusCode, text)
	}
	return err
}

// stats is a figure of what the imitation saw.
func (l *offeredLoad) stats(b *testing.B, up server, name string) float64 {
	resp, err := http.Get(up.url + "/stats")
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	var all map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		b.Fatal(err)
	}
	n, _ := all[name].(float64)
	return n
}
