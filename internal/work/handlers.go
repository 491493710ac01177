package work

import (
	"errors"
	"io"
	"reflect"
	"runtime/debug"

	"github.com/sluice-llm/sluice"
)

// prepare makes an item's handler ready if this is the first item that it is met with.
func (r *Runner) prepare(h Handler) error {
	if h == nil {
		h = r.cfg.Handler
	}
	if h == nil {
		return errors.New("work: an item has no Handler, and Config.Handler is nil")
	}
	switch h.(type) {
	case HandlerFunc, *calls: // have neither Prepare nor Close
		return nil
	}
	known := identity(h)
	if known && r.ready[h] {
		return nil
	}
	r.mu.Lock()
	err := r.meetLocked(h)
	var todo []Handler
	for _, layer := range layersOf(h) {
		if identity(layer) && !r.prepared[layer] {
			r.prepared[layer] = true
			todo = append(todo, layer)
		}
	}
	r.mu.Unlock()
	if err != nil {
		return err
	}
	for _, layer := range todo {
		p, ok := layer.(Preparer)
		if !ok {
			continue
		}
		if err := guard(func() error { return p.Prepare(r.wait) }); err != nil {
			return &PrepareError{Err: err}
		}
	}
	if known {
		r.ready[h] = true
	}
	return nil
}

// meetLocked remembers a handler, to close it.
func (r *Runner) meetLocked(h Handler) error {
	for _, layer := range layersOf(h) {
		_, prepares := layer.(Preparer)
		_, closes := layer.(io.Closer)
		if !identity(layer) {
			if prepares || closes {
				return errors.New("work: a Handler with Prepare or Close must be comparable, such as a pointer")
			}
			continue
		}
		if _, met := r.prepared[layer]; !met {
			r.prepared[layer] = false
			r.handlers = append(r.handlers, layer)
		}
	}
	return nil
}

// layersOf returns the handlers that h is made of, innermost first.
func layersOf(h Handler) []Handler {
	switch h := h.(type) {
	case nil:
		return nil
	case *chain:
		var all []Handler
		for _, layer := range h.layers {
			all = append(all, layersOf(layer)...)
		}
		return all
	}
	return []Handler{h}
}

// identity says whether a handler can be told from others, which a HandlerFunc cannot.
func identity(h Handler) bool { return reflect.ValueOf(h).Comparable() }

// closeHandlers closes every handler that was met, the last first.
func (r *Runner) closeHandlers() {
	r.mu.Lock()
	handlers := r.handlers
	r.mu.Unlock()
	for i := len(handlers) - 1; i >= 0; i-- {
		c, ok := handlers[i].(io.Closer)
		if !ok {
			continue
		}
		if err := guard(c.Close); err != nil {
			r.log.Warn("a handler could not be closed", "error", err)
		}
	}
}

// guard runs a caller's function; its panic becomes an error.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &sluice.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

// PrepareError is returned by a run whose handler could not be made ready.
type PrepareError struct{ Err error }

// Error says what Prepare said.
func (e *PrepareError) Error() string { return "prepare handler: " + e.Err.Error() }

// Unwrap returns Prepare's error.
func (e *PrepareError) Unwrap() error { return e.Err }
