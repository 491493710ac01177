package parts

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// mostFiles bounds how many files of results a batch has: providers have two at most.
const mostFiles = 16

// mostLine bounds a line of a file of members, whose ids come from input files.
const mostLine = 16 << 20

const membersSuffix = ".members.jsonl"

// folder is the directory of the parts' files.
type folder struct {
	path string
	mu   sync.Mutex // held while it is made or removed
}

func (f *folder) requests(tag string) string { return filepath.Join(f.path, tag+".requests.jsonl") }
func (f *folder) members(tag string) string  { return filepath.Join(f.path, tag+membersSuffix) }
func (f *folder) results(tag string, n int) string {
	return filepath.Join(f.path, tag+".results."+strconv.Itoa(n)+".jsonl")
}

// sync makes what the directory holds last, where the system can.
func (f *folder) sync() {
	atomicfile.SyncDir(f.path)
	atomicfile.SyncDir(filepath.Dir(f.path))
}

// remove takes away a part's files.
func (f *folder) remove(e *entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = os.Remove(f.requests(e.Tag))
	for n := range e.Files {
		_ = os.Remove(f.results(e.Tag, n))
	}
	_ = os.Remove(f.members(e.Tag))
	_ = os.Remove(f.path) // only if it is empty
}

// Found reports whether a Config.Dir has files of parts, for whoever has lost what Config.Save was given.
func Found(dir string) bool {
	names, _ := os.ReadDir(dir) // what cannot be read holds none, or is found out by Open
	return slices.ContainsFunc(names, func(n fs.DirEntry) bool { return strings.HasSuffix(n.Name(), membersSuffix) })
}

// clear takes away what no entry speaks of: what a process left that died before it saved one, or after it saved that a part
// is merged.
func (f *folder) clear(kept map[string]*entry) error {
	names, err := os.ReadDir(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	ours := regexp.MustCompile(`^([0-9a-f]{12})\.(?:requests|members|results\.(\d+))\.jsonl(\.part)?$`)
	for _, n := range names {
		m := ours.FindStringSubmatch(n.Name())
		if m == nil {
			continue
		}
		if e := kept[m[1]]; e != nil && !e.Over() && m[3] == "" && (m[2] == "" || e.Files > 0) {
			continue
		}
		if err := os.Remove(filepath.Join(f.path, n.Name())); err != nil {
			return err
		}
	}
	_ = os.Remove(f.path)
	return nil
}

// member is a line of a file of members. The bodies stand in the file of requests in the same order, each with a line end.
type member struct {
	ID     string `json:"id"`
	Hash   string `json:"hash"`
	Tokens int    `json:"tokens,omitempty"`
	Model  string `json:"model,omitempty"` // where the part has several
	Size   int    `json:"size"`            // of the body
	Bad    string `json:"bad,omitempty"`   // why the provider refuses this request
}

func (m *member) of() (Member, error) {
	h, err := work.ParseHash([]byte(m.Hash))
	return Member{ID: m.ID, Hash: h, Tokens: m.Tokens}, err
}

// writer fills the files of a part.
type writer struct {
	tag               string
	frame             batchapi.Frame
	files             [2]*os.File
	requests, members *bufio.Writer
	line              bytes.Buffer
	count, tokens     int
	size              int64 // of the part's file at the provider
}

func (f *folder) create(tag string, frame batchapi.Frame) (*writer, error) {
	w := &writer{tag: tag, frame: frame, size: int64(len(frame.Open) + len(frame.Close))}
	if err := f.make(w); err != nil {
		w.drop(f)
		return nil, err
	}
	w.requests, w.members = bufio.NewWriterSize(w.files[0], 1<<16), bufio.NewWriterSize(w.files[1], 1<<14)
	return w, nil
}

// make makes the files, and the directory if need be.
func (f *folder) make(w *writer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := os.MkdirAll(f.path, 0o700); err != nil {
		return err
	}
	for i, name := range []string{f.requests(w.tag), f.members(w.tag)} {
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		w.files[i] = file
	}
	return nil
}

// add writes a request that takes so many bytes of the provider's file.
func (w *writer) add(m *member, body []byte, size int) error {
	m.Size = len(body)
	w.line.Reset()
	enc := json.NewEncoder(&w.line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return err
	}
	_, _ = w.members.Write(w.line.Bytes())
	_, _ = w.requests.Write(body)
	if err := w.requests.WriteByte('\n'); err != nil { // which is the first that failed, whichever that was
		return err
	}
	if w.count > 0 {
		w.size += int64(len(w.frame.Between))
	}
	w.count, w.tokens, w.size = w.count+1, w.tokens+m.Tokens, w.size+int64(size)
	return nil
}

// finish has all of it on the disk.
func (w *writer) finish(f *folder) error {
	err := errors.Join(w.requests.Flush(), w.members.Flush())
	for _, file := range w.files {
		err = errors.Join(err, file.Sync(), file.Close())
	}
	if err != nil {
		f.remove(&entry{Status: Status{Tag: w.tag}})
		return err
	}
	f.sync()
	return nil
}

// alone is the size of a part's file of one request of a size.
func (w *writer) alone(size int) int64 { return int64(len(w.frame.Open) + size + len(w.frame.Close)) }

// close lets go of the files.
func (w *writer) close() {
	for _, file := range w.files {
		if file != nil {
			file.Close()
		}
	}
}

// drop takes it away.
func (w *writer) drop(f *folder) {
	w.close()
	f.remove(&entry{Status: Status{Tag: w.tag}})
}

// lines reads the members of a part, in order.
type lines struct {
	file  *os.File
	r     *bufio.Reader
	want  int
	count int
	buf   []byte
	at    int64 // where the next line begins
}

func (f *folder) open(e *Status) (*lines, error) {
	file, err := os.Open(f.members(e.Tag))
	if err != nil {
		return nil, missing(err)
	}
	return &lines{file: file, r: bufio.NewReaderSize(file, 1<<14), want: e.Requests}, nil
}

// missing says what can be done about a file that is not there.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: restore the file, or run the same command again to see other options", err)
	}
	return err
}

