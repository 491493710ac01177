package provider

import (
	"bytes"
	"io"
	"sync"
)

// kept is the body of an answer that was read whole. Its memory is used again once it is closed.
type kept struct {
	mu   sync.Mutex
	buf  *bytes.Buffer // from buffers; nil: it is closed
	rest []byte        // of it
	lent bool          // to a writer, who may go on with it after Close
}

// keep has a body read from a buffer that it gives back.
func keep(buf *bytes.Buffer) *kept { return &kept{buf: buf, rest: buf.Bytes()} }

// Read reads the unread bytes.
func (k *kept) Read(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.rest) == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	n := copy(p, k.rest)
	k.rest = k.rest[n:]
	return n, nil
}

// WriteTo writes the unread bytes, in pieces that a slow client can take within its time for one.
func (k *kept) WriteTo(w io.Writer) (written int64, err error) {
	k.mu.Lock()
	rest := k.rest
	if len(rest) == 0 { // or somebody else writes it
		k.mu.Unlock()
		return 0, nil
	}
	k.rest, k.lent = nil, true
	k.mu.Unlock()
	const piece = 64 << 10
	for err == nil && len(rest) > 0 {
		var n int
		n, err = w.Write(rest[:min(len(rest), piece)])
		rest = rest[n:]
		written += int64(n)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lent = false; k.buf != nil {
		k.rest = rest
	}
	return written, err
}

// Close gives the memory back, unless it is being written. Later reads return io.EOF.
func (k *kept) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.buf != nil {
		if !k.lent {
			giveBack(k.buf)
		}
		k.buf, k.rest = nil, nil
	}
	return nil
}
