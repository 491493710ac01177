package find

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/limits"
)

const (
	hopeless  = 16 // requests in a row that fail: to continue is of no use
	lastCalls = 8  // of which half are rejected when a limit is reached, and fewer by chance
)

// loop sends requests of one shape whenever it is asked to, without waiting for earlier ones. One goroutine uses it.
type loop struct {
	p     *prober
	sh    *shape
	room  int // requests that may be open
	most  int // that room may grow to
	wg    sync.WaitGroup
	calls []*call
	shots []shot // of the first calls, as far as their end is known

	mu      sync.Mutex
	open    int
	lost    int   // calls in a row, until now, that failed,
	failure error // the last one with this error,
	full    int   // and that found no capacity
	stuck   bool  // full was hopeless once
	err     error // the search is over
}

// call is one request of a loop. Its reply is set when it is over.
type call struct {
	sent time.Time
	over bool
	reply
}

// send sends a request, unless room is used up.
func (l *loop) send(ctx context.Context) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.room {
		return false
	}
	c := &call{sent: time.Now()}
	l.calls = append(l.calls, c)
	l.open++
	l.wg.Go(func() {
		r, err := l.p.probe(ctx, l.sh)
		l.mu.Lock()
		defer l.mu.Unlock()
		c.reply, c.over = r, true
		l.open--
		switch {
		case err != nil:
			l.err = cmp.Or(l.err, err)
		case r.accepted() || r.refused():
			l.lost, l.full = 0, 0
		case r.outcome.Kind == sluice.Overloaded:
			l.full++
			l.stuck = l.stuck || l.full >= hopeless
		default:
			l.lost, l.failure = l.lost+1, r.outcome.Err
		}
	})
	return true
}

// pending returns the number of open requests.
func (l *loop) pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// check fails when more requests are of no use. crowded reports that the server has no capacity.
func (l *loop) check() (crowded bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && l.lost >= hopeless {
		return l.stuck, fmt.Errorf("%w: %d in a row: %w", ErrUnreliable, l.lost, l.failure)
	}
	return l.stuck, l.err
}

// known returns the calls whose end is known, up to the first one that is not. One that is open for longer than sure was
// accepted. The slice only grows.
func (l *loop) known(sure time.Duration) []shot {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls[len(l.shots):] {
		switch {
		case c.over:
			l.shots = append(l.shots, shot{c.sent, c.accepted(), !c.accepted() && !c.refused()})
		case time.Since(c.sent) < sure:
			return l.shots
		default:
			l.shots = append(l.shots, shot{at: c.sent, granted: true})
		}
	}
	return l.shots
}

// refused returns the number of rejected calls from one index to another.
func (l *loop) refused(from, to int) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls[from:to] {
		if c.over && c.reply.refused() {
			n++
		}
	}
	return n
}

// refusing reports whether so many of the last calls were rejected that it is not by chance.
func (l *loop) refusing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen, refused := 0, 0
	for i := len(l.calls) - 1; i >= 0 && seen < lastCalls; i-- {
		if c := l.calls[i]; c.over {
			seen++
			if c.reply.refused() {
				refused++
			}
		}
	}
	return 2*refused >= lastCalls
}

// stated returns the limit per minute that a rejection names; AnyDimension: none does.
func (l *loop) stated() limits.Dimension {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		if d := c.outcome.Dimension; c.over && c.reply.refused() && slices.Contains(rates[:], d) {
			return d
		}
	}
	return limits.AnyDimension
}

// wait returns the replies to all calls once they are over.
func (l *loop) wait() ([]reply, error) {
	l.wg.Wait()
	replies := make([]reply, len(l.calls))
	for i, c := range l.calls {
		replies[i] = c.reply
	}
	return replies, l.err
}

// crew is workers that send requests one after the other.
type crew struct {
	workers, calls int
	stagger        time.Duration // between the first requests of two workers
	rests          bool          // a worker waits after a rejection, for as long as that asks
}

// finished is the end of a worker's request; err: the search is over.
type finished struct {
	reply
	err error
}

// work sends requests of a shape by a crew. The channel is closed when all are over, or the search is.
func (p *prober) work(ctx context.Context, s *shape, c crew) <-chan finished {
	done := make(chan finished, c.calls) // has room for all: workers never wait for the receiver
	todo := make(chan struct{}, c.calls)
	for range c.calls {
		todo <- struct{}{}
	}
	close(todo)
	var wg sync.WaitGroup
	for i := range c.workers {
		wg.Go(func() {
			err := wake.In(ctx, time.Duration(i)*c.stagger, nil)
			for range todo {
				if err != nil {
					return
				}
				var r reply
				r, err = p.call(ctx, s)
				done <- finished{r, err}
				if c.rests && r.refused() && err == nil {
					err = wake.In(ctx, min(max(r.outcome.Wait, time.Second), longestRest), nil)
				}
			}
		})
	}
	go func() {
		wg.Wait()
		close(done)
	}()
	return done
}

// failing returns the error of requests of which too many failed, each of them several times.
func failing(replies []reply) error {
	return tooMany(replies, "%w: %d of %d requests failed: %w", func(r *reply) bool {
		return !r.accepted() && !r.refused() && r.outcome.Kind != sluice.Overloaded
	})
}

// crowding returns the error of requests of which too many found no capacity, so that the others prove nothing.
func crowding(replies []reply) error {
	return tooMany(replies, "%w: the server had no capacity for %d of %d requests: %w", func(r *reply) bool {
		return r.outcome.Kind == sluice.Overloaded
	})
}

// tooMany returns an error if three requests, and a quarter of all, are of a kind.
func tooMany(replies []reply, format string, kind func(*reply) bool) error {
	n := 0
	var last error
	for i := range replies {
		if kind(&replies[i]) {
			n, last = n+1, replies[i].outcome.Err
		}
	}
	if n < 3 || 4*n < len(replies) || last == nil {
		return nil
	}
	return fmt.Errorf(format, ErrUnreliable, n, len(replies), last)
}
