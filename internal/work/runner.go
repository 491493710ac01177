package work

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"golang.org/x/sync/semaphore"
)

// Config shapes a Runner. Handler is what it needs; the zero value of everything else is useful.
type Config struct {
	Handler Handler // handles the items

	// Calls are the calls of a Handler that handles an item by at most one of them, in the same goroutine. Around that call, it waits only
	// in Await, and not after the call. So a successful call counts as open until its result is recorded, and a lane starts no more workers
	// than its calls need. Nil: the Handler itself, if it is a *Calls.
	Calls *Calls

	// Feed gives items while the run goes on. An error ends intake: open items are finished, and
	// the run returns the error. The context ends when intake must stop. A feed that waits for results does so in Await. Nil
	// gives none.
	Feed func(ctx context.Context) iter.Seq2[Item, error]

	// Reload reads an item again, by its Seq and Ref. With it, an item whose lane is full is put aside as these two alone
	// while other lanes may run dry, so that one lane's pause does not stop another. Without it, a full lane stops intake.
	Reload func(seq, ref int64) (Item, error)

	// Again has items that failed by what may be about the account (a 403, a page, words) handled once more, with Reload, when all others are
	// done, and recorded only then. A feed that waits for results must not set it.
	Again bool

	// Lanes is how many lanes the items have. 0 is unknown: those seen so far count.
	Lanes int

	// Earlier returns the number of all items, zero while it is unknown, and the numbers of items that earlier runs recorded and recorded
	// as failed. Nil: all are zero.
	Earlier func() (total, recorded, failed int)

	// Workers bounds how many items of a lane are handled at once, but for those that wait
	// in Await. Below that, their number follows what the Scheduler lets through. Default UsualWorkers.
	Workers int

	// Queue bounds how many items of a lane wait for a worker. Default 256.
	Queue int

	// QueueBytes bounds the sizes of all items that wait for a worker; one always may. Default 32 MiB.
	QueueBytes int64

	// Journal gets the line that Encode makes of each result. Nil keeps none.
	Journal *Journal

	// Encode appends a result's line, which ends in a newline, to dst.
	Encode func(dst []byte, result *Result) []byte

	// Accept is asked before a result is recorded, and may complete it, as by its cost. An error refuses it and stops the
	// run, which returns that error. It must be safe for concurrent use. Nil accepts all.
	Accept func(result *Result) error

	// Failed is called for each item as soon as it is certain that it fails, before its permit goes to another one: Stop keeps all further
	// requests from being sent. It must be quick and safe for concurrent use, and must not call a Scheduler. Nil does nothing.
	Failed func()

	// OnResult is told of each result once it is recorded, and of each item that fails with sluice.ErrWithdrawn, which is recorded
	// nowhere. It must be quick and safe for concurrent use, and not keep the pointer.
	OnResult func(result *Result)

	// Observer is told when the run starts and ends to make calls, as Name, and of each result once it is recorded. It must
	// be quick and safe for concurrent use. Nil is nobody.
	Observer sluice.Observer
	Name     string
	// Conclude is called at the end of a run that recorded all items. Its error is the run's. Nil does nothing.
	Conclude func() error

	// Pauses counts the Scheduler's pauses for the state file. Nil counts none.
	Pauses *Pauses

	// Outlook returns what is known of usage windows, for the state file. Nil says nothing.
	Outlook func() string

	// Logger is told of what goes wrong beside the run. Nil discards.
	Logger *slog.Logger
}

// UsualWorkers bounds the workers of a lane where nobody does. It is far above what a provider takes at once; a worker is
// started only when the Scheduler let the others' calls through, so that those above cost nothing.
const UsualWorkers = 16_384

