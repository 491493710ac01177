package cluster_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/cluster"
)

// collect returns a collector. The job is finished with the test, if the collector has not ended.
func collect(t testing.TB, c *cluster.Cluster, cfg cluster.JobConfig) *cluster.Collector {
	t.Helper()
	k, err := c.Collect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if !cluster.Ended(k) && !t.Failed() {
			if err := k.Finish(ctx); err != nil {
				t.Error(err)
			}
		}
		k.Close()
	})
	return k
}

func work(t testing.TB, c *cluster.Cluster, jobs ...string) *cluster.Worker {
	t.Helper()
	w, err := c.Work(t.Context(), jobs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// echo has n goroutines complete every task with its payload and a word, until the test ends.
func echo(t *testing.T, w *cluster.Worker, n int) {
	for range n {
		go func() {
			for {
				task, err := w.Next(t.Context())
				if err != nil {
					return
				}
				if err := w.Complete(t.Context(), task, append(task.Payload, " done"...)); err != nil {
					return
				}
			}
		}()
	}
}

// patience is what a test waits for what happens at once on a machine that has nothing else to do.
const patience = 5 * time.Minute

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// openBriefly opens with terms of a second and less: whoever is silent so long is dead.
func openBriefly(t *testing.T, at *cluster.Site) *cluster.Cluster {
	t.Helper()
	c := open(t, at)
	cluster.SetTerms(c, 1200*time.Millisecond, 150*time.Millisecond)
	return c
}

func add(t *testing.T, k *cluster.Collector, numbers ...int64) {
	t.Helper()
	for _, n := range numbers {
		if err := k.Add(patient(t), cluster.Task{Number: n, Payload: []byte(strconv.FormatInt(n, 10))}); err != nil {
			t.Fatal(err)
		}
	}
}

func next(t *testing.T, w *cluster.Worker) cluster.Task {
	t.Helper()
	task, err := w.Next(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func complete(t *testing.T, w *cluster.Worker, task cluster.Task, result string) {
	t.Helper()
	if err := w.Complete(patient(t), task, []byte(result)); err != nil {
		t.Fatal(err)
	}
}

// outcomes gives the next n outcomes.
func outcomes(t *testing.T, k *cluster.Collector, n int) map[int64]cluster.Outcome {
	t.Helper()
	got := map[int64]cluster.Outcome{}
	for o, err := range k.Results(patient(t)) {
		if err != nil {
			t.Fatalf("after %d of %d outcomes: %v", len(got), n, err)
		}
		if _, twice := got[o.Number]; twice {
			t.Fatalf("number %d was given twice", o.Number)
		}
		if got[o.Number] = o; len(got) == n {
			break
		}
	}
	return got
}

func status(t *testing.T, c *cluster.Cluster, job string) cluster.JobStatus {
	t.Helper()
	jobs, err := c.Jobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if j.Name == job {
			return j
		}
	}
	return cluster.JobStatus{}
}

func finish(t *testing.T, k *cluster.Collector) {
	t.Helper()
	if err := k.Finish(patient(t)); err != nil {
		t.Fatal(err)
	}
}
