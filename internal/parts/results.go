package parts

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"

	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/work"
)

// mostResult bounds a line of results: no answer of a model is near it.
const mostResult = 256 << 20

// index finds members by what their requests are called at the provider. It holds no names: 24 bytes a member and the map's.
type index struct {
	places  map[work.Hash]int32
	offsets []int64 // of the members' lines, and where the last one ends
	seen    []bool
	count   int // of the members that were seen
}

// index reads a part's members.
func (p *Part) index() (*index, error) {
	x := &index{places: make(map[work.Hash]int32, p.e.Requests), offsets: make([]int64, 0, p.e.Requests+1)}
	l, err := p.d.dir.open(&p.e.Status)
	if err != nil {
		return nil, err
	}
	defer l.close()
	var m member
	for {
		at := l.at
		err := l.next(&m)
		if errors.Is(err, io.EOF) {
			x.seen = make([]bool, len(x.offsets))
			x.offsets = append(x.offsets, l.at)
			return x, nil
		}
		if err != nil {
			return nil, err
		}
		place := len(x.offsets)
		x.places[work.HashOf([]byte(p.a.api.RequestID(p.e.Tag, m.ID, place)))] = int32(place)
		x.offsets = append(x.offsets, at)
	}
}

// place returns where the member of a result is, the first time.
func (x *index) place(id string) (place int, ours, first bool) {
	at, ok := x.places[work.HashOf([]byte(id))]
	if !ok {
		return 0, false, false
	}
	if x.seen[at] {
		return int(at), true, false
	}
	x.seen[at] = true
	x.count++
	return int(at), true, true
}

// errCut is of results that end in the middle of a line, or of which some are missing.
var errCut = errors.New("results are missing")

// fetchAll fetches all files of results, and reports whether they are the part's. None of them has its name before all are
// whole. Where more may come, a batch that ran to its end has to have a result of each request, whatever is counted.
func (d *Desk) fetchAll(ctx context.Context, p *Part, mayCome bool) (mine bool, err error) {
	if len(p.seen.Results) > mostFiles {
		return false, fmt.Errorf("batch %s has too many result files: %d", p.e.Batch, len(p.seen.Results))
	}
	defer func() {
		for n := range p.seen.Results {
			_ = os.Remove(d.dir.results(p.e.Tag, n) + ".part")
		}
	}()
	for n, name := range p.seen.Results {
		err := p.a.call(ctx, "fetch "+p.e.Batch, func(ctx context.Context) error {
			return d.dir.fill(d.dir.results(p.e.Tag, n)+".part", func(w io.Writer) error {
				return p.a.api.Fetch(ctx, name, w)
			})
		})
		if err != nil {
			return false, err
		}
	}
	select {
	case d.judging <- struct{}{}:
		defer func() { <-d.judging }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	mine, err = d.count(p, mayCome)
	if err != nil || !mine {
		return mine, err
	}
	for n := range p.seen.Results {
		name := d.dir.results(p.e.Tag, n)
		if err := os.Rename(name+".part", name); err != nil {
			return false, fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	d.dir.sync()
	return true, nil
}

// fill writes a file anew, and has it on the disk. What the disk refuses is told from what the provider does.
func (f *folder) fill(name string, fill func(io.Writer) error) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	w := &diskWriter{file: file}
	err = fill(w)
	if w.err == nil && err == nil {
		w.err = file.Sync()
	}
	if closed := file.Close(); w.err == nil {
		w.err = closed
	}
	if w.err != nil {
		return fmt.Errorf("%w: %w", errDamaged, w.err)
	}
	return err
}

// diskWriter remembers what the disk refused.
type diskWriter struct {
	file *os.File
	err  error
}

func (w *diskWriter) Write(b []byte) (int, error) {
	n, err := w.file.Write(b)
	if err != nil {
		w.err = err
	}
	return n, err
}

// count reports whether fetched results are a part's, and fails if some are missing that the provider counts, or, where more may
// come, that it ran.
func (d *Desk) count(p *Part, mayCome bool) (mine bool, err error) {
	x, err := p.index()
	if err != nil {
		return false, fmt.Errorf("%w: %w", errDamaged, err)
	}
	strangers, first := 0, ""
	for n := range p.seen.Results {
		err := p.read(d.dir.results(p.e.Tag, n)+".part", func(r *batchapi.Result) error {
			if _, ours, _ := x.place(r.ID); !ours {
				if strangers++; first == "" {
					first = string(append([]byte(nil), r.ID...))
				}
			}
			return nil
		})
		if err != nil {
			return false, err
		}
	}
	if p.e.Guess && x.count == 0 {
		return false, nil
	}
	if strangers > 0 {
		d.cfg.Logger.Warn("some results are ignored, because their requests do not belong to the batch part",
			"part", p.e.Tag, "batch", p.e.Batch, "results", strangers, "first", fmt.Sprintf("%.80q", first))
	}
	want := expected(p.seen, p.e.Requests)
	if mayCome && p.seen.State == batchapi.Completed {
		want = p.e.Requests
	}
	if x.count < want {
		return false, fmt.Errorf("%w: there are %d of %d", errCut, x.count, want)
	}
	return true, nil
}

// expected is how many results there are at least. Counts that cannot be say nothing.
func expected(b *batchapi.Batch, requests int) int {
	counted := b.Succeeded + b.Failed
	if min(b.Succeeded, b.Failed) < 0 {
		counted = 0
	}
	if b.State == batchapi.Completed && counted == 0 {
		counted = requests
	}
	return min(counted, requests)
}

// read reads a file of results.
func (p *Part) read(name string, fn func(*batchapi.Result) error) error {
	file, err := os.Open(name)
	if err != nil {
		return missing(err)
	}
	defer file.Close()
	r := bufio.NewReaderSize(file, 1<<16)
	var buf []byte
	for n := 1; ; n++ {
		line, err := readLine(r, &buf, mostResult)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s, line %d: %w", name, n, err)
		}
		if !blank(line) {
			res, bad := p.a.api.ParseResult(line)
			if bad != nil {
				return fmt.Errorf("%w: %s, line %d: %w", errCut, name, n, bad)
			}
			if err := fn(&res); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}

func blank(line []byte) bool {
	for _, c := range line {
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return false
		}
	}
	return true
}

// Results gives what became of its members, in the order of the files, each once, and behind them those for which there is no
// result because the batch expired or was cancelled: not all providers list these. Other members have no result: what the
// provider says of the whole is in Status. What is in a Result holds until the next.
func (p *Part) Results() iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		if err := p.results(func(r Result) bool { return yield(r, nil) }); err != nil && !errors.Is(err, errStopped) {
			yield(Result{}, err)
		}
	}
}

