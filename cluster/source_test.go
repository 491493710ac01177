package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// A worker ends in the moment in which a task that it has fetched is taken. Who would do it and give it back as well would have the
// call made twice.
func TestATaskIsDoneOrGivenBack(t *testing.T) {
	at, err := Open(t.Context(), Config{URL: "redis://" + miniredis.RunT(t).Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	k, err := at.Collect(t.Context(), JobConfig{Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	held := func() int {
		jobs, err := at.Jobs(t.Context())
		if err != nil || len(jobs) != 1 {
			t.Fatalf("%d jobs, %v", len(jobs), err)
		}
		return jobs[0].Held
	}
	for _, taken := range []bool{true, false} {
		source, err := at.Source(t.Context(), SourceConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Add(t.Context(), Task{Number: 1}); err != nil {
			t.Fatal(err)
		}
		f := source.fetch(t.Context())
		got := <-f.tasks
		if taken {
			got.claim()
		}
		f.stop()
		if n := held(); (n == 1) != taken {
			t.Errorf("taken is %v, and %d are held", taken, n)
		}
		if !taken && got.claim() {
			t.Error("what was given back can be taken")
		}
		if taken {
			if err := source.from.Return(t.Context(), got.task); err != nil {
				t.Error(err)
			}
		}
		if _, err := source.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The next task that a worker waits for is not one that is given back.
func TestWhatIsGivenBackIsPassedOver(t *testing.T) {
	source := &Source{cfg: SourceConfig{IdleExit: time.Millisecond}, news: make(chan struct{}, 1), idle: time.Now()}
	f := &fetching{source: source, tasks: make(chan *fetched, 2)}
	back, next := &fetched{taken: make(chan struct{})}, &fetched{taken: make(chan struct{})}
	back.claim()
	f.tasks <- back
	f.tasks <- next
	if got, ok := source.await(t.Context(), f); !ok || got != next {
		t.Errorf("got %v, %v", got, ok)
	}
}

// What waits behind tasks of a model that pauses is reached however long it takes to put those aside, though what is due again is
// given first.
func TestTasksOfAPausedModelComeBackMoreSlowlyThanTheyArePutAside(t *testing.T) {
	const tasks, pause, each = 2000, 24 * time.Hour, 100 * time.Millisecond
	var due []time.Duration // in order
	fresh, now := tasks, time.Duration(0)
	for ; fresh > 0 && now < time.Hour; now += each {
		if len(due) > 0 && due[0] <= now {
			due = due[1:]
		} else {
			fresh--
		}
		due = append(due, now+leave(pause-now, now))
	}
	if !slices.IsSorted(due) || now > 2*tasks*each {
		t.Errorf("after %v, %d of %d tasks have not been given yet", now, fresh, tasks)
	}
}
