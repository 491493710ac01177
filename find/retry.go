package find

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice"
)

const (
	tries       = 3           // of one call, all in all
	firstPause  = time.Second // before the second try; it doubles
	longestWait = time.Minute // that a search makes because a provider asks for it
)

// probe makes one call like once, but tries it again when it was the network or the server that failed: those say nothing of
// limits.
func (p *prober) probe(ctx context.Context, s *shape) (reply, error) {
	for try := 1; ; try++ {
		r, err := p.once(ctx, s)
		if err != nil || try == tries || !r.outcome.Kind.Transient() {
			return r, err
		}
		if err := sleep(ctx, firstPause<<(try-1)); err != nil {
			return r, err
		}
	}
}

// failing is the error of calls of which too many failed, each of them several times.
func failing(replies []reply) error {
	var last error
	failed := 0
	for i := range replies {
		if r := &replies[i]; !r.accepted() && !r.refused() && r.outcome.Kind != sluice.Overloaded {
			failed++
			last = r.outcome.Err
		}
	}
	if failed < 3 || 4*failed < len(replies) || last == nil {
		return nil
	}
	return fmt.Errorf("%w: %d of %d calls failed: %w", ErrUnreliable, failed, len(replies), last)
}

// call makes one call like once, but tries it again where that may help: when the network or the server failed, and when
// the provider had no capacity. Of such tries only the last counts. A refusal is what a search wants to know: it is never
// tried again.
func (p *prober) call(ctx context.Context, s *shape) (reply, error) {
	for try := 1; ; try++ {
		r, err := p.once(ctx, s)
		if err != nil || try == tries {
			return r, err
		}
		wait, again := r.retry(try)
		if !again {
			return r, nil
		}
		if err := sleep(ctx, wait); err != nil {
			return r, err
		}
	}
}

// retry says whether a call may succeed if it is tried again, and after which wait, when it was tried so many times.
func (r *reply) retry(try int) (time.Duration, bool) {
	o := &r.outcome
	if !o.Kind.Transient() && o.Kind != sluice.Overloaded {
		return 0, false
	}
	// To come back earlier than asked is of no use, and to come back much later keeps the whole search waiting.
	wait := cmp.Or(o.Wait, firstPause<<(try-1))
	return wait, wait <= longestWait
}

// recovery waits until a server that has no capacity, for whatever reason, answers again.
func (s *search) recovery(ctx context.Context) error {
	s.log("the server has no capacity: waits until it has")
	began := time.Now()
	for pause := firstPause; ; pause *= 2 {
		r, err := s.p.once(ctx, &s.tiny)
		switch {
		case err != nil:
			return err
		case r.accepted() || r.refused():
			return nil
		case time.Since(began)+pause > longestWait:
			return fmt.Errorf("%w: %w", ErrNoAnswer, r.outcome.Err)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// crowding is the error of calls of which so many found no capacity that the others prove nothing.
func crowding(replies []reply) error {
	full := 0
	var last error
	for i := range replies {
		if o := &replies[i].outcome; o.Kind == sluice.Overloaded {
			full++
			last = o.Err
		}
	}
	if full < 3 || 4*full < len(replies) {
		return nil
	}
	return fmt.Errorf("%w: the server had no capacity for %d of %d calls: %w", ErrUnreliable, full, len(replies), last)
}