func (p *Part) results(yield func(Result) bool) error {
	p.d.mu.Lock()
	e := p.e
	p.d.mu.Unlock()
	if e.State != Fetched {
		return nil
	}
	if e.Marked {
		return p.marked(yield)
	}
	x, err := p.index()
	if err != nil {
		return err
	}
	members, err := os.Open(p.d.dir.members(e.Tag))
	if err != nil {
		return missing(err)
	}
	defer members.Close()
	at := &blockReader{file: members}
	for n := range e.Files {
		err := p.read(p.d.dir.results(e.Tag, n), func(r *batchapi.Result) error {
			place, _, first := x.place(r.ID)
			if !first {
				return nil
			}
			who, err := at.member(x.offsets[place], x.offsets[place+1])
			if err != nil {
				return err
			}
			if !yield(Result{Index: place, Member: who, Result: *r}) {
				return errStopped
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	fate, known := e.undone()
	for place, seen := range x.seen {
		if seen || !known {
			continue
		}
		who, err := at.member(x.offsets[place], x.offsets[place+1])
		if err != nil {
			return err
		}
		if !yield(Result{Index: place, Member: who, Result: batchapi.Result{Fate: fate}}) {
			return errStopped
		}
	}
	return nil
}

// blockReader reads lines of a file of members in any order, of which near ones are read together.
type blockReader struct {
	file  *os.File
	block []byte
	at    int64 // where block begins
}

const blockSize = 1 << 16

// member reads the member whose line stands between two offsets.
func (b *blockReader) member(from, to int64) (Member, error) {
	if from < b.at || to > b.at+int64(len(b.block)) {
		b.at = from / blockSize * blockSize
		size := max(blockSize, to-b.at)
		if int64(cap(b.block)) < size {
			b.block = make([]byte, size)
		}
		n, err := b.file.ReadAt(b.block[:size], b.at)
		if b.block = b.block[:n]; to > b.at+int64(n) {
			return Member{}, fmt.Errorf("%s is damaged: %w", b.file.Name(), err)
		}
	}
	var m member
	if err := json.Unmarshal(b.block[from-b.at:to-b.at], &m); err != nil {
		return Member{}, fmt.Errorf("%s is damaged: %w", b.file.Name(), err)
	}
	return m.of()
}

// marked gives the members that were refused one by one: each is answered by the provider's words.
func (p *Part) marked(yield func(Result) bool) error {
	return p.d.dir.each(&p.e.Status, func(i int, m *member) error {
		who, err := m.of()
		if err != nil {
			return err
		}
		body, err := json.Marshal(map[string]any{"error": map[string]string{
			"type": "invalid_request_error", "message": m.Bad,
		}})
		if err != nil {
			return err
		}
		r := batchapi.Result{ID: m.ID, Fate: batchapi.Answered, Status: http.StatusBadRequest, Body: body}
		if !yield(Result{Index: i, Member: who, Result: r}) {
			return errStopped
		}
		return nil
	})
}
