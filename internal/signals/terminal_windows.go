package signals

// hasTerminal reports whether the process has a controlling terminal, which matters only for HUP.
func hasTerminal() bool { return false }
