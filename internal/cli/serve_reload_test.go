//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/suite"
)

// busy is a provider that counts how many calls it has at once, by their keys.
type busy struct {
	took       time.Duration
	mu         sync.Mutex
	open, most map[string]int
}

func (b *busy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	key := r.Header.Get("Authorization")
	b.mu.Lock()
	b.open[key]++
	b.most[key] = max(b.most[key], b.open[key])
	b.mu.Unlock()
	time.Sleep(b.took)
	b.mu.Lock()
	b.open[key]--
	b.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`)
}

// gatewayProcess is sluice serve at work.
type gatewayProcess struct {
	cmd    *exec.Cmd
	url    string
	stderr *transcript
}

func startGateway(t *testing.T, dir string, args ...string) *gatewayProcess {
	return startGatewayBy(t, dir, exec.Command("sluice", append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...))
}

// startGatewayBy starts a gateway by another command.
func startGatewayBy(t *testing.T, dir string, cmd *exec.Cmd) *gatewayProcess {
	g := &gatewayProcess{cmd: cmd, stderr: &transcript{}}
	g.cmd.Dir, g.cmd.Stderr = dir, g.stderr
	g.cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+dir, "GORACE=atexit_sleep_ms=0")
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		g.cmd.Process.Kill()
		g.cmd.Wait()
		t.Fatalf("no address: %s", g.stderr)
	}
	g.url = strings.TrimSpace(line)
	return g
}

// local is where its metrics and dashboard are.
func (g *gatewayProcess) local(t *testing.T) (base string) {
	at := regexp.MustCompile(`(?m)^metrics +(http://127\.0\.0\.1:\d+)/metrics$`)
	await(t, "the address of the metrics", func() bool { // standard error comes by a goroutine
		m := at.FindStringSubmatch(g.stderr.String())
		if m != nil {
			base = m[1]
		}
		return m != nil
	}, g.stderr)
	return base
}

// stop interrupts it, and expects it to end in peace.
func (g *gatewayProcess) stop(t *testing.T) {
	g.cmd.Process.Signal(os.Interrupt)
	if err := g.cmd.Wait(); err != nil || strings.Contains(g.stderr.String(), "DATA RACE") {
		t.Errorf("%v: %s", err, g.stderr)
	}
}

// load has 24 clients call without a pause until rest, none of whose calls may fail.
func (g *gatewayProcess) load(t *testing.T) (done *atomic.Int64, rest func()) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	done = new(atomic.Int64)
	var calls sync.WaitGroup
	stop := make(chan struct{})
	for range 24 {
		calls.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				resp, err := client.Post(g.url+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hello"}]}`))
				if err != nil {
					t.Error(err)
					return
				}
				text, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(text, []byte("fine")) {
					t.Errorf("%v: %d %s", err, resp.StatusCode, text)
				}
				done.Add(1)
			}
		})
	}
	return done, func() {
		close(stop)
		calls.Wait()
		client.CloseIdleConnections()
	}
}

func TestReadingSettingsAgainFailsNoCall(t *testing.T) {
	t.Parallel() // it mostly waits
	provider := &busy{took: 20 * time.Millisecond, open: make(map[string]int), most: make(map[string]int)}
	web := httptest.NewServer(provider)
	defer web.Close()
	dir := t.TempDir()
	one, other := filepath.Join(dir, "one.key"), filepath.Join(dir, "other.key")
	put(t, one, "key-number-one\n")
	put(t, other, "key-number-two\n")
	settings := filepath.Join(dir, "sluice.yaml")
	upstream := func(name, key string, concurrent int) string {
		return fmt.Sprintf("  - {name: %s, provider: openai-compatible, base_url: %q, key_file: %s.key, models: [m], limits: {concurrency: %d, rpm: 1000000}}\n", name, web.URL+"/v1", key, concurrent)
	}
	forms := []string{
		"upstreams:\n" + upstream("one", "one", 3) + upstream("other", "other", 3),
		"upstreams:\n" + upstream("renamed", "one", 2) + "serve:\n  models: {alias: m}\n",
		"upstreams:\n" + upstream("other", "other", 3),
		"upstreams:\n" + upstream("one", "one", 3) + "serve:\n  nonsense: 1\n",
		"upstreams:\n" + upstream("one", "one", 1) + upstream("other", "other", 2) + "serve:\n  total_timeout: 1m\n",
	}
	put(t, settings, forms[0])
	g := startGateway(t, dir, "--config", "sluice.yaml")
	done, rest := g.load(t)
	read := regexp.MustCompile(`settings (re-read|are unchanged): `)
	for i := range suite.Size(10, 40) {
		put(t, settings, forms[(i+1)%len(forms)])
		g.cmd.Process.Signal(syscall.SIGHUP)
		if i < 10 { // each form is read; later ones come as they may
			await(t, "the settings to be read", func() bool { return len(read.FindAllString(g.stderr.String(), -1)) > i }, g.stderr)
		}
		before := done.Load()
		await(t, "calls to end", func() bool { return done.Load() >= before+8 }, g.stderr)
	}
	rest()
	g.stop(t)
	said := g.stderr.String()
	if strings.Count(said, "settings re-read: ") < 8 || !strings.Contains(said, `settings are unchanged: sluice.yaml:4: unknown field "nonsense"`) {
		t.Errorf("not read again: %s", said)
	}
	if strings.Contains(said, "key-number") {
		t.Errorf("a key is told: %s", said)
	}
	// New Schedulers beside the old ones would have had their own slots.
	for key, most := range provider.most {
		if most > 3 {
			t.Errorf("%d calls at once with %s", most, key)
		}
	}
}

