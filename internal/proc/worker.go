package proc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/provider"
)

// worker is a process that answers one item after another. It ends by itself, or because it is stopped; then it is told no more,
// and nothing it says counts.
type worker struct {
	in      *os.File // its input is written here
	silence time.Duration
	grace   time.Duration
	stderr  aside
	born    time.Time
	answers chan answer // holds the one to the item in hand, and is closed once the worker has ended, with all that it started
	cancel  context.CancelFunc

	mu      sync.Mutex
	talk    talk
	process *os.Process // once it runs
	turn    int         // counts items,
	done    int         // answers,
	busy    bool        // and whether there is an item in hand
	heard   time.Time   // from the worker or of an item for it, whichever was later
	quiet   *time.Timer // looks whether it is silent for too long
	patient *time.Timer // stops it if it does not end once it is asked to; nil when it is not
	over    bool        // it is stopped, or has ended
	ending  ending      // whole once it is gone
}

// ending is how a worker came to its end.
type ending struct {
	why    error
	idle   bool  // it had no item in hand
	forced bool  // it was asked to end, and did not
	unread int64 // bytes of its input that it left
}

// newWorker returns a worker. Its run must be called once, and ends with the process; who called it closes answers.
func newWorker(cfg workersConfig) (w *worker, run func(), err error) {
	r, in, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w = &worker{
		in: in, silence: cfg.Silence, grace: cfg.Spec.Grace, born: time.Now(), cancel: cancel,
		talk:    talk{most: cfg.MaxLine},
		answers: make(chan answer, 1),
	}
	w.quiet = time.AfterFunc(cfg.Silence, w.listen)
	spec := cfg.Spec
	spec.Stdin, spec.Stdout, spec.Stderr = r, w, &w.stderr
	spec.Started = w.started
	return w, func() {
		defer cancel()
		res, err := cfg.Run(ctx, spec)
		w.ended(res, err, r)
	}, nil
}

// ask gives the worker an item and waits for the answer. Of a worker that ended before it answered, taken tells whether it had
// begun to read the item. When ctx ends, the worker ends too: it cannot be told to leave one item.
func (w *worker) ask(ctx context.Context, req request, line []byte) (a answer, taken bool, err error) {
	turn, ok := w.hand(req)
	if !ok {
		<-w.answers // which is closed: no item was in hand
		return answer{}, false, w.end().why
	}
	defer context.AfterFunc(ctx, func() { w.giveUp(turn, context.Cause(ctx)) })()
	n, _ := w.in.Write(line) // which ends at the latest with the worker, who is waited for below
	a, ok = <-w.answers      // one that came before the end counts
	w.letGo(ok)
	if !ok {
		end := w.end()
		return answer{}, end.unread != int64(n), end.why
	}
	return a, true, nil
}

// usable reports whether the worker can be given an item.
func (w *worker) usable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.over
}

// answered counts the worker's answers that were taken.
func (w *worker) answered() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

// end is how the worker ended, once it is gone.
func (w *worker) end() ending {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ending
}

// finish asks the worker to end, by the end of its input, and sees to it that it does.
func (w *worker) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.stopLocked(errWorkersClosed)
	w.patient = time.AfterFunc(max(0, w.grace), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ending.forced = true
		w.cancel()
	})
}

// Write takes what the worker says.
func (w *worker) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = time.Now()
	if w.over {
		return len(b), nil // an error would leave the worker with a full pipe
	}
	w.talk.read(b)
	w.heedLocked()
	return len(b), nil
}

// heedLocked acts on what the worker has said so far.
func (w *worker) heedLocked() {
	if a := w.talk.take(); a != nil {
		w.answers <- *a
	}
	if w.talk.broken != nil {
		w.killLocked(w.talk.broken)
	}
}

// hand notes that the worker has an item in hand; ok is false if it ended before.
func (w *worker) hand(req request) (turn int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return 0, false
	}
	w.turn++
	w.busy, w.heard = true, time.Now()
	w.quiet.Reset(w.silence)
	w.talk.hand(req.ID)
	w.stderr.begin(req.Stderr)
	return w.turn, true
}

