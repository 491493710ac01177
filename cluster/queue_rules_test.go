package cluster_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/cluster"
)

func TestASecondCollectorIsToldWhoTheFirstIsAndFollowsItWhenItEnds(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		c := open(t, at)
		first := collect(t, c, cluster.JobConfig{Name: t.Name()})
		_, err := c.Collect(t.Context(), cluster.JobConfig{Name: t.Name()})
		var held *cluster.HeldError
		host, _ := os.Hostname()
		if !errors.As(err, &held) || held.PID != os.Getpid() || held.Host != host || held.Job != t.Name() {
			t.Fatalf("got %v, want a HeldError with this process", err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		finish(t, collect(t, c, cluster.JobConfig{Name: t.Name()}))
	})
}

func TestACollectorThatWasThoughtDeadCanDoNothingAfterAnotherHasTakenOver(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		slow := at.Aside()
		first := collect(t, openBriefly(t, slow), cluster.JobConfig{Name: t.Name()})
		w := work(t, openBriefly(t, at), t.Name())
		add(t, first, 1)
		complete(t, w, next(t, w), "one")
		outcomes(t, first, 1)

		slow.Hold(true)
		first.Recorded(1)
		add(t, first, 2) // it has it in hand, and does not know that it is late
		var second *cluster.Collector
		other := openBriefly(t, at)
		eventually(t, "the lease ends", func() bool {
			k, err := other.Collect(t.Context(), cluster.JobConfig{Name: t.Name()})
			second = k
			return err == nil
		})
		defer second.Close()
		slow.Hold(false)

		for _, err := range first.Results(patient(t)) {
			if !errors.Is(err, cluster.ErrFenced) {
				t.Fatalf("got %v, want ErrFenced", err)
			}
		}
		if err := first.Add(t.Context(), cluster.Task{Number: 3}); !errors.Is(err, cluster.ErrFenced) {
			t.Fatalf("got %v, want ErrFenced", err)
		}
		if s := status(t, open(t, at), t.Name()); s.Queued != 0 || s.Results != 1 {
			t.Fatalf("the first has added or removed something: %+v", s)
		}
		add(t, second, 1)
		if got := outcomes(t, second, 1)[1]; string(got.Payload) != "one" {
			t.Fatalf("got %q, want the result that was not recorded", got.Payload)
		}
		finish(t, second)
	})
}

func TestWhatAnEarlierCollectorAddedIsNotAddedTwice(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		c := open(t, at)
		first := collect(t, c, cluster.JobConfig{Name: t.Name()})
		add(t, first, 0, 1, 2, 3)
		w := work(t, open(t, at), t.Name())
		zero, one := next(t, w), next(t, w)
		complete(t, w, zero, "zero")
		outcomes(t, first, 1)
		eventually(t, "all are added", func() bool { return status(t, c, t.Name()).Queued == 2 })
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}

		second := collect(t, c, cluster.JobConfig{Name: t.Name()})
		add(t, second, 0, 1, 2, 3, 4)
		complete(t, w, one, "one")
		for range 3 {
			task := next(t, w)
			complete(t, w, task, string(task.Payload))
		}
		got := outcomes(t, second, 5)
		if string(got[0].Payload) != "zero" || string(got[1].Payload) != "one" || string(got[4].Payload) != "4" {
			t.Fatalf("got %v", got)
		}
		if s := status(t, c, t.Name()); s.Queued+s.Held != 0 || s.Done != 5 || s.Repeated != 0 {
			t.Fatalf("something was done twice: %+v", s)
		}
	})
}

func TestAResultIsRemovedWhenItIsRecordedAlsoOneThatAnEarlierCollectorRecorded(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		c := open(t, at)
		first := collect(t, c, cluster.JobConfig{Name: t.Name()})
		w := work(t, c, t.Name())
		add(t, first, 0, 1)
		complete(t, w, next(t, w), "zero")
		complete(t, w, next(t, w), "one")
		outcomes(t, first, 2)
		first.Recorded(0)
		eventually(t, "one result is left", func() bool { return status(t, c, t.Name()).Results == 1 })
		if err := first.Close(); err != nil { // as if it had died after its fsync of 1, and before its word of it
			t.Fatal(err)
		}
		second := collect(t, c, cluster.JobConfig{Name: t.Name()})
		second.Recorded(1)
		eventually(t, "none is left", func() bool { return status(t, c, t.Name()).Results == 0 })
	})
}

