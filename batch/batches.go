package batch

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// Batches sends the requests of a run through the Batch APIs of their providers, which cost less and take up to a day. With a deadline in
// the Budget, requests are sent live if no Batch API takes them, or if live requests need the time that is left.
type Batches struct {
	Poll  time.Duration // maximum time between two requests for the status of a batch. Default 1 min
	Grace time.Duration // time in which a provider may not list a new batch. Default 30 s

	// Resubmit sends the requests of lost batches, and of batches whose files are missing, again, although they may have been paid for.
	// Without it, their items remain, and the run ends with a *LostError, or Open fails. With Cancel, lost batches are dropped.
	Resubmit bool

	// Cancel submits nothing and cancels pending batches. Results that exist by then are recorded.
	Cancel bool

	// LiveTime returns the time that a number of live requests takes, with their input tokens together. It is required with a deadline.
	LiveTime func(requests, tokens int) time.Duration
}

// BatchReport has the results of Batch APIs in a run.
type BatchReport struct {
	Parts   int `json:"batches"`                // Batches that finished in this run.
	Pending int `json:"pending_batches"`        // Batches without recorded results.
	Lost    int `json:"lost_batches,omitempty"` // Batches missing at the provider. They are not in Pending.
	Lines   int `json:"items_by_batch"`         // Items completed in batches.
	Live    int `json:"items_live"`             // Items completed by live requests.

	Cost     float64 `json:"-"` // of Lines, in US dollars, if known
	LiveCost float64 `json:"-"` // of the same requests if they were sent live
}

// Part is the row of a batch.
type Part = batchjob.Row

// BatchesSuffix follows the path of an output in the name of the directory with the table of its batches and their files.
const BatchesSuffix = ".batches"

// batchRun sends the requests of a run through Batch APIs.
type batchRun struct {
	direct
	table *batchjob.Table
	kick  chan struct{} // something has changed

	// Of Open and the feeding goroutine.
	parts []int32                    // by row: Number of the part that has its request; 0: none; finished: it needs none
	held  map[int32]*budget.Estimate // of the spending caps, by part
	sent  map[work.Hash]int          // with a cache: requests in parts, and their rows
	early map[int32]*batchjob.Part   // by Number: those that earlier processes left
	ended error                      // why items remain

	mu      sync.Mutex
	given   int                 // items that are not recorded
	tried   map[int64]*attempts // of items without a result
	answers int                 // bytes of rejected answers in tried
	sums    BatchReport
	gone    *UnreachableError
	closed  sync.Once
}

// finished is the part of a row that needs none any more.
const finished = -1

// attempts are the attempts of an item in batches.
type attempts struct {
	tally    sluice.Tally
	bill     bill
	liveCost float64 // of its recorded response, if the request were sent live
	answer   []byte  // that was rejected last; nil: none
	wrong    error   // with it
}

func newBatchRun(d direct) *batchRun {
	return &batchRun{
		direct: d, kick: make(chan struct{}, 1), held: make(map[int32]*budget.Estimate), sent: make(map[work.Hash]int),
		early: make(map[int32]*batchjob.Part), tried: make(map[int64]*attempts),
	}
}

// shape keeps the feed from waiting for a full lane, and from waiting for items that were put aside, which may be results that it waits for.
func (v *batchRun) shape(cfg *work.Config) {
	v.direct.shape(cfg)
	cfg.Lanes, cfg.Again = anyLanes, false
	if !v.cfg.mayGoLive() {
		cfg.Workers = recorders
	}
}

// checkBatches names options that cannot be combined.
func (cfg *Config) checkBatches() error {
	wrong := func(why string) error { return &FieldError{Field: "Batches", Err: errors.New(why)} }
	switch b := cfg.Batches; {
	case b == nil:
		return nil
	case cfg.Input == "-":
		return wrong("need an input file: standard input cannot be read a second time")
	case cfg.Upstreams != nil:
		return wrong("need one provider, not several upstreams")
	case cfg.Remote != nil:
		return wrong("cannot use workers: the provider runs the requests of a batch")
	case cfg.mayGoLive() && b.LiveTime == nil:
		return wrong("LiveTime is missing: a deadline needs it")
	case min(b.Poll, b.Grace) < 0:
		return wrong("a negative Poll or Grace is not allowed")
	}
	return nil
}

