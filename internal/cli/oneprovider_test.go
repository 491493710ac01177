//go:build unix

package cli_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/sim"
)

// builtWith is a sluice whose registry is that of the tree with the rows of CONTRIBUTING.md at its end, as a change that adds
// nothing else would build it.
func builtWith(t *testing.T, dir string) string {
	t.Helper()
	guide := read(t, "../../CONTRIBUTING.md")
	_, row, ok := strings.Cut(guide, "```yaml\nproviders:\n")
	row, _, ended := strings.Cut(row, "```\n")
	if !ok || !ended {
		t.Fatal("CONTRIBUTING.md shows no row of a provider")
	}
	registry, err := filepath.Abs("../../provider/providers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	changed, overlay, program := filepath.Join(dir, "providers.yaml"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "sluice.exe")
	put(t, changed, read(t, registry)+"\n"+row)
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{registry: changed}})
	if err != nil {
		t.Fatal(err)
	}
	put(t, overlay, string(replace))
	build := exec.Command("go", "build", "-overlay", overlay, "-o", program, "../../cmd/sluice")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// acme serves an imitation under the names that CONTRIBUTING.md gives to a provider's headers.
func acme(t *testing.T, key string) *httptest.Server {
	t.Helper()
	s, err := sim.New(sim.Config{RPM: 1200, Key: key, Latency: -1})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+r.Header.Get("X-Acme-Key"))
		s.ServeHTTP(&renamed{ResponseWriter: w}, r)
	}))
	t.Cleanup(server.Close)
	return server
}

// renamed sends the headers of an imitation by acme's names.
type renamed struct {
	http.ResponseWriter
	sent bool
}

func (w *renamed) WriteHeader(status int) {
	if h := w.Header(); !w.sent {
		w.sent = true
		for _, kind := range []string{"Limit", "Remaining", "Reset"} {
			if v := h.Get("X-Ratelimit-" + kind + "-Requests"); v != "" {
				h.Set("X-Acme-Requests-"+kind, v)
			}
			for _, of := range []string{"-Requests", "-Tokens"} {
				h.Del("X-Ratelimit-" + kind + of)
			}
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *renamed) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// newcomer is a program that knows one provider more, and a server of that provider's.
type newcomer struct {
	t                 *testing.T
	dir, program, url string
}

func (a *newcomer) command(args ...string) *exec.Cmd {
	cmd := exec.Command(a.program, args...)
	cmd.Dir = a.dir
	cmd.Env = append(os.Environ(), "ACME_API_KEY="+sentinelKey, "XDG_STATE_HOME="+a.dir)
	return cmd
}

// says runs a command, and looks for texts in what it prints.
func (a *newcomer) says(stdin string, args []string, want ...string) {
	a.t.Helper()
	cmd := a.command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		a.t.Fatalf("sluice %s: %v: %s", strings.Join(args, " "), err, out)
	}
	for _, w := range want {
		if !strings.Contains(string(out), w) {
			a.t.Errorf("sluice %s: %q is not in\n%s", strings.Join(args, " "), w, out)
		}
	}
}

// ask starts a gateway in front of the upstream of that name, and returns its answer to one call.
func (a *newcomer) ask(model string) string {
	a.t.Helper()
	put(a.t, filepath.Join(a.dir, "serve.yaml"), fmt.Sprintf("upstreams:\n  - {provider: acme, base_url: %s/v1, key_env: ACME_API_KEY}\n", a.url))
	serve := a.command("serve", "--listen", "127.0.0.1:0", "--config", "serve.yaml")
	out, err := serve.StdoutPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		a.t.Fatal(err)
	}
	defer func() {
		serve.Process.Kill()
		serve.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		a.t.Fatal(err)
	}
	body := fmt.Sprintf(`{"model": %q, "messages": [{"role": "user", "content": "Why?"}]}`, model)
	answer, err := http.Post(strings.TrimSpace(line)+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return fmt.Sprint(answer.StatusCode, " ", string(text))
}

// TestAProviderIsOneRow adds the provider of CONTRIBUTING.md to the built-in file, and nothing else, and has every command use it.
func TestAProviderIsOneRow(t *testing.T) {
	suite.FullOnly(t)
	t.Parallel()
	dir := t.TempDir()
	a := &newcomer{t, dir, builtWith(t, dir), acme(t, sentinelKey).URL}
	var prompts strings.Builder
	for i := range 60 {
		fmt.Fprintf(&prompts, "{\"prompt\":\"What is %d?\"}\n", i)
	}
	put(t, filepath.Join(dir, "in.jsonl"), prompts.String())

	// The model alone says whose it is, the key is sent as its row says, and the limit stands in its own headers.
	run := []string{"run", "in.jsonl", "--model", "acme-large"}
	a.says("", append(run, "-o", "out.jsonl", "--base-url", a.url+"/v1", "--json"), `"limit": 1200`, `"source": "header"`, `"done": 60`)
	a.says("", append(run, "-o", "no.jsonl", "--dry-run"), "for acme-large, only limits of tier free are published", "at acme")
	a.says("", []string{"plan", "--list"}, "acme", "rpm 60, tpm 100,000")
	a.says("", []string{"plan", "--provider", "acme", "--tier", "free", "--input-tokens", "400", "--max-tokens", "100"}, "limited by requests/min")
	refusal := `{"error":{"code":"E42","message":"no"}}`
	a.says(refusal, []string{"explain", "--status", "400", "--provider", "acme"}, "rate_limit: ")
	a.says(refusal, []string{"explain", "--status", "400"}, "bad_request: ")
	if got := a.ask("acme-large"); !strings.HasPrefix(got, "200 ") {
		t.Errorf("the gateway: %s", got)
	}
	if got := a.ask("gpt-4o"); strings.HasPrefix(got, "200 ") {
		t.Errorf("a model of another provider went to this one: %s", got)
	}
}
