package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/sluice-llm/sluice/internal/wake"
)

// JobConfig configures a job. Only Name is required.
type JobConfig struct {
	// Name is the name of the job. Collect resumes an unfinished job with this name.
	Name string

	// Input identifies the job's input, for example by a hash of the input file's path and the settings. If Redis has tasks or
	// results of an unfinished job with the same Name but another Input, Collect returns ErrOtherInput. Late results for another
	// Input are dropped.
	Input string

	// Settings are opaque settings for all tasks, at most MaxPayload bytes. Redis stores Settings unencrypted. Include no secrets.
	Settings []byte

	// Window is the maximum number of tasks in Redis at once, from 1 to MaxWindow. 0 means DefaultWindow.
	Window int
}

// Collector submits the tasks of a job and receives their results. A job has at most one Collector at a time. Call Add for every
// item without a recorded result, even if an earlier Collector added the item. Range over Results in another goroutine. Call
// Recorded after results are stored, and Finish at the end. A Collector is safe for concurrent use.
type Collector struct {
	link  *link
	terms terms
	cfg   JobConfig
	keys  []string
	owner string // names this collector among all there have been
	adds  *batcher[addition]
	trims *batcher[entry]
	stop  context.CancelFunc
	run   sync.WaitGroup

	rebuilding sync.Mutex // held while tasks that Redis lost are added again

	mu       sync.Mutex
	token    int64             // fences off earlier collectors
	seq      int64             // of the newest write that the engine has confirmed
	era      int               // raised by every rebuild
	cursor   string            // the newest result that was read in this era
	open     map[int64][]byte  // tasks added whose outcome has not come
	bytes    int               // of their payloads
	parked   map[int64]result  // outcomes of tasks that were not added yet: an earlier collector did
	given    map[int64][]entry // where in the engine the results are that Results has, and that are not recorded
	recorded numbers
	recent   recent    // of these
	ready    []Outcome // for Results
	room     []chan struct{}
	err      error         // why it has ended
	news     chan struct{} // there is something for Results
	ended    chan struct{} // closed when err is set
}

// addition is a task on its way to the engine.
type addition struct {
	number  int64
	payload []byte
	anyway  bool // although the engine says that it has a result: it has not
}

// entry is a result's place in the engine.
type entry struct {
	id    string
	bytes int
}

type result struct {
	entry
	Outcome
}

// Collect starts or resumes a job, and returns its Collector. Collect waits up to 6 s for a dead Collector's lease to expire. If
// another Collector is alive, Collect returns a *HeldError. Other errors are ErrOtherInput, *VersionError and *Error.
func (c *Cluster) Collect(ctx context.Context, cfg JobConfig) (*Collector, error) {
	cfg.Window = cmp.Or(cfg.Window, DefaultWindow)
	switch {
	case cfg.Name == "":
		return nil, errors.New("the job has no name")
	case cfg.Window < 1 || cfg.Window > MaxWindow:
		return nil, fmt.Errorf("the window of %d tasks is not between 1 and %d", cfg.Window, MaxWindow)
	case len(cfg.Settings) > MaxPayload:
		return nil, fmt.Errorf("the job's settings have %d bytes: the maximum is %d", len(cfg.Settings), MaxPayload)
	}
	k := &Collector{
		link: c.newLink(), terms: c.terms.orUsual(), cfg: cfg,
		keys: keysOf(cfg.Name), owner: rand.Text(),
		adds:  newBatcher(addBatch, func(a addition) int { return len(a.payload) }),
		trims: newBatcher(addBatch, func(entry) int { return 0 }),
		open:  map[int64][]byte{}, parked: map[int64]result{}, given: map[int64][]entry{}, cursor: "0",
		news: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	if err := c.mayQueue(ctx); err != nil {
		return nil, err
	}
	if err := k.succeed(ctx); err != nil {
		return nil, err
	}
	if err := k.catchUp(ctx); err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	k.stop = stop
	k.run.Go(func() { k.adds.run(life, k.flushAdds) })
	k.run.Go(func() { k.trims.run(life, k.flushTrims) })
	k.run.Go(func() { k.read(life) })
	k.run.Go(func() { k.beat(life) })
	return k, nil
}

// Add submits a task. Add blocks while JobConfig.Window is full, but does not wait for Redis. If Redis loses the task, the Collector
// sends it again. The caller must not change the payload. For a payload above MaxPayload, Add returns a *TooLargeError. If an earlier
// Collector added the number, the old task stays, and Results yields an existing outcome at once. If Results has yielded an
// unrecorded outcome for the number, a worker processes the task again. Add ignores other repeated numbers.
func (k *Collector) Add(ctx context.Context, t Task) error {
	if len(t.Payload) > MaxPayload {
		return &TooLargeError{Number: t.Number, Bytes: len(t.Payload)}
	}
	if t.Number < 0 || t.Number >= 1<<32 {
		return fmt.Errorf("the item number %d is not between 0 and %d", t.Number, int64(1<<32-1))
	}
	for {
		room, err := k.accept(t)
		if room == nil {
			return err
		}
		select {
		case <-room:
		case <-k.ended:
		case <-ctx.Done():
			k.pass(room)
			return context.Cause(ctx)
		}
	}
}

// Results yields the outcome of every added task in order of completion. Results waits for further outcomes until an error. The last
// value is the error: the cause of ctx, ErrClosed after Close or Finish, or ErrFenced after a takeover by another Collector. Only one
// goroutine at a time may range over Results.
func (k *Collector) Results(ctx context.Context) iter.Seq2[Outcome, error] {
	return func(yield func(Outcome, error) bool) {
		for {
			k.mu.Lock()
			ready, err := k.ready, k.err
			k.ready = nil
			k.mu.Unlock()
			for i, o := range ready {
				if !yield(o, nil) {
					k.mu.Lock()
					k.ready = append(ready[i+1:], k.ready...)
					k.mu.Unlock()
					return
				}
			}
			if len(ready) > 0 {
				continue
			}
			if err != nil {
				yield(Outcome{}, err)
				return
			}
			select {
			case <-k.news:
			case <-k.ended:
			case <-ctx.Done():
				yield(Outcome{}, context.Cause(ctx))
				return
			}
		}
	}
}

// Recorded removes results from Redis. Call Recorded after the results are stored safely. Recorded also accepts numbers of results
// that an earlier Collector has returned. Recorded does not block.
func (k *Collector) Recorded(numbers ...int64) {
	var gone []entry
	k.mu.Lock()
	for _, n := range numbers {
		gone = append(gone, k.given[n]...)
		delete(k.given, n)
		if r, ok := k.parked[n]; ok {
			gone = append(gone, r.entry)
			delete(k.parked, n)
		}
		k.recorded.add(n)
		k.recent.add(n, recentWindows*k.cfg.Window)
	}
	k.mu.Unlock()
	if len(gone) > 0 {
		k.trims.put(gone...)
	}
}

// Finish stops the Collector, and removes the job from Redis with all unrecorded results. If Finish fails because ctx ended, call
// Finish again.
func (k *Collector) Finish(ctx context.Context) error {
	k.end(ErrClosed)
	k.stop()
	k.run.Wait() // else one of them would take the job that is gone for one that the engine has lost
	for {
		answer, err := k.ask(ctx, scriptFinish)
		if err != nil {
			return err
		}
		if answer != nil {
			break
		}
	}
	return k.link.persist(ctx, func(ctx context.Context) error {
		_, err := k.link.client.do(ctx, "ZREM", registry, k.cfg.Name)
		return err
	})
}

// Close stops the Collector and keeps the job, so that another Collector can resume it at once. Close removes recorded results if
// Redis responds within a few seconds. Close may be called twice or after Finish.
func (k *Collector) Close() error {
	k.mu.Lock()
	ended := k.err != nil
	k.mu.Unlock()
	if !ended {
		ctx, cancel := context.WithTimeout(context.Background(), k.terms.renewal)
		defer cancel()
		if k.trims.wait(ctx) == nil {
			_, _ = k.link.do(ctx, scriptRelease, k.keys, k.credentials()) // else the lease ends by itself
		}
	}
	k.end(ErrClosed)
	k.stop()
	k.run.Wait()
	return nil
}

// queued returns the number of tasks that were added and have no outcome.
func (k *Collector) queued() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.open)
}

