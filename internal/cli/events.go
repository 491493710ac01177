package cli

import (
	"fmt"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/term"
)

// openEvents opens the file that --events names.
func openEvents(s *term.Streams, name string) (*telemetry.Log, error) {
	log, err := telemetry.OpenLog(name, s.Redact)
	if err != nil {
		return nil, fault.New(fault.File, fmt.Errorf("--events: %w", err), "name a writable file that contains only events")
	}
	return log, nil
}

// observers are several observers in one.
type observers []sluice.Observer

// Observe tells all of them.
func (os observers) Observe(e sluice.Event) {
	for _, o := range os {
		o.Observe(e)
	}
}
