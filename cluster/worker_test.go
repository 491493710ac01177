package cluster_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/gate"
)

func TestATaskThatTakesItsWorkersDownIsPoison(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		k := collect(t, open(t, at), cluster.JobConfig{Name: t.Name()})
		add(t, k, 5)
		for i := range cluster.MaxDeliveries {
			w := work(t, openBriefly(t, at), t.Name())
			if task := next(t, w); task.Deliveries != i+1 {
				t.Fatalf("delivery %d says it is %d", i+1, task.Deliveries)
			}
			w.Close() // without a word about the task
		}
		w := work(t, openBriefly(t, at), t.Name())
		go w.Next(t.Context())
		got := outcomes(t, k, 1)[5]
		if !got.Poison || got.Deliveries != cluster.MaxDeliveries || got.Worker == "" || len(got.Payload) != 0 {
			t.Fatalf("got %+v", got)
		}
		if s := status(t, open(t, at), t.Name()); s.Poisoned != 1 || s.Queued+s.Held+s.Delayed != 0 {
			t.Fatalf("got %+v", s)
		}
		k.Recorded(5)
	})
}

func TestWhatIsHandedBackIsNoDelivery(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		k := collect(t, open(t, at), cluster.JobConfig{Name: t.Name()})
		w := work(t, open(t, at), t.Name())
		add(t, k, 5)
		for i := range 2 * cluster.MaxDeliveries {
			task := next(t, w)
			if task.Deliveries != 1 {
				t.Fatalf("round %d: delivery %d", i, task.Deliveries)
			}
			var err error
			if i%2 == 0 {
				err = w.Return(t.Context(), task)
			} else {
				err = w.Later(t.Context(), task, 10*time.Millisecond)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		complete(t, w, next(t, w), "at last")
		if got := outcomes(t, k, 1)[5]; got.Deliveries != 1 || got.Poison {
			t.Fatalf("got %+v", got)
		}
	})
}

func TestATaskForLaterIsGivenToNobodyBefore(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		k := collect(t, open(t, at), cluster.JobConfig{Name: t.Name()})
		w := work(t, open(t, at), t.Name())
		add(t, k, 5)
		task := next(t, w)
		begin := time.Now()
		if err := w.Later(t.Context(), task, 700*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if s := status(t, open(t, at), t.Name()); s.Delayed != 1 || s.Held != 0 {
			t.Fatalf("got %+v", s)
		}
		task = next(t, w)
		if waited := time.Since(begin); waited < 600*time.Millisecond {
			t.Fatalf("given after %v", waited)
		}
		complete(t, w, task, "")
	})
}

func TestATaskOfALostWorkerGoesToAnotherAndTheFirstResultCounts(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		k := collect(t, open(t, at), cluster.JobConfig{Name: t.Name()})
		slow := at.Aside()
		late, quick := work(t, openBriefly(t, slow), t.Name()), work(t, openBriefly(t, at), t.Name())
		add(t, k, 5)
		old := next(t, late)
		slow.Hold(true)
		again := next(t, quick)
		if again.Number != 5 || again.Deliveries != 2 {
			t.Fatalf("got %+v", again)
		}
		complete(t, quick, again, "quick")
		slow.Hold(false)
		complete(t, late, old, "late")
		if got := outcomes(t, k, 1)[5]; string(got.Payload) != "quick" || got.Deliveries != 2 {
			t.Fatalf("got %+v", got)
		}
		if status(t, open(t, at), t.Name()).Repeated != 1 {
			t.Fatal("the repeated call was not counted")
		}
	})
}

