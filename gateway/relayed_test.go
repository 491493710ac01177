package gateway_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// ours is the upstream's key, which no client may see, and theirs that of a client, which no upstream may see.
const (
	ours   = "sk-upstream-0123456789abcdef"
	theirs = "sentinel-credential-of-a-client"
)

// relayed is a gateway before one upstream.
type relayed struct {
	*gateway.Gateway
	scheduler *sluice.Scheduler
	upstreams *provider.Upstreams
	closeIdle func() // connections to the upstream
	log       lockedBuffer

	mu   sync.Mutex
	ends []sluice.Outcome
}

func (x *relayed) Observe(e sluice.Event) {
	if e.Type == limits.EventSlotReleased {
		x.mu.Lock()
		x.ends = append(x.ends, e.Outcome)
		x.mu.Unlock()
	}
}

// ended returns how the tries ended.
func (x *relayed) ended() []sluice.Outcome {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]sluice.Outcome(nil), x.ends...)
}

// inFlight is how many permits are out, and how many calls wait.
func (x *relayed) inFlight() (n int) {
	for _, l := range x.scheduler.Snapshot().Lanes {
		n += l.InFlight + l.Waiting
	}
	return n
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// setting is what a test changes of a gateway, its upstream and its scheduler.
type setting struct {
	gateway.Config
	upstream  provider.Upstream
	upstreams provider.UpstreamsConfig
	limits    sluice.Config
}

// relay makes a gateway before an upstream at an address.
func relay(t *testing.T, url string, change func(*setting)) *relayed {
	t.Helper()
	x := &relayed{}
	p, _ := provider.Lookup("openai-compatible")
	cfg := setting{
		upstream: provider.Upstream{Name: "up", Provider: p, BaseURL: url, Keys: []provider.Key{{From: "KEY", Value: ours}},
			Models: map[string]string{"m": "m", "alias": "m-2026"}},
		limits: sluice.Config{Observer: x, Attempts: 2},
	}
	cfg.Logger = slog.New(slog.NewTextHandler(&x.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if change != nil {
		change(&cfg)
	}
	s, err := sluice.New(cfg.limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	x.scheduler, cfg.upstream.Scheduler = s, s
	cfg.upstreams.Upstreams = append(cfg.upstreams.Upstreams, cfg.upstream)
	if cfg.upstreams.Attempts == 0 {
		cfg.upstreams.Attempts = 2
	}
	if cfg.Upstreams, err = provider.NewUpstreams(cfg.upstreams); err != nil {
		t.Fatal(err)
	}
	x.upstreams = cfg.Upstreams
	if x.Gateway, err = gateway.New(cfg.Config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		x.Wait()
		for range 6000 { // an early answer's try may end after it
			if x.inFlight() == 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := x.inFlight(); n != 0 {
			t.Errorf("%d permits are out at the end", n)
		}
		if log := x.log.String(); strings.Contains(log, ours) || strings.Contains(log, theirs) {
			t.Errorf("the log holds a key: %s", log)
		}
	})
	return x
}

// served is a gateway at a socket, before an upstream at another.
func served(t *testing.T, upstream http.HandlerFunc, change func(*setting)) (*relayed, *httptest.Server) {
	t.Helper()
	up := httptest.NewServer(upstream)
	t.Cleanup(up.Close)
	base := provider.NewBase(16)
	x := relay(t, up.URL, func(s *setting) {
		s.Base = base
		t.Cleanup(base.CloseIdleConnections)
		if change != nil {
			change(s)
		}
	})
	x.closeIdle = base.CloseIdleConnections
	front := httptest.NewUnstartedServer(x)
	front.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(&x.log, nil), slog.LevelInfo)
	front.Config.ReadHeaderTimeout = time.Minute
	front.Config.MaxHeaderBytes = 64 << 10
	front.Start()
	t.Cleanup(front.Close)
	return x, front
}

// reply is an answer, as far as it came.
type reply struct {
	status int
	header http.Header
	body   string
	cut    error
}

// post sends a body, and takes what comes.
func post(t *testing.T, url, body string, headers ...string) reply {
	t.Helper()
	return do(t, http.MethodPost, url, body, headers...)
}

func do(t *testing.T, method, url, body string, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header[headers[i]] = []string{headers[i+1]} // as it is spelt
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{cut: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if resp.Header.Get("X-Sluice-Wait-Ms") == "" {
		t.Errorf("%s %s: the answer does not say how long it waited", method, url)
	}
	return reply{resp.StatusCode, resp.Header, string(b), err}
}

// chatChunks are a stream of a chat, without its usage.
const chatChunks = `data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":"hi"},"finish_reason":null}]}` + "\n\n" +
	`data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"

const chatAnswer = `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],` +
	`"usage":{"prompt_tokens":9,"completion_tokens":2}}`

// events answers with a stream, part by part.
func events(w http.ResponseWriter, parts ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, p := range parts {
		_, _ = io.WriteString(w, p)
		_ = http.NewResponseController(w).Flush()
	}
}

// whole answers with a document.
func whole(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, body)
}
