package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/parts"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// via carries the calls of a run through Batch APIs: its feed puts requests into parts, and gives their items once a part has
// ended, with what came of them. So nobody waits for a call but the feed, and nothing of a request is in memory while it runs.
type via struct {
	batch *Batch
	auto  bool
	desk  *parts.Desk
	apis  map[string]batchapi.API // by account
	kick  chan struct{}           // the feed may go on

	// Of Open and the feeding goroutine.
	lines      []viaLine // by number
	parts      []*parts.Part
	left       int               // of parts, those that earlier processes left: the first ones
	twice      work.Bits         // lines that are in two of those, of which the later one counts
	superseded work.Bits         // lines whose recorded failures a part will replace
	settled    bool              // it is known which lines those are
	sent       map[work.Hash]int // with a cache: requests in parts, and their lines
	landed     []*merging        // parts that ended, and are not merged
	ended      error             // why lines are left

	mu    sync.Mutex
	given map[int64]*given       // by line, until they are safe
	tried map[int64]sluice.Tally // of lines that have no answer yet
	open  int                    // given, and not handled yet
	size  int64                  // of those
	safe  recordings
	sums  BatchReport
	gone  *UnreachableError
	close sync.Once
}

// viaLine is what is known of a line beside the input.
type viaLine struct {
	ref  int64            // where it is
	held *budget.Estimate // of the spending caps
	part int32            // that it is in, as a place among via.parts
	at   whereabouts

	other bool // its request has the bound that Sluice added by the other name, and not by the provider's own
}

// whereabouts is where a line is.
type whereabouts uint8

const (
	unseen whereabouts = iota
	inPart
	over // its item was given, or it is left to do
)

// BatchesSuffix follows the name of an output: in that directory are the files of its parts, until their results are recorded.
const BatchesSuffix = ".batches"

// newVia returns what cfg says of Batch APIs; nil for calls that are live.
func newVia(b *Batch) *via {
	if b.cfg.Via == ViaLive {
		return nil
	}
	return &via{
		batch: b, auto: b.cfg.Via == ViaAuto, apis: make(map[string]batchapi.API), kick: make(chan struct{}, 1),
		given: make(map[int64]*given), tried: make(map[int64]sluice.Tally), sent: make(map[work.Hash]int),
	}
}

// checkVia names what cannot be had together.
func (cfg *Config) checkVia() error {
	wrong := func(why string) error { return &ConfigError{Field: "Via", Err: fmt.Errorf("%v %s", cfg.Via, why)} }
	switch {
	case cfg.Via == ViaLive && cfg.Batches.Cancel:
		return wrong("cannot cancel batches: set Via to batch-api or auto")
	case cfg.Via == ViaLive:
		return nil
	case int(cfg.Via) >= len(vias):
		return wrong("is not known")
	case cfg.Input == "-":
		return wrong("needs an input file: standard input cannot be read a second time")
	case cfg.Upstreams != nil:
		return wrong("needs one provider, not several upstreams")
	case cfg.Remote != nil:
		return wrong("cannot use workers: the provider runs the requests of a batch")
	case cfg.Via == ViaAuto && !cfg.Budget.Deadline.IsZero() && cfg.Batches.LiveTime == nil && !cfg.Batches.Cancel:
		return &ConfigError{Field: "Batches", Err: errors.New("LiveTime is missing: auto needs LiveTime to meet the deadline")}
	case min(cfg.Batches.Poll, cfg.Batches.Grace) < 0:
		return &ConfigError{Field: "Batches", Err: errors.New("a negative Poll or Grace is not allowed")}
	}
	return nil
}

// openVia takes up the parts that earlier runs left, or refuses a run that would call their lines again.
func (b *Batch) openVia() error {
	kept := b.journal.Kept()
	stand, err := parts.Read(kept)
	if err != nil {
		state := work.StatePath(b.journal.Path())
		return &ConfigError{Field: "Output", Err: &advisedError{
			text: fmt.Sprintf("%s: %v", state, err),
			hint: fmt.Sprintf("restore the list of pending batches from %s.bak, or use the version of Sluice that wrote it", state),
		}}
	}
	if _, known := b.journal.Earlier(); !known && parts.Found(b.journal.Path()+BatchesSuffix) {
		dir, state := b.journal.Path()+BatchesSuffix, work.StatePath(b.journal.Path())
		return &ConfigError{Field: "Output", Err: &advisedError{
			text: fmt.Sprintf("%s contains files of batches that may be pending, but the state file %s is missing", dir, state),
			hint: fmt.Sprintf("restore %s; if the provider's console shows no pending batch, remove %s instead to send the items again",
				state, dir),
		}}
	}
	if b.via == nil {
		return pendingError(b.cfg.Output, stand)
	}
	return b.via.openDesk(kept, stand)
}

