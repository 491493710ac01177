package provider

import "time"

// What tests look at from outside.
var (
	Span    = span
	Literal = literal
)

func WindowEnd(s string, now time.Time) time.Time { return windowEnd(s, now).UTC() }