func TestJobsTakeTurns(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		c := open(t, at)
		names := []string{t.Name() + "/a", t.Name() + "/b"}
		for _, name := range names {
			k := collect(t, c, cluster.JobConfig{Name: name, Settings: []byte("of " + name)})
			for i := range int64(50) {
				add(t, k, i)
			}
			defer finish(t, k)
			eventually(t, "all are added", func() bool { return status(t, c, name).Queued == 50 })
		}
		w := work(t, c, names...)
		for known := map[string]bool{}; len(known) < len(names); {
			task := next(t, w)
			known[task.Job.Name] = true
			if err := w.Return(t.Context(), task); err != nil {
				t.Fatal(err)
			}
		}
		given := make(chan cluster.Task)
		for range 20 { // who all want one at once
			go func() {
				if task, err := w.Next(t.Context()); err == nil {
					given <- task
				}
			}()
		}
		count := map[string]int{}
		for range 20 {
			task := <-given
			if string(task.Job.Settings) != "of "+task.Job.Name {
				t.Fatalf("job %+v", task.Job)
			}
			count[task.Job.Name]++
		}
		for range 20 { // who come one by one
			task := next(t, w)
			count[task.Job.Name]++
			complete(t, w, task, "")
		}
		for _, name := range names {
			if count[name] < 15 {
				t.Fatalf("not in turn: %v", count)
			}
		}
	})
}

func TestAWorkerOfAllJobsFindsThemAndLetsThemEnd(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		w := work(t, open(t, at))
		for round := range 3 {
			c := open(t, at)
			k := collect(t, c, cluster.JobConfig{Name: t.Name()})
			add(t, k, int64(round))
			task := next(t, w)
			for task.Job.Name != t.Name() { // of another test on the same engine
				task = next(t, w)
			}
			if task.Number != int64(round) {
				t.Fatalf("round %d: got %+v", round, task)
			}
			complete(t, w, task, "")
			outcomes(t, k, 1)
			finish(t, k)
			if s := status(t, c, t.Name()); s.Name != "" {
				t.Fatalf("the job is still there: %+v", s)
			}
		}
	})
}

func TestAWorkerThatGivesSignsOfLifeKeepsItsTasks(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		k := collect(t, open(t, at), cluster.JobConfig{Name: t.Name()})
		slow, idle := work(t, openBriefly(t, at), t.Name()), work(t, openBriefly(t, at), t.Name())
		add(t, k, 5)
		task := next(t, slow)
		taken, cancel := context.WithTimeout(t.Context(), 3*time.Second) // more than two leases
		defer cancel()
		if again, err := idle.Next(taken); err == nil {
			t.Fatalf("given to another: %+v", again)
		}
		complete(t, slow, task, "")
		if got := outcomes(t, k, 1)[5]; got.Deliveries != 1 {
			t.Fatalf("got %+v", got)
		}
	})
}

// A worker that continues with other tasks cannot hand one back while Redis does not answer.
func TestATaskThatCouldNotBeHandedBackGoesBackLater(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		k, aside := collect(t, open(t, at), cluster.JobConfig{Name: "job"}), at.Aside()
		add(t, k, 1)
		w := work(t, open(t, aside))
		task := next(t, w)
		aside.Hold(true)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := w.Return(ctx, task); err == nil {
			t.Fatal("it was handed back to a Redis that does not answer")
		}
		time.Sleep(time.Second)
		aside.Hold(false)
		next(t, work(t, open(t, at)))
	})
}

// A task that is handed back is given to the same worker before that hears that it was handed back.
func TestATaskThatIsGivenAgainIsHeld(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		k, aside := collect(t, open(t, at), cluster.JobConfig{Name: "job"}), at.Aside()
		add(t, k, 1)
		w := work(t, open(t, aside))
		task := next(t, w)
		aside.Delay(time.Second)
		back := make(chan error)
		go func() { back <- w.Return(t.Context(), task) }()
		synctest.Wait()
		aside.Delay(0)
		task = next(t, w)
		if err := <-back; err != nil {
			t.Fatal(err)
		}
		aside.Cut() // then the worker hands back all that it does not know of
		time.Sleep(time.Second)
		if j := status(t, open(t, at), "job"); j.Held != 1 {
			t.Errorf("%+v, want the task held", j)
		}
		complete(t, w, task, "done")
	})
}

