package batchjob

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// fillKey has what all requests of a part have in common.
type fillKey struct {
	account, model string
	endpoint       provider.Endpoint
}

// filling is a part that is being filled. It is no row yet.
type filling struct {
	part  *Part
	draft *draft
	line  []byte
}

// Request is a request to add to a part.
type Request struct {
	Account  string
	Model    string
	Endpoint provider.Endpoint
	Item     Item
	Cost     limits.Cost
}

// TooLargeError is returned for a request that no part can hold.
type TooLargeError struct {
	Size, Max int64 // in bytes of the file of a part
}

// Error describes the sizes.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the request needs %d bytes in a batch file, but the maximum is %d: shorten the request, or send it live",
		e.Size, e.Max)
}

// Supports reports whether the Batch API of an account takes requests to an endpoint.
func (t *Table) Supports(account string, e provider.Endpoint) bool {
	a := t.accounts[account]
	return a != nil && slices.Contains(a.api.Endpoints(), e)
}

// Add adds a request to a part, and returns the part. It submits parts that are full, and does not wait. It returns a *TooLargeError for
// a request that exceeds the size of a part.
func (t *Table) Add(r *Request) (*Part, error) {
	a, key := t.accounts[r.Account], fillKey{r.Account, r.Model, r.Endpoint}
	bounds, frame := a.api.Limits(), a.api.Frame()
	item := r.Item
	item.Body = jsonscan.AppendCompact(make([]byte, 0, len(item.Body)), item.Body) // as the file has it
	for {
		f, err := t.fillingOf(a, key)
		if err != nil {
			return nil, err
		}
		row := &f.part.row
		f.line = a.api.AppendRequest(f.line[:0], requestID(row.Tag, row.Requests), r.Endpoint, item.Body)
		size := int64(len(f.line))
		if row.Requests > 0 {
			size += int64(len(frame.Between))
		}
		t.mu.Lock()
		requests, room := a.requests, a.room
		t.mu.Unlock()
		full := bounds.Bytes > 0 && row.Bytes+size > bounds.Bytes
		switch {
		case full && row.Requests == 0:
			f.draft.drop()
			delete(t.filling, key)
			return nil, &TooLargeError{Size: row.Bytes + size, Max: bounds.Bytes}
		case row.Requests > 0 && (full || requests > 0 && row.Requests >= requests || room > 0 && row.Input+r.Cost.Input > room):
			if err := t.submitFilled(key, f); err != nil {
				return nil, err
			}
			continue
		}
		if err := f.draft.add(&item); err != nil {
			t.fail(err)
			return nil, err
		}
		row.Bytes += size
		row.Count(r)
		if bounds.Requests > 0 && row.Requests >= bounds.Requests {
			return f.part, t.submitFilled(key, f)
		}
		return f.part, nil
	}
}

// fillingOf returns the part that is being filled.
func (t *Table) fillingOf(a *account, key fillKey) (*filling, error) {
	if f := t.filling[key]; f != nil {
		return f, nil
	}
	tag := t.newTag()
	d, err := t.dir.create(tag)
	if err != nil {
		t.fail(err)
		return nil, err
	}
	frame := a.api.Frame()
	f := &filling{draft: d, part: t.newPart(a, Row{
		Tag: tag, State: New, Account: a.name, Model: key.model, Endpoint: key.endpoint.String(), Bytes: int64(len(frame.Open) + len(frame.Close)),
	})}
	t.filling[key] = f
	return f, nil
}

// Flush submits the parts that are being filled.
func (t *Table) Flush() error {
	keys := make([]fillKey, 0, len(t.filling))
	for key := range t.filling {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(x, y fillKey) int {
		return strings.Compare(x.account+" "+x.model+" "+x.endpoint.String(), y.account+" "+y.model+" "+y.endpoint.String())
	})
	for _, key := range keys {
		if err := t.submitFilled(key, t.filling[key]); err != nil {
			return err
		}
	}
	return nil
}

// submitFilled makes a row of a part that was filled.
func (t *Table) submitFilled(key fillKey, f *filling) error {
	delete(t.filling, key)
	if err := f.draft.finish(t.dir.items(f.part.row.Tag)); err != nil {
		t.fail(err)
		return err
	}
	t.mu.Lock()
	t.parts = append(t.parts, f.part)
	t.mu.Unlock()
	if err := t.save(true); err != nil {
		return err
	}
	t.mu.Lock()
	t.carryLocked(f.part)
	t.mu.Unlock()
	return nil
}
