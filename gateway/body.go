package gateway

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// errBodyTooLong is the error of a request body above Bodies.Most.
var errBodyTooLong = errors.New("the request body is too long")

// body is a request's body, kept so that it can be sent again: in memory, or in a file that has no name any more.
type body struct {
	memory *bytes.Buffer // from the pool; nil: it is in the file
	file   *os.File
	length int64
	users  atomic.Int32 // who may still read it: the call, and tries whose connection may still send after their answer came

	model edit // puts an upstream's own name of the model in the place of the one asked for; empty if it stands nowhere
	usage edit // asks for the usage of a stream; empty if the client does, or nobody has to
	parts []part

	// Of a tenant that is bound to one model or a budget:
	others     bool // it names models beside the one, that some providers let answer in its place, or ask
	background bool // the answer is made after the call is over
}

// edit is a change to a body as it is sent: text in the place of what stands from one offset to the other.
type edit struct {
	from, to int64
	text     string
}

// part is where a part of a request names its model once more.
type part struct {
	edit
	prefixed bool // by models/
}

// buffers are used again: most bodies are short.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// mostPooled keeps one long body from holding its memory for ever.
const mostPooled = 256 << 10

// readBody reads a request's body to its end. The caller closes what it returns.
func readBody(w http.ResponseWriter, r *http.Request, limits Bodies) (b *body, err error) {
	if r.ContentLength > limits.Most {
		return nil, errBodyTooLong
	}
	b = &body{}
	b.users.Store(1)
	if r.ContentLength == 0 {
		return b, nil
	}
	now := time.Now()
	from := &paced{r: r.Body, control: http.NewResponseController(w), begun: now, patience: limits.Patience, until: now.Add(limits.Patience)}
	defer func() {
		if err == nil {
			from.end()
		}
	}()
	b.memory = buffers.Get().(*bytes.Buffer)
	b.memory.Reset()
	if r.ContentLength > 0 && r.ContentLength <= mostPooled {
		b.memory.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	n, err := b.memory.ReadFrom(io.LimitReader(from, limits.Memory+1))
	if err != nil {
		b.close()
		return nil, fmt.Errorf("request body: %w", err)
	}
	if b.length = n; n <= limits.Memory && n <= limits.Most {
		return b, nil
	}
	if err := b.spill(from, limits); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// takeRest reads what a request was refused without. Closing a connection over bytes that nobody read breaks it, and many clients send
// all of them before they read why. Who waits to be asked for its body is not, and what is too long or too slow is not waited for.
func (s *state) takeRest(v *visit) {
	r := v.r
	if v.refused == "" || r.ContentLength == 0 || r.ContentLength > s.cfg.Bodies.Most || r.Header.Get("Expect") != "" || v.Header().Get("Connection") == "close" {
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, s.cfg.Bodies.Most))
}

// leastPace is how many bytes of a body must come each second, once its patience is over.
const leastPace = 8 << 10

// paced reads a body that must not stop, nor come so slowly that it might as well.
type paced struct {
	r        io.Reader
	control  *http.ResponseController
	begun    time.Time
	patience time.Duration
	read     int64
	until    time.Time // that is set
}

func (p *paced) Read(b []byte) (int, error) {
	until := p.begun.Add(p.patience + time.Duration(p.read/leastPace)*time.Second)
	if until.After(p.until) {
		p.until = until
		_ = p.control.SetReadDeadline(until) // what has no connection needs none
	}
	n, err := p.r.Read(b)
	p.read += int64(n)
	return n, err
}

// end takes the deadline back once all of the body came: it would end the call, as the server goes on reading to see when the
// client goes. That of Go 1.26 takes it back itself, which is not documented. Over a rest that nobody reads it stays.
func (p *paced) end() { _ = p.control.SetReadDeadline(time.Time{}) }

// spill moves the body to a file, with what is still to come.
func (b *body) spill(rest io.Reader, limits Bodies) error {
	f, err := os.CreateTemp(limits.Dir, "sluice-body-*") // for its owner alone
	if err != nil {
		return fmt.Errorf("keep a long body: %w", err)
	}
	b.file = f
	_ = os.Remove(f.Name()) // it goes with the process
	if _, err := f.Write(b.memory.Bytes()); err != nil {
		return fmt.Errorf("keep a long body: %w", err)
	}
	n, err := io.Copy(f, io.LimitReader(rest, limits.Most-b.length+1))
	if err != nil {
		return fmt.Errorf("request body: %w", err)
	}
	if b.length += n; b.length > limits.Most {
		return errBodyTooLong
	}
	b.release()
	return nil
}

func (b *body) release() {
	if b.memory != nil && b.memory.Cap() <= mostPooled {
		buffers.Put(b.memory)
	}
	b.memory = nil
}

// close gives back what the body holds, once the last who reads it has closed what open returned.
func (b *body) close() {
	if b.users.Add(-1) > 0 {
		return
	}
	b.release()
	if b.file != nil {
		b.file.Close()
		_ = os.Remove(b.file.Name()) // where an open file cannot be removed
	}
}

// bytes returns the whole body; of one in a file, a copy.
func (b *body) bytes() ([]byte, error) {
	switch {
	case b.memory != nil:
		return b.memory.Bytes(), nil
	case b.file == nil:
		return nil, nil
	}
	all := make([]byte, b.length)
	_, err := b.file.ReadAt(all, 0)
	return all, err
}

// shortBody is one that is sent from a copy of its own, which http.Transport knows to be in memory: then it writes head and body at
// once. Of longer ones, a write more is the lesser cost.
const shortBody = 16 << 10

// open returns the body with changes to it, which do not overlap, and its length.
func (b *body) open(edits ...edit) (io.ReadCloser, int64) {
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	length := b.length
	for _, e := range edits {
		length += int64(len(e.text)) - (e.to - e.from)
	}
	if b.memory != nil && length <= shortBody {
		return io.NopCloser(bytes.NewReader(b.edited(edits, length))), length
	}
	b.users.Add(1)
	if len(edits) == 0 {
		return &opened{Reader: b.section(0, b.length), body: b}, b.length
	}
	parts := make([]io.Reader, 0, 2*len(edits)+1)
	from := int64(0)
	for _, e := range edits {
		parts = append(parts, b.section(from, e.from), bytes.NewReader([]byte(e.text)))
		from = e.to
	}
	parts = append(parts, b.section(from, b.length))
	return &opened{Reader: io.MultiReader(parts...), body: b}, length
}

// edited is a copy of a body that is in memory, with changes to it, which are in order.
func (b *body) edited(edits []edit, length int64) []byte {
	out, from := make([]byte, 0, length), int64(0)
	for _, e := range edits {
		out = append(append(out, b.memory.Bytes()[from:e.from]...), e.text...)
		from = e.to
	}
	return append(out, b.memory.Bytes()[from:]...)
}

// opened is a body as one try sends it.
type opened struct {
	io.Reader
	body   *body
	closed atomic.Bool
}

// Close lets go of the body.
func (o *opened) Close() error {
	if !o.closed.Swap(true) {
		o.body.close()
	}
	return nil
}

// section reads a part of the body. Each of them is a reader of its own.
func (b *body) section(from, to int64) io.Reader {
	switch {
	case b.memory != nil:
		return bytes.NewReader(b.memory.Bytes()[from:to])
	case b.file == nil:
		return bytes.NewReader(nil)
	}
	return io.NewSectionReader(b.file, from, to-from)
}
