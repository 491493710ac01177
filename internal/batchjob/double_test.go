package batchjob_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/provider"
)

// double is a provider's Batch API in memory. What it runs it counts by id.
type double struct {
	mu              sync.Mutex
	nameless        bool // it keeps no tags: ids carry them
	bounds          provider.BatchAPI
	endpoints       []provider.Endpoint
	takes           time.Duration
	carries         time.Duration // how long a file is under way to it
	batches         []*doubled
	files           []doubledFile
	runs            map[string]int // how often a request was run
	slower          time.Duration  // by how much each batch takes longer than the one before
	reversed        bool           // Find gives the newest first
	enqueued, tells int            // tokens that it takes at once, 10 of a request, and what it says of that
	mostOpen        int            // batches at once
	lag             time.Duration  // before Find sees a batch

	fault                  func(op string) fault // asked at each call; nil is none
	fails                  func(op string) error // likewise, before; what it says has no effect
	skew                   time.Duration         // of its clock
	cut                    int                   // how many fetches end too soon
	creates, gets, cancels int
	refuse                 func(n int, p *batchjob.File, b *doubled) *batchjob.Problem // has the nth Create's batch fail
	state                  batchjob.Status                                             // what batches end in; "" is completed
	word                   batchjob.Status                                             // of batches that run; "" is in_progress
	uncounted              int                                                         // by which it counts too few that failed
	goneFor                int                                                         // fetches that find nothing
	skip                   func(id string) bool                                        // requests without a result
}

type doubledFile struct {
	tag, id string
	text    []byte
	at      time.Time
}

type doubled struct {
	batchjob.Batch
	ids     []string // of its requests
	members []string // their items
	at      time.Time
	problem *batchjob.Problem
	called  bool
	takes   time.Duration
	expires bool  // half of it
	done    []int // the requests that ran
}

// fault is what goes wrong with a call.
type fault int

const (
	none fault = iota
	unsent
	lostBefore // the request is lost, and nobody knows
	lostAfter  // the answer is
	late       // the answer is, and what was asked for happens only now
	badKey
)

// lateness is by how much what is late is.
const lateness = 8 * time.Second

func (d *double) meet(op string) fault {
	if d.fault == nil {
		return none
	}
	return d.fault(op)
}

func (d *double) failing(op string) error {
	if d.fails == nil {
		return nil
	}
	return d.fails(op)
}

// saying is what a provider answers that does nothing.
func saying(kind sluice.Kind, text string) error {
	return &sluice.CallError{Outcome: sluice.Outcome{Kind: kind, Err: errors.New(text)}}
}

var errLine = errors.New("connection reset")

func (f fault) err() error {
	switch f {
	case none:
		return nil
	case badKey:
		return &sluice.CallError{Outcome: sluice.Outcome{Kind: sluice.Auth, Err: errors.New("the key is refused")}}
	case unsent:
		return &sluice.CallError{Outcome: sluice.Outcome{Kind: sluice.Network, Err: errLine, Unsent: true}}
	}
	return &sluice.CallError{Outcome: sluice.Outcome{Kind: sluice.Network, Err: errLine}}
}

func (d *double) Limits() provider.BatchAPI      { return d.bounds }
func (d *double) Endpoints() []provider.Endpoint { return d.endpoints }

func (d *double) Frame() batchjob.Frame {
	if d.nameless {
		return batchjob.Frame{Open: "[", Between: "\n", Close: "]"}
	}
	return batchjob.Frame{Between: "\n", Close: "\n"}
}

func (d *double) AppendRequest(dst []byte, id string, _ provider.Endpoint, body []byte) []byte {
	return fmt.Appendf(dst, `{"id":%q,"body":%s}`, id, body)
}

