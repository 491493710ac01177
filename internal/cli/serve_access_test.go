//go:build unix

package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// serveHouse serves a gateway in front of a provider that answers after a while.
func serveHouse(t *testing.T, took time.Duration, args ...string) (g *gatewayProcess, dir string) {
	web := httptest.NewServer(&busy{took: took, open: make(map[string]int), most: make(map[string]int)})
	t.Cleanup(web.Close)
	dir = t.TempDir()
	put(t, filepath.Join(dir, "house.key"), "key-of-the-house\n")
	put(t, filepath.Join(dir, "sluice.yaml"), fmt.Sprintf(
		"upstreams:\n  - {name: house, provider: openai-compatible, base_url: %q, key_file: house.key, models: [m], limits: {concurrency: 1, rpm: 1000000}}\n", web.URL+"/v1"))
	return startGateway(t, dir, append([]string{"--config", "sluice.yaml"}, args...)...), dir
}

// say sends a chat to a gateway.
func say(t *testing.T, url, model, id string) *http.Response {
	r, err := http.NewRequest(http.MethodPost, url+"/v1/chat/completions",
		strings.NewReader(fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"a secret of mine"}]}`, model)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer key-of-the-client")
	r.Header.Set("X-Request-Id", id)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp
}

func TestTheAccessLogHasALineForEachRequest(t *testing.T) {
	g, dir := serveHouse(t, 20*time.Millisecond, "--access-log", "access.jsonl")
	if id := say(t, g.url, "m", "first").Header.Get("X-Sluice-Request-Id"); id != "first" {
		t.Errorf("the answer is to request %q", id)
	}
	say(t, g.url, "unheard-of", "key-of-the-house")
	g.stop(t)
	text, err := os.ReadFile(filepath.Join(dir, "access.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []string{"secret of mine", "key-of-the"} {
		if strings.Contains(string(text), hidden) {
			t.Errorf("the log holds %q: %s", hidden, text)
		}
	}
	var lines []map[string]any
	for line := range strings.Lines(string(text)) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if _, err := time.Parse(time.RFC3339, fmt.Sprint(m["time"])); err != nil {
			t.Error(err)
		}
		lines = append(lines, m)
	}
	if len(lines) != 2 {
		t.Fatalf("%d lines: %s", len(lines), text)
	}
	for i, want := range []map[string]any{
		{"request_id": "first", "model": "m", "upstream": "house", "endpoint": "/v1/chat/completions", "status": 200.0, "kind": "ok", "tries": 1.0, "input_tokens": 9.0, "output_tokens": 1.0},
		{"status": 404.0, "kind": "model_not_found", "tries": 0.0, "model": nil},
	} {
		for name, value := range want {
			if lines[i][name] != value {
				t.Errorf("line %d: %s is %v, want %v", i+1, name, lines[i][name], value)
			}
		}
	}
	if took, _ := lines[0]["latency_ms"].(float64); took < 20 {
		t.Errorf("took %v ms", took)
	}
}

func TestTheGatewayServesItsMetrics(t *testing.T) {
	t.Parallel() // it mostly waits
	g, _ := serveHouse(t, time.Millisecond, "--metrics", "127.0.0.1:0")
	defer g.stop(t)
	say(t, g.url, "m", "")
	say(t, g.url, "unheard-of", "")
	local := g.local(t)
	_, text := get(local+"/metrics", "")
	for _, want := range []string{
		`sluice_gateway_requests_total{kind="ok",model="m",tenant="none"} 1`, `sluice_gateway_refusals_total{reason="model_not_found",tenant="none"} 1`,
		`sluice_in_flight{lane="house: m"} 0`, `sluice_concurrency{lane="house: m"} 1`, `gen_ai_client_token_usage_sum{`, `go_goroutines`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	for _, c := range []struct {
		url, host string
		status    int
	}{
		{local + "/ui", "", 200}, {local + "/ui/style.css", "", 200}, {local + "/healthz", "", 200}, {local + "/v1/models", "", 404}, {local + "/readyz", "", 404},
		{local + "/metrics", "rebound.example", 403}, {local + "/ui", "rebound.example", 403},
		{g.url + "/healthz", "", 200}, {g.url + "/readyz", "", 200}, {g.url + "/metrics", "", 404}, {g.url + "/ui", "", 404}, {g.url + "/ui/events", "", 404},
	} {
		if status, text := get(c.url, c.host); status != c.status {
			t.Errorf("%s of host %q: %d %s, want %d", c.url, c.host, status, text, c.status)
		}
	}
}

func TestTwoGatewaysOfAHostHaveDashboardsOfTheirOwn(t *testing.T) {
	t.Parallel() // it mostly waits
	one, _ := serveHouse(t, time.Millisecond)
	defer one.stop(t)
	other, _ := serveHouse(t, time.Millisecond)
	defer other.stop(t)
	if a, b := one.local(t), other.local(t); a == b {
		t.Errorf("both are at %s", a)
	}
	for _, g := range []*gatewayProcess{one, other} {
		if status, text := get(g.local(t)+"/ui", ""); status != http.StatusOK {
			t.Errorf("%d %s", status, text)
		}
	}
}

// accessLines are the request ids of a log, whose lines must all be whole.
func accessLines(t *testing.T, name string) (ids []string) {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var one struct {
			ID string `json:"request_id"`
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil || !strings.HasSuffix(line, "}\n") {
			t.Errorf("%v: %q", err, line)
		}
		ids = append(ids, one.ID)
	}
	return ids
}

func TestTheAccessLogGoesOnInANewFileAfterHangup(t *testing.T) {
	g, dir := serveHouse(t, time.Millisecond, "--access-log", "access.jsonl")
	log, old := filepath.Join(dir, "access.jsonl"), filepath.Join(dir, "access.jsonl.1")
	say(t, g.url, "m", "before")
	has := func(file string, lines int) {
		await(t, file, func() bool { return len(accessLines(t, file)) >= lines }, g.stderr)
	}
	has(log, 1)
	if err := os.Rename(log, old); err != nil {
		t.Fatal(err)
	}
	say(t, g.url, "m", "between")
	has(old, 2)
	g.cmd.Process.Signal(syscall.SIGHUP)
	await(t, "the new file", func() bool {
		_, err := os.Stat(log)
		return err == nil
	}, g.stderr)
	say(t, g.url, "m", "after")
	g.stop(t)
	if before, after := fmt.Sprint(accessLines(t, old)), fmt.Sprint(accessLines(t, log)); before != "[before between]" || after != "[after]" {
		t.Errorf("%s, and then %s", before, after)
	}
	if info, err := os.Stat(log); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func TestAFullDiskStopsTheAccessLogAlone(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	g, _ := serveHouse(t, time.Millisecond, "--access-log", "/dev/full")
	for range 5 {
		if resp := say(t, g.url, "m", ""); resp.StatusCode != http.StatusOK {
			t.Error(resp.Status)
		}
	}
	g.stop(t)
	if n := strings.Count(g.stderr.String(), "no space left on device"); n != 1 {
		t.Errorf("told %d times: %s", n, g.stderr)
	}
}
