package cluster

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice/internal/wake"
)

// completeBatch bounds one script's work: some milliseconds of the engine's time.
const completeBatch = 500

// fetch gives tasks to those who wait in Next: as many as wait, and no more, so that no worker keeps what another could do.
// While one question is on its way others come to wait, and the next one asks for all of them.
func (w *Worker) fetch(ctx context.Context) {
	for ctx.Err() == nil {
		wait := time.Hour
		jobs := w.serving()
		w.mu.Lock()
		wanted := len(w.waiters) // those who come while these are served have the next round
		w.mu.Unlock()
		for i, s := range jobs {
			// Jobs take turns, each with an equal share of what is wanted; what one does not use goes to the next.
			if err := w.settle(ctx, s); err != nil {
				w.fail(ctx, err)
				return
			}
			share := (wanted + len(jobs) - i - 1) / (len(jobs) - i)
			sleep := w.asleep(s)
			if share > 0 && sleep <= 0 {
				got, err := w.take(ctx, s, min(share, takeBatch))
				if err != nil {
					w.fail(ctx, err)
					return
				}
				wanted -= got
				sleep = w.asleep(s)
			}
			wait = min(wait, sleep)
		}
		if wait <= 0 {
			continue
		}
		_ = wake.In(ctx, wait, w.kick)
	}
}

// asleep is how long there is no reason to ask a job for tasks.
func (w *Worker) asleep(s *served) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiters) == 0 {
		return time.Hour
	}
	return time.Until(s.ready)
}

// takeBatch is the most tasks of one answer.
const takeBatch = 500

// take asks a job for tasks and hands them to those who wait. It tells how many there were.
func (w *Worker) take(ctx context.Context, s *served, want int) (int, error) {
	w.mu.Lock()
	wakes := s.wakes
	w.mu.Unlock()
	asked := 0
	var sent time.Time
	answer, err := w.link.do(ctx, scriptTake, s.keys, func() []string {
		asked++
		sent = time.Now()
		return []string{strconv.Itoa(Version), w.name, strconv.Itoa(want), milliseconds(w.terms.lease),
			strconv.Itoa(MaxDeliveries), w.channel, strconv.Itoa(MaxBytes)}
	})
	if err != nil {
		return 0, err
	}
	switch answer[0].text {
	case "finished":
		w.retire(s)
		return 0, nil
	case "version":
		return 0, w.serve(ctx, s.job.Name)
	case "gone":
		w.mu.Lock()
		s.ready = time.Now().Add(time.Second)
		idle := len(s.held) == 0
		w.mu.Unlock()
		if idle {
			w.retire(s) // it is found again when its collector has told the engine again
		}
		return 0, nil
	}
	if answer[1].text != s.owner {
		if err := w.serve(ctx, s.job.Name); err != nil {
			return 0, err
		}
	}
	tasks := answer[3].list
	now := w.hand(ctx, s.job.Name, tasks, func(s *served) {
		if len(s.held) == 0 { // else only an answer that names the tasks that were taken away
			s.renewed = sent
		}
		if wait := time.Duration(answer[2].number()) * time.Millisecond; wait > 0 && s.wakes == wakes {
			s.ready = time.Now().Add(wait)
		}
	})
	if asked > 1 && now != nil { // which knows what it was given just now, as s may not
		err = w.disown(ctx, now)
	}
	return len(tasks), err
}

// hand gives tasks to those who wait. Those for whom nobody waits any more go back. It returns the job as it is served now; nil: it
// is not.
func (w *Worker) hand(ctx context.Context, job string, tasks []reply, then func(*served)) *served {
	var back []string
	w.mu.Lock()
	s := w.jobs[job]
	if s == nil {
		w.mu.Unlock()
		return nil
	}
	then(s)
	if len(tasks) > 0 {
		w.turn++
		s.turn = w.turn
	}
	for _, m := range tasks {
		t, err := parseTask(m)
		if err != nil {
			continue // not written by Sluice; its lease ends, and it is poison in the end
		}
		if len(w.waiters) == 0 {
			back = append(back, t.ID)
			continue
		}
		s.dropLocked(Task{ID: t.ID, gone: s.held[t.ID]}) // it is given again
		t.Job, t.gone = s.job, make(chan struct{})
		s.held[t.ID] = t.gone
		w.waiters[0] <- t
		w.waiters = w.waiters[1:]
	}
	w.mu.Unlock()
	if len(back) > 0 {
		_, _ = w.link.do(ctx, scriptBack, s.keys, func() []string { return append([]string{w.name, "0"}, back...) })
	}
	return s
}

