package provider

// What tests look at from outside.
var (
	WindowEnd = windowEnd
	Span      = span
	Literal   = literal
)
