package worlds

import (
	"net/http"
	"strconv"
	"time"
)

// retryAfter returns the wait that a response's header asks for, or 0.
func retryAfter(r *Response) time.Duration {
	if ms, err := strconv.Atoi(r.Header.Get("Retry-After-Ms")); err == nil {
		return time.Duration(ms) * time.Millisecond
	}
	value := r.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	date, err := http.ParseTime(r.Header.Get("Date"))
	if err != nil {
		return 0
	}
	return max(0, at.Sub(date))
}

// Loop is a retry loop as users write it: a number of workers, each of which takes an item, sends it, and sleeps before
// the next attempt.
type Loop struct {
	Workers    int
	Attempts   int           // for each item
	Base, Max  time.Duration // of the sleep before attempt n: Base × 2ⁿ, at most Max
	Jitter     float64       // share of the sleep that is random
	RetryAfter time.Duration // obeyed up to this; 0: not read
	Adapt      bool          // the number of workers grows by one in each round of successes and halves with a 429
}

// Loops returns the retry loops that are measured beside a client.
func Loops() map[string]Loop {
	return map[string]Loop{
		"sdk10":    {Workers: 10, Attempts: 3, Base: 500 * time.Millisecond, Max: 8 * time.Second, Jitter: 0.25, RetryAfter: time.Minute},
		"sdk50":    {Workers: 50, Attempts: 3, Base: 500 * time.Millisecond, Max: 8 * time.Second, Jitter: 0.25, RetryAfter: time.Minute},
		"tenacity": {Workers: 50, Attempts: 6, Base: time.Second, Max: time.Minute, Jitter: 1},
		"aimd":     {Workers: 8, Attempts: 20, Base: 500 * time.Millisecond, Max: 20 * time.Second, Jitter: 0.5, RetryAfter: time.Minute, Adapt: true},
	}
}

// Maker makes the loop's instances.
func (l Loop) Maker(w *World) func(instance int, end End) Client {
	return func(instance int, end End) Client {
		return &looping{Loop: l, seed: w.Seed + uint64(instance), end: end, width: float64(l.Workers), tries: map[*Item]int{}}
	}
}

// looping is one instance of a retry loop.
type looping struct {
	Loop
	seed     uint64
	end      End
	width    float64 // workers
	queue    []*Item
	sleeping []asleep
	flying   int
	tries    map[*Item]int
	draws    int
	cut      time.Time // when the width was halved
}

type asleep struct {
	item  *Item
	until time.Time
}

func (l *looping) Add(_ time.Time, item *Item) { l.queue = append(l.queue, item) }

func (l *looping) Next(now time.Time) (send []*Attempt, wake time.Time) {
	still := l.sleeping[:0]
	for _, s := range l.sleeping {
		if s.until.After(now) {
			still = append(still, s)
			if wake.IsZero() || s.until.Before(wake) {
				wake = s.until
			}
			continue
		}
		l.flying++
		send = append(send, &Attempt{Item: s.item})
	}
	l.sleeping = still
	for len(l.queue) > 0 && l.flying+len(l.sleeping) < int(l.width) {
		l.flying++
		send = append(send, &Attempt{Item: l.queue[0]})
		l.queue = l.queue[1:]
	}
	return send, wake
}

func (l *looping) Head(time.Time, *Attempt, *Response) {}

func (l *looping) Done(now time.Time, a *Attempt, r *Response) {
	l.flying--
	if r.Status == 200 {
		if l.Adapt {
			l.width += 1 / l.width
		}
		l.end(a.Item, true)
		return
	}
	if l.Adapt && r.Status == 429 && a.Sent.After(l.cut) {
		l.width, l.cut = max(1, l.width/2), now
	}
	l.tries[a.Item]++
	if l.tries[a.Item] >= l.Attempts || r.Status == 400 {
		l.end(a.Item, false)
		return
	}
	l.draws++
	sleep := min(l.Max, l.Base<<min(l.tries[a.Item]-1, 10))
	sleep = time.Duration(float64(sleep) * (1 - l.Jitter*draw(l.seed, streamLoop, l.draws)))
	if wait := retryAfter(r); wait > 0 && wait <= l.RetryAfter {
		sleep = wait
	}
	l.sleeping = append(l.sleeping, asleep{a.Item, now.Add(sleep)})
}
