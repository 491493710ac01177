package parts

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/sluice-llm/sluice/internal/batchapi"
)

// split makes two parts of one that is too large.
func (d *Desk) split(p *Part) error {
	half := (p.e.Requests + 1) / 2
	return d.replace(p, func(place int, _ *member) int { return place / half })
}

// sift makes a part that is answered of the requests that the provider refuses, and one to be submitted of the others.
func (d *Desk) sift(p *Part, why *batchapi.Problem) error {
	return d.replace(p, func(place int, m *member) int {
		message, bad := why.Lines[place]
		if !bad {
			return 0
		}
		if m.Bad = message; m.Bad == "" {
			m.Bad = why.Message
		}
		return 1
	})
}

// replace puts a part's members into other parts: which says into which of two. That is saved at once: a process that finds
// it half done finds the old part alone.
func (d *Desk) replace(p *Part, which func(place int, m *member) int) error {
	if d.calledOff() {
		return d.drop(p)
	}
	parts, err := d.divide(p, which)
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	d.mu.Lock()
	old := p.e
	p.dropLocked()
	at := slices.Index(d.parts, p)
	d.parts = slices.Insert(d.parts, at+1, parts...)
	d.parts = forget(d.parts)
	d.mu.Unlock()
	if err := d.save(); err != nil {
		return err
	}
	d.dir.remove(&old)
	d.mu.Lock()
	for _, q := range parts {
		d.carryLocked(q)
	}
	d.ringLocked()
	d.mu.Unlock()
	d.announce()
	return nil
}

// divide writes the files of the parts.
func (d *Desk) divide(p *Part, which func(place int, m *member) int) ([]*Part, error) {
	b, err := d.dir.bundle(p, func(error) {})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	var halves [2]*filling
	fail := func(err error) ([]*Part, error) {
		for _, f := range halves {
			if f != nil {
				f.w.drop(d.dir)
			}
		}
		return nil, err
	}
	for {
		m, r, err := b.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fail(err)
		}
		n := which(b.lines.count-1, m)
		if halves[n] == nil {
			q := d.newPart(p.a, d.newTag(), p.e.Model, p.endpoint)
			w, err := d.dir.create(q.e.Tag, p.a.api.Frame())
			if err != nil {
				return fail(err)
			}
			if m.Bad != "" {
				q.e.State, q.e.Marked = Fetched, true
			}
			halves[n] = &filling{p: q, w: w}
		}
		f := halves[n]
		if err := f.w.add(m, r.Body, f.sizeOf(p.a.api, m.ID, r)); err != nil {
			return fail(err)
		}
	}
	var parts []*Part
	for _, f := range halves {
		if f == nil {
			continue
		}
		if err := f.w.finish(d.dir); err != nil {
			return fail(err)
		}
		f.p.filled(f.w)
		parts = append(parts, f.p)
	}
	return parts, nil
}
