package parts

import (
	"time"

	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/provider"
)

const (
	firstWarning = time.Minute // after a part got on last
	mostWarning  = time.Hour   // between two warnings
)

// trouble is what keeps a part from getting on, though it may pass. The zero value is none.
type trouble struct {
	warnAt time.Time     // when it is next said
	every  time.Duration // and when after that
}

// due reports whether it is to be said now: after a minute, and then after twice as long each time.
func (t *trouble) due(now time.Time) bool {
	if t.every == 0 {
		t.every, t.warnAt = firstWarning, now.Add(firstWarning)
	}
	if now.Before(t.warnAt) {
		return false
	}
	t.every = min(2*t.every, mostWarning)
	t.warnAt = now.Add(t.every)
	return true
}

// troubled notes why a part does not get on, for Status and for whoever reads what is saved, and warns of it from time to time.
// What is tried goes on.
func (d *Desk) troubled(p *Part, what string, err error) error {
	log := d.cfg.Logger.Info
	if p.trouble.due(time.Now()) {
		log = d.cfg.Logger.Warn
	}
	log(what, "part", p.e.Tag, "batch", p.e.Batch, "err", err)
	return d.update(p, func(e *entry) {
		e.Problem = &batchapi.Problem{Kind: batchapi.Broken, Message: provider.Redact(err.Error())}
	})
}
