package find

import (
	"cmp"
	"context"
	"time"

	"github.com/sluice-llm/sluice"
)

const (
	tries       = 3           // of one call, all in all
	firstPause  = time.Second // before the second try; it doubles
	longestWait = time.Minute // that a search makes because a provider asks for it
)

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
