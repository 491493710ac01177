//go:build !unix

package control

import (
	"errors"
	"net"
)

// listenSocket refuses: a socket's file does not say there who may connect.
func listenSocket(string) (net.Listener, func() error, error) {
	return nil, nil, errors.New("sockets are not guarded by their file's mode on this system: use an address such as 127.0.0.1:8790")
}
