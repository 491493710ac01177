package work

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/sluice-llm/sluice"
)

// prepare prepares the Handler before the first item that it handles.
func (r *Runner) prepare() error {
	if r.prepared {
		return nil
	}
	r.prepared = true
	p, ok := r.cfg.Handler.(interface{ Prepare(context.Context) error })
	if !ok {
		return nil
	}
	if err := guard(func() error { return p.Prepare(r.wait) }); err != nil {
		return fmt.Errorf("prepare handler: %w", err)
	}
	return nil
}

// closeHandler closes the Handler.
func (r *Runner) closeHandler() error {
	c, ok := r.cfg.Handler.(io.Closer)
	if !ok {
		return nil
	}
	if err := guard(c.Close); err != nil {
		return fmt.Errorf("close handler: %w", err)
	}
	return nil
}

// guard calls a function. A panic becomes an error.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &sluice.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}
