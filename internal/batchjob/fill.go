package batchjob

import (
	"fmt"
	"slices"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

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
	line := jsonscan.AppendStruct(nil, &r.Item)
	item, _ := jsonscan.Members(line)
	for {
		p, err := t.fillingOf(r)
		if err != nil {
			t.fail(err)
			return nil, err
		}
		row, bounds := &p.row, p.account.api.Limits()
		size := len(p.account.api.AppendRequest(nil, requestID(row.Tag, row.Requests), r.Endpoint, item["body"]))
		if row.Requests > 0 {
			size += len(p.account.api.Frame().Between)
		}
		t.mu.Lock()
		requests, room := p.account.requests, p.account.room
		t.mu.Unlock()
		total := row.Bytes + int64(size)
		full := bounds.Bytes > 0 && total > bounds.Bytes
		switch {
		case full && row.Requests == 0:
			p.draft.drop()
			t.filling = slices.DeleteFunc(t.filling, func(q *Part) bool { return q == p })
			return nil, &TooLargeError{Size: total, Max: bounds.Bytes}
		case row.Requests > 0 && (full || requests > 0 && row.Requests >= requests || room > 0 && row.Input+r.Cost.Input > room):
			if err := t.submitFilled(p); err != nil {
				return nil, err
			}
			continue
		}
		if err := p.draft.add(line); err != nil {
			t.fail(err)
			return nil, err
		}
		row.Bytes = total
		row.Count(r)
		if bounds.Requests > 0 && row.Requests >= bounds.Requests {
			return p, t.submitFilled(p)
		}
		return p, nil
	}
}

// fillingOf returns the part that is being filled with requests of the same account, model and endpoint. It is not a row yet.
func (t *Table) fillingOf(r *Request) (*Part, error) {
	for _, p := range t.filling {
		if p.account.name == r.Account && p.row.Model == r.Model && p.Endpoint == r.Endpoint {
			return p, nil
		}
	}
	tag := newTag()
	d, err := t.dir.create(tag)
	if err != nil {
		return nil, err
	}
	a := t.accounts[r.Account]
	frame := a.api.Frame()
	p := t.newPart(a, Row{Tag: tag, State: New, Account: r.Account, Model: r.Model, Endpoint: r.Endpoint.String(),
		Bytes: int64(len(frame.Open) + len(frame.Close))})
	p.draft = d
	t.filling = append(t.filling, p)
	return p, nil
}

// Flush submits the parts that are being filled.
func (t *Table) Flush() error {
	for len(t.filling) > 0 {
		if err := t.submitFilled(t.filling[0]); err != nil {
			return err
		}
	}
	return nil
}

// submitFilled makes a row of a part that was filled.
func (t *Table) submitFilled(p *Part) error {
	t.filling = slices.DeleteFunc(t.filling, func(q *Part) bool { return q == p })
	var err error
	if len(t.Rows()) == 0 { // so that Read reports a table that is missing later
		err = t.cfg.save(t.dir, nil)
	}
	if err == nil {
		err = p.draft.finish(t.dir.items(p.row.Tag))
	}
	if err != nil {
		p.draft.drop()
		t.fail(err)
		return err
	}
	p.draft = nil
	t.mu.Lock()
	t.parts = append(t.parts, p)
	t.mu.Unlock()
	if err := t.save(true); err != nil {
		return err
	}
	t.mu.Lock()
	t.carryLocked(p)
	t.mu.Unlock()
	return nil
}
