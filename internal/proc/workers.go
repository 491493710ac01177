package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/wake"
)

// workersConfig configures workers. Run and Spec.Args are required.
type workersConfig struct {
	Run func(context.Context, command.Spec) (command.Result, error) // as Config.Run

	// Spec is the command that each worker is. Its Grace is how long one has to end once its input ended, and once more after
	// it was asked to (TERM). Its streams are not used.
	Spec command.Spec

	// Silence is how long a worker may have an item without an answer, a heartbeat or any other output. Default 60 s.
	Silence time.Duration

	// MaxLine is how many bytes an answer may have. Default 16 MiB.
	MaxLine int

	// Pause is waited after a worker that ended before its first answer, and twice as long after each further one in a row.
	// Default 100 ms.
	Pause time.Duration

	// Log is told of workers that end while they have no item. Nil discards.
	Log *slog.Logger
}

const (
	usualSilence = time.Minute
	usualMaxLine = 16 << 20
	usualGrace   = 2 * time.Second
	usualPause   = 100 * time.Millisecond

	quarantineAfter = 3 // workers that ended with an item in hand
	futileStarts    = 5 // workers in a row that answered nothing end the run
)

// workers are processes that live on from item to item. Each call has one for itself; there are as many as there were calls at
// once. Safe for concurrent use.
type workers struct {
	cfg workersConfig
	wg  sync.WaitGroup // the workers that live

	mu     sync.Mutex
	live   map[*worker]bool
	idle   []*worker // the one that answered last is at the end, and the first to be taken: what it loaded is warm
	closed bool
	forced int                // workers that did not end when they were asked to
	causes map[string][]error // how workers ended with an item in hand, by its id; an answer clears it

	// How the run's workers fail to come to their first answer. Any answer clears it.
	futile   []string // what each had in hand, "" if it had not begun to read it
	futileAt time.Time
	over     error // this was it: *futileError
}

// newWorkers returns workers, of which none is started yet.
func newWorkers(cfg workersConfig) *workers {
	cfg.Silence = cmp.Or(cfg.Silence, usualSilence)
	cfg.MaxLine = cmp.Or(cfg.MaxLine, usualMaxLine)
	cfg.Pause = cmp.Or(cfg.Pause, usualPause)
	cfg.Spec.Grace = cmp.Or(cfg.Spec.Grace, usualGrace)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &workers{cfg: cfg, live: map[*worker]bool{}, causes: map[string][]error{}}
}

// Call has a worker answer an item: one that is idle, or a new one. A worker that ends with the item in hand fails the call, with
// a *workerDiedError, *protocolError or *silentError, and the item may be tried again; the third such end is a
// *quarantinedError, and so is every call with that item from then on. A worker that ends before it began to read the item is
// replaced. A *futileError is for the whole run. When ctx ends, the worker ends with it, and the error is the cause.
func (ws *workers) Call(ctx context.Context, req request) (answer, error) {
	line := req.line()
	for {
		w, err := ws.take(ctx, req.ID)
		if err != nil {
			return answer{}, err
		}
		a, taken, err := w.ask(ctx, req, line)
		if err == nil {
			ws.answered(w, req.ID)
			return a, nil
		}
		if again, err := ws.judge(w, req.ID, taken, err); !again {
			return answer{}, err
		}
	}
}

// Close ends all workers: by the end of their input, after the grace by TERM, after another by KILL. It waits for them, and a
// call that still waits for an answer fails. The error counts those that did not end by themselves.
func (ws *workers) Close() error {
	ws.mu.Lock()
	ws.closed = true
	live := slices.Collect(maps.Keys(ws.live))
	ws.mu.Unlock()
	for _, w := range live {
		w.finish()
	}
	ws.wg.Wait()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if n := ws.forced; n > 0 {
		ws.forced = 0
		return fmt.Errorf("%s did not exit at the end of the input and had to be stopped", prose.Count(n, "worker"))
	}
	return nil
}

