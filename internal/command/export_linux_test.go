package command

// What is looked at on the way to become another program.
var (
	Becoming   = becoming
	Unfinished = unfinished
)
