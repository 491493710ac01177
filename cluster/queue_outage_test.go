package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/cluster"
)

func TestAnOutageOfTheEngineTakesNoTaskFromAnyone(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		k := collect(t, open(t, at), cluster.JobConfig{Name: t.Name()})
		shared := at.Aside()
		w, idle := work(t, openBriefly(t, shared), t.Name()), work(t, openBriefly(t, shared), t.Name())
		add(t, k, 5)
		task := next(t, w)
		shared.Hold(true)
		ended := time.Now().Add(2 * time.Second) // longer than a lease: for the engine's clock it has ended
		eventually(t, "the lease has ended", func() bool { return time.Now().After(ended) })
		shared.Hold(false)
		taken, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if again, err := idle.Next(taken); err == nil {
			t.Fatalf("given to another: %+v", again)
		}
		complete(t, w, task, "")
		outcomes(t, k, 1)
	})
}

func TestAnAnswerThatIsLostIsNoDeliveryAndNoRepeatedCall(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		k := collect(t, open(t, at), cluster.JobConfig{Name: t.Name()})
		shaky := at.Aside()
		w := work(t, open(t, shaky), t.Name())
		add(t, k, 0)
		complete(t, w, next(t, w), "")
		for i := int64(1); i <= 5; i++ {
			shaky.Lose(1)
			add(t, k, i)
			task := next(t, w)
			shaky.Lose(1)
			complete(t, w, task, "")
			if task.Number != i || task.Deliveries != 1 {
				t.Fatalf("got %+v, want %d delivered once", task, i)
			}
		}
		outcomes(t, k, 6)
		if n := status(t, open(t, at), t.Name()).Repeated; n != 0 {
			t.Fatalf("%d repeated calls", n)
		}
	})
}

// A worker learns from an answer that its job is another by now. The answer before it was lost, and so it gives back what it
// does not know of: that is not what this answer gave it.
func TestAWorkerKeepsTheFirstTaskOfAJobThatHasTakenTheNameOfAnother(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		c := open(t, at)
		k := collect(t, c, cluster.JobConfig{Name: t.Name(), Input: "a"})
		shaky := at.Aside()
		w := work(t, open(t, shaky), t.Name())
		add(t, k, 0)
		complete(t, w, next(t, w), "")
		shaky.Hold(true) // it does not hear that the job ends, and its question comes to the next one
		first := make(chan int64, 1)
		go func() {
			task, err := w.Next(patient(t))
			if err != nil {
				t.Error(err)
			}
			first <- task.Number
		}()
		finish(t, k)
		k = collect(t, c, cluster.JobConfig{Name: t.Name(), Input: "b"})
		add(t, k, 1001, 1002)
		eventually(t, "they are added", func() bool { return status(t, c, t.Name()).Queued == 2 })
		shaky.LoseWith("1001")
		shaky.Hold(false)
		given := map[int64]bool{<-first: true}
		given[next(t, w).Number] = true
		brief, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if again, err := w.Next(brief); err == nil || len(given) != 2 {
			t.Errorf("given %v, and then %+v", given, again)
		}
	})
}

func TestATaskThatTheEngineHasLostWithoutATraceIsAddedAgain(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		c := openBriefly(t, at)
		k := collect(t, c, cluster.JobConfig{Name: t.Name()})
		add(t, k, 1)
		eventually(t, "it is added", func() bool { return status(t, c, t.Name()).Queued == 1 })
		keys := cluster.KeysOf(t.Name())
		execute(t, at, "DEL", keys[1], keys[3]) // the tasks, and that there were any
		execute(t, at, "XGROUP", "CREATE", keys[1], "w", "0", "MKSTREAM")
		w := work(t, open(t, at), t.Name())
		complete(t, w, next(t, w), "")
		outcomes(t, k, 1)
	})
}

