package parts

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/provider"
)

// fillKey is what the requests of a part have in common.
type fillKey struct {
	account  string
	endpoint provider.Endpoint
	model    string // "" where a batch may have several
}

// filling is a part that is being filled.
type filling struct {
	p       *Part
	w       *writer
	scratch []byte
}

// Add puts a request into the part that is being filled for its account, endpoint and model, which it returns, and submits what is
// full. It does not wait: Full says when no more is needed for now. It fails with a *TooLargeError for a request above the bounds
// of a part. Where a provider refuses a part, its members go to other parts: Result.Member says for certain whose a result is.
func (d *Desk) Add(account string, m Member, r *batchapi.Request) (*Part, error) {
	a := d.accounts[account]
	if a == nil {
		return nil, fmt.Errorf("%q has no Batch API that Sluice supports", account)
	}
	b := a.api.Bounds()
	if len(b.Endpoints) > 0 && !slices.Contains(b.Endpoints, r.Endpoint) {
		return nil, fmt.Errorf("the Batch API of %s does not support %v", account, r.Endpoint)
	}
	key := fillKey{account: account, endpoint: r.Endpoint}
	if b.OneModel {
		key.model = r.Model
	}
	line := &member{ID: m.ID, Hash: m.Hash.String(), Tokens: max(0, m.Tokens)}
	if !b.OneModel {
		line.Model = r.Model
	}
	for {
		f, err := d.fillingFor(key, a)
		if err != nil {
			return nil, err
		}
		size := f.sizeOf(a.api, m.ID, r)
		if alone, most := f.w.alone(size), a.api.Bounds().Bytes; most > 0 && alone > most {
			return nil, errors.Join(d.dropEmpty(key, f), &TooLargeError{Size: alone, Most: most})
		}
		if f.w.count > 0 && f.over(d, size, line.Tokens) {
			if err := d.submit(key, f); err != nil {
				return nil, err
			}
			continue
		}
		if err := f.w.add(line, r.Body, size); err != nil {
			d.fail(err)
			return nil, err
		}
		if most := a.api.Bounds().Requests; most > 0 && f.w.count >= most {
			return f.p, d.submit(key, f)
		}
		return f.p, nil
	}
}

// dropEmpty takes away a part that nothing was put into.
func (d *Desk) dropEmpty(key fillKey, f *filling) error {
	if f.w.count > 0 {
		return nil
	}
	d.mu.Lock()
	delete(d.filling, key)
	d.mu.Unlock()
	f.w.drop(d.dir)
	return d.failed()
}

// fillingFor returns the part that is being filled.
func (d *Desk) fillingFor(key fillKey, a *account) (*filling, error) {
	if f := d.filling[key]; f != nil {
		return f, nil
	}
	tag := d.newTag()
	w, err := d.dir.create(tag, a.api.Frame())
	if err != nil {
		d.fail(err)
		return nil, err
	}
	f := &filling{p: d.newPart(a, tag, key.model, key.endpoint), w: w}
	d.mu.Lock()
	d.filling[key] = f
	d.mu.Unlock()
	return f, nil
}

func (d *Desk) newPart(a *account, tag, model string, e provider.Endpoint) *Part {
	return &Part{d: d, a: a, endpoint: e, e: entry{Status: Status{
		Account: a.name, Tag: tag, Model: model, Endpoint: e.String(), State: Waiting,
	}}}
}

// sizeOf is how many bytes a request would take as the next of the part.
func (f *filling) sizeOf(api batchapi.API, id string, r *batchapi.Request) int {
	f.scratch = api.AppendRequest(f.scratch[:0], api.RequestID(f.p.e.Tag, id, f.w.count), r)
	return len(f.scratch)
}

// over reports whether a request more would be too much.
func (f *filling) over(d *Desk, size, tokens int) bool {
	a := f.p.a
	most := a.api.Bounds().Bytes
	room := d.roomOf(a)
	return most > 0 && f.w.size+int64(len(f.w.frame.Between)+size) > most || room > 0 && f.w.tokens+tokens > room
}

// Flush submits what is being filled.
func (d *Desk) Flush() error {
	keys := slices.SortedFunc(maps.Keys(d.filling), func(x, y fillKey) int {
		return strings.Compare(x.account+x.model+x.endpoint.String(), y.account+y.model+y.endpoint.String())
	})
	for _, k := range keys {
		if err := d.submit(k, d.filling[k]); err != nil {
			return err
		}
	}
	return nil
}

// submit hands a filled part to whoever carries it.
func (d *Desk) submit(key fillKey, f *filling) error {
	err := f.w.finish(d.dir)
	f.p.filled(f.w)
	d.mu.Lock()
	delete(d.filling, key)
	if err == nil {
		d.parts = append(d.parts, f.p)
	}
	d.mu.Unlock()
	if err != nil {
		d.fail(err)
		return err
	}
	if err := d.save(); err != nil {
		return err
	}
	d.mu.Lock()
	d.carryLocked(f.p)
	d.ringLocked()
	d.mu.Unlock()
	d.announce()
	return nil
}

// filled notes what a part's files hold.
func (p *Part) filled(w *writer) { p.e.Requests, p.e.Tokens, p.e.Size = w.count, w.tokens, w.size }

// Full reports whether parts wait to be submitted, so that more would only take up room on the disk.
func (d *Desk) Full() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting := map[*account]int{}
	for _, p := range d.parts {
		if p.e.State == Waiting {
			if waiting[p.a]++; waiting[p.a] > 1 {
				return true
			}
		}
	}
	return false
}