func parseTask(m reply) (Task, error) {
	e := m.list
	if len(e) < 2 {
		return Task{}, fmt.Errorf("task %v: the data was not written by Sluice", m)
	}
	fields := e[1].list
	if len(fields) < 2 {
		return Task{}, fmt.Errorf("task %v: the data was not written by Sluice", m)
	}
	n, err := strconv.ParseInt(fields[0].text, 10, 64)
	t := Task{Number: n, Payload: []byte(fields[1].text), Deliveries: 1, ID: e[0].text}
	if len(e) > 2 {
		t.Deliveries = int(e[2].number())
	}
	return t, err
}

// disown hands back what the engine has given this worker in an answer that was lost, as a delivery that did not happen.
func (w *Worker) disown(ctx context.Context, s *served) error {
	_, err := w.link.do(ctx, scriptBack, s.keys, func() []string {
		args := []string{w.name, "0", "but"}
		w.mu.Lock()
		defer w.mu.Unlock()
		for id := range s.held {
			args = append(args, id)
		}
		return args
	})
	return err
}

// settle hands back what this worker has by the engine alone. An engine that was set back forgets what was completed just before,
// and would keep those tasks for a worker that lives and knows nothing of them.
func (w *Worker) settle(ctx context.Context, s *served) error {
	w.mu.Lock()
	unsure := s.unsure
	s.unsure = false
	w.mu.Unlock()
	if !unsure {
		return nil
	}
	return w.disown(ctx, s)
}

// longestLost is the maximum time that results wait for a collector to register a job again that the engine has lost.
const longestLost = time.Minute

// flush hands in a batch of results. While the engine does not know the job, having lost it, it waits until the collector has
// registered it again.
func (w *Worker) flush(ctx context.Context, s *served, batch []completion) {
	args := append(make([]string, 0, 3+3*len(batch)), strconv.Itoa(Version), s.job.Input, "0")
	for _, c := range batch {
		args = append(args, c.task.ID, itoa(c.task.Number), asString(c.result))
	}
	asked, lost := 0, time.Time{}
	for {
		answer, err := w.link.do(ctx, scriptComplete, s.keys, func() []string {
			if asked++; asked > 1 {
				args[2] = "1" // the first may have been carried out: then it is not a repeated call
			}
			return args
		})
		if err != nil {
			for _, c := range batch {
				c.done <- err
			}
			w.fail(ctx, err)
			return
		}
		if answer[0].text != "gone" {
			break
		}
		if lost.IsZero() {
			lost = time.Now()
		}
		if time.Since(lost) > longestLost {
			w.link.log.Warn("results are dropped, because Redis lost the job and no run has added the job again", "job", s.job.Name, "results", len(batch))
			break
		}
		if wake.In(ctx, firstRetry, nil) != nil {
			return
		}
	}
	w.mu.Lock()
	for _, c := range batch {
		s.dropLocked(c.task)
	}
	w.mu.Unlock()
	for _, c := range batch {
		c.done <- nil
	}
}

// listen waits to be woken, by jobs that this worker found empty and by new ones.
func (w *Worker) listen(ctx context.Context) {
	for ctx.Err() == nil {
		// What was said before the engine knew that someone listens is lost, so everything is looked at then.
		_ = w.link.client.listen(ctx, []string{w.channel, jobsChannel}, func() { w.wake("") }, func(channel, message string) {
			if channel == jobsChannel {
				wake.Up(w.search)
				return
			}
			w.wake(message)
		})
		_ = wake.In(ctx, firstRetry, nil)
	}
}

// wake has the job with a key looked at now; all of them, and new ones, for no key.
func (w *Worker) wake(key string) {
	w.mu.Lock()
	for _, s := range w.jobs {
		if key == "" || s.keys[0] == key {
			s.ready = time.Time{}
			s.wakes++
		}
		s.unsure = s.unsure || key == "" // the connection was gone, and the engine with it, maybe
	}
	w.mu.Unlock()
	if key == "" {
		wake.Up(w.search)
	}
	wake.Up(w.kick)
}

// fail ends the worker for what no waiting repairs. It is no failure that it was closed meanwhile.
func (w *Worker) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
		close(w.ended)
	}
}

// process is how a worker is told from others by people.
func (w *Worker) process() string { return strconv.Itoa(os.Getpid()) + " " + hostname() }
