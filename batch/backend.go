package batch

import (
	"context"
	"iter"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// backend makes the requests of a run: direct sends them live, remote through workers, and batches through Batch APIs.
type backend interface {
	// route returns the route of requests to a provider.
	route(p provider.Provider) (*route, error)

	// send and attempt are the Route and the Attempt of the calls.
	send(ctx context.Context, item work.Item, one sluice.Call, try func(context.Context, *sluice.Permit) sluice.Outcome) (sluice.Tally, error)
	attempt(ctx context.Context, permit *sluice.Permit, item work.Item) (work.Result, sluice.Outcome)

	// open is called after the input was read. pending are batches of earlier runs.
	open(pending []Part) error

	// match finds the requests that are pending, before the output is read. pends then reports whether a pending request replaces
	// the recorded failure of a row.
	match() error
	pends(number int, rec *Recording) bool

	// feed gives the items that have no result. shape sets how they go through the Runner.
	feed(ctx context.Context) iter.Seq2[work.Item, error]
	shape(cfg *work.Config)

	// carryOn continues the attempts of an item that earlier requests of this run failed to complete.
	carryOn(item *work.Item)

	// recorded is called with each result that is in the journal, and synced after each sync, with the end of the synced part.
	recorded(r *work.Result)
	synced(end int64)

	// conclude returns the error of a run that recorded all of its items. close ends all work.
	conclude() error
	close()
	report() BatchReport
}

// direct sends requests live. The other back ends begin with it.
type direct struct {
	*live
	batch *Batch
}

func (d *direct) open(pending []Part) error {
	if e := pendingOf(d.batch.cfg.Output, pending); e.Parts > 0 {
		return e
	}
	return nil
}

func (d *direct) match() error { return nil }

func (d *direct) pends(int, *Recording) bool { return false }

// feed gives the items of the input.
func (d *direct) feed(ctx context.Context) iter.Seq2[work.Item, error] {
	return func(yield func(work.Item, error) bool) {
		for rq, err := range d.batch.input.remaining(ctx) {
			item := work.Item{}
			if err == nil {
				item, err = d.batch.item(&rq)
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
		d.batch.warnOfChange()
	}
}

func (d *direct) shape(cfg *work.Config) {
	cfg.Lanes, cfg.Workers, cfg.Again = len(d.batch.input.models), d.batch.cfg.Workers, true
}

func (d *direct) carryOn(*work.Item) {}

func (d *direct) recorded(*work.Result) {}

func (d *direct) synced(int64) {}

func (d *direct) conclude() error { return nil }

func (d *direct) close() {}

func (d *direct) report() BatchReport { return BatchReport{} }

// newBackend returns the back end of cfg.
func newBackend(b *Batch) backend {
	d := direct{live: b.live, batch: b}
	switch {
	case b.cfg.Remote != nil:
		return newRemote(d)
	case b.cfg.Batches != nil:
		return newBatchRun(d)
	}
	return &d
}

// honour has a Scheduler wait for the pause in which an earlier run ended, unless it is ignored. The Scheduler may not know it, as after
// a kill.
func (b *Batch) honour(s *sluice.Scheduler) {
	if p := b.cfg.Pauses; p != nil && p.IgnoreEarlier {
		return
	}
	limit := b.journal.Earlier().RateLimit
	if wait := time.Until(limit.Until); wait > 0 && limit.Kind.Throttle() {
		o := sluice.Outcome{Kind: limit.Kind, Dimension: limit.Dimension, Wait: wait}
		if o.Kind == sluice.UsageWindow {
			o.Until, o.Wait = limit.Until, 0 // no longer than stated
		}
		if err := s.PauseLane(limit.Lane, o); err != nil {
			b.log.Warn("the rate-limit pause of an earlier run could not be restored", "error", err)
		}
	}
}
