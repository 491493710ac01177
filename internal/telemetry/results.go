package telemetry

import (
	"fmt"
	"io"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// mostResult is how long a line of results may be: an answer may be much longer than a request, of which a line has at
// most 64 MiB.
const mostResult = 256 << 20

// ReadResults takes in the output of a batch, from which items, their failures, tokens and waits are reported then, in
// place of what events say of them. A last line that is cut off is left out. It fails with the number of a line that is no result.
func (a *Aggregate) ReadResults(r io.Reader) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byFile = true
	lines := work.NewLineReader(r, mostResult)
	for {
		line, err := lines.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if blank(line.Bytes) {
			continue
		}
		rec, err := batch.ParseRecording(line.Bytes)
		if err != nil && line.Torn {
			a.cut = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", line.Number, err)
		}
		it, err := finishedIn(&rec)
		if err != nil {
			return fmt.Errorf("line %d: %w", line.Number, err)
		}
		a.results.add(it)
	}
}

// ReadEvents takes in a file of events. It fails with the number of a line that is none.
func (a *Aggregate) ReadEvents(r io.Reader) error {
	cut, err := ReadEvents(r, func(e *sluice.Event) error {
		a.Observe(*e)
		return nil
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cut = a.cut || cut
	return err
}

// finishedIn is the item that a line of results is of.
func finishedIn(rec *batch.Recording) (*finished, error) {
	f := &rec.Sluice
	it := &finished{
		id: rec.ID, attempts: f.Attempts, throttles: f.Throttles, wait: ms(f.WaitMS), cooldown: ms(f.CooldownMS),
		backoff: ms(f.BackoffMS), latency: ms(f.LatencyMS), usage: sluice.Usage{Input: f.InputTokens, Output: f.OutputTokens},
		estimated: f.Estimated, reused: f.Cached,
	}
	if err := it.kind.UnmarshalText([]byte(f.Kind)); err != nil {
		return nil, fmt.Errorf("sluice.kind: %w", err)
	}
	if f.CostUSD != nil {
		it.cost, it.costed = *f.CostUSD, true
	}
	if rec.Error != nil {
		it.message = rec.Error.Message
	}
	if rec.Response == nil {
		return it, nil
	}
	if replies := provider.Replies(rec.Response.Body); len(replies) > 0 {
		it.finish = replies[0].Finish
	}
	s := jsonscan.New(rec.Response.Body)
	for name := range s.Members {
		switch string(name) {
		case "model", "modelVersion":
			it.model = s.Text()
		default:
			s.Skip()
		}
	}
	return it, nil
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
