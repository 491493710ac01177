package work_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
)

func TestDrainLetsOpenCallsFinishAndSendsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduler(t, 3)
		path := journalPath(t)
		j := openJournal(t, path, work.JournalConfig{})
		r := newRunner(t, work.Config{Journal: j, Encode: encode, Handler: calls(s, answer(10*time.Second, always(sluice.OK)))})
		add(t, r, numbered(100)...)
		go func() {
			time.Sleep(15 * time.Second)
			r.Drain()
			r.Drain()
		}()
		rep, err := r.Run(context.Background())
		if !errors.Is(err, work.ErrDrained) {
			t.Errorf("error %v, want ErrDrained", err)
		}
		if rep.Done != 6 || rep.Failed != 0 || rep.Wall < 20*time.Second || rep.Wall > 21*time.Second { // the third slot is tried out later
			t.Errorf("done %d, failed %d in %v: want 6 in 20 to 21 s", rep.Done, rep.Failed, rep.Wall)
		}
		if n := len(linesOf(t, j)); n != 6 {
			t.Errorf("%d lines, want 6", n)
		}
		state, err := work.LoadState(work.StatePath(path))
		if err != nil || state.Status != work.Interrupted || state.Done != 6 {
			t.Errorf("state %+v, error %v", state, err)
		}
	})
}

func TestDrainOfACallThatWouldRetryLeavesItToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduler(t, 1)
		j := openJournal(t, journalPath(t), work.JournalConfig{})
		r := newRunner(t, work.Config{Journal: j, Encode: encode, Handler: calls(s, answer(10*time.Second, always(sluice.ServerError)))})
		add(t, r, numbered(1)...)
		time.AfterFunc(5*time.Second, r.Drain)
		rep, err := r.Run(context.Background())
		if !errors.Is(err, work.ErrDrained) || rep.Failed != 0 || rep.Items-rep.Done != 1 || len(linesOf(t, j)) != 0 {
			t.Errorf("error %v, failed %d, left %d, lines %q: want the item to be left", err, rep.Failed, rep.Items-rep.Done, linesOf(t, j))
		}
	})
}

func TestCancelAbandonsOpenCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scheduler(t, 3)
		j := openJournal(t, journalPath(t), work.JournalConfig{})
		r := newRunner(t, work.Config{Journal: j, Encode: encode, Handler: calls(s, answer(10*time.Second, always(sluice.OK)))})
		add(t, r, numbered(100)...)
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		rep, err := r.Run(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || rep.Done != 3 || rep.Failed != 0 || rep.Wall != 15*time.Second {
			t.Errorf("error %v, done %d, failed %d in %v: want 3 in 15 s", err, rep.Done, rep.Failed, rep.Wall)
		}
	})
}

func TestDrainBeforeRunDoesNothing(t *testing.T) {
	h := &fake{}
	r := newRunner(t, work.Config{Handler: h})
	add(t, r, numbered(3)...)
	r.Drain()
	rep, err := r.Run(context.Background())
	if !errors.Is(err, work.ErrDrained) || rep.Done != 0 || h.counts()[1] != 0 {
		t.Errorf("error %v, done %d", err, rep.Done)
	}
}

func TestDrainAtTheVeryEndIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, work.Config{Handler: &fake{took: 10 * time.Second}})
		add(t, r, numbered(3)...)
		time.AfterFunc(5*time.Second, r.Drain)
		if rep, err := r.Run(context.Background()); err != nil || rep.Done != 3 {
			t.Errorf("error %v, done %d: all items were open, so all are done", err, rep.Done)
		}
	})
}

func TestFatalAnswerStopsTheRunAtOnce(t *testing.T) {
	for _, kind := range []sluice.Kind{sluice.Auth, sluice.QuotaExhausted} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scheduler(t, 4)
				path := journalPath(t)
				j := openJournal(t, path, work.JournalConfig{})
				var sent atomic.Int32
				r := newRunner(t, work.Config{Journal: j, Encode: encode, Handler: calls(s,
					func(_ context.Context, _ *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
						n := sent.Add(1)
						time.Sleep(time.Duration(n) * time.Second)
						if n == 2 {
							return work.Result{}, sluice.Outcome{Kind: kind, Err: errors.New("no more")}
						}
						return work.Result{}, sluice.Outcome{}
					})})
				add(t, r, numbered(100)...)
				rep, err := r.Run(context.Background())
				stop, ok := errors.AsType[*work.StoppedError](err)
				if !ok || stop.Kind != kind || stop.ID == "" {
					t.Fatalf("error %v, want a *StoppedError of kind %v", err, kind)
				}
				// 1 ended at 1 s, and 5 took its place; 2 was refused at 2 s; 3, 4 and 5 were open.
				if n := sent.Load(); n != 5 || rep.Done != 4 || rep.Failed != 0 {
					t.Errorf("sent %d, done %d, failed %d: want 5, 4, 0", n, rep.Done, rep.Failed)
				}
				state, _ := work.LoadState(work.StatePath(path))
				if state.Status != work.Stopped || state.Reason == "" {
					t.Errorf("state %+v, want stopped with a reason", state)
				}
			})
		})
	}
}

func TestNothingIsSentAfterAFatalAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 1}, Observer: sluice.ObserverFunc(func(e sluice.Event) {
			if e.Type == limits.EventSlotAcquired && sent.Load() == 1 {
				time.Sleep(time.Minute) // the next call has its permit before the one that was refused has returned
			}
		})})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r := newRunner(t, work.Config{Handler: calls(s, func(context.Context, *sluice.Permit, work.Item) (work.Result, sluice.Outcome) {
			sent.Add(1)
			time.Sleep(time.Second)
			return work.Result{}, sluice.Outcome{Kind: sluice.Auth, Err: errors.New("no")}
		})})
		add(t, r, numbered(30)...)
		if _, err := r.Run(context.Background()); err == nil || sent.Load() != 1 {
			t.Errorf("sent %d, error %v", sent.Load(), err)
		}
	})
}

func TestACallThatAStopHeldBackIsNoFailureOfTheProvider(t *testing.T) {
	var r *work.Runner
	s, err := sluice.New(sluice.Config{Observer: sluice.ObserverFunc(func(e sluice.Event) {
		switch e.Type {
		case limits.EventSlotAcquired:
			r.Stop(errors.New("enough")) // between its permit and its sending
		case limits.EventAttemptFailed, limits.EventBreaker:
			t.Errorf("%s: %v", e.Type, e.Outcome.Err)
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r = newRunner(t, work.Config{Handler: calls(s, func(context.Context, *sluice.Permit, work.Item) (work.Result, sluice.Outcome) {
		t.Error("it was sent")
		return work.Result{}, sluice.Outcome{}
	})})
	add(t, r, numbered(1)...)
	if _, err := r.Run(context.Background()); err == nil {
		t.Error("the run was not stopped")
	}
}

func TestStopReturnsItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spent := errors.New("budget is spent")
		r := newRunner(t, work.Config{Handler: &fake{took: time.Second}, Workers: 1})
		add(t, r, numbered(10)...)
		time.AfterFunc(1500*time.Millisecond, func() { r.Stop(spent) })
		rep, err := r.Run(context.Background())
		stop, ok := errors.AsType[*work.StoppedError](err)
		if !ok || stop.Kind != sluice.OK || !errors.Is(err, spent) || rep.Done != 2 || rep.Failed != 0 {
			t.Errorf("error %v, done %d, failed %d", err, rep.Done, rep.Failed)
		}
	})
}

func TestAcceptRefusesAResultAndStops(t *testing.T) {
	refused := errors.New("nobody there")
	j := openJournal(t, journalPath(t), work.JournalConfig{})
	r := newRunner(t, work.Config{Journal: j, Encode: encode, Handler: &fake{handleErr: errors.New("x")}, Workers: 1,
		Accept: func(res *work.Result) error { return refused }})
	add(t, r, numbered(10)...)
	rep, err := r.Run(context.Background())
	if !errors.Is(err, refused) || rep.Failed != 0 || len(linesOf(t, j)) != 0 {
		t.Errorf("error %v, failed %d, lines %q", err, rep.Failed, linesOf(t, j))
	}
}

// Who stops a run at so many failures is told of each before another call is sent in its place, however slow the disk is.
func TestNoCallIsSentBetweenAFailureAndTheStopForIt(t *testing.T) {
	enough := errors.New("two have failed")
	for name, tt := range map[string]struct {
		slots, attempts int
		failed          sluice.Outcome
	}{
		"one at a time":          {1, 1, sluice.Outcome{Kind: sluice.CommandFailed}},
		"several at once":        {3, 1, sluice.Outcome{Kind: sluice.ServerError}},
		"after several attempts": {2, 3, sluice.Outcome{Kind: sluice.Timeout}},
		"without another try":    {1, 6, sluice.Outcome{Kind: sluice.BadRequest}},
		"by its own word":        {1, 6, sluice.Outcome{Kind: sluice.Network, Final: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: tt.slots}, Attempts: tt.attempts})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				var open, failed, told atomic.Int32
				var r *work.Runner
				r = newRunner(t, work.Config{
					Journal: openJournal(t, journalPath(t), work.JournalConfig{}),
					Encode: func(dst []byte, res *work.Result) []byte {
						time.Sleep(3 * time.Second) // a slow disk
						return encode(dst, res)
					},
					OnResult: func(*work.Result) {
						if told.Add(1) == 2 {
							r.Stop(enough)
						}
					},
					Handler: calls(s, func(_ context.Context, p *sluice.Permit, _ work.Item) (work.Result, sluice.Outcome) {
						if n := int(open.Add(1) + failed.Load() - told.Load()); n > tt.slots {
							t.Errorf("%d calls are open, or have failed and were not told of", n)
						}
						time.Sleep(time.Second)
						open.Add(-1)
						if tt.failed.Final || !tt.failed.Kind.Transient() || p.Last() {
							failed.Add(1)
						}
						return work.Result{}, tt.failed
					}),
				})
				add(t, r, numbered(20)...)
				rep, err := r.Run(context.Background())
				if !errors.Is(err, enough) || rep.Failed < 2 || rep.Failed > 1+tt.slots {
					t.Errorf("%d failed, error %v", rep.Failed, err)
				}
			})
		})
	}
}