// openDesk opens the Desk with the accounts of the input, and those of the parts that earlier runs left.
func (v *via) openDesk(kept []byte, stand []parts.Status) error {
	b := v.batch
	all, err := b.providersOf(stand)
	if err != nil {
		return err
	}
	known := make(map[string]provider.BatchAPI)
	for _, p := range all {
		a, err := b.account(p)
		if err != nil {
			return err
		}
		api, err := batchapi.New(p, a.target, &reaching{base: b.cfg.Transport, account: a, via: v})
		if errors.Is(err, batchapi.ErrNone) {
			if v.auto {
				b.log.Info("requests are sent live: Sluice does not support a Batch API of this provider", "provider", p.Name)
				continue
			}
			err = &advisedError{text: fmt.Sprintf("--batch: %s has no Batch API", p.Name), hint: "run without --batch"}
		}
		if err != nil {
			return &ConfigError{Field: "Provider", Err: err}
		}
		v.apis[p.Name], known[p.Name] = api, p.Batches
	}
	terms := &b.cfg.Batches
	v.desk, err = parts.Open(parts.Config{
		APIs: v.apis, Known: known, Dir: b.journal.Path() + BatchesSuffix, Saved: kept, Save: b.journal.Keep,
		Resubmit: terms.Resubmit, Terms: parts.Terms{Poll: terms.Poll, Grace: terms.Grace}, Observer: b.cfg.Observer, Logger: b.log,
	})
	return err
}

// providersOf returns the providers of the input, and those at which parts are pending. A run that names its provider has the
// address and the transport of that one, to which nobody else's key goes.
func (b *Batch) providersOf(stand []parts.Status) ([]provider.Provider, error) {
	all := slices.Clone(b.input.providers)
	for _, s := range stand {
		if s.Over() || slices.ContainsFunc(all, func(p provider.Provider) bool { return p.Name == s.Account }) {
			continue
		}
		p, ok := b.cfg.Provider, true
		switch {
		case p.Name == "":
			p, ok = b.cfg.Registry.Lookup(s.Account)
		case p.Name != s.Account:
			return nil, &ConfigError{Field: "Provider", Err: &advisedError{
				text: fmt.Sprintf("%s: batches are pending at %s, but this run uses %s", b.cfg.Output, s.Account, p.Name),
				hint: fmt.Sprintf("continue with --provider %s, or cancel the pending batches with --provider %s --cancel first", s.Account, s.Account),
			}}
		}
		if !ok {
			return nil, &ConfigError{Field: "Provider", Err: &advisedError{
				text: fmt.Sprintf("%s: batches are pending at the unknown provider %q", b.cfg.Output, s.Account),
				hint: "add this provider to the settings again, and run the same command again",
			}}
		}
		all = append(all, p)
	}
	return all, nil
}

// Part is how a part of a run stands that goes through a Batch API.
type Part = parts.Status

// Parts says how the parts of the run stand, those of earlier runs too, in the order in which they were begun; nil of a run whose
// calls are live.
func (b *Batch) Parts() []Part {
	if b.via == nil || b.via.desk == nil {
		return nil
	}
	return b.via.desk.Status()
}

// closeDesk ends the Desk. What is pending stays so.
func (v *via) closeDesk() {
	if v == nil || v.desk == nil {
		return
	}
	v.close.Do(func() {
		if err := v.desk.Close(); err != nil {
			v.batch.log.Warn("requests to a Batch API failed", "error", err)
		}
	})
}

// run is the feed's time: it has the Desk work, and the feed told of what changes. The returned function ends that.
func (v *via) run(ctx context.Context) (end func()) {
	v.desk.Start(ctx)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Minute)
		defer tick.Stop()
		for {
			select {
			case <-v.desk.Changed():
			case <-tick.C:
			case <-done:
				return
			}
			wake.Up(v.kick)
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

// reaching notes whether a provider can be reached. Its Batch API is tried for a day, but not one that never answered.
type reaching struct {
	base    http.RoundTripper
	account *account
	via     *via
}

// RoundTrip passes a request on.
func (r *reaching) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.base.RoundTrip(req)
	a := r.account
	switch {
	case err == nil:
		a.answered.Store(true)
	case req.Context().Err() == nil && !a.answered.Load() && !outOfFiles(err) && a.misses.Add(1) == mostMisses:
		r.via.mu.Lock()
		r.via.gone = a.unreachable(errors.New(provider.Redact(err.Error(), a.target.Key)))
		r.via.mu.Unlock()
		wake.Up(r.via.kick)
	}
	return resp, err
}

// unreached is why the provider is taken to be not there; nil if it may be.
func (v *via) unreached() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone == nil {
		return nil
	}
	return v.gone
}

// conclude is the end of a run: it fails if lines are left.
func (v *via) conclude() error {
	switch {
	case v == nil:
		return nil
	case v.ended == nil && v.batch.progressLeft() > 0 && v.batch.cfg.Batches.Cancel:
		return work.ErrCalledOff
	}
	return v.ended
}

// finish takes the parts away whose results are safe, at the end of a run, and says how it ended.
func (v *via) finish(err error) error {
	if gone := v.merge(); gone != nil {
		err = cmp.Or(err, gone)
	}
	v.closeDesk()
	if errors.Is(err, work.ErrCalledOff) {
		return nil
	}
	return err
}

// progressLeft is how many lines are not recorded yet.
func (b *Batch) progressLeft() int { p := b.Progress(); return p.Left() }