// mayGoLive reports whether a run with Batches sends requests live to meet its deadline.
func (cfg *Config) mayGoLive() bool {
	return cfg.Batches != nil && !cfg.Batches.Cancel && !cfg.Budget.Deadline.IsZero()
}

// open opens the table with the accounts of the input and of pending parts.
func (v *batchRun) open(rows []Part) error {
	b := v.batch
	all, err := b.providersOf(rows)
	if err != nil {
		return err
	}
	apis := make(map[string]batchjob.API)
	for _, p := range all {
		to, err := v.route(p)
		if err != nil {
			return err
		}
		api, err := batchjob.NewAPI(p, to.one.target, &reaching{base: b.cfg.Transport, account: to.one, run: v})
		if errors.Is(err, batchjob.ErrNone) {
			if v.cfg.mayGoLive() {
				b.log.Info("requests are sent live: Sluice does not support a Batch API of this provider", "provider", p.Name)
				continue
			}
			err = &advisedError{text: fmt.Sprintf("--batch: %s has no Batch API", p.Name), hint: "run without --batch"}
		}
		if err != nil {
			return &FieldError{Field: "Provider", Err: err}
		}
		apis[p.Name] = api
	}
	cfg := b.cfg.Batches
	v.table, err = batchjob.Open(batchjob.Config{
		APIs: apis, Dir: b.journal.Path() + BatchesSuffix, Changed: v.kick,
		Resubmit: cfg.Resubmit, Poll: cfg.Poll, Grace: cfg.Grace, Observer: b.cfg.Observer, Logger: b.log,
	})
	if err != nil {
		return &FieldError{Field: "Output", Err: err}
	}
	return nil
}

// providersOf returns the providers of the input and of pending parts. A run with a configured provider has the address and the transport
// of that provider only, so that another provider's key is not sent to it.
func (b *Batch) providersOf(rows []Part) ([]provider.Provider, error) {
	all := slices.Clone(b.input.providers)
	for _, r := range rows {
		if !r.Open() || slices.ContainsFunc(all, func(p provider.Provider) bool { return p.Name == r.Account }) {
			continue
		}
		p, ok := b.cfg.Provider, true
		switch {
		case p.Name == "":
			p, ok = b.cfg.Registry.Lookup(r.Account)
		case p.Name != r.Account:
			return nil, &FieldError{Field: "Provider", Err: &advisedError{
				text: fmt.Sprintf("%s: batches are pending at %s, but this run uses %s", b.cfg.Output, r.Account, p.Name),
				hint: fmt.Sprintf("continue with --provider %s, or cancel the pending batches with --provider %s --cancel first", r.Account, r.Account),
			}}
		}
		if !ok {
			return nil, &FieldError{Field: "Provider", Err: &advisedError{
				text: fmt.Sprintf("%s: batches are pending at the unknown provider %q", b.cfg.Output, r.Account),
				hint: "add this provider to the settings again, and run the same command again",
			}}
		}
		all = append(all, p)
	}
	return all, nil
}

