// Package signals listens to interrupts and hang-ups for a command, and has its files read again when they change.
package signals

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/sluice-llm/sluice/internal/wake"
)

// Config says what signals do. The first INT or TERM calls Drain, the second Abandon, and a third ends the process, in case Abandon hangs.
//
// HUP also calls Drain, and never Abandon: a terminal that is closed sends it several times. If there are files to read again, and no
// terminal was closed, HUP reads them. Otherwise, HUP stays ignored if the process ignores it, as under nohup.
type Config struct {
	Drain, Abandon func(os.Signal)
	Reread         Reread
}

// Reread has files read again when HUP asks for it, or when one of them changes.
type Reread struct {
	Files Files        // as they were before they were read
	Read  func() Files // reads the files. It returns the files that it read, or nil for the same ones. Nil: there are none
}

// Listener listens to signals.
type Listener struct {
	cfg         Config
	hadTerminal bool
	signals     chan os.Signal
	again       chan struct{} // HUP asks to read the files
	done        chan struct{}
	endFollow   func() // nil: no files are followed
	wg          sync.WaitGroup
	stopOnce    sync.Once
}

// Interruptible returns a context that the first interrupt ends. The returned function ends it and the listening.
func Interruptible(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	interrupt := func(os.Signal) { cancel() }
	l := Listen(Config{Drain: interrupt, Abandon: interrupt})
	return ctx, func() {
		l.Stop()
		cancel()
	}
}

// lateHangUps receives the hang-ups after Stop: a closed terminal can send several, and the default action ends the process.
var lateHangUps = make(chan os.Signal, 1)

// Listen starts to listen. Call Stop at the end.
func Listen(cfg Config) *Listener {
	l := &Listener{cfg: cfg, signals: make(chan os.Signal, 2), done: make(chan struct{}), again: make(chan struct{}, 1)}
	ignored := signal.Ignored(syscall.SIGHUP)
	if cfg.Reread.Read != nil {
		l.hadTerminal = !ignored && hasTerminal()
		ctx, end := context.WithCancel(context.Background())
		l.endFollow = end
		l.wg.Go(func() { cfg.Reread.Files.follow(ctx, l.again, cfg.Reread.Read) }) // a disk that hangs must not delay Drain
	}
	signal.Notify(l.signals, os.Interrupt, syscall.SIGTERM)
	if !ignored || cfg.Reread.Read != nil {
		signal.Notify(l.signals, syscall.SIGHUP)
		signal.Notify(lateHangUps, syscall.SIGHUP)
	}
	signal.Ignore(syscall.SIGPIPE) // a reader of the progress that ended is no reason to abort requests
	l.wg.Go(l.loop)
	return l
}

// Stop ends the listening. It waits for a reading of files, because the caller then closes what the reading changes. If the disk hangs, the
// next interrupt ends the process. Stop can be called twice.
func (l *Listener) Stop() {
	l.stopOnce.Do(func() {
		signal.Stop(l.signals)
		close(l.done)
		if l.endFollow != nil {
			l.endFollow()
		}
	})
	l.wg.Wait()
}

func (l *Listener) loop() {
	drained := false
	for {
		select {
		case <-l.done:
			return
		case sig := <-l.signals:
			switch {
			case sig == syscall.SIGHUP && l.cfg.Reread.Read != nil && !l.hungUp():
				wake.Up(l.again)
			case !drained:
				drained = true
				l.cfg.Drain(sig)
			case sig != syscall.SIGHUP:
				l.cfg.Abandon(sig)
				signal.Stop(l.signals)
				return
			}
		}
	}
}

// hungUp reports whether the terminal of the process was closed. The system detaches the terminal before it sends HUP, so that a HUP
// from a person or a service manager differs.
func (l *Listener) hungUp() bool { return l.hadTerminal && !hasTerminal() }
