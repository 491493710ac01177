package cli

import (
	"context"
	"log/slog"
)

// logHandler prints what libraries log: warnings, and all of it to whom asked for more.
type logHandler struct {
	s       *streams
	verbose bool
	attrs   string
}

// Enabled reports whether records of that level are printed.
func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || h.verbose && level >= slog.LevelInfo
}

// Handle prints a record.
func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	text := r.Message + h.attrs
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	prefix := ""
	if r.Level >= slog.LevelWarn {
		prefix = "warning: "
	}
	h.s.errorf("sluice: %s%s\n", prefix, text)
	return nil
}

// WithAttrs returns a handler that adds attrs to each record.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	for _, a := range attrs {
		with.attrs += " " + a.String()
	}
	return &with
}

// WithGroup returns h: what our libraries log has no groups.
func (h *logHandler) WithGroup(string) slog.Handler { return h }
