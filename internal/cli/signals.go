package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/sluice-llm/sluice/internal/wake"
)

// interrupts listens to signals. The first INT or TERM drains, the second abandons, and a third ends the process as if
// nobody listened, should abandoning hang.
//
// HUP drains too, and never abandons: a terminal that goes away sends it more than once, from the system and from the
// shell. Where there is something to re-read, and no terminal went away, it means to re-read that.
type interrupts struct {
	onDrain, onAbandon func(os.Signal)
	reread             func() // nil: there is nothing to

	hadTerminal bool
	signals     chan os.Signal
	again       chan struct{} // a HUP asks to re-read; a second that waits would read the same
	done        chan struct{}
	wg          sync.WaitGroup
	stopOnce    sync.Once
}

// interruptible returns a context that the first interrupt ends. The returned function ends it and the listening.
func interruptible(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	interrupt := func(os.Signal) { cancel() }
	signals := listen(interrupt, interrupt, nil)
	return ctx, func() {
		signals.stop()
		cancel()
	}
}

// lateHangUps takes what comes after stop: a closing terminal may send more than one, and the default action kills.
var lateHangUps = make(chan os.Signal, 1)

// listen begins to listen; reread is nil where there is nothing to re-read. HUP stays ignored under nohup.
func listen(drain, abandon func(os.Signal), reread func()) *interrupts {
	return listenAlso(!signal.Ignored(syscall.SIGHUP), drain, abandon, reread)
}

// listenAlso is listen with HUP or without it. Under nohup HUP never drains, since it does not tell a terminal that went
// away.
func listenAlso(hup bool, drain, abandon func(os.Signal), reread func()) *interrupts {
	i := &interrupts{
		onDrain: drain, onAbandon: abandon, reread: reread,
		signals: make(chan os.Signal, 2), done: make(chan struct{}), again: make(chan struct{}, 1),
	}
	if reread != nil {
		i.hadTerminal = !signal.Ignored(syscall.SIGHUP) && hasTerminal()
		i.wg.Go(i.rereadLoop)
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
			case sig == syscall.SIGHUP && i.reread != nil && !i.hungUp():
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

// rereadLoop re-reads, apart from the loop: a disk that hangs must not keep interrupts away.
func (i *interrupts) rereadLoop() {
	for {
		select {
		case <-i.done:
			return
		case <-i.again:
			i.reread()
		}
	}
}

// hungUp reports whether the terminal that the process was started from is gone. The system takes it from the process
// before it sends HUP, so that whoever sends it by hand or by a service's manager can be told apart.
func (i *interrupts) hungUp() bool { return i.hadTerminal && !hasTerminal() }
