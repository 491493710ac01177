package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-llm/sluice/internal/cli"
	"github.com/sluice-llm/sluice/sim"
)

// buffer is written by the program and read by a test meanwhile.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// watched is a run of the program, of which a provider keeps the last call until it is let go.
type watched struct {
	stdout, stderr buffer
	release        func()   // lets the last call go
	code           chan int // of the program's end
}

// watchRun begins a run of so many items.
func watchRun(t *testing.T, items int, flags ...string) *watched {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	server, err := sim.New(sim.Config{Latency: 5 * time.Millisecond, OutputTokens: 10})
	if err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	w := &watched{code: make(chan int, 1), release: sync.OnceFunc(func() { close(hold) })}
	web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte("number 0 ")) {
			<-hold
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		server.ServeHTTP(rw, r)
	}))
	t.Cleanup(web.Close)
	t.Cleanup(w.release)
	var in strings.Builder
	for i := range items {
		fmt.Fprintf(&in, `{"custom_id":"i%d","prompt":"number %d !"}`+"\n", i, i)
	}
	input := filepath.Join(dir, "in.jsonl")
	if err := os.WriteFile(input, []byte(in.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"run", input, "-o", filepath.Join(dir, "out.jsonl"), "--provider", "openai-compatible",
		"--base-url", web.URL + "/v1", "--model", "m", "--json"}, flags...)
	go func() { w.code <- cli.Main(context.Background(), args, strings.NewReader(""), &w.stdout, &w.stderr) }()
	return w
}

// get returns an answer's status and text; 0 where nobody answers.
func get(url, host string) (status int, text string) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	req.Host = host
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

func TestTheMetricsOfARunAreServedWhileItGoesOn(t *testing.T) {
	w := watchRun(t, 30, "--metrics", "127.0.0.1:0")
	at := regexp.MustCompile(`metrics at (http://127\.0\.0\.1:\d+)/metrics`)
	await(t, "the address", func() bool { return at.MatchString(w.stderr.String()) })
	base := at.FindStringSubmatch(w.stderr.String())[1]
	await(t, "the metrics of 29 items done and one in flight", func() bool {
		_, text := get(base+"/metrics", "")
		return !slices.ContainsFunc([]string{
			`sluice_items_total{kind="ok",lane="m"} 29`, `sluice_in_flight{lane="m"} 1`, `sluice_waiting{lane="m"} 0`, `sluice_input_items 30`,
			`sluice_items_remaining 1`, `sluice_attempts_total{kind="ok",lane="m"} 29`, `sluice_tokens_total{direction="output",lane="m"} 290`,
			`sluice_wait_seconds_count{lane="m"} 30`, `sluice_call_duration_seconds_count{lane="m"} 29`,
			`# TYPE sluice_items_total counter`, `go_goroutines `, `process_start_time_seconds `,
		}, func(want string) bool { return !strings.Contains(text, want) })
	})
	for _, test := range []struct {
		path, host string
		status     int
	}{
		{"/healthz", "", 200}, {"/metrics", "localhost", 200}, {"/metrics", "LOCALHOST:1", 200}, {"/healthz", "[::1]:9464", 200},
		{"/metrics", "evil.example", 403}, {"/healthz", "evil.example:9464", 403}, {"/metrics", "127.0.0.1.evil.example", 403},
		{"/metrics", "192.0.2.1", 403}, {"/", "", 404}, {"/debug/pprof/", "", 404},
	} {
		if status, text := get(base+test.path, test.host); status != test.status {
			t.Errorf("%s of host %q: %d %s, want %d", test.path, test.host, status, text, test.status)
		}
	}
	w.release()
	if code := <-w.code; code != 0 {
		t.Errorf("exit code %d: %s", code, w.stderr.String())
	}
	if status, _ := get(base+"/healthz", ""); status != 0 {
		t.Errorf("the server outlives the run: %d", status)
	}
}

// otlp is a collector of OpenTelemetry.
type otlp struct {
	mu    sync.Mutex
	err   error
	spans map[string]int // by name, and by provider
}

func (o *otlp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	var data traces.TracesData
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = errors.Join(o.err, proto.Unmarshal(b, &data))
	for _, rs := range data.ResourceSpans {
		for _, s := range rs.ScopeSpans[0].Spans {
			o.spans[s.Name]++
			for _, a := range s.Attributes {
				if a.Key == "gen_ai.provider.name" {
					o.spans[a.Value.GetStringValue()]++
				}
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func TestARunIsExportedByOpenTelemetry(t *testing.T) {
	o := &otlp{spans: make(map[string]int)}
	collector := httptest.NewServer(o)
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	w := watchRun(t, 30)
	w.release()
	if code := <-w.code; code != 0 || strings.Contains(w.stderr.String(), "warning") {
		t.Errorf("exit code %d: %s", code, w.stderr.String())
	}
	var sum struct {
		Attempts int `json:"attempts"`
	}
	if err := json.Unmarshal([]byte(w.stdout.String()), &sum); err != nil {
		t.Fatal(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil || o.spans["chat m"] != 30 || o.spans["openai-compatible"] != 30 || o.spans["attempt"] != sum.Attempts {
		t.Errorf("spans: %v, %v", o.spans, o.err)
	}
}
