package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/wake"
)

// interrupts listens to signals. The first INT or TERM drains, the second abandons, and a third ends the process as if
// nobody listened, should abandoning hang.
//
// HUP drains too, and never abandons: a terminal that goes away sends it more than once, from the system and from the
// shell. Where there is something to re-read, and no terminal went away, it means to re-read that.
type interrupts struct {
	onDrain, onAbandon func(os.Signal)
	reread             rereading

	hadTerminal bool
	signals     chan os.Signal
	again       chan struct{} // a HUP asks to re-read; a second that waits would read the same
	done        chan struct{}
	endFollow   func() // nil: nothing is followed
	wg          sync.WaitGroup
	stopOnce    sync.Once
}

// rereading is what is read again when HUP asks for it, or one of the files changes.
type rereading struct {
	files fileStates        // as they were before they were read
	read  func() fileStates // nil: there is nothing to read. It returns the files that it read; nil: the same as before
}

// interruptible returns a context that the first interrupt ends. The returned function ends it and the listening.
func interruptible(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	interrupt := func(os.Signal) { cancel() }
	signals := listen(interrupt, interrupt, rereading{})
	return ctx, func() {
		signals.stop()
		cancel()
	}
}

// lateHangUps takes what comes after stop: a closing terminal may send more than one, and the default action kills.
var lateHangUps = make(chan os.Signal, 1)

// listen begins to listen. HUP stays ignored under nohup.
func listen(drain, abandon func(os.Signal), reread rereading) *interrupts {
	return listenAlso(!signal.Ignored(syscall.SIGHUP), drain, abandon, reread)
}

// listenAlso is listen with HUP or without it. Under nohup HUP never drains, since it does not tell a terminal that went
// away.
func listenAlso(hup bool, drain, abandon func(os.Signal), reread rereading) *interrupts {
	i := &interrupts{
		onDrain: drain, onAbandon: abandon, reread: reread,
		signals: make(chan os.Signal, 2), done: make(chan struct{}), again: make(chan struct{}, 1),
	}
	if reread.read != nil {
		i.hadTerminal = !signal.Ignored(syscall.SIGHUP) && term.HasTerminal()
		ctx, end := context.WithCancel(context.Background())
		i.endFollow = end
		i.wg.Go(func() { reread.files.follow(ctx, i.again, reread.read) }) // apart from the loop: a disk that hangs must not hold interrupts up
	}
	signal.Notify(i.signals, os.Interrupt, syscall.SIGTERM)
	if hup {
		signal.Notify(i.signals, syscall.SIGHUP)
		signal.Notify(lateHangUps, syscall.SIGHUP)
	}
	signal.Ignore(syscall.SIGPIPE) // whoever read the progress is gone: that is no reason to abandon calls
	i.wg.Go(i.loop)
	return i
}

// stop ends the listening. It is safe to call twice.
func (i *interrupts) stop() {
	i.stopOnce.Do(func() {
		signal.Stop(i.signals)
		close(i.done)
		if i.endFollow != nil {
			i.endFollow()
		}
	})
	i.wg.Wait()
}

func (i *interrupts) loop() {
	drained := false
	for {
		select {
		case <-i.done:
			return
		case sig := <-i.signals:
			switch {
			case sig == syscall.SIGHUP && i.reread.read != nil && !i.hungUp():
				wake.Up(i.again)
			case !drained:
				drained = true
				i.onDrain(sig)
			case sig != syscall.SIGHUP:
				i.onAbandon(sig)
				signal.Stop(i.signals)
				return
			}
		}
	}
}

// hungUp reports whether the terminal that the process was started from is gone. The system takes it from the process
// before it sends HUP, so that whoever sends it by hand or by a service's manager can be told apart.
func (i *interrupts) hungUp() bool { return i.hadTerminal && !term.HasTerminal() }
