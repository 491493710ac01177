package recording

import "time"

// Config is what Record runs.
type Config struct {
	Width, Height int
	Title         string
	Dir           string
	Env           []string
	Between       time.Duration // between the end of a command and the next
	Commands      []Command
}

// Command is a command as it is typed.
type Command struct {
	Text           string
	InterruptAfter time.Duration // 0: never
}
