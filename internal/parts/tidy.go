package parts

import (
	"context"
	"errors"

	"github.com/sluice-llm/sluice/internal/batchapi"
)

// tidy deletes what a part that is over left at its provider, if that is wanted. Close waits for it. A process that is killed
// before leaves files there, and loses nothing.
func (d *Desk) tidy(p *Part, e *entry) {
	if !d.cfg.Remove || e.Guess || e.Batch == "" && e.File == "" {
		return
	}
	b := batchapi.Batch{ID: e.Batch, File: e.File}
	d.mu.Lock()
	known := e.Batch == "" // there are no results
	if p.seen != nil && p.seen.ID == e.Batch && p.seen.State.Ended() {
		b.Results, known = p.seen.Results, true
	}
	d.mu.Unlock()
	d.removing.Go(func() { d.remove(p.a, e.Tag, b, known) })
}

// remove deletes files of requests and results. known is whether those of results are.
func (d *Desk) remove(a *account, tag string, b batchapi.Batch, known bool) {
	ctx, cancel := context.WithTimeout(context.Background(), tidyTime) // the run may be at its end
	defer cancel()
	err := a.call(ctx, "remove "+tag, func(ctx context.Context) error {
		if !known {
			seen, err := a.api.Get(ctx, b.ID)
			if err != nil && !errors.Is(err, batchapi.ErrUnknown) {
				return err
			}
			b.Results, known = seen.Results, true
			if b.File == "" {
				b.File = seen.File
			}
		}
		return a.api.Remove(ctx, &b)
	})
	if err == nil {
		return
	}
	var files []string
	for _, file := range append([]string{b.File}, b.Results...) {
		if file != "" {
			files = append(files, file)
		}
	}
	d.cfg.Logger.Warn("files of a batch may be left at the provider", "provider", a.name, "batch", b.ID, "files", files, "err", err)
}
