package control

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
)

// Address is where a run is controlled from: a Unix socket or a TCP port. The zero value is none.
type Address struct {
	Network string // unix or tcp
	Name    string // a path, or host:port
}

// ParseAddress reads "unix:PATH", a path, or "host:port".
func ParseAddress(text string) (Address, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		return socketAt(path)
	}
	host, port, err := net.SplitHostPort(text)
	switch {
	case text == "":
		return Address{}, errors.New("the address is empty")
	case err != nil || strings.ContainsAny(text, `/\`):
		return socketAt(text)
	case host == "":
		return Address{}, fmt.Errorf("%s names no host", text)
	case port == "":
		return Address{}, fmt.Errorf("%s names no port", text)
	}
	return Address{Network: "tcp", Name: text}, nil
}

// socketAt is the socket at a path, which is made a whole one: whoever reads it may stand elsewhere.
func socketAt(path string) (Address, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return Address{}, errors.New("the socket has no path")
	}
	path, err := filepath.Abs(path)
	return Address{Network: "unix", Name: path}, err
}

// String is the address as ParseAddress reads it.
func (a Address) String() string {
	if a.Network == "unix" {
		return "unix:" + a.Name
	}
	return a.Name
}

// Host is the host of a TCP address; "" of a socket.
func (a Address) Host() string {
	if a.Network != "tcp" {
		return ""
	}
	host, _, _ := net.SplitHostPort(a.Name)
	return host
}

// Local reports whether nobody but this host is reached there.
func (a Address) Local() bool {
	ip, err := netip.ParseAddr(a.Host())
	return a.Network == "unix" || err == nil && ip.IsLoopback() || a.Host() == "localhost"
}
