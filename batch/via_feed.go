package batch

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/sluice-llm/sluice/internal/parts"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
)

// viaFeed is the feeding goroutine of a via.
type viaFeed struct {
	*via
	ctx   context.Context
	yield func(work.Item, error) bool
	again func(seq, ref int64) (work.Item, error) // reads a line again

	rows     func() (rows.Row, error, bool)
	stop     func()               // ends rows
	more     bool                 // there may be rows
	passed   bool                 // some of them were passed over, as equal ones are in parts
	errands  []errand             // what is to be sent before them
	filling  map[*parts.Part]bool // parts that requests were put into and that are not submitted
	starved  bool                 // the budget has no room for the next request now
	flushed  bool                 // what the rows filled was submitted
	refused  *RefusedError        // parts that were
	live     int                  // so many more lines are called live at once
	allLive  bool                 // whatever has no answer is called live
	watches  bool                 // batches are called off in time for the deadline
	looked   time.Time            // at that
	finished bool                 // nothing more is sent or waited for
}

// errand is a line whose request is to be sent.
type errand struct {
	seq, ref int64
	body     []byte // nil: as the line has it
}

// errHalted ends the feed of a run that halts.
var errHalted = errors.New("the run is stopping")

// feed gives the items that are left to do.
func (v *via) feed(ctx context.Context) iter.Seq2[work.Item, error] {
	return func(yield func(work.Item, error) bool) {
		f := &viaFeed{via: v, ctx: ctx, yield: yield, again: v.batch.input.reloader(v.batch), filling: make(map[*parts.Part]bool)}
		if err := f.all(); err != nil && !errors.Is(err, errHalted) && ctx.Err() == nil {
			yield(work.Item{}, err)
		}
	}
}

// all is the feed, to its end.
func (f *viaFeed) all() error {
	if err := f.begin(); err != nil {
		return err
	}
	defer f.run(f.ctx)()
	f.rows, f.stop = iter.Pull2(f.batch.input.rest())
	defer func() { f.stop() }()
	for f.ctx.Err() == nil {
		if err := f.merge(); err != nil {
			return err
		}
		if p := f.desk.Ready(); p != nil {
			if err := f.land(p); err != nil {
				return err
			}
			continue
		}
		if err := f.look(); err != nil {
			return err
		}
		if sent, err := f.send(); sent || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if moved, err := f.flush(); moved || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if done, err := f.end(); done || err != nil {
			return err
		}
		if err := f.await(); err != nil {
			return err
		}
	}
	return nil
}

// begin finds the lines of the parts that earlier processes left, and decides what goes which way.
func (f *viaFeed) begin() error {
	if f.left > 0 {
		for row, err := range f.batch.input.rest() {
			if err != nil {
				return err
			}
			line := &f.lines[row.Number-1]
			if line.ref = row.Offset; line.at != inPart || !f.batch.guard.Caps() {
				continue
			}
			item, err := f.again(int64(row.Number), row.Offset)
			if err != nil {
				return err
			}
			if _, ok := item.Data.(*call); ok {
				if line.held, err = f.hold(&item, item.Cost, true); err != nil {
					return err
				}
			}
		}
	}
	f.more = !f.batch.cfg.Batches.Cancel
	if f.more && f.desk.Bare() {
		f.batch.log.Warn("no further batch is submitted, because files are missing that list the lines of earlier batch parts", "directory", f.batch.journal.Path()+BatchesSuffix)
		f.more = false
	}
	if f.batch.cfg.Batches.Cancel {
		return f.desk.Cancel()
	}
	return f.choose()
}

// await waits until something may have changed.
func (f *viaFeed) await() error {
	err := work.Await(f.ctx, f.kick)
	if f.ctx.Err() != nil {
		return errHalted
	}
	f.starved = false // whatever gave room back says so
	return err
}

// sendAtOnce is how many requests are sent before the feed looks for other things to do.
const sendAtOnce = 64

