package work

import (
	"context"
	"errors"
	"time"
)

// keeper keeps the state file of a run's journal.
type keeper struct {
	runner *Runner
	stop   chan struct{}
	done   chan struct{}
}

// keepState starts to write the state file, once a second at most unless a pause begins. Without a journal there is
// none.
func (r *Runner) keepState() *keeper {
	if r.cfg.Journal == nil {
		return nil
	}
	k := &keeper{runner: r, stop: make(chan struct{}), done: make(chan struct{})}
	go k.run()
	return k
}

func (k *keeper) run() {
	defer close(k.done)
	kick := k.runner.cfg.Pauses.watch()
	tick := time.NewTicker(stateEvery)
	defer tick.Stop()
	for {
		k.save(Running, nil)
		select {
		case <-k.stop:
			return
		case <-kick:
		case <-tick.C:
		}
	}
}

// save writes the state. Its failure does not end the run: the journal is what counts.
func (k *keeper) save(status Status, reason error) {
	r := k.runner
	p := r.Progress()
	pauses, until := r.cfg.Pauses.now()
	state := State{
		Status:       status,
		Total:        p.Total,
		Already:      p.Already,
		Done:         p.Done,
		Failed:       p.Failed,
		Throttles:    p.Throttles,
		InputTokens:  p.Usage.Input,
		OutputTokens: p.Usage.Output,
	}
	if !until.IsZero() {
		state.RateLimitUntil = &until
		if status == Running {
			state.Status = Paused
		}
	}
	if reason != nil {
		state.Reason = reason.Error()
	}
	if err := r.cfg.Journal.saveState(state, pauses); err != nil {
		r.log.Warn("the state file is not up to date", "error", err)
	}
}

// end waits for the keeper and writes how the run ended.
func (k *keeper) end(err error) {
	if k == nil {
		return
	}
	close(k.stop)
	<-k.done
	k.save(statusOf(err), err)
}

// statusOf says how a run that returned err ended.
func statusOf(err error) Status {
	if err == nil {
		return Completed
	}
	if _, ok := errors.AsType[*StoppedError](err); ok {
		return Stopped
	}
	if errors.Is(err, ErrDrained) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Interrupted
	}
	return Failed
}
