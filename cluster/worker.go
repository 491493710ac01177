package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/wake"
)

// Worker receives tasks of jobs and sends back their results. Pass every task from Next to Complete, Later or Return. Until then, no
// other Worker gets the task while this Worker renews its lease. A Worker is safe for concurrent use. Use one goroutine per task.
type Worker struct {
	link    *link
	terms   terms
	named   []string // jobs to serve; none means all
	name    string   // of the consumer in every job's group
	channel string   // where it is woken
	stop    context.CancelFunc
	run     sync.WaitGroup
	kick    chan struct{} // the fetcher is to look
	search  chan struct{} // there may be new jobs

	mu      sync.Mutex
	waiters []chan Task // in the order in which they came; each has one place
	jobs    map[string]*served
	turn    int // counts answers with tasks
	err     error
	ended   chan struct{} // closed when err is set
	stopped string        // why it stops; "" if it was asked to
}

// served is a job that a worker serves.
type served struct {
	job     *Job
	keys    []string
	owner   string // the collector by whose settings it is served
	results *batcher[completion]
	held    map[string]chan struct{} // of each task, by its id; see Task.gone
	renewed time.Time                // departure of the last request that Redis granted a lease for
	ready   time.Time                // when there may be a task
	wakes   int                      // how often it was woken
	turn    int                      // when it last had tasks
	unsure  bool                     // the engine may list tasks of this worker that it does not have
	refused *VersionError
}

// completion is a result on its way to the engine.
type completion struct {
	task   Task
	result []byte
	done   chan error
}

