package parts_test

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
	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/wake"
)

// double is a provider's Batch API in memory. What it runs it counts by id.
type double struct {
	mu              sync.Mutex
	nameless        bool // it keeps no tags: ids carry them
	bounds          batchapi.Bounds
	takes           time.Duration
	carries         time.Duration // how long a file is under way to it
	batches         []*doubled
	files           []doubledFile
	runs            map[string]int // how often a request was run
	slower          time.Duration  // by how much each batch takes longer than the one before
	reversed        bool           // Find gives the newest first
	enqueued, tells int            // tokens that it takes at once, 10 of a request, and what it says of that
	mostOpen        int            // batches at once
	lag             time.Duration  // before Find sees a batch, and FindFile a file

	fault                  func(op string) fault // asked at each call; nil is none
	fails                  func(op string) error // likewise, before; what it says has no effect
	skew                   time.Duration         // of its clock
	cut                    int                   // how many fetches end too soon
	creates, gets, cancels int
	refuse                 func(n int, p *batchapi.Part, b *doubled) *batchapi.Problem // has the nth Create's batch fail
	state                  batchapi.State                                              // what batches end in; "" is completed
	word                   batchapi.State                                              // of batches that run; "" is in_progress
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
	batchapi.Batch
	ids     []string
	at      time.Time
	problem *batchapi.Problem
	called  bool
	takes   time.Duration
	expires bool     // half of it
	done    []string // the requests that ran
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

func (d *double) Bounds() batchapi.Bounds { return d.bounds }
func (d *double) Frame() batchapi.Frame {
	if d.nameless {
		return batchapi.Frame{Open: "[", Between: ",", Close: "]"}
	}
	return batchapi.Frame{Between: "\n", Close: "\n"}
}

func (d *double) RequestID(tag, id string, place int) string {
	if d.nameless {
		return fmt.Sprintf("%s-%d-%s", tag, place, id)
	}
	return id
}

func (d *double) AppendRequest(dst []byte, id string, r *batchapi.Request) []byte {
	text, _ := json.Marshal(map[string]any{"id": id, "body": json.RawMessage(r.Body)})
	return append(dst, text...)
}

func readAll(p *batchapi.Part) ([]byte, error) {
	r, err := p.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func (d *double) Upload(ctx context.Context, p *batchapi.Part) (string, error) {
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

func (d *double) FindFile(_ context.Context, tag string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.meet("findfile"); f != none {
		return "", f.err()
	}
	for _, f := range d.files {
		if f.tag == tag && time.Since(f.at) >= d.lag {
			return f.id, nil
		}
	}
	return "", nil
}

func (d *double) Create(_ context.Context, p *batchapi.Part, file string) (batchapi.Batch, error) {
	text, err := readAll(p)
	if err != nil {
		return batchapi.Batch{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.failing("create"); err != nil {
		return batchapi.Batch{}, err
	}
	f := d.meet("create")
	if f == unsent || f == lostBefore {
		return batchapi.Batch{}, f.err()
	}
	if !d.nameless {
		i := slices.IndexFunc(d.files, func(f doubledFile) bool { return f.id == file })
		if i < 0 {
			return batchapi.Batch{}, saying(sluice.BadRequest, "there is no such file")
		}
		text = d.files[i].text
	}
	b := &doubled{at: time.Now(), ids: idsOf(text)}
	if f == late {
		b.at = b.at.Add(lateness)
	}
	b.ID, b.File, b.State = fmt.Sprintf("batch-%d", len(d.batches)+1), file, batchapi.Validating
	b.takes = d.takes + time.Duration(len(d.batches))*d.slower
	open, tokens := 0, 0
	for _, other := range d.batches {
		if d.advance(other); !other.State.Ended() && other.problem == nil {
			open, tokens = open+1, tokens+10*other.Requests
		}
	}
	if d.mostOpen = max(d.mostOpen, open+1); d.enqueued > 0 && tokens+10*len(b.ids) > d.enqueued {
		b.problem = &batchapi.Problem{Kind: batchapi.NoRoom, Message: "too much is enqueued", Tokens: d.tells}
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
		b.ids = append(b.ids, fmt.Sprintf("theirs-%d-x%d", i, i))
	}
	b.ID, b.State, b.Requests, b.Created = fmt.Sprintf("batch-%d", len(d.batches)+1), batchapi.Running, requests, time.Now()
	d.batches = append(d.batches, b)
}

func idsOf(text []byte) (ids []string) {
	dec := json.NewDecoder(bytes.NewReader(text))
	type line struct{ ID string }
	if text[0] == '[' {
		var all []line
		if err := dec.Decode(&all); err != nil {
			panic(err)
		}
		for _, l := range all {
			ids = append(ids, l.ID)
		}
		return ids
	}
	for {
		var l line
		if err := dec.Decode(&l); err != nil {
			return ids
		}
		ids = append(ids, l.ID)
	}
}

func (d *double) Find(_ context.Context, p *batchapi.Part, since time.Time) (found []batchapi.Batch, err error) {
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
	case b.State.Ended():
		return
	case b.problem != nil && since > time.Second:
		b.State, b.Problem, b.Ended = batchapi.Failed, b.problem, time.Now()
		return
	case b.problem != nil:
		return
	case since < b.takes && !b.called:
		if b.State = batchapi.Running; d.word != "" {
			b.State = d.word
		}
		return
	}
	b.State, b.Ended = batchapi.Completed, time.Now()
	if d.state != "" {
		b.State = d.state
	}
	if b.called {
		b.State = batchapi.Cancelled
	}
	b.Results, b.Failed = []string{"results-" + b.ID}, -d.uncounted
	for i, id := range b.ids {
		if b.expires && i%2 == 1 {
			b.State = batchapi.Expired
			continue
		}
		d.runs[plain(id)]++
		b.done = append(b.done, id)
		if d.skip == nil || !d.skip(plain(id)) {
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

// plain is the custom_id of a request's id.
func plain(id string) string { return id[strings.LastIndexByte(id, '-')+1:] }

func (d *double) find(id string) *doubled {
	for _, b := range d.batches {
		if b.ID == id {
			return b
		}
	}
	return nil
}

func (d *double) Get(_ context.Context, id string) (batchapi.Batch, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gets++
	if err := d.failing("get"); err != nil {
		return batchapi.Batch{}, err
	}
	if f := d.meet("get"); f != none {
		return batchapi.Batch{}, f.err()
	}
	b := d.find(id)
	if b == nil {
		return batchapi.Batch{}, batchapi.ErrUnknown
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
		return batchapi.ErrGone
	}
	var text bytes.Buffer
	for _, id := range slices.Backward(b.done) {
		if d.skip == nil || !d.skip(plain(id)) {
			fmt.Fprintf(&text, "{\"id\":%q}\n", id)
		}
	}
	if d.cut > 0 && text.Len() > 0 {
		d.cut--
		text.Truncate(max(0, text.Len()-4-20*(d.cut%2)))
	}
	_, err := w.Write(text.Bytes())
	return err
}

func (d *double) ParseResult(line []byte) (batchapi.Result, error) {
	var r struct{ ID string }
	if err := json.Unmarshal(line, &r); err != nil {
		return batchapi.Result{}, err
	}
	return batchapi.Result{ID: r.ID, Fate: batchapi.Answered, Status: 200, Body: []byte(`{}`)}, nil
}
