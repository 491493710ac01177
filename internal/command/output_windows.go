package command

// readFD is not called where pipes have no deadlines.
func readFD(uintptr, []byte) (int, error) { return 0, nil }
