package work

import (
	"context"
	"errors"
	"time"
)

// stateEvery is how often the state file follows the progress, and stateAtLeast how often it is written in any case.
const (
	stateEvery   = time.Second
	stateAtLeast = 30 * time.Second
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
	var (
		last State
		at   time.Time
	)
	for {
		if now := k.state(); now != last || time.Since(at) >= stateAtLeast {
			k.save(now)
			last, at = now, time.Now()
		}
		select {
		case <-k.stop:
			return
		case <-kick:
		case <-tick.C:
		}
	}
}

// state is how the run stands.
func (k *keeper) state() State {
	p := k.runner.Progress()
	pauses, limited, limit, held := k.runner.cfg.Pauses.now()
	state := State{
		Status:         Running,
		PauseCount:     pauses,
		RateLimitUntil: limit.Until,
		RateLimit:      limit,
		Total:          p.Total,
		Done:           p.AllDone(),
		Failed:         p.Failed + p.AlreadyFailed,
		Throttles:      max(p.Throttles, limited),
		InputTokens:    p.Usage.Input,
		OutputTokens:   p.Usage.Output,
	}
	if look := k.runner.cfg.Outlook; look != nil {
		state.Outlook = look()
	}
	if !limit.Until.IsZero() {
		state.Status = Paused
		if k.runner.cfg.Journal.cfg.Limits {
			state.Status = Limited
		}
	}
	if held != "" {
		state.Status, state.Reason = Paused, held
	}
	return state
}

// save writes the state. Its failure does not end the run: the journal is what counts.
func (k *keeper) save(s State) {
	if err := k.runner.cfg.Journal.saveState(s); err != nil {
		k.runner.log.Warn("the state file could not be updated", "error", err)
	}
}

// end waits for the keeper and writes how the run ended.
func (k *keeper) end(err error) {
	if k == nil {
		return
	}
	close(k.stop)
	<-k.done
	state := k.state()
	state.Reason, state.Outlook = "", ""
	if state.Status = statusOf(err); err != nil && state.Status != CalledOff {
		state.Reason = err.Error()
	}
	k.save(state)
}

// statusOf says how a run that returned err ended.
func statusOf(err error) Status {
	if err == nil {
		return Completed
	}
	if errors.Is(err, ErrCalledOff) {
		return CalledOff
	}
	if _, ok := errors.AsType[*StoppedError](err); ok {
		return Stopped
	}
	if errors.Is(err, ErrDrained) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Interrupted
	}
	return Failed
}