// Runner runs items through a Handler, once. Drain, Stop and Report are safe for concurrent use.
type Runner struct {
	cfg Config
	log *slog.Logger

	mu    sync.Mutex
	cause error // why the run ended early; the first counts

	run        context.Context // ends when open calls are to be abandoned
	cancelRun  context.CancelCauseFunc
	wait       context.Context // ends when nothing more is to be sent; a child of run
	cancelWait context.CancelCauseFunc

	workers     sync.WaitGroup
	prepared    bool              // of the feeding goroutine
	again       bool              // the held items are fed; of the feeding goroutine
	queues      map[laneKey]*lane // of the feeding goroutine
	lanes       map[string]bool   // names among queues
	room        chan struct{}     // something was taken out of a queue
	queuedBytes atomic.Int64
	awaiting    *semaphore.Weighted // bytes, see mostAwaiting
	taken       atomic.Int64        // items taken in
	tally       tally
	unrecorded  unrecorded
	held        held
}

// New returns a Runner, or an error that names the field of cfg that is wrong.
func New(cfg Config) (*Runner, error) {
	switch {
	case cfg.Handler == nil:
		return nil, errors.New("work: Handler is nil")
	case cfg.Workers < 0:
		return nil, errors.New("work: Workers is negative")
	case cfg.Queue < 0:
		return nil, errors.New("work: Queue is negative")
	case cfg.QueueBytes < 0:
		return nil, errors.New("work: QueueBytes is negative")
	case cfg.Journal != nil && cfg.Encode == nil:
		return nil, errors.New("work: Journal needs Encode")
	}
	cfg.Workers = cmp.Or(cfg.Workers, UsualWorkers)
	cfg.Queue = cmp.Or(cfg.Queue, 256)
	cfg.QueueBytes = cmp.Or(cfg.QueueBytes, 32<<20)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if c, ok := cfg.Handler.(*Calls); ok {
		cfg.Calls = c
	}
	r := &Runner{
		cfg:    cfg,
		log:    cfg.Logger,
		queues: make(map[laneKey]*lane),
		lanes:  make(map[string]bool),
		room:   make(chan struct{}, 1),

		awaiting: semaphore.NewWeighted(cfg.QueueBytes),
	}
	r.tally.sum.Kinds, r.tally.sum.Finish = make(map[sluice.Kind]int), make(map[string]int)
	return r, nil
}

// Run handles all items and says what became of them, also when it fails: with ErrDrained after Drain, with a *StoppedError when no item
// can succeed any more or Stop was called, with the error of the feed, of Prepare, of Close or of the journal, or with the context's
// error. Cancelling the context abandons the calls that are open. A second Run panics.
func (r *Runner) Run(ctx context.Context) (Report, error) {
	r.tally.begin()
	defer r.begin(ctx)()

	r.tell(sluice.Event{Type: limits.EventMemberRegistered})
	defer r.tell(sluice.Event{Type: limits.EventMemberClosed})
	endState := r.keepState()
	r.handleAll(r.feed)
	r.handleAll(r.feedHeld)
	if r.run.Err() != nil {
		r.halt(context.Cause(r.run))
	}
	if j := r.cfg.Journal; j != nil {
		if err := j.Flush(); err != nil {
			r.halt(err)
		}
	}
	closed := r.closeHandler()

	report := r.Report()
	err := r.reason()
	if halted(err) && r.allDone(report) {
		err = nil // the stop came when there was nothing left to stop
	}
	if err == nil && r.cfg.Conclude != nil {
		err = r.cfg.Conclude()
	}
	if closed != nil {
		err = errors.Join(err, closed)
	}
	endState(err)
	return report, err
}

// handleAll handles the items of a feed, which returns once all are in their queues, or the run halts.
func (r *Runner) handleAll(feed func() error) {
	if err := feed(); err != nil {
		r.halt(err)
	}
	for _, l := range r.queues {
		close(l.items)
	}
	r.workers.Wait()
	clear(r.queues)
}

// Drain stops intake and whatever still waits for its turn, and lets open calls finish. It returns at once and is safe
// to call twice, and before Run.
func (r *Runner) Drain() { r.halt(ErrDrained) }

