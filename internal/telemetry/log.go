package telemetry

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/wake"
)

// Log writes events as JSON lines. It is an Observer, safe for concurrent use, and several processes may append to one
// file, since only whole lines are written. Open it with OpenLog, and Close it to learn whether all was written.
type Log struct {
	blot func(string) string
	to   io.WriteCloser

	mu  sync.Mutex
	buf []byte // whole lines
	err error  // the first failure to write; what comes after it is left out

	writing sync.Mutex // orders what leaves buf
	spare   []byte     // takes turns with buf

	full chan struct{} // much waits
	quit chan struct{}
	wg   sync.WaitGroup
}

const (
	logBuffer  = 64 << 10               // is written at once
	mostBuffer = 16 << 20               // waits for a disk that is slow, before calls do
	flushEvery = 500 * time.Millisecond // so that who follows the file sees why nothing happens
)

// OpenLog opens or creates the file of --events and appends to it. It removes an incomplete last line, which a killed run left, and refuses
// a file with other content than events. blot removes secrets from the texts of errors; nil keeps them.
func OpenLog(name string, blot func(string) string) (*Log, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		if err = mendTail(name, f); err == nil {
			return NewLog(f, blot), nil
		}
		f.Close()
	}
	return nil, fault.New(fault.File, fmt.Errorf("--events: %w", err), "name a writable file that contains only events")
}

// NewLog writes to w, which Close closes.
func NewLog(w io.WriteCloser, blot func(string) string) *Log {
	if blot == nil {
		blot = func(text string) string { return text }
	}
	l := &Log{blot: blot, to: w, full: make(chan struct{}, 1), quit: make(chan struct{})}
	l.wg.Go(l.flushLoop)
	return l
}

// Observe takes e in, to be written at the latest in half a second. It waits for nobody, unless a disk is so slow that very
// many events do.
func (l *Log) Observe(e sluice.Event) {
	message := ""
	if e.Outcome.Err != nil {
		message = l.blot(errorOf(&e))
	}
	l.mu.Lock()
	l.buf = appendEvent(l.buf, &e, message)
	size := len(l.buf)
	l.mu.Unlock()
	switch {
	case size >= mostBuffer:
		l.flush()
	case size >= logBuffer:
		wake.Up(l.full)
	}
}

// Close writes what is left and returns the first failure of all.
func (l *Log) Close() error {
	close(l.quit)
	l.wg.Wait()
	l.flush()
	l.fail(l.to.Close())
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *Log) flushLoop() {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.flush()
		case <-l.full:
			l.flush()
		case <-l.quit:
			return
		}
	}
}

// flush writes what waits. Who writes holds up only others that would: mu is free meanwhile, so that events are taken in.
func (l *Log) flush() {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	lines, err := l.buf, l.err
	l.buf = l.spare[:0]
	l.mu.Unlock()
	l.spare = lines
	if cap(lines) > 4*logBuffer { // the disk was slow, and may be so no more
		l.spare = nil
	}
	if len(lines) == 0 || err != nil {
		return
	}
	if _, err := l.to.Write(lines); err != nil {
		l.fail(err)
	}
}

// fail keeps the first failure.
func (l *Log) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}