// A job of another version gives way to one of this version, before those who waited know of the first.
func TestAWaitThatEndsWithoutAReasonGoesOn(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		c := open(t, at)
		k, w := collect(t, c, cluster.JobConfig{Name: "job"}), work(t, c)
		go func() {
			time.Sleep(time.Second)
			cluster.WakeWaiting(w)
			time.Sleep(time.Second)
			add(t, k, 1)
		}()
		if task := next(t, w); task.Number != 1 {
			t.Errorf("%+v", task)
		}
	})
}

// The next collector need not wait for the lease of one that let go of the job while it gave a sign of life.
func TestACollectorThatClosesGivesNoSignOfLifeAfterwards(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		aside := at.Aside()
		began := time.Now()
		k := collect(t, open(t, aside), cluster.JobConfig{Name: "job"})
		aside.Delay(100 * time.Millisecond)
		time.Sleep(gate.Heartbeat - 50*time.Millisecond - time.Since(began))
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		collect(t, open(t, at), cluster.JobConfig{Name: "job"})
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the next collector waited for %v", took)
		}
	})
}

// A worker that stands still for longer than its lease may have lost its tasks, and starts none of them before Redis says so.
func TestAWorkerStartsNoTaskOnALeaseThatMayHaveEnded(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		k := collect(t, open(t, at), cluster.JobConfig{Name: t.Name()})
		slow := at.Aside()
		late, quick := work(t, openBriefly(t, slow), t.Name()), work(t, openBriefly(t, at), t.Name())
		add(t, k, 1, 2, 3)
		lost, kept, unasked := next(t, late), next(t, late), next(t, late)
		time.Sleep(5 * time.Second)
		if !late.Holds(lost) || !late.Holds(kept) {
			t.Fatal("a worker with a lease may not start its tasks")
		}
		slow.Hold(true)
		again := next(t, quick)
		if again.Number != lost.Number {
			t.Fatalf("task %d went to the other worker, want %d", again.Number, lost.Number)
		}
		for _, task := range []cluster.Task{lost, kept} {
			if late.Holds(task) {
				t.Errorf("task %d is started after the lease", task.Number)
			}
		}
		slow.Hold(false)
		time.Sleep(time.Second) // some renewals
		if late.Holds(unasked) != (status(t, open(t, at), t.Name()).Held == 2) {
			t.Error("worker and Redis differ on who has the last task")
		}
		if late.Holds(kept) {
			t.Error("a task that was given up came back without being given again")
		}
		given := next(t, quick)
		if given.Number != kept.Number || given.Deliveries > 2 {
			t.Errorf("the task that was given back is %+v", given)
		}
		if late.Holds(lost) || !quick.Holds(again) || !quick.Holds(given) {
			t.Error("a task is held by the worker that lost it, or not by the other one")
		}
	})
}

// Redis may give a task away although the worker's own clock sees nothing, as when the clock of Redis is set.
func TestAHeartbeatNamesTheTasksThatWereTakenAway(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		k := collect(t, open(t, at), cluster.JobConfig{Name: t.Name()})
		w := work(t, openBriefly(t, at), t.Name())
		add(t, k, 1, 2)
		taken, kept := next(t, w), next(t, w)
		execute(t, at, "XCLAIM", cluster.KeysOf(t.Name())[1], "w", "another", "0", taken.ID)
		eventually(t, "the worker knows", func() bool { return !w.Holds(taken) })
		if !w.Holds(kept) {
			t.Error("the worker forgot a task that it has")
		}
	})
}

// Redis renews a lease with every answer, also one that had ended: only an answer that names the tasks that were taken away tells the
// worker that it has the others.
func TestTasksThatAreGivenToAWorkerRenewNoLeaseOfThoseBefore(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		c := open(t, at)
		cluster.SetTerms(c, time.Minute, time.Hour)
		k := collect(t, open(t, at), cluster.JobConfig{Name: t.Name()})
		w := work(t, c, t.Name())
		add(t, k, 1)
		first := next(t, w)
		time.Sleep(2 * time.Minute)
		add(t, k, 2)
		next(t, w)
		if w.Holds(first) {
			t.Error("a task is started after its lease")
		}
	})
}