// letGo notes that the worker has no item in hand any more.
func (w *worker) letGo(answered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if answered {
		w.done++
	}
	w.busy = false
	w.quiet.Stop()
	w.stderr.leave()
}

// giveUp stops a worker that still has an item in hand which nobody waits for any more. It is asked first, as any command is.
func (w *worker) giveUp(turn int, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || !w.busy || w.turn != turn {
		return
	}
	w.stopLocked(why)
	w.cancel()
}

// listen kills a worker that has an item in hand and is silent.
func (w *worker) listen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || !w.busy {
		return
	}
	if left := w.silence - time.Since(w.heard); left > 0 {
		w.quiet.Reset(left)
		return
	}
	w.killLocked(&silentError{After: w.silence})
}

// killLocked ends a worker that cannot be trusted to end by itself: it at once, and what it started when it is asked, or after
// the grace.
func (w *worker) killLocked(why error) {
	if w.over {
		return
	}
	w.stopLocked(why)
	w.cancel()
	if w.process != nil {
		_ = w.process.Kill() // the only error is that it has ended
	}
}

// stopLocked begins the worker's end.
func (w *worker) stopLocked(why error) {
	w.over, w.ending.why, w.ending.idle = true, why, !w.talk.open
	w.quiet.Stop()
	w.in.Close()
}

func (w *worker) started(p *os.Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.process = p
	if w.over {
		_ = p.Kill()
	}
}

// ended takes how the process ended. r is where it read.
func (w *worker) ended(res command.Result, err error, r *os.File) {
	w.mu.Lock()
	half := ""
	if !w.over {
		half = w.talk.end()
		w.heedLocked()
	}
	if !w.over {
		w.stopLocked(nil)
	}
	if w.patient != nil {
		w.patient.Stop()
	}
	w.mu.Unlock()

	// What it left unread tells whether it took the item. A write that goes on meanwhile ends by this, if not by the Close.
	unread, _ := io.Copy(io.Discard, r)
	r.Close()
	stderr := provider.Redact(w.stderr.text())
	w.mu.Lock()
	w.ending.unread = unread
	switch why := w.ending.why.(type) {
	case *silentError:
		why.Stderr = stderr
	case nil:
		w.ending.why = &workerDiedError{ExitCode: res.ExitCode, Signal: res.Signal, Half: half, Stderr: stderr}
		if _, ok := errors.AsType[*command.NotStartedError](err); ok {
			w.ending.why = err
		}
	}
	w.mu.Unlock()
}

// asideKept is how much of what a worker says aside is kept.
const asideKept = 64 << 10

// aside keeps the end of what a worker says on standard error, and passes it on to whom its item belongs. It is safe for
// concurrent use.
type aside struct {
	mu   sync.Mutex // also held while to is written to, so that nothing comes there after the item's end
	kept []byte     // twice asideKept at most
	cut  bool       // there was more before
	to   io.Writer  // nil is nobody
}

// begin begins anew, for another item.
func (a *aside) begin(to io.Writer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.to, a.kept, a.cut = to, a.kept[:0], false
}

// leave ends what begin began.
func (a *aside) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.to = nil
}

func (a *aside) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.to != nil {
		_, _ = a.to.Write(b) // whoever cannot take it goes without
	}
	a.kept = append(a.kept, b...)
	if over := len(a.kept) - asideKept; over > asideKept { // so that each byte is moved once at most
		a.kept, a.cut = append(a.kept[:0], a.kept[over:]...), true
	}
	return len(b), nil
}

// text is what was kept. A line that was cut is left out, as half a key would not be known for one.
func (a *aside) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.kept
	if over := len(b) - asideKept; over > 0 {
		b, a.cut = b[over:], true
	}
	if a.cut {
		b = b[bytes.IndexByte(b, '\n')+1:]
	}
	return string(b)
}