// take returns an idle worker, or starts one.
func (ws *workers) take(ctx context.Context, id string) (*worker, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		w, pause, err := ws.next(id)
		if w != nil || err != nil {
			return w, err
		}
		// Then look again: there may be an idle one by now, or another one that did not come to an answer.
		if err := wake.In(ctx, pause, nil); err != nil {
			return nil, err
		}
	}
}

// next returns an idle worker or starts one, or returns how long it is until one may be started.
func (ws *workers) next(id string) (w *worker, pause time.Duration, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch causes := ws.causes[id]; {
	case ws.closed:
		return nil, 0, errWorkersClosed
	case ws.over != nil:
		return nil, 0, ws.over
	case len(causes) >= quarantineAfter:
		return nil, 0, &quarantinedError{ID: id, Causes: slices.Clone(causes)}
	}
	for len(ws.idle) > 0 {
		last := len(ws.idle) - 1
		w, ws.idle = ws.idle[last], ws.idle[:last]
		if w.usable() {
			return w, 0, nil
		}
	}
	if n := len(ws.futile); n > 0 {
		if pause = time.Until(ws.futileAt.Add(ws.cfg.Pause << (n - 1))); pause > 0 {
			return nil, pause, nil
		}
	}
	w, err = ws.startLocked()
	return w, 0, err
}

// startLocked starts a worker. It holds the lock so that none starts after the pause was found to be over and began anew; the
// process itself starts beside it.
func (ws *workers) startLocked() (*worker, error) {
	w, run, err := newWorker(ws.cfg)
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	ws.live[w] = true
	ws.wg.Go(func() {
		run()
		ws.remove(w)
		close(w.answers)
	})
	return w, nil
}

// remove forgets a worker that has ended.
func (ws *workers) remove(w *worker) {
	end := w.end()
	ws.mu.Lock()
	delete(ws.live, w)
	if i := slices.Index(ws.idle, w); i >= 0 {
		ws.idle = slices.Delete(ws.idle, i, i+1)
	}
	if end.forced {
		ws.forced++
	}
	ws.mu.Unlock()
	if end.idle && !errors.Is(end.why, errWorkersClosed) {
		ws.cfg.Log.Warn("a worker exited while it had no item: Sluice starts another worker for the next item", "error", end.why)
	}
}

// answered notes that a worker answered an item, and keeps it for another one.
func (ws *workers) answered(w *worker, id string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.causes, id)
	ws.futile = ws.futile[:0]
	if w.usable() {
		ws.idle = append(ws.idle, w)
	}
}

// judge decides what the end of a worker means that was to answer an item: whether another one is to be tried at once, or the
// error of the call.
func (ws *workers) judge(w *worker, id string, taken bool, err error) (again bool, _ error) {
	protocol, broke := errors.AsType[*protocolError](err)
	_, silent := errors.AsType[*silentError](err)
	_, died := errors.AsType[*workerDiedError](err)
	_, unstarted := errors.AsType[*command.NotStartedError](err)
	if !broke && !silent && !died && !unstarted {
		return false, err // the caller's end, or ours
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if !silent && ws.futileLocked(w, id, taken, err) {
		return false, ws.over
	}
	if !taken && !silent {
		return true, nil
	}
	if broke && protocol.Late {
		return false, err
	}
	causes := append(ws.causes[id], err)
	ws.causes[id] = causes
	if len(causes) >= quarantineAfter {
		return false, &quarantinedError{ID: id, Causes: slices.Clone(causes)}
	}
	return false, err
}

// futileLocked counts a worker that ended before its first answer, and reports whether that was one too many. It leaves out
// those that were started before the last such end, as many start at once where many calls are open; and one that took an
// item with which another one ended, as that may be the item's doing.
func (ws *workers) futileLocked(w *worker, id string, taken bool, err error) bool {
	if w.answered() > 0 || w.born.Before(ws.futileAt) {
		return false
	}
	if !taken {
		id = ""
	} else if slices.Contains(ws.futile, id) {
		return false
	}
	ws.futile, ws.futileAt = append(ws.futile, id), time.Now()
	if len(ws.futile) < futileStarts {
		return false
	}
	ws.over = cmp.Or(ws.over, error(&futileError{Workers: len(ws.futile), Err: err}))
	return true
}