// send sends what there is room for, and says whether that was anything.
func (f *viaFeed) send() (sent bool, err error) {
	if f.finished || f.desk.Err() != nil || !f.allLive && f.desk.Full() {
		return false, nil
	}
	for range sendAtOnce {
		if f.starved || f.ctx.Err() != nil {
			break
		}
		one, err := f.sendOne()
		if err != nil || !one {
			return sent, err
		}
		sent = true
	}
	return sent, nil
}

// sendOne sends the next errand, or else the next row, and says false if there is none.
func (f *viaFeed) sendOne() (bool, error) {
	if len(f.errands) > 0 {
		return f.runErrand()
	}
	if !f.more {
		return false, nil
	}
	in := f.batch.input
	row, err, ok := f.rows()
	switch {
	case !ok:
		f.more = false
		if in.file.Changed() {
			f.batch.log.Warn("the input was changed during the run", "input", in.cfg.Input)
		}
		return false, nil
	case err != nil:
		return false, err
	}
	line := &f.lines[row.Number-1]
	if line.at != unseen {
		return true, nil
	}
	item, err := f.batch.again(row)
	if err != nil {
		return false, err
	}
	line.ref = row.Offset
	return true, f.hand(&item, nil)
}

// runErrand sends the first errand. One for which the budget has no room stays the first.
func (f *viaFeed) runErrand() (bool, error) {
	e := f.errands[0]
	item, err := f.again(e.seq, e.ref)
	if err != nil {
		return false, err
	}
	if f.errands = f.errands[1:]; len(f.errands) == 0 {
		f.errands = nil
	}
	return true, f.hand(&item, e.body)
}

// out gives an item to the Runner.
func (f *viaFeed) out(item work.Item) error {
	if !f.yield(item, nil) {
		return errHalted
	}
	return nil
}

// callLive has an item called by its account's own handler.
func (f *viaFeed) callLive(item *work.Item) error {
	f.lines[item.Seq-1].at = over
	return f.out(*item)
}

// flush submits what is being filled where nothing more will come to it soon: at the end of the rows, when the budget is used
// up, and when no other part is open.
func (f *viaFeed) flush() (moved bool, err error) {
	open := f.unfilled()
	if len(f.filling) == 0 || f.finished || f.desk.Err() != nil {
		return false, nil
	}
	first := !f.more && !f.flushed
	if !first && !f.starved && (f.more || open > 0) {
		return false, nil
	}
	f.flushed = f.flushed || !f.more
	clear(f.filling)
	return true, f.desk.Flush()
}

// unfilled is how many parts are open, in which something may come of lines, but for those that are being filled.
func (f *viaFeed) unfilled() int {
	for p := range f.filling {
		if p.Status().Requests > 0 { // it was full
			delete(f.filling, p)
		}
	}
	return f.desk.Open() - len(f.landed) - len(f.filling)
}

// end says whether the run is at its end: nothing is open, and no line has an answer to come.
func (f *viaFeed) end() (done bool, err error) {
	open := f.unfilled() // before it is asked why: a part that is lost in between would be taken for one without results
	cause := cmp.Or(f.desk.Err(), f.unreached())
	if f.finished || cause != nil {
		if f.unhandled() > 0 && f.batch.Rationed() == 0 {
			return false, nil
		}
		if f.ended == nil && cause != nil {
			f.ended = runError(cause)
		}
		if spent, ok := errors.AsType[*BudgetError](f.ended); ok {
			f.batch.Stop(spent) // live calls that wait for room, now or in a moment, get none
		}
		return true, nil
	}
	waits := f.more || len(f.errands) > 0
	if waits && !f.starved || open > 0 || len(f.filling) > 0 || len(f.landed) > 0 {
		return false, nil
	}
	if f.passed { // read those rows again: the equal requests have results
		f.stop()
		f.rows, f.stop = iter.Pull2(f.batch.input.rest())
		f.more, f.passed, f.flushed = true, false, false
		return false, nil
	}
	swept, err := f.sweep() // which gives back what those lines hold of the budget, for others that wait for it
	if err != nil || swept > 0 || waits {
		return false, err
	}
	if f.refused != nil && !f.auto && f.ended == nil { // else its lines were called live
		f.ended = f.refused
	}
	return true, nil
}
