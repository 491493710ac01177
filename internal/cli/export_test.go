package cli

import (
	"time"

	"github.com/sluice-llm/sluice/batch"
)

// QuietUntil is when something may start again, at now, by --not-between; zero: now.
func QuietUntil(now time.Time, texts ...string) (time.Time, error) {
	p, err := newOffPeak(texts)
	if p == nil || err != nil {
		return time.Time{}, err
	}
	return p.end(now), nil
}

// PartsInWords says how parts stand together.
func PartsInWords(all []batch.Part, now time.Time) string { return sumParts(all).words(now) }