// next reads a member, and io.EOF after as many as the part has.
func (l *lines) next(m *member) error {
	*m = member{}
	line, err := readLine(l.r, &l.buf, mostLine)
	if errors.Is(err, io.EOF) && len(line) == 0 && l.count == l.want {
		return io.EOF
	}
	if errors.Is(err, io.EOF) || err == nil && l.count == l.want {
		return fmt.Errorf("%s is damaged: it does not contain the %d entries that were written", l.file.Name(), l.want)
	}
	if err != nil {
		return err
	}
	l.count++
	l.at += int64(len(line))
	if err := json.Unmarshal(line, m); err != nil || m.Size < 0 {
		return fmt.Errorf("%s is damaged at line %d: %w", l.file.Name(), l.count, errors.Join(err, errMember))
	}
	return nil
}

var errMember = errors.New("the line is not a valid entry")

func (l *lines) close() { l.file.Close() }

// readLine reads a line with its end. What ends without one is returned with io.EOF.
func readLine(r *bufio.Reader, buf *[]byte, most int) ([]byte, error) {
	*buf = (*buf)[:0]
	for {
		piece, err := r.ReadSlice('\n')
		if err == nil && len(*buf) == 0 {
			return piece, nil
		}
		*buf = append(*buf, piece...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return *buf, err
		}
		if len(*buf) > most {
			return nil, fmt.Errorf("a line is longer than %d bytes", most)
		}
	}
}

// bundle reads a part's file as the provider takes it, from its members and requests.
type bundle struct {
	api      batchapi.API
	tag      string
	model    string
	endpoint provider.Endpoint
	lines    *lines
	file     *os.File
	most     int64 // bytes of file
	bodies   *bufio.Reader
	body     []byte
	buf      []byte
	read     int // of buf
	ended    bool
	note     func(error) // told why it cannot be read
}

