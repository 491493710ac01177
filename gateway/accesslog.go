package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

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

// omittedLines is the line that replaces omitted lines.
type omittedLines struct {
	Kind  string `json:"kind"`  // Always `lines_left_out`.
	Lines int64  `json:"lines"` // Omitted lines.
	Time  string `json:"time"`  // Time of this line.
}

// AccessLogConfig configures an AccessLog. Every field is required.
type AccessLogConfig struct {
	File   string              // path of the file to append to; "-" writes to Stdout
	Stdout io.Writer           // destination if File is "-"
	Redact func(string) string // removes secrets from a line of JSON
	Logger *slog.Logger        // logger for errors
}

// AccessLog writes a line of JSON for each finished request. It is safe for concurrent use.
//
// One goroutine writes, so a slow disk or reader delays no request. If its queue or the disk is full, lines are omitted, and a later
// line counts them.
type AccessLog struct {
	cfg     AccessLogConfig
	queue   chan Record
	reopen  chan struct{}
	omitted atomic.Int64
	done    chan struct{}
	wg      sync.WaitGroup

	// The writing goroutine owns these fields.
	file   *os.File // nil: Stdout
	failed bool     // the last line was not written
}

// accessBacklog is the maximum number of lines in the queue.
const accessBacklog = 4096

// OpenAccessLog opens the file and starts to write. The file has the mode 0600 if it is new.
func OpenAccessLog(c AccessLogConfig) (*AccessLog, error) {
	l := &AccessLog{cfg: c, queue: make(chan Record, accessBacklog), reopen: make(chan struct{}, 1), done: make(chan struct{})}
	if c.File != "-" {
		if err := l.open(); err != nil {
			return nil, err
		}
	}
	l.wg.Go(l.write)
	return l, nil
}

// Ended logs a finished request. It does not block. After Close it does nothing.
func (l *AccessLog) Ended(r *Record) {
	select {
	case l.queue <- *r:
	default:
		l.omitted.Add(1)
	}
}

// Reopen opens the file again by its name, as after a rotation, unless it is "-". It does not wait for that. If the file cannot be
// opened, the log continues in the old file.
func (l *AccessLog) Reopen() {
	if l.cfg.File != "-" {
		wake.Up(l.reopen)
	}
}

// Close writes the queued lines and closes the file.
func (l *AccessLog) Close() error {
	close(l.done)
	l.wg.Wait()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// write writes lines until Close.
func (l *AccessLog) write() {
	for {
		select {
		case <-l.reopen:
			if err := l.open(); err != nil {
				l.cfg.Logger.Warn("the access log continues in the old file: " + err.Error())
			}
		case r := <-l.queue:
			l.record(r)
		case <-l.done:
			for range len(l.queue) {
				l.record(<-l.queue)
			}
			l.countOmitted()
			return
		}
	}
}

// record writes the line of a request, after the number of lines omitted before it.
func (l *AccessLog) record(r Record) {
	l.countOmitted()
	line := accessLine{
		Time: stamp(r.At.Add(r.Latency)), RequestID: r.ID, Tenant: r.Tenant, Model: r.Model, Upstream: r.Upstream, Endpoint: r.Endpoint,
		Stream: r.Stream, Status: r.Status, Kind: r.Kind, Tries: r.Tries,
		WaitMs: r.Wait.Milliseconds(), FirstMs: r.First.Milliseconds(), LatencyMs: r.Latency.Milliseconds(),
		InputTokens: r.Usage.Input, CachedTokens: r.Usage.CachedInput, OutputTokens: r.Usage.Output, Estimated: r.Estimated, Unpriced: r.Unpriced,
	}
	if r.HasCost {
		line.CostUSD = &r.Cost
	}
	l.put(line, 1)
}

// countOmitted writes how many lines were omitted since the last such line.
func (l *AccessLog) countOmitted() {
	if n := l.omitted.Swap(0); n > 0 {
		l.put(omittedLines{"lines_left_out", n, stamp(time.Now())}, n)
	}
}

// put writes a line that stands for n lines. If it fails, they count as omitted.
func (l *AccessLog) put(line any, n int64) {
	b, err := json.Marshal(line)
	if err == nil {
		text := l.cfg.Redact(string(b)) + "\n"
		if l.file != nil {
			err = appendLine(l.file, text)
		} else {
			_, err = io.WriteString(l.cfg.Stdout, text)
		}
	}
	if err != nil {
		l.omitted.Add(n)
	}
	switch {
	case err != nil && !l.failed:
		l.cfg.Logger.Warn("the access log omits lines until it can be written again: " + err.Error())
	case err == nil && l.failed:
		l.cfg.Logger.Warn("the access log is written again")
	}
	l.failed = err != nil
}

// open opens the file that has the name now, in place of the one that is open. If it ends within a line, as after a loss of power, that
// line is ended.
func (l *AccessLog) open() error {
	f, err := os.OpenFile(l.cfg.File, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	last := []byte{'\n'}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		_, _ = f.ReadAt(last, info.Size()-1)
	}
	if last[0] != '\n' {
		_, _ = f.WriteString("\n") // if the disk is full, the first line reports it
	}
	if l.file != nil {
		if err := l.file.Close(); err != nil {
			l.cfg.Logger.Warn("the old file of the access log cannot be closed: " + err.Error())
		}
	}
	l.file = f
	return nil
}

// lineFile is a file of lines.
type lineFile interface {
	io.StringWriter
	Seek(offset int64, whence int) (int64, error)
	Truncate(size int64) error
}

// appendLine appends a line, or nothing: the part that a full disk took is removed again.
func appendLine(f lineFile, text string) error {
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

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
