package provider

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"maps"
	"net/http"
	"strings"
)

// unpack decompresses a response to a request for an uncompressed one: some servers compress all the same. What uses another
// compression than gzip or deflate stays.
func unpack(method string, resp *http.Response) {
	open := map[string]func(*bufio.Reader) (io.Reader, error){
		"gzip": openGzip, "x-gzip": openGzip, "deflate": openDeflate,
	}[strings.ToLower(strings.TrimSpace(strings.Join(resp.Header["Content-Encoding"], ",")))]
	if open == nil || method == http.MethodHead || resp.ContentLength == 0 || resp.StatusCode == http.StatusNoContent ||
		resp.StatusCode == http.StatusNotModified {
		return
	}
	resp.Header = maps.Clone(resp.Header)
	delete(resp.Header, "Content-Encoding")
	delete(resp.Header, "Content-Length")
	resp.ContentLength = -1
	resp.Body = &unpacked{Closer: resp.Body, from: bufio.NewReader(resp.Body), open: open}
}

func openGzip(r *bufio.Reader) (io.Reader, error) { return gzip.NewReader(r) }

// openDeflate reads what RFC 9110 calls deflate, which is zlib's format, and what some servers send in its place.
func openDeflate(r *bufio.Reader) (io.Reader, error) {
	if b, _ := r.Peek(2); len(b) == 2 && b[0]&0xf == 8 && (int(b[0])<<8|int(b[1]))%31 == 0 {
		return zlib.NewReader(r)
	}
	return flate.NewReader(r), nil
}

// unpacked is a body that is decompressed as it is read.
type unpacked struct {
	io.Closer
	from *bufio.Reader
	open func(*bufio.Reader) (io.Reader, error)
	body io.Reader // nil before the first read
	err  error     // of open
}

func (u *unpacked) Read(b []byte) (int, error) {
	if u.body == nil && u.err == nil {
		if u.body, u.err = u.open(u.from); u.err == io.EOF {
			u.err = io.ErrUnexpectedEOF
		}
	}
	if u.err != nil {
		return 0, u.err
	}
	return u.body.Read(b)
}
