package batch

import (
	"context"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// recall is the layer that answers items from the output, where that has a good answer to the same request.
func (b *Batch) recall(inner work.Handler) work.Handler { return &recall{batch: b, inner: inner} }

type recall struct {
	batch *Batch
	inner work.Handler
}

// Immediate says that nothing is waited for after the inner handler.
func (r *recall) Immediate() {}

// Handle copies what is recorded, or calls.
func (r *recall) Handle(ctx context.Context, item work.Item) (work.Result, error) {
	in := r.batch.input
	var (
		offset int64
		ok     bool
	)
	if in.file != nil {
		offset, ok = in.twins.answers[uint32(item.Seq-1)]
	} else {
		var err error
		if offset, ok, err = in.arrivals.find(ctx, &item); err != nil {
			return work.Result{}, err
		}
	}
	if ok {
		if result, ok := r.batch.copyOf(offset, &item); ok {
			return result, nil
		}
	}
	return r.inner.Handle(ctx, item)
}

// copyOf returns a recorded result as that of an item with the same request. It says false where it is not one, or one
// that is refused by now.
func (b *Batch) copyOf(offset int64, item *work.Item) (work.Result, bool) {
	line, err := b.journal.ReadLine(offset)
	if err != nil {
		b.log.Warn("a recorded response cannot be read: the request is sent again", "error", err)
		return work.Result{}, false
	}
	rec, ok := parseAnswer(line)
	if !ok || rec.hash != item.Hash {
		return work.Result{}, false
	}
	if b.cfg.Check != nil && b.cfg.Check(item.ID, item.Data.(*call).endpoint, rec.result.Payload) != nil {
		return work.Result{}, false
	}
	_, rec.result.FinishReason, _ = provider.ParseUsage(item.Data.(*call).endpoint, rec.result.Payload)
	return rec.result, true
}

// answer is a good recorded result.
type answer struct {
	result work.Result // for another item
	hash   work.Hash
}

// parseAnswer reads a line of the output for what another item may have of it. It says false of a failure.
func parseAnswer(line []byte) (a answer, ok bool) {
	good := false
	var hash []byte
	s := jsonscan.New(line)
	for s.Enter('{'); s.Next('}'); {
		switch string(jsonscan.Name(s.Key())) {
		case "custom_id":
			a.result.DuplicateOf = string(text(s.Span()))
		case "error":
			good = string(s.Span()) == "null"
		case "response":
			a.response(s.Span())
		case "sluice":
			if s.Peek() == '{' {
				hash, _ = beside(&s)
			} else {
				s.Skip()
			}
		default:
			s.Skip()
		}
	}
	if !s.End() || !good || a.result.Payload == nil || a.result.DuplicateOf == "" {
		return answer{}, false
	}
	var err error
	a.hash, err = work.ParseHash(hash)
	a.result.Kind = sluice.OK
	return a, err == nil
}

// response reads what was answered.
func (a *answer) response(value []byte) {
	if value == nil || value[0] != '{' {
		return
	}
	s := jsonscan.New(value)
	for s.Enter('{'); s.Next('}'); {
		switch string(jsonscan.Name(s.Key())) {
		case "status_code":
			n, _ := s.Number()
			a.result.Status = int(n)
		case "request_id":
			a.result.RequestID = s.Text()
		case "body":
			a.result.Payload = s.Span()
		default:
			s.Skip()
		}
	}
}

// joined returns what is told of results so that lines of standard input find those they equal; nil if nobody asks.
func (b *Batch) joined() func(*work.Result) {
	if !b.cfg.Dedupe || b.input.file != nil {
		return nil
	}
	return b.input.arrivals.told
}
