package term

import (
	"context"
	"log/slog"
)

// Logger returns a logger that prints warnings to standard error, and if verbose also information.
func (s *Streams) Logger(verbose bool) *slog.Logger {
	return slog.New(&logHandler{s: s, verbose: verbose})
}

type logHandler struct {
	s       *Streams
	verbose bool
	attrs   string
}

// Enabled reports whether records of this level are printed.
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
	h.s.Errorf("sluice: %s%s\n", prefix, text)
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

// WithGroup returns h, because records of this program have no groups.
func (h *logHandler) WithGroup(string) slog.Handler { return h }
