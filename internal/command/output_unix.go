//go:build unix

package command

import "syscall"

// readFD reads what is there, and does not wait for more: the pipe does not block.
func readFD(fd uintptr, b []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), b)
		if err != syscall.EINTR {
			return n, err
		}
	}
}
