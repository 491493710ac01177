package cli

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// onInterrupt calls drain at the first INT or TERM and abandon at the second. A third ends the process as if nobody
// listened, should abandoning hang. The returned function ends the listening.
func onInterrupt(drain, abandon func(os.Signal)) (stop func()) {
	signals := make(chan os.Signal, 2)
	done := make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
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