// A key that is exchanged in its file is used from then on, without a word to the gateway.
func TestANewKeyInItsFileIsUsed(t *testing.T) {
	t.Parallel() // it mostly waits
	var refused atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer the-new-key-of-all" {
			refused.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, `{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}`)
			return
		}
		(&busy{open: make(map[string]int), most: make(map[string]int)}).ServeHTTP(w, r)
	}))
	defer web.Close()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.key"), "the-old-key-of-all")
	put(t, filepath.Join(dir, "sluice.yaml"), fmt.Sprintf("upstreams: [{name: a, provider: openai-compatible, base_url: '%s/v1', key_file: a.key, models: [m]}]", web.URL))
	g := startGateway(t, dir, "--config", "sluice.yaml")
	defer g.stop(t)
	ask := func() int {
		resp, err := http.Post(g.url+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m","messages":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if status := ask(); status == http.StatusOK || refused.Load() != 1 {
		t.Fatalf("%d, refused %d", status, refused.Load())
	}
	ready := func() string {
		resp, err := http.Get(g.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return fmt.Sprint(resp.StatusCode, " ", string(text))
	}
	if said := ready(); !strings.HasPrefix(said, "503 no upstream is available") {
		t.Errorf("without a key that is accepted: %s", said)
	}
	put(t, filepath.Join(dir, "a.key"), "the-new-key-of-all")
	await(t, "the new key", func() bool { return ask() == http.StatusOK }, g.stderr)
	if said := ready(); said != "200 ready\n" {
		t.Errorf("with one: %s", said)
	}
	if said := g.stderr.String(); strings.Contains(said, "-key-of-all") || !strings.Contains(said, "the key in a.key was rejected") {
		t.Error(said)
	}
}

// The file of a key comes after the settings that name it: both are there then, and nothing else will change.
func TestSettingsAreReadAgainWhenTheirKeyComes(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := t.TempDir()
	upstream := func(name string) string {
		return fmt.Sprintf("  - {name: %s, provider: openai-compatible, base_url: 'http://127.0.0.1:1/v1', key_file: %s.key, models: [m-%s]}\n", name, name, name)
	}
	put(t, filepath.Join(dir, "a.key"), "the-key-of-upstream-a")
	put(t, filepath.Join(dir, "sluice.yaml"), "upstreams:\n"+upstream("a"))
	g := startGateway(t, dir, "--config", "sluice.yaml")
	defer g.stop(t)
	says := func(text string) {
		await(t, text, func() bool { return strings.Contains(g.stderr.String(), text) }, g.stderr)
	}
	put(t, filepath.Join(dir, "sluice.yaml"), "upstreams:\n"+upstream("a")+upstream("b"))
	says("settings are unchanged: ")
	put(t, filepath.Join(dir, "b.key"), "the-key-of-upstream-b")
	says("settings re-read: a, b\n")
	if n := strings.Count(g.stderr.String(), "settings are unchanged: "); n != 1 {
		t.Errorf("what was wrong is said %d times: %s", n, g.stderr)
	}
}