// match finds the items of pending parts. It refuses a run without some of them, or with other requests under their IDs, unless Changed
// drops or keeps their results, because they are paid for.
func (v *batchRun) match() error {
	b, in := v.batch, v.batch.input
	v.parts = make([]int32, in.index.Span())
	changed := ChangedError{Path: in.cfg.Input, Array: in.array}
	dropped, missing := 0, 0
	for _, p := range v.table.Parts() {
		row := p.Row()
		v.early[p.Number] = p
		for it, err := range p.Items() {
			if err != nil {
				return &FieldError{Field: "Output", Err: err}
			}
			hash, err := work.ParseHash([]byte(it.Hash))
			if err != nil {
				return &FieldError{Field: "Output", Err: err}
			}
			number, ok := in.index.Find([]byte(it.ID))
			switch {
			case ok && (b.cfg.Changed == ChangedKeep || in.index.Same(number, hash)):
				v.parts[number] = p.Number
				v.sent[hash] = number
			case b.cfg.Changed == ChangedRedo && (ok || in.cfg.Limit == 0):
				dropped++
			case ok:
				changed.Add(number+1, it.ID)
			default:
				missing++
			}
		}
		if b.guard.Caps() {
			e := v.estimateRow(v.routeTo(row.Account), &row)
			v.held[p.Number] = &e
			if _, err := b.guard.Open("", &e, row.Requests, true); err != nil {
				return err
			}
		}
	}
	if err := changed.Err(); err != nil {
		return err
	}
	if missing > 0 {
		e := pendingOf(in.cfg.Output, v.table.Rows())
		e.LeftOut = missing
		return e
	}
	if dropped > 0 {
		b.log.Warn("results of pending batches are dropped: the input does not contain their requests", "requests", dropped)
	}
	return nil
}

func (v *batchRun) pends(number int, rec *Recording) bool {
	if v.parts[number] == 0 || rec.Error == nil {
		return false
	}
	batch := v.early[v.parts[number]].Row().Batch
	return batch == "" || batch != rec.Sluice.Batch // else the failure is the result of the request
}

// Parts returns the rows of the run's batches, also of earlier runs; nil without Batches.
func (b *Batch) Parts() []Part {
	v, ok := b.back.(*batchRun)
	if !ok || v.table == nil {
		return nil
	}
	return v.table.Rows()
}

// close ends the work on batches. Pending batches stay pending.
func (v *batchRun) close() {
	if v.table == nil {
		return
	}
	v.closed.Do(func() {
		if err := v.table.Close(); err != nil {
			v.log.Warn("requests to a Batch API failed", "error", err)
		}
	})
}

// reaching notes whether a provider can be reached. A request to a Batch API is repeated for a day, but not if the provider never answered.
type reaching struct {
	base    http.RoundTripper
	account *account
	run     *batchRun
}

// RoundTrip sends a request.
func (r *reaching) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.base.RoundTrip(req)
	a := r.account
	switch {
	case err == nil:
		a.answered.Store(true)
	case req.Context().Err() == nil && !a.answered.Load() && !outOfFiles(err) && a.misses.Add(1) == mostMisses:
		r.run.mu.Lock()
		r.run.gone = a.unreachable(errors.New(provider.Redact(err.Error(), a.target.Key)))
		r.run.mu.Unlock()
		wake.Up(r.run.kick)
	}
	return resp, err
}

// problem returns why nothing more can come of the batches; nil if something may.
func (v *batchRun) problem() error {
	v.mu.Lock()
	gone := v.gone
	v.mu.Unlock()
	if gone != nil {
		return gone
	}
	if err := v.table.Err(); err != nil {
		return runError(err)
	}
	return nil
}

// conclude returns the error of a run whose feed has ended.
func (v *batchRun) conclude() error {
	if v.ended == nil && v.cfg.Batches.Cancel && v.batch.Progress().Left() > 0 {
		return work.ErrCalledOff
	}
	return v.ended
}

// report returns the results of Batch APIs.
func (v *batchRun) report() BatchReport {
	v.mu.Lock()
	r := v.sums
	v.mu.Unlock()
	r.Cost, r.LiveCost = prose.RoundDollars(r.Cost), prose.RoundDollars(r.LiveCost)
	for _, row := range v.table.Rows() {
		switch {
		case row.Open() && row.Lost:
			r.Lost++
		case row.Open():
			r.Pending++
		}
	}
	return r
}

// together is the usage of requests that go through a Batch API.
var together = sluice.Usage{Service: limits.ServiceBatch}

// estimateRow returns the estimate of the requests of a row.
func (v *batchRun) estimateRow(to *route, r *Part) budget.Estimate {
	return v.estimateOf(modelKey{to, r.Model}, to.one.priceOf(r.Model), together, r.Input, r.Output, r.Unstated)
}
