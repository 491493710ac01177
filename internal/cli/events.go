package cli

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
)

// eventLog writes a Scheduler's events as JSON lines. It is safe for concurrent use.
type eventLog struct {
	mu      sync.Mutex
	file    io.Closer
	secrets *secrets
	w       *bufio.Writer
	err     error // the first failure to write; what comes after it is left out

	quit chan struct{}
	wg   sync.WaitGroup
}

// openEventLog appends to the file of that name, with secrets blotted out.
func openEventLog(name string, hidden *secrets) (*eventLog, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	l := &eventLog{file: f, secrets: hidden, w: bufio.NewWriterSize(f, 64<<10), quit: make(chan struct{})}
	l.wg.Go(l.flushLoop)
	return l, nil
}

// flushLoop writes what waits twice a second, so that who follows the file sees why nothing happens.
func (l *eventLog) flushLoop() {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-l.quit:
			return
		}
		l.mu.Lock()
		l.w.Flush() // its error stays for Close
		l.mu.Unlock()
	}
}

// eventLine is an event as it stands in the file.
type eventLine struct {
	Event     sluice.EventType `json:"event"`
	At        time.Time        `json:"at"`
	Account   string           `json:"account,omitempty"`
	Member    string           `json:"member,omitempty"`
	Lane      string           `json:"lane,omitempty"`
	Tenant    string           `json:"tenant,omitempty"`
	Call      string           `json:"call,omitempty"`
	Attempt   int              `json:"attempt,omitempty"`
	Throttles int              `json:"throttles,omitempty"`
	WaitMS    int64            `json:"wait_ms,omitempty"`
	LatencyMS int64            `json:"latency_ms,omitempty"`
	Until     time.Time        `json:"until,omitzero"`
	Dimension string           `json:"dimension,omitempty"`
	Limit     int64            `json:"limit,omitempty"`
	Source    sluice.Source    `json:"source,omitempty"`
	Kind      string           `json:"kind,omitempty"`
	Error     string           `json:"error,omitempty"`
	Finish    string           `json:"finish_reason,omitempty"`
	Usage     *sluice.Usage    `json:"usage,omitempty"`
	Cost      float64          `json:"cost_usd,omitempty"`
	Reused    bool             `json:"reused,omitempty"`
	Active    int              `json:"active"`
	Max       int              `json:"max"`
	Waiting   int              `json:"waiting"`
}

// Observe writes e.
func (l *eventLog) Observe(e sluice.Event) {
	line := eventLine{
		Event: e.Type, At: e.At, Account: e.Account, Member: e.Member, Lane: e.Lane, Tenant: e.Tenant, Call: e.Call,
		Attempt: e.Attempt, Throttles: e.Throttles, WaitMS: e.Wait.Milliseconds(), LatencyMS: e.Latency.Milliseconds(),
		Until: e.Until, Dimension: e.Dimension.String(), Limit: e.Limit, Source: e.Source, Finish: e.Finish, Cost: e.Cost,
		Reused: e.Reused, Active: e.InFlight, Max: e.Slots, Waiting: e.Waiting,
	}
	switch e.Type {
	case sluice.EventSlotReleased, sluice.EventThrottled, sluice.EventAttemptFailed, sluice.EventGaveUp, sluice.EventItemDone,
		sluice.EventCooldownStarted:
		line.Kind = e.Outcome.Kind.String()
	}
	if e.Type == sluice.EventThrottled { // the limit that was met, where the refusal names it
		line.Dimension, line.Limit = e.Outcome.Dimension.String(), e.Outcome.Limit
	}
	if e.Outcome.Err != nil {
		line.Error = l.secrets.blot(e.Outcome.Err.Error())
	}
	if e.Outcome.HasUsage {
		line.Usage = &e.Outcome.Usage
	}
	b, err := json.Marshal(line)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.w.Write(append(b, '\n'))
	}
	if l.err == nil {
		l.err = err
	}
}

// Close writes what is left and returns the first failure of all.
func (l *eventLog) Close() error {
	close(l.quit)
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, err := range []error{l.w.Flush(), l.file.Close()} {
		if l.err == nil {
			l.err = err
		}
	}
	return l.err
}
