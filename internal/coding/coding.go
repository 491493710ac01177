// Package coding decompresses the bodies of HTTP messages.
package coding

import (
	"bufio"
	"compress/flate"
	"compress/zlib"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Names are the codings that can be read, as headers and messages list them.
const Names = "gzip, deflate, zstd"

const (
	// MaxCodings is the maximum number of codings of one body: each takes memory.
	MaxCodings = 3

	// MaxWindow is the maximum distance to which data of zstd may refer back. It takes so much memory; RFC 9659 allows no more.
	MaxWindow = 8 << 20
)

// Of returns the codings of a message's body in the order in which they were applied, without identity.
func Of(h http.Header) (codings []string) {
	for name := range strings.SplitSeq(strings.Join(h["Content-Encoding"], ","), ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" && name != "identity" {
			codings = append(codings, name)
		}
	}
	return codings
}

// Known reports whether Reader reads a body with these codings.
func Known(codings []string) bool {
	return len(codings) <= MaxCodings && !slices.ContainsFunc(codings, func(name string) bool { return open(name) == nil })
}

// Reader returns a reader of what a body holds, whose codings are known and were applied in that order. It fails with an
// *http.MaxBytesError if any of them holds more than that number of bytes, and with io.ErrUnexpectedEOF or another error if one is not
// whole or not valid.
func Reader(body io.Reader, codings []string, most int64) io.Reader {
	for _, name := range slices.Backward(codings) {
		body = http.MaxBytesReader(nil, io.NopCloser(&reader{from: bufio.NewReader(body), open: open(name)}), most)
	}
	return body
}

// open returns what opens data of a coding; nil if it is unknown.
func open(name string) func(*bufio.Reader) (io.Reader, error) {
	switch name {
	case "gzip", "x-gzip":
		return func(r *bufio.Reader) (io.Reader, error) { return gzip.NewReader(r) }
	case "deflate":
		return openDeflate
	case "zstd":
		return func(r *bufio.Reader) (io.Reader, error) {
			return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(MaxWindow))
		}
	}
	return nil
}

// openDeflate reads what RFC 9110 calls deflate, which is zlib's format, and what some programs send in its place.
func openDeflate(r *bufio.Reader) (io.Reader, error) {
	if b, _ := r.Peek(2); len(b) == 2 && b[0]&0xf == 8 && (int(b[0])<<8|int(b[1]))%31 == 0 {
		return zlib.NewReader(r)
	}
	return flate.NewReader(r), nil
}

// reader decompresses data as it is read.
type reader struct {
	from *bufio.Reader
	open func(*bufio.Reader) (io.Reader, error)
	data io.Reader // nil before the first read
	err  error     // of open
}

func (r *reader) Read(b []byte) (int, error) {
	if r.data == nil && r.err == nil {
		if r.data, r.err = r.open(r.from); r.err == io.EOF {
			r.err = io.ErrUnexpectedEOF
		}
	}
	if r.err != nil {
		return 0, r.err
	}
	return r.data.Read(b)
}
