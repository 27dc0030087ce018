package rotawatermill

import (
	"context"
	"errors"
	"log/slog"

	"github.com/ThreeDotsLabs/watermill"
)

// slogTo lets the worker log to a Watermill logger.
func slogTo(logger watermill.LoggerAdapter) *slog.Logger {
	return slog.New(&logHandler{to: logger})
}

// logHandler is a slog.Handler over a Watermill logger. Watermill has no level
// between info and error: warnings, which the worker uses for trouble that it
// deals with by itself, go out as info.
type logHandler struct {
	to    watermill.LoggerAdapter
	group string
}

// Enabled leaves the choice to the Watermill logger.
func (h *logHandler) Enabled(context.Context, slog.Level) bool { return true }

// Handle logs one record; an attribute "error" becomes the logger's error.
func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	fields := watermill.LogFields{}
	var fault error
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && a.Key == "error" {
			fault = err
		}
		fields[h.group+a.Key] = a.Value.Resolve().Any()
		return true
	})
	switch {
	case r.Level >= slog.LevelError:
		if fault == nil {
			fault = errors.New(r.Message)
		}
		delete(fields, "error")
		h.to.Error(r.Message, fault, fields)
	case r.Level >= slog.LevelInfo:
		h.to.Info(r.Message, fields)
	default:
		h.to.Debug(r.Message, fields)
	}
	return nil
}

// WithAttrs gives a handler that adds attributes to every record.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	fields := watermill.LogFields{}
	for _, a := range attrs {
		fields[h.group+a.Key] = a.Value.Resolve().Any()
	}
	return &logHandler{to: h.to.With(fields), group: h.group}
}

// WithGroup gives a handler that names attributes "name.key".
func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &logHandler{to: h.to, group: h.group + name + "."}
}
