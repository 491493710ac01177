package work

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"reflect"
	"sync"
	"time"
)

// stateEvery is how often the state file follows the progress, and stateAtLeast how often it is written in any case.
const (
	stateEvery   = time.Second
	stateAtLeast = 30 * time.Second
)

// stateFile is the state file of a journal that this process has.
type stateFile struct {
	path    string
	log     *slog.Logger
	earlier State // of the run before; without a Status there was none
	base    State // which this run adds to; empty for an output that was started anew
	began   time.Time

	mu  sync.Mutex // held while writing
	now State      // as it was written; Running, unless a run ended
}

// begin reads the state of an earlier run, and writes that this process has the journal. If the journal lost the results of the
// earlier run, the figures start at zero.
func (s *stateFile) begin(cfg JournalConfig, journal io.ReaderAt, empty bool) error {
	earlier, err := LoadState(s.path)
	if earlier.Status != "" && !earlier.Status.Ended() && cfg.Read != nil {
		err = earlier.CatchUp(journal, cfg.Read)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn(err.Error())
	}
	s.earlier, s.base, s.began = earlier, earlier, time.Now()
	if empty && earlier.Done+earlier.Failed > 0 {
		s.base = State{}
	}
	s.now = s.base
	return s.update(func(now *State) {
		now.Status, now.Reason, now.Outlook = Running, "", ""
		now.Version, now.Hash, now.PID, now.Heartbeat = cfg.Version, cfg.Hash, os.Getpid(), time.Time{}
		if s.base.Status == "" {
			now.StartedAt = time.Now().UTC()
		}
	})
}

// update changes the state, and writes it if it differs then, or is old.
func (s *stateFile) update(change func(*State)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.now
	change(&s.now)
	if reflect.DeepEqual(s.now, before) && time.Since(before.Heartbeat) < stateAtLeast {
		return nil
	}
	s.now.UpdatedAt = time.Now().UTC()
	s.now.Heartbeat = s.now.UpdatedAt
	s.now.Last.WallMS = time.Since(s.began).Milliseconds()
	s.now.WallMS = s.base.WallMS + s.now.Last.WallMS
	err := s.now.save(s.path)
	if err != nil {
		s.now.Heartbeat = time.Time{} // so the next update writes it
	}
	return err
}

// end takes back what begin wrote if no run ended. It reports whether one did all that there was.
func (s *stateFile) end() (completed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.now.Status != Running:
	case s.earlier.Status != "":
		if err := s.earlier.save(s.path); err != nil {
			s.log.Warn("the state file could not be updated", "error", err)
		}
	default:
		os.Remove(s.path)
	}
	return s.now.Status == Completed
}

// Earlier returns the state that the run before left. Without a Status there was none.
func (j *Journal) Earlier() State { return j.state.earlier }

// Withdraw makes Close leave the state as it was before this run, of which nothing came.
func (j *Journal) Withdraw() {
	j.state.mu.Lock()
	defer j.state.mu.Unlock()
	j.state.now.Status = Running
}

// keepState writes the state file while the run goes on, once a second at most unless a pause begins, and returns the function that
// writes how the run ended. Without a journal there is no state file. That it cannot be written does not end the run: the journal is what
// counts.
func (r *Runner) keepState() (end func(error)) {
	if r.cfg.Journal == nil {
		return func(error) {}
	}
	state, pauses, stop := &r.cfg.Journal.state, cmp.Or(r.cfg.Pauses, &Pauses{}), make(chan struct{})
	r.cfg.Journal.markStart()
	write := func(ended func(*State)) {
		p, outlook := r.Report(), ""
		if r.cfg.Outlook != nil {
			outlook = r.cfg.Outlook()
		}
		err := state.update(func(s *State) {
			count, limited := pauses.describe(s, r.cfg.Journal.cfg.Limits)
			s.PauseCount, s.Outlook = state.base.PauseCount+count, outlook
			s.Counts = p.Counts()
			s.Last = LastRun{p.Done, p.Failed, Figures{Throttles: max(p.Throttles, limited), Tokens: TokensOf(p.Usage),
				Attempts: p.Attempts, Cost: p.Cost, WallMS: s.Last.WallMS}}
			s.Figures, s.Offset = state.base.Figures.add(s.Last.Figures), r.cfg.Journal.start.Load()
			s.Figures.Runs++
			ended(s)
		})
		if err != nil {
			r.log.Warn("the state file could not be updated", "error", err)
		}
	}
	var keeper sync.WaitGroup
	keeper.Go(func() {
		kick, tick := pauses.watch(), time.NewTicker(stateEvery)
		defer tick.Stop()
		for {
			write(func(*State) {})
			select {
			case <-stop:
				return
			case <-kick:
			case <-tick.C:
			}
		}
	})
	return func(err error) {
		close(stop)
		keeper.Wait()
		write(func(s *State) {
			s.Outlook, s.Reason = "", ""
			if s.Status = statusOf(err); err != nil && s.Status != CalledOff {
				s.Reason = err.Error()
				if s.Status == Stopped {
					s.Reason = "run stopped: " + s.Reason
				}
			}
		})
	}
}

// statusOf says how a run that returned err ended.
func statusOf(err error) Status {
	_, stopped := errors.AsType[*StoppedError](err)
	switch {
	case err == nil:
		return Completed
	case errors.Is(err, ErrCalledOff):
		return CalledOff
	case stopped:
		return Stopped
	case errors.Is(err, ErrDrained), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Interrupted
	}
	return Failed
}
