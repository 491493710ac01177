package cli

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// onInterrupt calls drain at the first INT, TERM or HUP and abandon at the second. A third ends the process as if nobody
// listened, should abandoning hang. The returned function ends the listening.
func onInterrupt(drain, abandon func(os.Signal)) (stop func()) {
	signals := make(chan os.Signal, 2)
	done := make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // under nohup it is
		signal.Notify(signals, syscall.SIGHUP)
	}
	signal.Ignore(syscall.SIGPIPE) // whoever read the progress is gone: that is no reason to abandon calls
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, react := range []func(os.Signal){drain, abandon} {
			select {
			case sig := <-signals:
				react(sig)
			case <-done:
				return
			}
		}
		signal.Stop(signals)
	})
	return sync.OnceFunc(func() {
		signal.Stop(signals)
		close(done)
		wg.Wait()
	})
}