func TestResultsOfAnEngineWhoseClockWasSetBackAreRead(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		k := collect(t, openBriefly(t, at), cluster.JobConfig{Name: t.Name()})
		w := work(t, open(t, at), t.Name())
		add(t, k, 1, 2)
		complete(t, w, next(t, w), "one")
		outcomes(t, k, 1)
		// Another engine in the place of this one has it all, and gives lower ids from here on.
		results := cluster.KeysOf(t.Name())[2]
		execute(t, at, "DEL", results)
		execute(t, at, "XADD", results, "5-0", "1", "of another")
		execute(t, at, "XADD", results, "6-0", "2", "of another")
		if got := outcomes(t, k, 1)[2]; string(got.Payload) != "of another" {
			t.Fatalf("got %+v", got)
		}
	})
}

func TestAnEngineThatIsSetBackIsToldAgainWhatItHasForgotten(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		c := openBriefly(t, at)
		k := collect(t, c, cluster.JobConfig{Name: t.Name()})
		w := work(t, c, t.Name())
		add(t, k, 1)
		one := next(t, w)
		setBack := backup(t, at)
		add(t, k, 2, 3)
		complete(t, w, next(t, w), "two")
		outcomes(t, k, 1)
		k.Recorded(2)
		eventually(t, "the result is removed", func() bool { return status(t, c, t.Name()).Results == 0 })
		setBack()
		three := next(t, w)
		complete(t, w, one, "one")
		complete(t, w, three, "three")
		if got := outcomes(t, k, 2); string(got[1].Payload) != "one" || string(got[3].Payload) != "three" {
			t.Fatalf("got %v", got)
		}
		if n := cluster.Rebuilt(k); n != 1 {
			t.Fatalf("rebuilt %d times", n)
		}
	})
}

func TestATaskWhoseResultAnEngineHasForgottenThatWasSetBackIsDoneAgain(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		slow := at.Aside()
		k := collect(t, openBriefly(t, slow), cluster.JobConfig{Name: t.Name()})
		quick := at.Aside()
		w := work(t, openBriefly(t, quick), t.Name())
		add(t, k, 1)
		one := next(t, w)
		setBack := backup(t, at)
		slow.Hold(true) // the collector does not see the result
		complete(t, w, one, "one")
		setBack()
		quick.Cut()
		slow.Cut()
		slow.Hold(false)
		time.Sleep(time.Second) // the worker is quiet until it has found the engine again
		complete(t, w, next(t, w), "one again")
		if got := outcomes(t, k, 1); string(got[1].Payload) != "one again" {
			t.Fatalf("got %v", got)
		}
	})
}

func TestWhatIsRecordedIsNotDoneAgainForAnEngineThatWasSetBack(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		const n = 600 // more than one message tells
		c := openBriefly(t, at)
		k, w := collect(t, c, cluster.JobConfig{Name: t.Name(), Window: n}), work(t, c, t.Name())
		for i := range int64(n) {
			add(t, k, i)
		}
		eventually(t, "all are queued", func() bool { return status(t, c, t.Name()).Queued == n })
		held := next(t, w) // the engine is set back to when a worker has it
		setBack := backup(t, at)
		complete(t, w, held, "")
		for range n - 1 {
			complete(t, w, next(t, w), "")
		}
		for number := range outcomes(t, k, n) {
			k.Recorded(number)
		}
		eventually(t, "the results are removed", func() bool { return status(t, c, t.Name()).Results == 0 })
		setBack()
		eventually(t, "the tasks to be added again", func() bool { return cluster.Rebuilt(k) == 1 })
		add(t, k, n)
		if task := next(t, w); task.Number != n {
			t.Errorf("task %d is done again, and is recorded", task.Number)
		} else {
			complete(t, w, task, "")
			outcomes(t, k, 1)
		}
	})
}

// backup notes what an engine has of the test's job, and returns what sets it back to that.
func backup(t *testing.T, at *cluster.Site) (setBack func()) {
	raw, keys := client(t, at), cluster.KeysOf(t.Name())
	was := dump(t.Context(), raw, keys)
	if was == nil {
		t.Skip("a Redis in memory has no DUMP")
	}
	return func() { restore(t.Context(), raw, keys, was) }
}
