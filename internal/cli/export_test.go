package cli

import (
	"time"
)

// QuietUntil is when something may start again, at now, by --not-between; zero: now.
func QuietUntil(now time.Time, texts ...string) (time.Time, error) {
	p, err := newOffPeak(texts)
	if p == nil || err != nil {
		return time.Time{}, err
	}
	return p.end(now), nil
}

// WholeLine is wholeLine.
var WholeLine = wholeLine
