//go:build unix

package cli_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAgentsDoNotWaitForPipes(t *testing.T) {
	d := newDesk(t)
	for _, name := range []string{"in.jsonl", "in.csv", "out.jsonl"} {
		if err := syscall.Mkfifo(filepath.Join(d.dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(d.dir, "out.jsonl.state.json"), `{"version":1,"status":"running","pid":1,"updated_at":"2026-01-01T00:00:00Z"}`)
	for tool, args := range map[string][]map[string]any{
		"plan":   {{"rpm": 60, "workload": "in.jsonl", "model": "sim-small"}, {"rpm": 60, "workload": "in.csv"}},
		"status": {{"path": "out.jsonl"}, {"path": "."}},
	} {
		for _, one := range args {
			if a, failure := useTool(t, d.session, tool, one); !strings.Contains(failure, "is no plain file") {
				t.Errorf("%s %v: it says %q and answers %v", tool, one, failure, a)
			}
		}
	}
}

// A search calls a provider that never answers, and one signal ends it and the server.
func TestOneSignalEndsTheServerAndItsSearch(t *testing.T) {
	t.Parallel()
	called, hung := make(chan struct{}, 1), make(chan struct{})
	provider := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case called <- struct{}{}:
		default:
		}
		select {
		case <-r.Context().Done():
		case <-hung:
		}
	}))
	defer provider.Close()
	defer close(hung)
	dir := t.TempDir()
	settings := filepath.Join(dir, "settings.yaml")
	put(t, settings, "providers:\n  - name: acme\n    base_url: "+provider.URL+"/v1\n    key_env: [ACME_API_KEY]\n")
	cmd := exec.Command("sluice", "mcp", "--probe-tokens", "100000")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ACME_API_KEY="+sentinelKey, "SLUICE_CONFIG="+settings, "XDG_STATE_HOME="+dir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	defer stdin.Close()
	search := strings.Replace(asked, `"name":"slow","arguments":{}`,
		`"name":"find","arguments":{"provider":"acme","model":"m","probe":true,"token_budget":50000}`, 1)
	if _, err := io.WriteString(stdin, search); err != nil {
		t.Fatal(err)
	}
	select {
	case <-called:
	case <-time.After(time.Minute):
		t.Fatal("the search calls nobody")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil || !strings.Contains(stdout.String(), `"id":2,"result"`) || !strings.Contains(stdout.String(), "interrupted") || stderr.Len() > 0 {
			t.Errorf("it ended with %v, answered\n%s\nand says %s", err, &stdout, &stderr)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on after a signal")
	}
}