func (f *folder) bundle(p *Part, note func(error)) (*bundle, error) {
	l, err := f.open(&p.e.Status)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(f.requests(p.e.Tag))
	if err != nil {
		l.close()
		return nil, missing(err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, l.file.Close(), file.Close())
	}
	b := &bundle{most: info.Size(), api: p.a.api, tag: p.e.Tag, model: p.e.Model, endpoint: p.endpoint, lines: l, file: file,
		bodies: bufio.NewReaderSize(file, 1<<16), note: note}
	b.buf = append(b.buf, b.api.Frame().Open...)
	return b, nil
}

// Read gives the file.
func (b *bundle) Read(p []byte) (int, error) {
	for b.read == len(b.buf) {
		if b.ended {
			return 0, io.EOF
		}
		b.buf, b.read = b.buf[:0], 0
		if err := b.fill(); err != nil {
			b.note(err)
			return 0, err
		}
	}
	n := copy(p, b.buf[b.read:])
	b.read += n
	return n, nil
}

func (b *bundle) fill() error {
	m, r, err := b.next()
	if errors.Is(err, io.EOF) {
		b.ended = true
		b.buf = append(b.buf, b.api.Frame().Close...)
		return nil
	}
	if err != nil {
		return err
	}
	place := b.lines.count - 1
	if place > 0 {
		b.buf = append(b.buf, b.api.Frame().Between...)
	}
	b.buf = b.api.AppendRequest(b.buf, b.api.RequestID(b.tag, m.ID, place), r)
	return nil
}

// next reads a member and its request, which holds until the next.
func (b *bundle) next() (*member, *batchapi.Request, error) {
	var m member
	if err := b.lines.next(&m); err != nil {
		return nil, nil, err
	}
	if int64(m.Size) > b.most { // a number that nobody wrote must not take memory
		return nil, nil, fmt.Errorf("%s is damaged: the end of the file is missing", b.file.Name())
	}
	if cap(b.body) <= m.Size {
		b.body = make([]byte, m.Size+1)
	}
	b.body = b.body[:m.Size+1]
	if _, err := io.ReadFull(b.bodies, b.body); err != nil || b.body[m.Size] != '\n' {
		return nil, nil, fmt.Errorf("%s is damaged: request %d differs from the written one", b.file.Name(), b.lines.count)
	}
	r := &batchapi.Request{Model: b.model, Endpoint: b.endpoint, Body: b.body[:m.Size]}
	if m.Model != "" {
		r.Model = m.Model
	}
	return &m, r, nil
}

// Close lets go of the files.
func (b *bundle) Close() error {
	b.lines.close()
	return b.file.Close()
}

// describe is a part as an API takes it. note is told why its files cannot be read.
func (f *folder) describe(p *Part, note func(error)) *batchapi.Part {
	return &batchapi.Part{
		Tag: p.e.Tag, Model: p.e.Model, Endpoint: p.endpoint, Requests: p.e.Requests, Size: p.e.Size,
		Open: func() (io.ReadCloser, error) {
			b, err := f.bundle(p, note)
			if err != nil {
				note(err)
				return nil, err
			}
			return b, nil
		},
	}
}

// lacksResults reports whether some of a part's results are gone.
func (f *folder) lacksResults(e *entry) bool {
	for n := range e.Files {
		if _, err := os.Stat(f.results(e.Tag, n)); errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// check says what is wrong with the files of a part that is not over.
func (f *folder) check(e *entry) error {
	names := []string{f.members(e.Tag)}
	if e.Batch == "" && e.State != Refused && !e.Marked {
		names = append(names, f.requests(e.Tag))
	}
	for _, name := range names {
		if _, err := os.Stat(name); err != nil {
			return missing(err)
		}
	}
	return nil
}

// each reads the members of a part.
func (f *folder) each(e *Status, fn func(i int, m *member) error) error {
	l, err := f.open(e)
	if err != nil {
		return err
	}
	defer l.close()
	var m member
	for {
		err := l.next(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = fn(l.count-1, &m)
		}
		if err != nil {
			return err
		}
	}
}