// Work returns a Worker for the named jobs, or without names for all jobs, including future jobs. The caller must close the Worker.
func (c *Cluster) Work(ctx context.Context, jobs ...string) (*Worker, error) {
	if err := c.mayQueue(ctx); err != nil {
		return nil, err
	}
	// A process may have several workers, of which one may end.
	name := fmt.Sprintf("%s:%d:%s", hostname(), os.Getpid(), rand.Text()[:8])
	w := &Worker{
		link: c.newLink(), terms: c.terms.orUsual(), named: jobs,
		name: name, channel: wakeChannel + name,
		kick: make(chan struct{}, 1), search: make(chan struct{}, 1), jobs: map[string]*served{}, ended: make(chan struct{}),
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	w.run.Go(func() { w.discover(life) })
	w.run.Go(func() { w.fetch(life) })
	w.run.Go(func() { w.listen(life) })
	w.run.Go(func() { w.hold(life) })
	return w, nil
}

// Next waits for a task, and alternates between jobs. Next also waits while Redis is unreachable. If a job named in Work has another
// version, Next returns a *VersionError. Next skips unnamed jobs with another version. After Close, Next returns ErrClosed.
func (w *Worker) Next(ctx context.Context) (Task, error) {
	place := make(chan Task, 1)
	w.mu.Lock()
	if err := w.refusedLocked(); err != nil {
		w.mu.Unlock()
		return Task{}, err
	}
	w.waiters = append(w.waiters, place)
	w.mu.Unlock()
	wake.Up(w.kick)
	var err error
	select {
	case t, ok := <-place:
		if ok {
			return t, nil
		}
		return w.Next(ctx) // it says why, or the job is served again by now
	case <-w.ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		err = w.err
	}
	if i := slices.Index(w.waiters, place); i >= 0 {
		w.waiters = slices.Delete(w.waiters, i, i+1)
		return Task{}, err
	}
	if t, ok := <-place; ok { // it came at the last moment
		return t, nil
	}
	return Task{}, err
}

// Complete sends the result of a task, and waits until Redis has stored the result. Only the first result of a task counts. Further
// results are dropped and counted in JobStatus.Repeated, without an error. If ctx ends, Complete returns the cause of ctx, and the
// Worker still sends the result unless the Worker is closed. Complete returns ErrClosed after Close, and a *TooLargeError for a
// result above MaxPayload. After a *TooLargeError, the Worker keeps the task.
func (w *Worker) Complete(ctx context.Context, t Task, result []byte) error {
	if len(result) > MaxPayload {
		return &TooLargeError{Number: t.Number, Bytes: len(result)}
	}
	done := make(chan error, 1)
	if !t.Job.served.results.put(completion{task: t, result: result, done: done}) {
		return nil // the job has ended
	}
	select {
	case err := <-done:
		return err
	case <-w.ended:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Holds reports whether this Worker still has a task. Call Holds right before you start a task. Holds returns false if the Worker's
// lease has expired, because another Worker may have received the task. If Holds returns false, do not start or return the task. If
// no other Worker has the task, the task goes back to the queue.
func (w *Worker) Holds(t Task) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.jobs[t.Job.Name]
	if s == nil || s.held[t.ID] != t.gone {
		return false
	}
	now := time.Now()
	// The monotonic clock stands still while a host sleeps, and the wall clock may be set.
	if max(now.Sub(s.renewed), now.Round(0).Sub(s.renewed.Round(0))) < w.terms.lease {
		return true
	}
	s.dropLocked(t)
	s.unsure = true
	wake.Up(w.kick)
	return false
}

// dropLocked forgets a task, unless it was given again since.
func (s *served) dropLocked(t Task) {
	if gone, held := s.held[t.ID]; held && gone == t.gone {
		delete(s.held, t.ID)
		close(gone)
	}
}

// dropAllLocked forgets all tasks.
func (s *served) dropAllLocked() {
	for _, gone := range s.held {
		close(gone)
	}
	clear(s.held)
}

// Later returns a task to the queue, for any Worker to receive after the given wait. Task.Deliveries does not count this delivery. If
// Later fails, the task goes back without a wait as soon as Redis responds.
func (w *Worker) Later(ctx context.Context, t Task, wait time.Duration) error {
	s := t.Job.served
	_, err := w.link.do(ctx, scriptBack, s.keys, func() []string {
		return []string{w.name, milliseconds(max(0, wait)), t.ID}
	})
	w.mu.Lock()
	s.dropLocked(t) // until now it was held, so that disown did not give it back without a wait
	if now := w.jobs[t.Job.Name]; err != nil && now != nil {
		now.unsure = true // it goes back without a wait as soon as Redis answers
	}
	w.mu.Unlock()
	if err != nil {
		wake.Up(w.kick)
	}
	return err
}

// Return returns a task to the queue without a wait, for example before the Worker stops. Task.Deliveries does not count this
// delivery.
func (w *Worker) Return(ctx context.Context, t Task) error { return w.Later(ctx, t, 0) }

// Close stops the Worker. Other Workers get its tasks after 6 s. To avoid this delay, return all tasks first. Close is idempotent.
func (w *Worker) Close() error {
	w.mu.Lock()
	first := w.err == nil
	if first {
		w.err = ErrClosed
		close(w.ended)
	}
	jobs := make([]*served, 0, len(w.jobs))
	for _, s := range w.jobs {
		jobs = append(jobs, s)
	}
	w.mu.Unlock()
	w.stop()
	w.run.Wait()
	if !first {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.terms.renewal)
	defer cancel()
	for _, s := range jobs { // else it is forgotten after a minute of silence
		if _, err := w.link.do(ctx, scriptLeave, s.keys, func() []string { return []string{w.name, w.channel, w.stopped} }); err != nil {
			return nil
		}
	}
	return nil
}

// refusedLocked is why Next gives nothing at all.
func (w *Worker) refusedLocked() error {
	if w.err != nil {
		return w.err
	}
	for _, name := range w.named {
		if s := w.jobs[name]; s != nil && s.refused != nil {
			return s.refused
		}
	}
	return nil
}

// hold gives signs of life: while it does, what this worker has stays its own.
func (w *Worker) hold(ctx context.Context) {
	tick := time.NewTicker(w.terms.renewal)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		wake.Up(w.search)
		for _, s := range w.serving() {
			var sent time.Time
			var held map[string]chan struct{}
			answer, err := w.link.do(ctx, scriptHold, s.keys, func() []string {
				w.mu.Lock()
				sent, held = time.Now(), maps.Clone(s.held)
				w.mu.Unlock()
				return slices.AppendSeq([]string{w.name, milliseconds(w.terms.lease), w.process()}, maps.Keys(held))
			})
			if err != nil {
				w.fail(ctx, err)
				return
			}
			switch answer[0].text {
			case "finished":
				w.retire(s)
			case "ok":
				w.mu.Lock()
				for _, id := range answer[1].list {
					s.dropLocked(Task{ID: id.text, gone: held[id.text]})
				}
				s.renewed = sent
				w.mu.Unlock()
			}
		}
	}
}

// discover finds the jobs to serve: on a word that there is a new one, and at every renewal.
func (w *Worker) discover(ctx context.Context) {
	for {
		names := w.named
		if len(names) == 0 {
			err := w.link.persist(ctx, func(ctx context.Context) error {
				got, err := w.link.client.do(ctx, "ZRANGE", registry, "0", "-1")
				names = got.texts()
				return err
			})
			if err != nil {
				w.fail(ctx, err)
				return
			}
		}
		for _, name := range names {
			w.mu.Lock()
			s := w.jobs[name]
			known := s != nil && s.refused == nil
			w.mu.Unlock()
			if !known {
				if err := w.serve(ctx, name); err != nil {
					w.fail(ctx, err)
					return
				}
			}
		}
		select {
		case <-w.search:
		case <-ctx.Done():
			return
		}
	}
}

// serve starts to serve a job if Redis has it, or continues with the settings of another collector.
func (w *Worker) serve(ctx context.Context, name string) error {
	keys := keysOf(name)
	var has []reply
	err := w.link.persist(ctx, func(ctx context.Context) error {
		got, err := w.link.client.do(ctx, "HMGET", keys[0], "v", "input", "settings", "owner", "finished")
		has = got.list
		return err
	})
	if isForeign(err) && !slices.Contains(w.named, name) { // else nothing would ever come
		return nil
	}
	if err != nil || has[0].none || !has[4].none {
		return err
	}
	s := &served{keys: keys, owner: has[3].text}
	s.job = &Job{Name: name, Input: has[1].text, Settings: []byte(has[2].text), served: s}
	if v := int(has[0].number()); v != Version {
		s.refused = &VersionError{Job: name, Has: v, Want: Version}
	}
	w.mu.Lock()
	old := w.jobs[name]
	w.jobs[name] = s
	if old != nil {
		s.turn, s.wakes = old.turn, old.wakes // a wake that comes while a question is on its way counts
	}
	if old != nil && old.job.Input == s.job.Input {
		s.held, s.results, s.unsure, s.renewed = old.held, old.results, old.unsure, old.renewed
	} else {
		s.held = map[string]chan struct{}{}
		s.results = newBatcher(completeBatch, func(c completion) int { return len(c.result) })
		w.run.Go(func() { s.results.run(ctx, func(ctx context.Context, batch []completion) { w.flush(ctx, s, batch) }) })
		if old != nil {
			old.dropAllLocked()
			old.results.close()
		}
	}
	named := slices.Contains(w.named, name)
	if s.refused != nil && named { // Next tells it to those who wait
		for _, place := range w.waiters {
			close(place)
		}
		w.waiters = nil
	}
	w.mu.Unlock()
	if s.refused != nil && !named && (old == nil || old.refused == nil) {
		w.link.log.Warn("this worker skips a job from an incompatible version of Sluice", "job", name, "version", s.refused.Has, "ours", Version)
	}
	wake.Up(w.kick)
	return nil
}

// retire ends the serving of a job that has ended.
func (w *Worker) retire(s *served) {
	w.mu.Lock()
	now := w.jobs[s.job.Name]
	if now == s {
		delete(w.jobs, s.job.Name)
		s.dropAllLocked()
	}
	w.mu.Unlock()
	if now == nil || now == s || now.results != s.results { // else it has begun again meanwhile
		s.results.close()
	}
}

// serving are the jobs served, the one first whose turn is the longest ago.
func (w *Worker) serving() []*served {
	w.mu.Lock()
	defer w.mu.Unlock()
	jobs := make([]*served, 0, len(w.jobs))
	for _, s := range w.jobs {
		if s.refused == nil {
			jobs = append(jobs, s)
		}
	}
	slices.SortFunc(jobs, func(a, b *served) int { return cmp.Or(a.turn-b.turn, strings.Compare(a.job.Name, b.job.Name)) })
	return jobs
}