// accept takes a task in, or says where to wait for room.
func (k *Collector) accept(t Task) (room chan struct{}, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return nil, k.err
	}
	_, again := k.given[t.Number]
	if _, open := k.open[t.Number]; open || k.recorded.has(t.Number) {
		return nil, nil
	}
	if r, ok := k.parked[t.Number]; ok {
		delete(k.parked, t.Number)
		k.giveLocked(r)
		return nil, nil
	}
	if len(k.open) > 0 && (len(k.open) >= k.cfg.Window || k.bytes+len(t.Payload) > MaxBytes) {
		room = make(chan struct{})
		k.room = append(k.room, room)
		return room, nil
	}
	k.open[t.Number] = t.Payload
	k.bytes += len(t.Payload)
	k.adds.put(addition{number: t.Number, payload: t.Payload, anyway: again})
	return nil, nil
}

// pass gives a place to the next if it was given to one who has left.
func (k *Collector) pass(room chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := slices.Index(k.room, room); i >= 0 {
		k.room = slices.Delete(k.room, i, i+1)
		return
	}
	k.makeRoomLocked()
}

func (k *Collector) makeRoomLocked() {
	if len(k.room) > 0 {
		close(k.room[0])
		k.room = k.room[1:]
	}
}

// giveLocked has Results give an outcome.
func (k *Collector) giveLocked(r result) {
	k.given[r.Number] = append(k.given[r.Number], r.entry)
	k.ready = append(k.ready, r.Outcome)
	wake.Up(k.news)
}

// intake sorts results that were read. One may be read again, when the engine was rebuilt or when a number was in doubt.
func (k *Collector) intake(results []result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range results {
		at, given := k.given[r.Number]
		if slices.ContainsFunc(at, func(e entry) bool { return e.id == r.id }) {
			continue
		}
		if payload, ok := k.open[r.Number]; ok {
			delete(k.open, r.Number)
			k.bytes -= len(payload)
			k.giveLocked(r)
			k.makeRoomLocked()
			continue
		}
		if given {
			k.given[r.Number] = append(at, r.entry)
			continue
		}
		if k.recorded.has(r.Number) {
			k.trims.put(r.entry)
			continue
		}
		k.parked[r.Number] = r
	}
}

// end makes everything that waits at the collector return with an error. The first counts.
func (k *Collector) end(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		k.err = err
		close(k.ended)
	}
}

// credentials are the first arguments of every script that only the job's collector may run.
func (k *Collector) credentials(more ...string) func() []string {
	return func() []string {
		k.mu.Lock()
		defer k.mu.Unlock()
		return append([]string{itoa(k.token), k.owner, itoa(k.seq)}, more...)
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}