func readAll(p *batchjob.File) ([]byte, error) {
	r, err := p.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func (d *double) Upload(ctx context.Context, p *batchjob.File) (string, error) {
	if err := wake.In(ctx, d.carries, nil); err != nil {
		return "", err
	}
	text, err := readAll(p)
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.failing("upload"); err != nil {
		return "", err
	}
	if int64(len(text)) != p.Size {
		return "", fmt.Errorf("size is %d, told was %d", len(text), p.Size)
	}
	if d.nameless {
		return "", nil
	}
	f := d.meet("upload")
	if f == unsent || f == lostBefore {
		return "", f.err()
	}
	file := doubledFile{p.Tag, fmt.Sprintf("file-%d", len(d.files)+1), text, time.Now()}
	d.files = append(d.files, file)
	return file.id, f.err()
}

func (d *double) Create(_ context.Context, p *batchjob.File, file string) (batchjob.Batch, error) {
	text, err := readAll(p)
	if err != nil {
		return batchjob.Batch{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.failing("create"); err != nil {
		return batchjob.Batch{}, err
	}
	f := d.meet("create")
	if f == unsent || f == lostBefore {
		return batchjob.Batch{}, f.err()
	}
	if !d.nameless {
		i := slices.IndexFunc(d.files, func(f doubledFile) bool { return f.id == file })
		if i < 0 {
			return batchjob.Batch{}, saying(sluice.BadRequest, "there is no such file")
		}
		text = d.files[i].text
	}
	b := &doubled{at: time.Now()}
	b.ids, b.members = idsOf(text)
	if f == late {
		b.at = b.at.Add(lateness)
	}
	b.ID, b.File, b.Status = fmt.Sprintf("batch-%d", len(d.batches)+1), file, batchjob.Validating
	b.takes = d.takes + time.Duration(len(d.batches))*d.slower
	open, tokens := 0, 0
	for _, other := range d.batches {
		if d.advance(other); !other.Status.Ended() && other.problem == nil {
			open, tokens = open+1, tokens+10*other.Requests
		}
	}
	if d.mostOpen = max(d.mostOpen, open+1); d.enqueued > 0 && tokens+10*len(b.ids) > d.enqueued {
		b.problem = &batchjob.Problem{Kind: batchjob.NoRoom, Message: "too much is enqueued", Tokens: d.tells}
	}
	b.Requests, b.Created, b.Expires = len(b.ids), time.Now().Add(d.skew), time.Now().Add(24*time.Hour)
	if !d.nameless {
		b.Tag = p.Tag
	}
	if d.refuse != nil && b.problem == nil {
		b.problem = d.refuse(d.creates, p, b)
	}
	d.creates++
	d.batches = append(d.batches, b)
	return b.Batch, f.err()
}

// foreign is a batch that another program makes with the same key.
func (d *double) foreign(requests int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := &doubled{at: time.Now()}
	for i := range requests {
		b.ids, b.members = append(b.ids, fmt.Sprintf("theirs-%d-x%d", i, i)), append(b.members, fmt.Sprintf("x%d", i))
	}
	b.ID, b.Status, b.Requests, b.Created = fmt.Sprintf("batch-%d", len(d.batches)+1), batchjob.Running, requests, time.Now()
	d.batches = append(d.batches, b)
}

// idsOf returns the IDs of the requests in a file, and of their items.
func idsOf(text []byte) (ids, members []string) {
	dec := json.NewDecoder(bytes.NewReader(bytes.Trim(text, "[]")))
	for {
		var l struct {
			ID   string
			Body struct{ N int }
		}
		if err := dec.Decode(&l); err != nil {
			return ids, members
		}
		ids, members = append(ids, l.ID), append(members, fmt.Sprintf("m%d", l.Body.N))
	}
}

func (d *double) Find(_ context.Context, p *batchjob.File, since time.Time) (found []batchjob.Batch, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.failing("find"); err != nil {
		return nil, err
	}
	if f := d.meet("find"); f != none {
		return nil, f.err()
	}
	for _, b := range d.batches {
		if time.Since(b.at) < d.lag || b.Created.Before(since) {
			continue
		}
		if d.nameless && b.Requests == p.Requests || !d.nameless && b.Tag == p.Tag {
			d.advance(b)
			found = append(found, b.Batch)
		}
	}
	if d.reversed {
		slices.Reverse(found)
	}
	return found, nil
}

// advance has time pass for a batch.
func (d *double) advance(b *doubled) {
	switch since := time.Since(b.at); {
	case b.Status.Ended():
		return
	case b.problem != nil && since > time.Second:
		b.Status, b.Problem, b.Ended = batchjob.Failed, b.problem, time.Now()
		return
	case b.problem != nil:
		return
	case since < b.takes && !b.called:
		if b.Status = batchjob.Running; d.word != "" {
			b.Status = d.word
		}
		return
	}
	b.Status, b.Ended = batchjob.Completed, time.Now()
	if d.state != "" {
		b.Status = d.state
	}
	if b.called {
		b.Status = batchjob.Cancelled
	}
	b.Results, b.Failed = []string{"results-" + b.ID}, -d.uncounted
	for i, member := range b.members {
		if b.expires && i%2 == 1 {
			b.Status = batchjob.Expired
			continue
		}
		d.runs[member]++
		b.done = append(b.done, i)
		if d.skip == nil || !d.skip(member) {
			b.Succeeded++
		}
	}
}

// have has it know these batches.
func (d *double) have(batches []*doubled) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.batches = batches
}

// runAll has all batches end, those too that nobody looks at.
func (d *double) runAll() {
	time.Sleep(max(d.takes, time.Minute))
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.batches {
		d.advance(b)
	}
}

func (d *double) find(id string) *doubled {
	for _, b := range d.batches {
		if b.ID == id {
			return b
		}
	}
	return nil
}

func (d *double) Get(_ context.Context, id string) (batchjob.Batch, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gets++
	if err := d.failing("get"); err != nil {
		return batchjob.Batch{}, err
	}
	if f := d.meet("get"); f != none {
		return batchjob.Batch{}, f.err()
	}
	b := d.find(id)
	if b == nil {
		return batchjob.Batch{}, batchjob.ErrUnknown
	}
	d.advance(b)
	return b.Batch, nil
}

func (d *double) Cancel(_ context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancels++
	if f := d.meet("cancel"); f != none {
		return f.err()
	}
	if b := d.find(id); b != nil {
		b.called = true
	}
	return nil
}

func (d *double) Fetch(ctx context.Context, result string, w io.Writer) error {
	if err := wake.In(ctx, d.carries, nil); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.failing("fetch"); err != nil {
		return err
	}
	if f := d.meet("fetch"); f != none {
		return f.err()
	}
	b := d.find(strings.TrimPrefix(result, "results-"))
	d.goneFor--
	if b == nil || d.goneFor >= 0 {
		return batchjob.ErrGone
	}
	var text bytes.Buffer
	for _, n := range slices.Backward(b.done) {
		if d.skip == nil || !d.skip(b.members[n]) {
			fmt.Fprintf(&text, "{\"id\":%q}\n", b.ids[n])
		}
	}
	if d.cut > 0 && text.Len() > 0 {
		d.cut--
		text.Truncate(max(0, text.Len()-4-20*(d.cut%2)))
	}
	_, err := w.Write(text.Bytes())
	return err
}

func (d *double) ParseResult(line []byte) (batchjob.Result, error) {
	var r struct{ ID string }
	if err := json.Unmarshal(line, &r); err != nil {
		return batchjob.Result{}, err
	}
	return batchjob.Result{ID: r.ID, Fate: batchjob.Answered, Status: 200, Body: []byte(`{}`)}, nil
}
