package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/suite"
)

// chaos is a batch among hosts that come, go, hang and are cut off, on an engine that forgets. What is asked of the queue is
// that the journal, the one truth, gets every number, and none twice.
type chaos struct {
	t      *testing.T
	engine *cluster.Site
	job    string
	n      int64

	mu      sync.Mutex
	random  *rand.Rand
	journal map[int64]string
	started int // calls
	rebuilt int // times that the engine was told again
}

func TestNothingIsLostOrGivenTwiceWhateverHappens(t *testing.T) {
	for seed := range suite.Size(uint64(2), 8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onEngines(t, func(t *testing.T, at *cluster.Site) {
				c := &chaos{t: t, engine: at, job: t.Name(), n: suite.Size(int64(200), 1000), random: rand.New(rand.NewPCG(seed, 9)), journal: map[int64]string{}}
				c.run()
			})
		})
	}
}

func (c *chaos) run() {
	ctx := patient(c.t)
	working, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	lines := make([]*cluster.Site, 4)
	for i := range lines {
		lines[i] = c.engine.Aside()
	}
	for _, l := range lines[1:] {
		all.Go(func() { c.host(working, l) })
	}
	for _, l := range lines {
		all.Go(func() { c.trouble(working, l) })
	}
	all.Go(func() { c.forget(working) })
	for c.recorded() < int(c.n) && ctx.Err() == nil {
		c.collect(ctx, lines[0])
	}
	stop()
	for _, l := range lines {
		l.Restore()
	}
	all.Wait()
	if c.recorded() != int(c.n) {
		c.t.Fatalf("%d of %d are recorded", c.recorded(), c.n)
	}
	raw := client(c.t, c.engine)
	for _, key := range cluster.KeysOf(c.job)[1:] {
		if n, err := raw.Do(c.t.Context(), raw.B().Exists().Key(key).Build()).AsInt64(); n != 0 || err != nil {
			c.t.Errorf("%s is left: %v", key, err)
		}
	}
	c.t.Logf("%d calls for %d tasks, %d rebuilt", c.started, c.n, c.rebuilt)
}

// chance is true so many times in a thousand.
func (c *chaos) chance(inThousand int) bool { return c.below(1000) < inThousand }

func (c *chaos) below(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

func (c *chaos) recorded() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.journal)
}

// collect is a collector's life: it ends when all is recorded, or by a death without a word at any moment.
func (c *chaos) collect(ctx context.Context, at *cluster.Site) {
	own := c.connect(ctx, at)
	if own == nil {
		return
	}
	defer own.Close()
	var held *cluster.HeldError
	k, err := own.Collect(ctx, cluster.JobConfig{Name: c.job, Window: 64})
	if errors.As(err, &held) {
		time.Sleep(20 * time.Millisecond)
		return
	}
	if err != nil {
		if ctx.Err() == nil {
			c.t.Errorf("collect: %v", err)
		}
		return
	}
	life, die := context.WithCancel(ctx)
	var adding sync.WaitGroup
	defer adding.Wait()
	defer die()
	defer func() { c.rebuilt += cluster.Rebuilt(k) }()
	if c.chance(700) {
		time.AfterFunc(time.Duration(200+c.below(2500))*time.Millisecond, die)
	}
	left := c.left()
	adding.Go(func() {
		for _, n := range left {
			if err := k.Add(life, cluster.Task{Number: n, Payload: fmt.Appendf(nil, "%d", n)}); err != nil {
				return
			}
		}
	})
	count := 0
	for o, err := range k.Results(life) {
		if err != nil {
			cluster.Abandon(k)
			if ctx.Err() == nil && life.Err() == nil && !errors.Is(err, cluster.ErrFenced) {
				c.t.Errorf("results: %v", err)
			}
			return
		}
		c.record(o)
		if c.chance(980) { // a word that gets lost, of which as many as the window would stop the workers
			k.Recorded(o.Number)
		}
		if count++; count == len(left) {
			break
		}
	}
	if err := k.Finish(ctx); err != nil && ctx.Err() == nil {
		c.t.Errorf("finish: %v", err)
	}
}

