package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/wake"
)

// accessLine is one request in the access log.
type accessLine struct {
	Time      string `json:"time"`               // End of the request.
	RequestID string `json:"request_id"`         // Request ID.
	Tenant    string `json:"tenant,omitempty"`   // Tenant.
	Model     string `json:"model,omitempty"`    // Model.
	Upstream  string `json:"upstream,omitempty"` // Upstream of the last attempt.
	Endpoint  string `json:"endpoint,omitempty"` // Path, such as `/v1/messages`.
	Stream    bool   `json:"stream,omitempty"`   // The client asked for a stream.
	Status    int    `json:"status"`             // HTTP status; 0 means no response.
	Kind      string `json:"kind"`               // `ok`, `upstream_error`, `cut`, `client_gone`, or the gateway's rejection reason.
	Tries     int    `json:"tries"`              // Attempts, including rate-limited attempts.
	WaitMs    int64  `json:"wait_ms"`            // Waiting time of the item or request.
	FirstMs   int64  `json:"first_ms,omitempty"` // Time until the response starts.
	LatencyMs int64  `json:"latency_ms"`         // Duration of the request.

	InputTokens  int      `json:"input_tokens"`                  // Input tokens.
	CachedTokens int      `json:"cached_input_tokens,omitempty"` // Input tokens from a prompt cache.
	OutputTokens int      `json:"output_tokens"`                 // Output tokens.
	CostUSD      *float64 `json:"cost_usd,omitempty"`            // Cost, if known.
	Estimated    float64  `json:"cost_estimated_usd,omitempty"`  // Estimated part of the cost.
	Unpriced     int      `json:"unpriced_tool_calls,omitempty"` // Tool calls without known prices.
}

// omittedLines is the line that stands in place of omitted lines.
type omittedLines struct {
	Kind  string `json:"kind"`  // Always `lines_left_out`.
	Lines int64  `json:"lines"` // Omitted lines.
	Time  string `json:"time"`  // Time of this line.
}

// accessLog writes a line of JSON for each request that ended. Close it. Nil writes none.
//
// A goroutine of its own writes, so that a slow disk or reader holds no call up; what it cannot keep up with, or a full disk does
// not take, is left out, and a line says how much that was.
type accessLog struct {
	s     *term.Streams
	name  string   // of the file
	file  *os.File // nil: it is standard output. It is the goroutine's
	lines chan gateway.Record
	again chan struct{} // asks to open the file again
	lost  atomic.Int64
	wg    sync.WaitGroup

	mu     sync.RWMutex
	closed bool // a request that was refused at once may end later still
}

// accessBacklog is how many lines may wait to be written.
const accessBacklog = 4096

// openAccessLog begins to write at the end of a file, or to standard output where it is called -. "" is nowhere.
func openAccessLog(s *term.Streams, name string) (*accessLog, error) {
	if name == "" {
		return nil, nil
	}
	l := &accessLog{s: s, name: name, lines: make(chan gateway.Record, accessBacklog), again: make(chan struct{}, 1)}
	if name != "-" {
		var err error
		if l.file, err = openLines(name); err != nil {
			return nil, fault.New(fault.File, fmt.Errorf("--access-log: %w", err), "name a file in an existing directory, or - for standard output")
		}
	}
	l.wg.Go(l.write)
	return l, nil
}

// openLines opens a file to append lines to it. One that ends within a line, as of a host that lost its power, is given its end.
func openLines(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	last := []byte{'\n'}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		_, _ = f.ReadAt(last, info.Size()-1)
	}
	if last[0] != '\n' {
		_, _ = f.WriteString("\n") // if the disk is full, the first line will say so
	}
	return f, nil
}

// rotates reports whether there is a file that another may be put in the place of.
func (l *accessLog) rotates() bool { return l != nil && l.name != "-" }

// reopen has what comes from now on be written to the file that has the name now.
func (l *accessLog) reopen() {
	if !l.rotates() {
		return
	}
	wake.Up(l.again) // it is asked for already
}

// ended takes a request that ended.
func (l *accessLog) ended(r *gateway.Record) {
	if l == nil {
		return
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return
	}
	select {
	case l.lines <- *r:
	default:
		l.lost.Add(1)
	}
}

// write writes until the log is closed.
func (l *accessLog) write() {
	failed := false
	put := func(v any) bool {
		b, err := json.Marshal(v)
		if err == nil {
			err = l.line(l.s.RedactData(string(b)) + "\n")
		}
		switch {
		case err != nil && !failed:
			l.s.Errorf("sluice: warning: the access log omits lines until it can be written again: %s\n", err)
		case err == nil && failed:
			l.s.Errorf("sluice: the access log is written again\n")
		}
		failed = err != nil
		return err == nil
	}
	tell := func() {
		if n := l.lost.Swap(0); n > 0 && !put(omittedLines{"lines_left_out", n, stamp(time.Now())}) {
			l.lost.Add(n)
		}
	}
	for {
		select {
		case <-l.again:
			l.replace()
			continue
		case r, open := <-l.lines:
			if !open {
				tell()
				return
			}
			if l.lost.Load() > 0 {
				tell()
			}
			if !put(accessLineOf(&r)) {
				l.lost.Add(1)
			}
		}
	}
}

// line writes one, or nothing of it.
func (l *accessLog) line(text string) error {
	if l.file == nil {
		_, err := io.WriteString(l.s.Out, text)
		return err
	}
	return wholeLine(l.file, text)
}

// lineFile is a file of lines.
type lineFile interface {
	io.StringWriter
	Seek(offset int64, whence int) (int64, error)
	Truncate(size int64) error
}

// wholeLine appends a line. The part that a full disk took of it is taken out again.
func wholeLine(f lineFile, text string) error {
	n, err := f.WriteString(text)
	if err == nil || n == 0 {
		return err
	}
	size, gone := f.Seek(0, io.SeekEnd)
	if gone == nil {
		gone = f.Truncate(size - int64(n))
	}
	return errors.Join(err, gone)
}

// replace opens the file that has the name now. Where there can be none, the old one is written on.
func (l *accessLog) replace() {
	f, err := openLines(l.name)
	if err != nil {
		l.s.Errorf("sluice: warning: the access log continues in the old file: %s\n", err)
		return
	}
	if err := l.file.Close(); err != nil {
		l.s.Errorf("sluice: warning: the old file of the access log cannot be closed: %s\n", err)
	}
	l.file = f
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func accessLineOf(r *gateway.Record) accessLine {
	line := accessLine{
		Time: stamp(r.At.Add(r.Latency)), RequestID: r.ID, Tenant: r.Tenant, Model: r.Model, Upstream: r.Upstream, Endpoint: r.Endpoint,
		Stream: r.Stream, Status: r.Status, Kind: r.Kind, Tries: r.Tries,
		WaitMs: r.Wait.Milliseconds(), FirstMs: r.First.Milliseconds(), LatencyMs: r.Latency.Milliseconds(),
		InputTokens: r.Usage.Input, CachedTokens: r.Usage.CachedInput, OutputTokens: r.Usage.Output, Estimated: r.Estimated, Unpriced: r.Unpriced,
	}
	if r.HasCost {
		line.CostUSD = &r.Cost
	}
	return line
}

// close writes what is left.
func (l *accessLog) close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	l.closed = true
	close(l.lines)
	l.mu.Unlock()
	l.wg.Wait()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
