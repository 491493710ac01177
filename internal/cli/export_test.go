package cli

import (
	"time"

	"github.com/sluice-llm/sluice/batch"
)

// PartsInWords says how parts stand together.
func PartsInWords(all []batch.Part, now time.Time) string { return sumParts(all).words(now) }