// Stop is Drain for a reason, such as a budget that is spent: the run returns a *StoppedError that unwraps to it.
func (r *Runner) Stop(cause error) { r.halt(&StoppedError{Err: cause}) }

// halt ends intake and waiting. The first reason is the run's error.
func (r *Runner) halt(cause error) {
	r.mu.Lock()
	if r.cause == nil {
		r.cause = cause
	}
	cancel := r.cancelWait
	r.mu.Unlock()
	if cancel != nil { // else before Run, which looks at cause
		cancel(cause)
	}
}

// fail ends everything: nothing can be recorded, or the caller has no more use for it.
func (r *Runner) fail(cause error) {
	r.halt(cause)
	r.cancelRun(cause)
}

func (r *Runner) reason() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cause
}

// begin makes the run's contexts, and returns what gives them back.
func (r *Runner) begin(ctx context.Context) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.run != nil {
		panic("work: Run was called before")
	}
	r.run, r.cancelRun = context.WithCancelCause(ctx)
	r.wait, r.cancelWait = context.WithCancelCause(r.run)
	if r.cause != nil {
		r.cancelWait(r.cause)
	}
	return func() { r.cancelRun(nil) }
}

// allDone says whether a halted run had in fact done everything.
func (r *Runner) allDone(report Report) bool {
	total, _, _ := r.earlier()
	return (r.tally.fed.Load() || total > 0) && report.Left() == 0
}

// halted says whether err is that of Drain or Stop.
func halted(err error) bool {
	stopped, ok := errors.AsType[*StoppedError](err)
	return errors.Is(err, ErrDrained) || ok && stopped.Kind == sluice.OK
}

// finish records what became of an item, unless a stop cut it short.
func (r *Runner) finish(w *worker, item *Item, err error) {
	result := &w.result
	result.ID, result.Seq, result.Lane, result.Hash, result.Note = item.ID, item.Seq, item.Lane, item.Hash, item.Note
	result.Err = err
	if result.Kind = KindOf(err); result.Kind == sluice.OK && err != nil {
		result.Kind = sluice.Internal // a CallError of kind OK is a contradiction
	}
	if result.Kind.Fatal() {
		r.halt(&StoppedError{Kind: result.Kind, ID: item.ID, Err: err})
		return
	}
	switch {
	case r.cutShort(result):
		return
	case errors.Is(err, sluice.ErrWithdrawn): // another process has the item
		r.taken.Add(-1)
		if r.cfg.OnResult != nil {
			r.cfg.OnResult(result)
		}
		return
	case result.Kind != sluice.OK && wider(result.Kind, ScopeOf(err)) && r.hold(item, result):
		return
	case result.Kind != sluice.OK:
		w.fail(item, result.Kind, ScopeOf(err))
	case result.Kind == sluice.OK && !result.Cached:
		r.held.succeeded(time.Now().Add(-result.Tally.Latency))
	}
	r.accept(w)
}

// accept records a result.
func (r *Runner) accept(w *worker) {
	if r.cfg.Accept != nil {
		if err := r.cfg.Accept(&w.result); err != nil {
			r.halt(err)
			return
		}
	}
	r.record(w)
}

// cutShort says whether the item did not fail for reasons of its own, but because the run ends.
func (r *Runner) cutShort(result *Result) bool {
	abandoned := r.run.Err() != nil
	if result.Err == nil || r.wait.Err() == nil && !abandoned {
		return false
	}
	if errors.Is(result.Err, context.Canceled) || errors.Is(result.Err, sluice.ErrClosed) || errors.Is(result.Err, context.Cause(r.wait)) {
		return true
	}
	// An abandoned call may look like one that was cut off or took too long.
	return abandoned && (result.Kind.Transient() || result.Kind.Throttle() || errors.Is(result.Err, context.DeadlineExceeded))
}
