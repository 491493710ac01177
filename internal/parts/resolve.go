package parts

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/wake"
)

// resolve finds out whether there is a batch of a part that may have been submitted. That there is none it believes after
// Terms.Grace of asking: a list may be behind, and what was sent may still be on its way.
func (d *Desk) resolve(ctx context.Context, p *Part) error {
	until := time.Now().Add(d.cfg.Terms.Grace)
	wait := wake.Backoff{Min: time.Second, Max: d.cfg.Terms.Poll}
	part := d.dir.describe(p, func(error) {})
	for ctx.Err() == nil {
		asked := time.Now()
		var found []batchapi.Batch
		err := p.a.call(ctx, "find "+p.e.Tag, func(ctx context.Context) (err error) {
			found, err = p.a.api.Find(ctx, part, p.e.BegunAt)
			return err
		})
		switch {
		case err != nil && !passes(err):
			return err
		case err != nil:
			until = later(until, time.Now())
			if err := d.troubled(p, "Sluice cannot determine whether the provider created a batch", err); err != nil {
				return err
			}
		default:
			taken, others, err := d.choose(p, found)
			if taken || err != nil {
				return err
			}
			if !others && !asked.Before(until) {
				return d.update(p, func(e *entry) { e.TriedAt = time.Time{} })
			}
		}
		t := wait.Next()
		if left := time.Until(until); left > 0 {
			t = min(t, left)
		}
		_ = wake.In(ctx, t, nil)
	}
	return nil
}

func later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// choose takes the batch that is, or may be, a part's, before another part can. Where none is left but what another part of ours
// holds by a guess, it says so: that part may give it up.
func (d *Desk) choose(p *Part, found []batchapi.Batch) (taken, others bool, err error) {
	err = d.update(p, func(*entry) {
		b, held := d.candidateLocked(p, found)
		if taken, others = b != nil, held; taken {
			p.adoptLocked(b, b.Tag == "")
		}
	})
	return taken, others, err
}

// candidateLocked returns the likeliest batch that no other part has, or whether others hold some by a guess.
func (d *Desk) candidateLocked(p *Part, found []batchapi.Batch) (b *batchapi.Batch, others bool) {
	owner := map[string]*Part{}
	for _, q := range d.parts {
		if q != p && q.e.Batch != "" {
			owner[q.e.Batch] = q
		}
	}
	near := func(b *batchapi.Batch) time.Duration { return b.Created.Sub(p.e.TriedAt).Abs() }
	for i := range found {
		c := &found[i]
		if c.ID == "" || slices.Contains(p.e.Not, c.ID) || c.Tag != "" && c.Tag != p.e.Tag {
			continue
		}
		if q := owner[c.ID]; q != nil {
			others = others || q.e.Guess && c.Tag == ""
			continue
		}
		if b == nil || b.Tag == "" && c.Tag != "" || b.Tag == c.Tag && near(c) < near(b) {
			b = c
		}
	}
	return b, others && b == nil
}
