//go:build !linux

package cli

// supervisor is systemd, which is on Linux alone.
type supervisor struct{}

func newSupervisor() (*supervisor, error) { return nil, nil }

func (*supervisor) ready()     {}
func (*supervisor) reloading() {}
func (*supervisor) stopping()  {}
func (*supervisor) close()     {}