// left are the numbers that the journal has not.
func (c *chaos) left() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var left []int64
	for n := range c.n {
		if _, ok := c.journal[n]; !ok {
			left = append(left, n)
		}
	}
	return left
}

// connect opens, however often it takes.
func (c *chaos) connect(ctx context.Context, at *cluster.Site) *cluster.Cluster {
	for ctx.Err() == nil {
		if own, err := at.Open(ctx, cluster.Config{Role: "test"}); err == nil {
			cluster.SetTerms(own, 1200*time.Millisecond, 150*time.Millisecond)
			return own
		}
	}
	return nil
}

func (c *chaos) record(o cluster.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was, twice := c.journal[o.Number]; twice {
		c.t.Errorf("%d is given twice: %q and %q", o.Number, was, o.Payload)
	}
	if string(o.Payload) != fmt.Sprint(o.Number, " done") && !o.Poison {
		c.t.Errorf("%d has the result %q", o.Number, o.Payload)
	}
	c.journal[o.Number] = string(o.Payload)
}

// host has workers, one after the other, each of which ends well or dies.
func (c *chaos) host(ctx context.Context, at *cluster.Site) {
	for ctx.Err() == nil {
		own := c.connect(ctx, at)
		if own == nil {
			return
		}
		w, err := own.Work(ctx, c.job)
		if err != nil {
			c.t.Errorf("work: %v", err)
		}
		life, die := context.WithTimeout(ctx, time.Duration(300+c.below(3000))*time.Millisecond)
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() { c.work(life, w) })
		}
		<-life.Done()
		w.Close()
		all.Wait()
		die()
		own.Close()
	}
}

func (c *chaos) work(ctx context.Context, w *cluster.Worker) {
	for {
		t, err := w.Next(ctx)
		if err != nil {
			return
		}
		c.mu.Lock()
		c.started++
		c.mu.Unlock()
		wait := time.Duration(c.below(15)) * time.Millisecond
		if c.chance(5) {
			wait = 2 * time.Second // longer than anyone waits for a sign of life, if there is none
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return // with the task
		}
		switch {
		case c.chance(40):
			err = w.Return(ctx, t)
		case c.chance(40):
			err = w.Later(ctx, t, time.Duration(c.below(300))*time.Millisecond)
		default:
			err = w.Complete(ctx, t, fmt.Appendf(nil, "%d done", t.Number))
		}
		if err != nil {
			return
		}
	}
}

// trouble cuts and holds a line, or loses answers on it, for as long as the context stands. It leaves the line alone until that
// has answered some times: by the clock alone, nothing might ever get through on a slow machine.
func (c *chaos) trouble(ctx context.Context, l *cluster.Site) {
	for left := 0; ctx.Err() == nil; time.Sleep(time.Duration(c.below(600)) * time.Millisecond) {
		if l.Replies() < left {
			continue
		}
		switch c.below(6) {
		case 0, 1:
			l.Cut()
		case 2, 3, 4:
			l.Lose(1 + c.below(3))
		case 5:
			l.Hold(true)
			time.AfterFunc(time.Duration(c.below(2000))*time.Millisecond, func() { l.Hold(false) })
		}
		left = l.Replies() + 10
	}
}

// forget empties the engine or sets it back, each time when some more is recorded.
func (c *chaos) forget(ctx context.Context) {
	raw := client(c.t, c.engine)
	var before map[string]string
	for next := 0; ctx.Err() == nil; time.Sleep(time.Duration(c.below(400)) * time.Millisecond) {
		switch n := c.below(10); {
		case n < 6:
			before = dump(ctx, raw, cluster.KeysOf(c.job))
			continue
		case c.recorded() < next:
			continue
		case n == 6:
			raw.Do(ctx, raw.B().Del().Key(cluster.KeysOf(c.job)...).Build())
		default:
			restore(ctx, raw, cluster.KeysOf(c.job), before)
		}
		next = c.recorded() + 20
	}
}
