package find

import (
	"context"
	"time"

	"github.com/sluice-llm/sluice"
)

// call is once with retries.
func (p *prober) call(ctx context.Context, s *shape) (reply, error) {
	for try := 1; ; try++ {
		r, err := p.once(ctx, s)
		if err != nil || try == 3 || !(r.outcome.Kind.Transient() || r.outcome.Kind == sluice.Overloaded) {
			return r, err
		}
		if err := sleep(ctx, time.Duration(try)*time.Second); err != nil {
			return r, err
		}
	}
}
