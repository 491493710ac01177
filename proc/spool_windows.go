package proc

// readFD reads nothing: there, close waits until all that the command started is gone, which its job sees to.
func readFD(uintptr, []byte) (int, error) { return 0, nil }
