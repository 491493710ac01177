package cli_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/gateway"
)

// origin is a provider that answers at once and knows no limits: the model says what, such as plain-1 or sse-64, in KiB.
func origin() {
	answers := make(map[string][]byte)
	for _, kib := range []int{1, 64} {
		text := strings.Repeat("word ", kib<<10/5)
		answers[fmt.Sprintf("plain-%d", kib)] = fmt.Appendf(nil, `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}`, text)
		var sse bytes.Buffer
		for range max(1, len(text)/256) {
			fmt.Fprintf(&sse, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":null}]}\n\n", text[:256])
		}
		sse.WriteString("data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n")
		sse.WriteString("data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12,\"total_tokens\":21}}\n\ndata: [DONE]\n\n")
		answers[fmt.Sprintf("sse-%d", kib)] = sse.Bytes()
	}
	serveAt(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for name, answer := range answers {
			if !bytes.Contains(body, []byte(`"`+name+`"`)) {
				continue
			}
			if strings.HasPrefix(name, "plain") {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
				w.Write(answer)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			for _, event := range bytes.SplitAfter(answer, []byte("\n\n")) {
				w.Write(event)
				w.(http.Flusher).Flush()
			}
			return
		}
		http.Error(w, "which model?", http.StatusBadRequest)
	}))
}

// reverseProxy is what one has without Sluice: the standard library's proxy in front of an address, as it is, or with a transport
// that keeps as many connections as there are calls.
func reverseProxy() {
	to, err := url.Parse(os.Args[1])
	if err != nil {
		panic(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	if len(os.Args) > 2 && os.Args[2] == "tuned" {
		proxy.Transport = &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024, DisableCompression: true}
	}
	serveAt(proxy)
}

// serveAt serves at a free port and says which.
func serveAt(h http.Handler) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("http://%s\n", l.Addr())
	panic(http.Serve(l, h))
}

// server is one of the programs that a benchmark compares.
type server struct {
	url string
	pid int
}

func startServer(b *testing.B, dir string, args ...string) server {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatalf("%v does not say where it is: %v", args, err)
	}
	go io.Copy(io.Discard, out)
	return server{strings.TrimSpace(line), cmd.Process.Pid}
}

// cpu is the processor time that a process has used, in seconds.
func (s server) cpu(b *testing.B) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid))
	if err != nil {
		b.Skip("processor time is read from /proc")
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}

// peak is the most memory that a process had, in MiB.
func (s server) peak() float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return kib / 1024
}

// tenantLine is a tenant as settings list it, with further fields, and its key.
func tenantLine(name, fields string) (key, line string) {
	key, sum := gateway.NewKey()
	return key, fmt.Sprintf("{name: %s, key_sha256: %s%s}", name, sum, fields)
}

// BenchmarkGateway sends the same calls through the standard library's reverse proxy, as it is and tuned, and through sluice serve,
// with a tenant, its limits, those of the provider, metrics and the accounting of tokens on, each in turn: processor time per call,
// calls per second, peak memory. Ratios are medians. It is to be run once:
//
//	go test -run '^$' -bench Gateway$ -benchtime 1x -timeout 0 ./internal/cli
func BenchmarkGateway(b *testing.B) {
	dir := b.TempDir()
	from := startServer(b, dir, "origin")
	key, tenant := tenantLine("bench", ", rpm: 100000000, tpm: 1000000000, concurrency: 100000")
	settings := fmt.Sprintf("upstreams:\n  - {name: o, provider: openai-compatible, base_url: %s/v1, models: [plain-1, plain-64, sse-1, sse-64], limits: {rpm: 100000000, tpm: 1000000000000}}\nserve: {tenants: [%s]}\n", from.url, tenant)
	if err := os.WriteFile(filepath.Join(dir, "sluice.yaml"), []byte(settings), 0o644); err != nil {
		b.Fatal(err)
	}
	for _, kib := range []int{1, 64} {
		for _, form := range []string{"plain", "sse"} {
			for _, connections := range []int{1, 64, 256} {
				w := workload{model: fmt.Sprintf("%s-%d", form, kib), connections: connections, calls: 6000 / min(kib, 4), key: key}
				b.Run(fmt.Sprintf("%s/%d", w.model, connections), func(b *testing.B) {
					compare(b, w, []server{
						startServer(b, dir, "sluice", "serve", "--config", "sluice.yaml", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"),
						startServer(b, dir, "reverseproxy", from.url),
						startServer(b, dir, "reverseproxy", from.url, "tuned"),
					})
				})
			}
		}
	}
}

// workload is what is asked of each server.
type workload struct {
	model              string
	connections, calls int
	key                string
}

// compare has the first server's figures reported beside those of the others.
func compare(b *testing.B, w workload, servers []server) {
	const rounds = 5
	cpu, rate := make([][]float64, len(servers)), make([][]float64, len(servers))
	for round := range rounds + 1 {
		for i, s := range servers {
			before, start := s.cpu(b), time.Now()
			failed := w.load(s)
			if failed > 0 && i == 0 {
				b.Errorf("%d calls through sluice failed", failed)
			}
			if round > 0 { // the first one warms
				rate[i] = append(rate[i], float64(w.calls)/time.Since(start).Seconds())
				cpu[i] = append(cpu[i], (s.cpu(b)-before)/float64(w.calls)*1e6)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(cpu[0]), "µs/call")
	b.ReportMetric(median(rate[0]), "calls/s")
	b.ReportMetric(servers[0].peak(), "MiB")
	for i, name := range []string{"proxy", "tuned"} {
		b.ReportMetric(median(cpu[0])/median(cpu[i+1]), name+"-cpu")
		b.ReportMetric(median(rate[0])/median(rate[i+1]), name+"-rate")
		b.ReportMetric(servers[0].peak()/servers[i+1].peak(), name+"-memory")
	}
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// load makes the calls, and returns how many failed.
func (w workload) load(s server) int {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: w.connections, MaxConnsPerHost: w.connections, DisableCompression: true}}
	defer client.CloseIdleConnections()
	body := fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"user","content":"hello there"}]}`, w.model, strings.HasPrefix(w.model, "sse"))
	var left, failed atomic.Int64
	left.Store(int64(w.calls))
	var wg sync.WaitGroup
	for range w.connections {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				req, _ := http.NewRequest(http.MethodPost, s.url+"/v1/chat/completions", strings.NewReader(body))
				req.Header.Set("Authorization", "Bearer "+w.key)
				resp, err := client.Do(req)
				if err != nil {
					failed.Add(1)
					continue
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
					failed.Add(1)
				}
				resp.Body.Close()
			}
		})
	}
	wg.Wait()
	return int(failed.Load())
}
