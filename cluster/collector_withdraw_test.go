package cluster_test

import (
	"context"
	"sync"
	"testing"

	"github.com/sluice-llm/sluice/cluster"
)

func TestTasksThatNobodyHasCanBeWithdrawn(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		c := open(t, at)
		cfg := cluster.JobConfig{Name: t.Name()}
		k := collect(t, c, cfg)
		w := work(t, c, t.Name())
		for i := range int64(1000) {
			add(t, k, i)
		}
		held := []cluster.Task{next(t, w), next(t, w)}
		back := next(t, w)
		if err := w.Return(t.Context(), back); err != nil {
			t.Fatal(err)
		}
		if err := k.Withdraw(patient(t)); err != nil {
			t.Fatal(err)
		}
		for n, o := range outcomes(t, k, 998) {
			if !o.Withdrawn || n == held[0].Number || n == held[1].Number {
				t.Errorf("outcome %+v, of a task that was withdrawn", o)
			}
		}
		for _, task := range held {
			complete(t, w, task, "done")
		}
		for n, o := range outcomes(t, k, 2) {
			if o.Withdrawn || string(o.Payload) != "done" {
				t.Errorf("outcome %+v, of a task that a worker had", o)
			}
			k.Recorded(n)
		}
		if j := status(t, c, t.Name()); j.Queued+j.Held+j.Delayed != 0 {
			t.Errorf("%d queued, %d held and %d delayed, want none", j.Queued, j.Held, j.Delayed)
		}
		k.Close()

		// Whoever takes the job up hands them out again.
		k = collect(t, c, cfg)
		add(t, k, back.Number)
		again := next(t, w)
		if again.Number != back.Number || again.Deliveries != 1 {
			t.Errorf("task %d at its delivery %d, want %d at its first", again.Number, again.Deliveries, back.Number)
		}
		complete(t, w, again, "at last")
		if o := outcomes(t, k, 1)[back.Number]; string(o.Payload) != "at last" {
			t.Errorf("outcome %+v", o)
		}
	})
}

// Where all that filled the window is taken back, nothing else will come to make room.
func TestWhatIsWithdrawnMakesRoomForWhoWaits(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		k := collect(t, open(t, at), cluster.JobConfig{Name: t.Name(), Window: 1})
		add(t, k, 0)
		asks := &askedContext{Context: patient(t), asked: make(chan struct{})}
		added := make(chan error, 1)
		go func() { added <- k.Add(asks, cluster.Task{Number: 1}) }()
		<-asks.asked // it waits for room
		if err := k.Withdraw(patient(t)); err != nil {
			t.Fatal(err)
		}
		if o := outcomes(t, k, 1)[0]; !o.Withdrawn {
			t.Errorf("outcome %+v", o)
		}
		if err := <-added; err != nil {
			t.Errorf("room was not given on: %v", err)
		}
		w := work(t, open(t, at), t.Name())
		complete(t, w, next(t, w), "done")
		if o := outcomes(t, k, 1)[1]; string(o.Payload) != "done" {
			t.Errorf("outcome %+v", o)
		}
	})
}

// askedContext says when somebody is about to wait for its end.
type askedContext struct {
	context.Context
	once  sync.Once
	asked chan struct{}
}

func (c *askedContext) Done() <-chan struct{} {
	c.once.Do(func() { close(c.asked) })
	return c.Context.Done()
}
