package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-llm/sluice/internal/suite"
)

// sending is a body that says when all of it was read.
type sending struct {
	*strings.Reader
	sent func()
}

func (s sending) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if s.Len() == 0 {
		s.sent()
	}
	return n, err
}

// TestRequestsThatWaitTakeNoMoreThanTheirRoom has 10,000 requests of 1 MiB come to a process whose upstream does not answer.
func TestRequestsThatWaitTakeNoMoreThanTheirRoom(t *testing.T) {
	suite.FullOnly(t)
	const (
		mebibyte = 1 << 20
		requests = 10_000
		mayWait  = 64  // of max_body_memory, one client gets half
		memory   = 768 // maximum of the process, in MiB: most of it is for connections
	)
	answer := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-answer
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[{"message":{"content":"fine"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
	}))
	defer up.Close()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "sluice.yaml"), fmt.Sprintf("upstreams:\n  - {name: up, provider: openai-compatible, base_url: %q, models: [m], limits: {concurrency: 8, rpm: 10000000}}\n"+
		"serve:\n  queue_timeout: 1h\n  max_body_memory: 128MiB\n", up.URL+"/v1"))
	g := startGatewayBy(t, dir, exec.Command("sluice", "serve", "--listen", "127.0.0.1:0", "--config", "sluice.yaml"))
	of := server{pid: g.cmd.Process.Pid}

	body := `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"` + strings.Repeat("x", mebibyte-100) + `"}]}`
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	var all sync.WaitGroup
	var ok, refused, sent atomic.Int64
	turns := make(chan struct{}, 64)
	for range requests {
		turns <- struct{}{}
		all.Go(func() {
			back := sync.OnceFunc(func() {
				sent.Add(1)
				<-turns
			})
			defer back()
			req, _ := http.NewRequest(http.MethodPost, g.url+"/v1/chat/completions", sending{strings.NewReader(body), back})
			req.ContentLength = int64(len(body))
			resp, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			switch {
			case resp.StatusCode == 200:
				ok.Add(1)
			case resp.StatusCode == 503 && resp.Header.Get("X-Sluice-Error") == "bodies_full" && resp.Header.Get("Retry-After") != "":
				refused.Add(1)
			default:
				t.Errorf("%s %s", resp.Status, text)
			}
		})
	}
	await(t, "all requests", func() bool { return int(sent.Load()) == requests && int(refused.Load()) >= requests-mayWait }, g.stderr)
	waiting := requests - int(refused.Load())
	t.Logf("%d requests wait, %d are refused; %.0f MiB of memory at most", waiting, refused.Load(), of.peak())
	if of.peak() > memory {
		t.Errorf("they take more than %d MiB of memory", memory)
	}
	close(answer)
	all.Wait()
	if n := int(ok.Load()); n != mayWait {
		t.Errorf("%d requests are answered", n)
	}
	g.stop(t)
}
