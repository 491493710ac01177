//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// hosts is a batch that processes share as hosts would: an engine, a collector, workers, and a provider that counts.
type hosts struct {
	tb       testing.TB
	dir      string
	in, out  string
	items    int
	provider *counter
	url      string // of the provider
	port     int    // of the engine
	engine   *exec.Cmd
	workers  []*exec.Cmd
}

// counter is a provider that answers everything after a while, and counts what it was asked.
type counter struct {
	takes time.Duration

	mu         sync.Mutex
	calls      map[string]int // by the item's name
	open, most int
	arrived    []arrival
}

// arrival is a request.
type arrival struct {
	item, worker string
	at           time.Time
}

var itemName = regexp.MustCompile(`item-\d+`)

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // its client is gone
	}
	c.mu.Lock()
	item := string(itemName.Find(body))
	c.calls[item]++
	c.arrived = append(c.arrived, arrival{item, r.Header.Get("X-Worker"), time.Now()})
	c.open++
	c.most = max(c.most, c.open)
	c.mu.Unlock()
	time.Sleep(c.takes)
	c.mu.Lock()
	c.open--
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}}`)
}

func (c *counter) openNow() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

func newHosts(tb testing.TB, items int, takes time.Duration) *hosts {
	tb.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		tb.Skip("there is no redis-server")
	}
	dir := tb.TempDir()
	h := &hosts{tb: tb, dir: dir, in: filepath.Join(dir, "in.jsonl"), out: filepath.Join(dir, "out.jsonl"), items: items,
		provider: &counter{takes: takes, calls: make(map[string]int)}}
	server := httptest.NewServer(h.provider)
	tb.Cleanup(server.Close)
	h.url = server.URL
	var prompts bytes.Buffer
	for i := range items {
		fmt.Fprintf(&prompts, `{"custom_id":"item-%d","method":"POST","url":"/v1/chat/completions","body":{"model":"m","max_tokens":16,"messages":[{"role":"user","content":"item-%d"}]}}`+"\n", i, i)
	}
	if err := os.WriteFile(h.in, prompts.Bytes(), 0o600); err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	h.port = l.Addr().(*net.TCPAddr).Port
	l.Close()
	tb.Cleanup(h.end)
	return h
}

func (h *hosts) redis() string { return fmt.Sprintf("redis://127.0.0.1:%d", h.port) }

// startEngine starts the engine with what its directory holds.
func (h *hosts) startEngine(dir string) {
	h.tb.Helper()
	h.engine = exec.Command("redis-server", "--port", strconv.Itoa(h.port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "yes")
	out, err := h.engine.StdoutPipe()
	if err == nil {
		err = h.engine.Start()
	}
	if err != nil {
		h.tb.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			go io.Copy(io.Discard, out)
			return
		}
	}
	h.tb.Fatal("the engine did not start")
}

func (h *hosts) killEngine() {
	h.engine.Process.Kill()
	h.engine.Wait()
}

// sluice starts a command, whose words go to a file beside the input.
func (h *hosts) sluice(name string, args ...string) *exec.Cmd {
	h.tb.Helper()
	log, err := os.OpenFile(filepath.Join(h.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		h.tb.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("sluice", args...)
	cmd.Env = append(os.Environ(), "OPENAI_API_KEY="+sentinelKey, "XDG_STATE_HOME="+filepath.Join(h.dir, "state-"+name), "HOME="+h.dir)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		h.tb.Fatal(err)
	}
	return cmd
}

func (h *hosts) collector() *exec.Cmd {
	return h.sluice("collector", "run", h.in, "-o", h.out, "--provider", "openai", "--redis", h.redis(), "--distribute", "--progress", "plain")
}

func (h *hosts) startWorkers(n, concurrent int, flags ...string) {
	for range n {
		name := fmt.Sprint("worker-", len(h.workers))
		h.workers = append(h.workers, h.sluice(name, append([]string{"worker", "--redis", h.redis(), "--provider", "openai",
			"--base-url", h.url + "/v1", "--header", "X-Worker: " + name, "--concurrency", strconv.Itoa(concurrent), "--progress", "plain"}, flags...)...))
	}
}

// end stops all that is left.
func (h *hosts) end() {
	for _, w := range h.workers {
		w.Process.Signal(syscall.SIGCONT)
		w.Process.Kill()
		w.Wait()
	}
	if h.engine != nil {
		h.killEngine()
	}
	if h.tb.Failed() {
		logs, _ := filepath.Glob(filepath.Join(h.dir, "*.log"))
		for _, log := range logs {
			text, _ := os.ReadFile(log)
			h.tb.Logf("%s:\n%s", filepath.Base(log), text[max(0, len(text)-2000):])
		}
	}
}

// recorded returns how often each item stands in the output, and how many failed.
func (h *hosts) recorded() (times map[string]int, failed int) {
	text, err := os.ReadFile(h.out)
	if err != nil && !os.IsNotExist(err) {
		h.tb.Fatal(err)
	}
	times = make(map[string]int)
	for line := range bytes.Lines(text) {
		var l struct {
			ID       string `json:"custom_id"`
			Response *struct {
				Status int `json:"status_code"`
			}
		}
		if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &l) != nil {
			continue // torn
		}
		times[l.ID]++
		if l.Response == nil || l.Response.Status != 200 {
			failed++
		}
	}
	return times, failed
}

// await waits until so many items are recorded.
func (h *hosts) await(n int) {
	h.tb.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		text, _ := os.ReadFile(h.out)
		if bytes.Count(text, []byte("\n")) >= n {
			return
		}
		if time.Now().After(end) {
			h.tb.Fatalf("only %d of %d items are recorded", bytes.Count(text, []byte("\n")), n)
		}
	}
}

// backAt returns how long it takes until so many calls are open again.
func (h *hosts) backAt(open int) time.Duration {
	start := time.Now()
	for h.provider.openNow() < open && time.Since(start) < 30*time.Second {
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(start)
}

// BenchmarkHosts has an accident befall a batch of four workers, with a real engine, and says what it cost:
//
//	go test ./internal/cli -run '^$' -bench Hosts -benchtime 1x -timeout 0
func BenchmarkHosts(b *testing.B) {
	const items, slots = 2400, 40
	for _, c := range []struct {
		name     string
		accident func(b *testing.B, h *hosts, collector *exec.Cmd) *exec.Cmd
	}{
		{"nothing", func(_ *testing.B, _ *hosts, c *exec.Cmd) *exec.Cmd { return c }},
		{"kill -9 of a worker", func(b *testing.B, h *hosts, c *exec.Cmd) *exec.Cmd {
			h.workers[0].Process.Kill()
			time.Sleep(time.Second) // what it had open ends at the provider
			b.ReportMetric(1+h.backAt(slots).Seconds(), "slots-back-s")
			return c
		}},
		{"kill -9 of the collector", func(_ *testing.B, h *hosts, c *exec.Cmd) *exec.Cmd {
			c.Process.Kill()
			c.Wait()
			return h.collector()
		}},
		{"engine gone for 3 s", func(_ *testing.B, h *hosts, c *exec.Cmd) *exec.Cmd {
			h.killEngine()
			time.Sleep(3 * time.Second)
			h.startEngine(h.dir)
			return c
		}},
		{"engine without its last second", func(b *testing.B, h *hosts, c *exec.Cmd) *exec.Cmd {
			older := filepath.Join(h.dir, "older")
			if err := os.Mkdir(older, 0o700); err != nil {
				b.Fatal(err)
			}
			if out, err := exec.Command("cp", "-r", filepath.Join(h.dir, "appendonlydir"), older).CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			time.Sleep(time.Second)
			h.killEngine()
			h.startEngine(older)
			return c
		}},
		{"engine emptied", func(b *testing.B, h *hosts, c *exec.Cmd) *exec.Cmd {
			if out, err := exec.Command("redis-cli", "-p", strconv.Itoa(h.port), "flushall").CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			return c
		}},
		{"a worker stands still for 20 s", func(_ *testing.B, h *hosts, c *exec.Cmd) *exec.Cmd {
			h.workers[0].Process.Signal(syscall.SIGSTOP)
			time.Sleep(20 * time.Second)
			h.workers[0].Process.Signal(syscall.SIGCONT)
			return c
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				h := newHosts(b, items, 300*time.Millisecond)
				h.startEngine(h.dir)
				start := time.Now()
				collector := h.collector()
				h.startWorkers(4, slots)
				h.await(items / 4)
				collector = c.accident(b, h, collector)
				if err := collector.Wait(); err != nil {
					b.Errorf("the collector ended with %v", err)
				}
				h.report(b, time.Since(start), slots)
			}
		})
	}
}

// report says what became of the items.
func (h *hosts) report(b *testing.B, took time.Duration, slots int) {
	times, failed := h.recorded()
	twice, calls := 0, 0
	for _, n := range times {
		twice += n - 1
	}
	for _, n := range h.provider.calls {
		calls += n
	}
	b.ReportMetric(took.Seconds(), "s")
	b.ReportMetric(float64(h.items-len(times)), "lost")
	b.ReportMetric(float64(twice), "recorded-twice")
	b.ReportMetric(float64(failed), "failed")
	b.ReportMetric(float64(calls-h.items), "called-again")
	b.ReportMetric(float64(h.provider.most-slots), "above-the-slots")
	if len(times) != h.items || twice > 0 || failed > 0 {
		b.Errorf("%d of %d items are recorded, %d twice; %d failed", len(times), h.items, twice, failed)
	}
}

// BenchmarkHostsTrivialCalls has workers make calls that take no time, and says how many items a second come through:
//
//	go test ./internal/cli -run '^$' -bench HostsTrivialCalls -benchtime 1x -timeout 0
func BenchmarkHostsTrivialCalls(b *testing.B) {
	const items = 30_000
	for b.Loop() {
		h := newHosts(b, items, 0)
		h.startEngine(h.dir)
		h.startWorkers(4, 400)
		time.Sleep(2 * time.Second)
		start := time.Now()
		if err := h.collector().Wait(); err != nil {
			b.Errorf("the collector ended with %v", err)
		}
		took := time.Since(start)
		b.ReportMetric(items/took.Seconds(), "items/s")
		h.report(b, took, 400)
	}
}
