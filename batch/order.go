package batch

import (
	"fmt"

	"github.com/sluice-llm/sluice/internal/work"
)

// Order is the order of the output's lines.
type Order uint8

// Orders.
const (
	// OrderCompletion is the order in which results come.
	OrderCompletion Order = iota

	// OrderInput is that of the input's lines. Until all of them have a result, results stand in a journal beside the output
	// (see work.AsidePath), in the order in which they came; that is what a run resumes from. Lines of the output that the
	// input has not come last.
	OrderInput
)

// UnmarshalText reads completion or input.
func (o *Order) UnmarshalText(b []byte) error {
	switch string(b) {
	case "", "completion":
		*o = OrderCompletion
	case "input":
		*o = OrderInput
	default:
		return fmt.Errorf("order %q: want completion or input", b)
	}
	return nil
}

// conclude returns what is done once all items are recorded.
func (b *Batch) conclude() func() error {
	if b.via == nil {
		return b.arrange()
	}
	arrange := b.arrange()
	return func() error {
		if err := b.via.conclude(); err != nil || arrange == nil {
			return err
		}
		return arrange()
	}
}

// arrange returns what puts the output in the order of the input; nil if it is to stay as it is.
func (b *Batch) arrange() func() error {
	if b.cfg.Order != OrderInput {
		return nil
	}
	index := &b.input.index
	return func() error {
		return b.journal.Arrange(index.Span(), func(line work.Line) (int, bool) {
			rec, err := parseResult(line.Bytes)
			if err != nil {
				return 0, false // cannot be: it was read, or written by this run
			}
			return index.Find(rec.id)
		})
	}
}

// Aside returns the journal that has the results until the output is written; "" if the output has them.
func (b *Batch) Aside() string {
	if !b.journal.Aside() {
		return ""
	}
	return b.journal.Path()
}
