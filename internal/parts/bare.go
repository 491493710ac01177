package parts

import "context"

// strip takes in that a part's files are gone. Nothing that comes of its batch can be told whose it is, so the part is lost until
// they are put back. Where no batch can have been made, or none ran, only the work of making its requests is.
func (p *Part) strip() {
	e := &p.e
	p.bare = true
	switch {
	case e.State == Refused, e.Marked, e.Batch == "" && e.TriedAt.IsZero():
		e.State, e.Batch = Waiting, ""
		return
	case e.Batch != "":
		e.State = Lost
	}
	p.stuck = !p.d.cfg.Resubmit
}

// Bare reports whether there are parts that may be run, and of which nobody knows the members: any request that is in no other
// part may be in one of them.
func (d *Desk) Bare() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.parts {
		if p.bare && p.stuck {
			return true
		}
	}
	return false
}

// forsake ends a part whose files are gone. Its batch is cancelled, since nobody can use what comes of it, unless it may be
// another's.
func (d *Desk) forsake(ctx context.Context, p *Part) error {
	d.cfg.Logger.Warn("Sluice drops a batch part, because its files are missing", "part", p.e.Tag, "batch", p.e.Batch, "requests", p.e.Requests)
	if p.e.Batch != "" && !p.e.Guess {
		err := p.a.call(ctx, "cancel "+p.e.Batch, func(ctx context.Context) error {
			return p.a.api.Cancel(ctx, p.e.Batch)
		})
		if o, ok := kindOf(err); ok && o.Kind.Fatal() || ctx.Err() != nil {
			return err
		}
		if err != nil { // it may have ended
			d.cfg.Logger.Info("a batch cannot be cancelled", "batch", p.e.Batch, "err", err)
		}
	}
	return d.drop(p)
}
