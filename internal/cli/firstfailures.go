package cli

import (
	"fmt"
	"maps"
	"sync"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
)

// mostMessage is how much of a message one looks at.
const mostMessage = 300

// firstFailures keep the first message of each kind of failure, for the summary. It is safe for concurrent use.
type firstFailures struct {
	mu       sync.Mutex
	messages map[string]string // the item and its message, by kind
}

// note takes in a result.
func (f *firstFailures) note(res *work.Result) {
	if res.Kind == sluice.OK || res.Err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.messages == nil {
		f.messages = make(map[string]string)
	}
	if kind := res.Kind.String(); f.messages[kind] == "" {
		f.messages[kind] = fmt.Sprintf("%s: %s", res.ID, term.Clip(res.Err.Error(), mostMessage))
	}
}

// byKind returns them.
func (f *firstFailures) byKind() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.messages)
}