func TestANumberWhoseRecordWasLostIsDoneAgain(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		c := open(t, at)
		w := work(t, c, t.Name())
		first := collect(t, c, cluster.JobConfig{Name: t.Name()})
		add(t, first, 7)
		complete(t, w, next(t, w), "first")
		outcomes(t, first, 1)
		first.Recorded(7)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		second := collect(t, c, cluster.JobConfig{Name: t.Name()})
		add(t, second, 7)
		complete(t, w, next(t, w), "second")
		if got := outcomes(t, second, 1)[7]; string(got.Payload) != "second" {
			t.Fatalf("got %q", got.Payload)
		}
	})
}

func TestPayloadsTooLargeAreRefusedByThemselves(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		k := collect(t, open(t, at), cluster.JobConfig{Name: t.Name()})
		w := work(t, open(t, at), t.Name())
		large := make([]byte, cluster.MaxPayload+1)
		var refused *cluster.TooLargeError
		if err := k.Add(t.Context(), cluster.Task{Number: 3, Payload: large}); !errors.As(err, &refused) || refused.Number != 3 {
			t.Fatalf("got %v", err)
		}
		if err := k.Add(t.Context(), cluster.Task{Number: 4, Payload: large[1:]}); err != nil {
			t.Fatal(err)
		}
		task := next(t, w)
		if err := w.Complete(t.Context(), task, large); !errors.As(err, &refused) || refused.Number != 4 {
			t.Fatalf("got %v", err)
		}
		complete(t, w, task, string(large[1:]))
		if got := outcomes(t, k, 1)[4]; len(got.Payload) != cluster.MaxPayload {
			t.Fatalf("got %d bytes", len(got.Payload))
		}
	})
}

func TestProtocolVersionsThatDifferAreToldToBothEnds(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		c := open(t, at)
		k := collect(t, c, cluster.JobConfig{Name: t.Name()})
		k.Close()
		key := cluster.KeysOf(t.Name())[0]
		execute(t, at, "HSET", key, "v", "99")
		defer execute(t, at, "DEL", key)
		var version *cluster.VersionError
		if _, err := c.Collect(t.Context(), cluster.JobConfig{Name: t.Name()}); !errors.As(err, &version) || version.Has != 99 {
			t.Fatalf("collector: got %v", err)
		}
		if _, err := work(t, c, t.Name()).Next(patient(t)); !errors.As(err, &version) || version.Has != 99 {
			t.Fatalf("worker: got %v", err)
		}
		if s := status(t, c, t.Name()); s.Version != 99 {
			t.Fatalf("status: got %+v", s)
		}
	})
}

func TestAJobOfAnotherInputIsRefusedUntilItIsFinished(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		c := open(t, at)
		k := collect(t, c, cluster.JobConfig{Name: t.Name(), Input: "a"})
		w := work(t, c, t.Name())
		add(t, k, 1)
		stale := next(t, w)
		k.Close()
		if _, err := c.Collect(t.Context(), cluster.JobConfig{Name: t.Name(), Input: "b"}); !errors.Is(err, cluster.ErrOtherInput) {
			t.Fatalf("got %v", err)
		}
		finish(t, collect(t, c, cluster.JobConfig{Name: t.Name(), Input: "a"}))
		k = collect(t, c, cluster.JobConfig{Name: t.Name(), Input: "b"})
		add(t, k, 1)
		complete(t, w, stale, "of a")
		complete(t, w, next(t, w), "of b")
		if got := outcomes(t, k, 1)[1]; string(got.Payload) != "of b" {
			t.Fatalf("got %q", got.Payload)
		}
	})
}

