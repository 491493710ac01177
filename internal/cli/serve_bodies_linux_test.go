package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	const mebibyte = 1 << 20
	for _, c := range []struct {
		name      string
		mib       int // memory_total
		disk      int // disk_total, in MiB
		full      int // the size of the file system of bodies.dir, in MiB; 0: it is large
		requests  int
		memory    float64 // maximum of the process, in MiB: most of it is for connections
		mayWait   int     // maximum of requests that have room
		certainly int     // and minimum
	}{
		{"totals", 128, 2048, 0, 10_000, 1024, 64 + 1024, 64 + 1024},
		{"a full disk", 1, 2048, 64, 1000, 512, 1 + 64, 32},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer := make(chan struct{})
			up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				<-answer
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"choices":[{"message":{"content":"fine"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
			}))
			defer up.Close()
			dir := t.TempDir()
			bodies := filepath.Join(dir, "bodies")
			if err := os.Mkdir(bodies, 0o700); err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(dir, "sluice.yaml"), fmt.Sprintf("upstreams:\n  - {name: up, provider: openai-compatible, base_url: %q, models: [m], limits: {concurrent: 8, rpm: 10000000}}\n"+
				"serve:\n  deadlines: {queue: 1h}\n  bodies: {dir: %s, memory_total: %dMiB, disk_total: %dMiB}\n", up.URL+"/v1", bodies, c.mib, c.disk))
			command := "exec sluice serve --listen 127.0.0.1:0 --config sluice.yaml"
			cmd := exec.Command("sh", "-c", command)
			if c.full > 0 {
				mount := fmt.Sprintf("mount -t tmpfs -o size=%dm none %s", c.full, bodies)
				if out, err := exec.Command("unshare", "-Urm", "sh", "-c", mount).CombinedOutput(); err != nil {
					t.Skipf("no small file system can be mounted: %s", out)
				}
				cmd = exec.Command("unshare", "-Urm", "sh", "-c", mount+" && "+command)
			}
			g := startGatewayBy(t, dir, cmd)
			of := server{pid: g.cmd.Process.Pid}

			body := `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"` + strings.Repeat("x", mebibyte-100) + `"}]}`
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
			var all sync.WaitGroup
			var ok, refused, sent atomic.Int64
			turns := make(chan struct{}, 64)
			for range c.requests {
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
			await(t, "all requests", func() bool { return int(sent.Load()) == c.requests && int(refused.Load()) >= c.requests-c.mayWait }, g.stderr)
			waiting, disk := c.requests-int(refused.Load()), spooled(t, of.pid)
			t.Logf("%d requests wait, %d are refused; %.0f MiB of memory at most, %d MiB in files", waiting, refused.Load(), of.peak(), disk>>20)
			if most := int64(c.disk) / 2 * mebibyte; disk > most || of.peak() > c.memory {
				t.Errorf("they take more than %d bytes of the disk, or %.0f MiB of memory", most, c.memory)
			}
			close(answer)
			all.Wait()
			if n := int(ok.Load()); n > c.mayWait || n < c.certainly {
				t.Errorf("%d requests are answered", n)
			}
			time.Sleep(100 * time.Millisecond)
			if left := spooled(t, of.pid); left > 0 {
				t.Errorf("%d bytes are left in files", left)
			}
			g.stop(t)
		})
	}
}

// spooled is how many bytes the files without a name have that a process has open.
func spooled(t *testing.T, pid int) (bytes int64) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range names {
		path := filepath.Join(dir, one.Name())
		if to, _ := os.Readlink(path); !strings.HasSuffix(to, " (deleted)") {
			continue
		}
		if info, err := os.Stat(path); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}
