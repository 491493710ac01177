package stress

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/provider"
)

// startWithin is how long a provider of our own may take to say where it listens.
const startWithin = 10 * time.Second

// child is a provider in a process of its own, which can be stopped as a whole.
type child struct {
	address *url.URL
	base    http.RoundTripper
	process *os.Process
	cancel  context.CancelFunc
	ended   chan struct{}
	handed  atomic.Int64 // calls
	saw     atomic.Int64 // of them, as it told by itself
	counted atomic.Bool  // it did
	once    sync.Once
}

// startChild starts a `sluice sim`.
func (r *run) startChild() (*child, error) {
	ctx, cancel := context.WithCancel(r.ctx)
	c := &child{base: provider.NewBase(2 * r.cfg.Slots), cancel: cancel, ended: make(chan struct{})}
	said := &firstLine{line: make(chan string, 1)}
	started := make(chan *os.Process, 1)
	var wrong error
	go func() {
		defer close(c.ended)
		_, wrong = command.Run(ctx, command.Spec{
			Args: []string{r.cfg.Program, "sim", "--listen", "127.0.0.1:0", "--latency", r.cfg.Latency.String(), "--jitter", "0.2",
				"--output-tokens", "16", "--seed", fmt.Sprint(r.cfg.Seed)},
			Env: os.Environ(), Stdout: said, Started: func(p *os.Process) { started <- p },
		})
	}()
	late := time.NewTimer(startWithin)
	defer late.Stop()
	select {
	case line := <-said.line:
		c.process = <-started
		var err error
		if c.address, err = url.Parse(line); err == nil && c.address.Host != "" {
			return c, nil
		}
		c.end()
		return nil, fmt.Errorf("it said %q", line)
	case <-c.ended:
		cancel()
		return nil, cmp.Or(wrong, errors.New("it ended at once"))
	case <-late.C:
		c.end()
		return nil, errors.New("it did not say where it listens")
	}
}

// firstLine is a writer that passes its first line on.
type firstLine struct {
	buf  bytes.Buffer
	line chan string
	done bool
}

// Write takes a part.
func (f *firstLine) Write(b []byte) (int, error) {
	if !f.done {
		f.buf.Write(b)
		if line, _, ok := strings.Cut(f.buf.String(), "\n"); ok {
			f.done = true
			f.line <- line
		}
	}
	return len(b), nil
}

// RoundTrip sends a call there, whatever its address says.
func (c *child) RoundTrip(r *http.Request) (*http.Response, error) {
	c.handed.Add(1)
	there := *r
	at := *r.URL
	at.Scheme, at.Host = c.address.Scheme, c.address.Host
	there.URL, there.Host = &at, ""
	return c.base.RoundTrip(&there)
}

// count asks how many calls it saw.
func (c *child) count(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address.JoinPath("stats").String(), nil)
	if err != nil {
		return err
	}
	resp, err := c.base.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var stats struct{ Requests, Invalid int64 }
	if err := json.NewDecoder(resp.Body).Decode(&stats); err != nil {
		return err
	}
	c.saw.Store(stats.Requests + stats.Invalid)
	c.counted.Store(true)
	return nil
}

func (c *child) seen() int64 {
	if c.counted.Load() {
		return c.saw.Load()
	}
	return c.handed.Load()
}

func (c *child) peak() int { return 0 }

// end ends the process.
func (c *child) end() {
	c.once.Do(func() {
		if c.process != nil {
			c.resume() // else it would not see that it is to end
		}
		c.cancel()
		<-c.ended
		if t, ok := c.base.(interface{ CloseIdleConnections() }); ok {
			t.CloseIdleConnections()
		}
	})
}