// TestAJobOfWhichNothingIsLeftBeginsAnewWithAnotherInput is of runs that were stopped, with all that was done recorded.
func TestAJobOfWhichNothingIsLeftBeginsAnewWithAnotherInput(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		c := open(t, at)
		k := collect(t, c, cluster.JobConfig{Name: t.Name(), Input: "a", Settings: []byte("of a")})
		w := work(t, c, t.Name())
		add(t, k, 1)
		complete(t, w, next(t, w), "of a")
		outcomes(t, k, 1)
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Collect(t.Context(), cluster.JobConfig{Name: t.Name(), Input: "b"}); !errors.Is(err, cluster.ErrOtherInput) {
			t.Fatalf("with a result that is not recorded: %v", err)
		}
		k = collect(t, c, cluster.JobConfig{Name: t.Name(), Input: "a", Settings: []byte("of a")})
		k.Recorded(1)
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
		k = collect(t, c, cluster.JobConfig{Name: t.Name(), Input: "b", Settings: []byte("of b")})
		add(t, k, 1, 2)
		for range 2 {
			task := next(t, w)
			if task.Job.Input != "b" || string(task.Job.Settings) != "of b" {
				t.Errorf("task %d is of %q, with the settings %q", task.Number, task.Job.Input, task.Job.Settings)
			}
			complete(t, w, task, "of b")
		}
		for n, got := range outcomes(t, k, 2) {
			if string(got.Payload) != "of b" {
				t.Errorf("the result of %d is %q", n, got.Payload)
			}
		}
		if j := status(t, c, t.Name()); j.Done != 2 || j.Repeated != 0 {
			t.Errorf("%+v", j)
		}
	})
}

func TestAddWaitsWhileTheWindowIsFull(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		k := collect(t, open(t, at), cluster.JobConfig{Name: t.Name(), Window: 3})
		add(t, k, 0, 1, 2)
		brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := k.Add(brief, cluster.Task{Number: 3}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		w := work(t, open(t, at), t.Name())
		complete(t, w, next(t, w), "")
		add(t, k, 3)
	})
}

func TestWorkersStopWhenNobodyRecordsTheirResults(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		const window = 5
		c := open(t, at)
		k := collect(t, c, cluster.JobConfig{Name: t.Name(), Window: window})
		w := work(t, c, t.Name())
		for i := range int64(window) {
			add(t, k, i)
			complete(t, w, next(t, w), "")
		}
		add(t, k, window)
		brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if task, err := w.Next(brief); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %+v, %v", task, err)
		}
		outcomes(t, k, window)
		k.Recorded(0)
		if task := next(t, w); task.Number != window {
			t.Fatalf("got %+v", task)
		}
	})
}

func TestStatusTellsWhoDoesWhat(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		c := openBriefly(t, at)
		k := collect(t, c, cluster.JobConfig{Name: t.Name()})
		add(t, k, 0, 1, 2, 3)
		w := work(t, c, t.Name())
		complete(t, w, next(t, w), "")
		next(t, w)
		if err := w.Later(t.Context(), next(t, w), time.Hour); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the worker's sign of life", func() bool { return len(status(t, c, t.Name()).Workers) == 1 })
		s := status(t, c, t.Name())
		host, _ := os.Hostname()
		if s.Queued != 1 || s.Held != 1 || s.Delayed != 1 || s.Results != 1 || s.Done != 1 || s.Version != 0 {
			t.Errorf("got %+v", s)
		}
		if s.Collector == nil || *s.Collector != (cluster.Collecting{Host: host, PID: os.Getpid(), Alive: true}) {
			t.Errorf("collector %+v", s.Collector)
		}
		if at := s.Workers[0]; at.Host != host || at.PID != os.Getpid() || at.Held != 1 || at.SeenMS > 60_000 || !at.Alive {
			t.Errorf("worker %+v", at)
		}
	})
}

// A batch of results that are all empty, as poison is, takes nothing off the bytes.
func TestEmptyResultsAreRemovedWhenRecorded(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		c := open(t, at)
		k := collect(t, c, cluster.JobConfig{Name: t.Name()})
		w := work(t, c, t.Name())
		for n := range int64(2) {
			add(t, k, n)
			complete(t, w, next(t, w), "")
			outcomes(t, k, 1)
			k.Recorded(n)
			eventually(t, "none is left", func() bool { return status(t, c, t.Name()).Results == 0 })
		}
	})
}
