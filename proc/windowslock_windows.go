package proc

// lockSoon does nothing: of two runs that write at the same moment, the last one counts.
func lockSoon(string) (unlock func(), err error) { return func() {}, nil }
