package cli

import (
	"io"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/sluice-llm/sluice/cluster"
)

// A worker ends in the moment in which a task that it has fetched is taken. Who would do it and give it back as well would have the
// call made twice.
func TestATaskIsDoneOrGivenBack(t *testing.T) {
	at, err := cluster.Open(t.Context(), cluster.Config{URL: "redis://" + miniredis.RunT(t).Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	k, err := at.Collect(t.Context(), cluster.JobConfig{Name: t.Name()})
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
		source, err := newTaskSource(t.Context(), newStreams(nil, nil, io.Discard, io.Discard), at, &workerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Add(t.Context(), cluster.Task{Number: 1}); err != nil {
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
		if _, err := source.close(); err != nil {
			t.Error(err)
		}
	}
}

// The next task that a worker waits for is not one that is given back.
func TestWhatIsGivenBackIsPassedOver(t *testing.T) {
	source := &taskSource{o: &workerOptions{idleExit: time.Millisecond}, news: make(chan struct{}, 1), idle: time.Now()}
	f := &fetching{source: source, tasks: make(chan *fetched, 2)}
	back, next := &fetched{taken: make(chan struct{})}, &fetched{taken: make(chan struct{})}
	back.claim()
	f.tasks <- back
	f.tasks <- next
	if got, ok := source.await(t.Context(), f); !ok || got != next {
		t.Errorf("got %v, %v", got, ok)
	}
}
