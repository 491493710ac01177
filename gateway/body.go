package gateway

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// body is a request's body, kept in memory so that it can be sent again.
type body struct {
	memory []byte
	users  atomic.Int32 // who may still read it: the call, and tries whose connection may still send after their answer came
	most   int64        // bytes
	room   reservation

	model edit // puts an upstream's own name of the model in the place of the one asked for; empty if it stands nowhere
	usage edit // asks for the usage of a stream; empty if the client does, or nobody has to
	parts []part

	// Of a tenant that is bound to models or a spending cap:
	unknown    *string  // the first field that its endpoint does not have; nil: it has all
	named      []string // models that it names beside the one, to answer in its place or to be asked; "" is one without a name
	background bool     // the answer is made after the call is over
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

// readBody reads a request's body to its end. It fails as keepBody does.
func readBody(w http.ResponseWriter, r *http.Request, cfg *Config, room reservation) (*body, error) {
	now := time.Now()
	from := &paced{r: r.Body, control: http.NewResponseController(w), begun: now, until: now.Add(bodyPatience)}
	b, err := keepBody(from, r.ContentLength, cfg.maxBody(), room)
	if err == nil && r.ContentLength != 0 {
		from.end()
	}
	return b, err
}

// keepBody keeps a body of that length, if it is not below 0. The caller closes what it returns. Beside errors of reading it fails with an
// *http.MaxBytesError and errNoRoom.
func keepBody(from io.Reader, length, most int64, room reservation) (*body, error) {
	if length > most {
		return nil, &http.MaxBytesError{Limit: most}
	}
	b := &body{most: most, room: room}
	b.users.Store(1)
	if length == 0 {
		return b, nil
	}
	if err := b.keep(max(0, length)); err != nil { // before it comes: else bodies that all come in part take the room from each other
		b.close()
		return nil, err
	}
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	if _, err := io.CopyBuffer(b, from, *buf); err != nil {
		b.close()
		return nil, fmt.Errorf("request body: %w", err)
	}
	return b, nil
}

// Write takes the next bytes of the body.
func (b *body) Write(p []byte) (n int, err error) {
	length := int64(len(b.memory) + len(p))
	if length > b.most {
		return 0, &http.MaxBytesError{Limit: b.most}
	}
	if err := b.keep(length); err != nil {
		return 0, err
	}
	b.memory = append(b.memory, p...)
	return len(p), nil
}

// keep makes room for a body of that length.
func (b *body) keep(length int64) error {
	if length <= int64(cap(b.memory)) {
		return nil
	}
	size := min(max(length, 2*int64(cap(b.memory))), b.most) // what has no known length grows in few steps
	if err := b.room.grow(size); err != nil {
		return err
	}
	b.memory = append(make([]byte, 0, size), b.memory...)
	return nil
}

// takeRest reads what a request was refused without. Closing a connection over bytes that nobody read breaks it, and many clients send
// all of them before they read why. Who waits to be asked for its body is not, and what is too long or too slow is not waited for.
func (s *state) takeRest(v *visit) {
	r := v.r
	if v.refused == "" || r.ContentLength == 0 || r.ContentLength > s.cfg.maxBody() || r.Header.Get("Expect") != "" || v.unread {
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, s.cfg.maxBody()))
}

// leastPace is how many bytes of a body must come each second, after bodyPatience.
const leastPace = 8 << 10

// paced reads a body that must not stop, nor come so slowly that it might as well.
type paced struct {
	r       io.Reader
	control *http.ResponseController
	begun   time.Time
	read    int64
	until   time.Time // that is set
}

func (p *paced) Read(b []byte) (int, error) {
	until := p.begun.Add(bodyPatience + time.Duration(p.read/leastPace)*time.Second)
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

// close gives back what the body holds, once the last who reads it has closed what open returned.
func (b *body) close() {
	if b.users.Add(-1) > 0 {
		return
	}
	b.memory = nil
	b.room.release()
}

// shortBody is one that is sent from a copy of its own, which http.Transport knows to be in memory: then it writes head and body at
// once. Of longer ones, a write more is the lesser cost.
const shortBody = 16 << 10

// open returns the body with changes to it, which do not overlap, and its length.
func (b *body) open(edits ...edit) (io.ReadCloser, int64) {
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	length := int64(len(b.memory))
	for _, e := range edits {
		length += int64(len(e.text)) - (e.to - e.from)
	}
	if length <= shortBody {
		return io.NopCloser(bytes.NewReader(b.edited(edits, length))), length
	}
	b.users.Add(1)
	if len(edits) == 0 {
		return &opened{Reader: bytes.NewReader(b.memory), body: b}, length
	}
	parts := make([]io.Reader, 0, 2*len(edits)+1)
	from := int64(0)
	for _, e := range edits {
		parts = append(parts, bytes.NewReader(b.memory[from:e.from]), bytes.NewReader([]byte(e.text)))
		from = e.to
	}
	parts = append(parts, bytes.NewReader(b.memory[from:]))
	return &opened{Reader: io.MultiReader(parts...), body: b}, length
}

// edited is a copy of the body with changes to it, which are in order.
func (b *body) edited(edits []edit, length int64) []byte {
	out, from := make([]byte, 0, length), int64(0)
	for _, e := range edits {
		out = append(append(out, b.memory[from:e.from]...), e.text...)
		from = e.to
	}
	return append(out, b.memory[from:]...)
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
