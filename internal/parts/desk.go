package parts

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/provider"
)

// Desk carries parts. Its methods are safe for concurrent use, but for Add and Flush, which are of one goroutine.
//
// Each part that is not over has a goroutine, which alone changes its entry once Start was called. It changes it under mu and
// saves it before it acts on it, so what is saved is never behind what the provider knows.
type Desk struct {
	cfg      Config
	dir      *folder
	accounts map[string]*account
	filling  map[fillKey]*filling
	changed  chan struct{}
	judging  chan struct{} // holds one while a part's results are counted, which takes memory

	saving  sync.Mutex // held while Save runs
	written uint64     // the version that was saved last
	savedAt time.Time

	mu      sync.Mutex
	parts   []*Part       // in the order in which they were begun
	early   []*Part       // those that Open found
	bell    chan struct{} // closed when what a part waits for may have come
	version uint64        // of what there is to save
	err     error
	unsaved error   // of the Save that failed
	stuck   []error // of parts of which nothing can come in this process
	calloff bool
	ctx     context.Context // of Start; nil before
	cancel  context.CancelFunc
	carried sync.WaitGroup
}

// Part is a part. Its methods are for one goroutine.
type Part struct {
	d        *Desk
	a        *account
	endpoint provider.Endpoint

	e      entry           // guarded by the Desk's mu, but for what never changes
	seen   *batchapi.Batch // as it was last looked at, by this process
	handed bool            // by Ready
	stuck  bool            // nothing can come of it in this process
	asked  bool            // the provider was asked to cancel it
	known  bool            // an Upload may have been tried
	bare   bool            // its files are gone, so that nobody knows whose its results are

	trouble trouble   // of who carries it
	heardOf time.Time // when this process was told of its batch
	renewed bool      // its file was looked for at the provider, as nothing else is wrong with it
}

// Status is how it stands.
func (p *Part) Status() Status {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	return p.e.Status
}

// Open takes up what earlier processes left.
func Open(cfg Config) (*Desk, error) {
	if cfg.Terms.Poll <= 0 {
		cfg.Terms.Poll = defaultPoll
	}
	if cfg.Terms.Grace <= 0 {
		cfg.Terms.Grace = defaultGrace
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	entries, err := decode(cfg.Saved, true)
	if err != nil {
		return nil, err
	}
	d := &Desk{
		cfg: cfg, dir: &folder{path: cfg.Dir}, accounts: map[string]*account{}, filling: map[fillKey]*filling{},
		changed: make(chan struct{}, 1), judging: make(chan struct{}, 1), bell: make(chan struct{}),
	}
	for name, api := range cfg.APIs {
		if d.accounts[name], err = newAccount(&cfg, name, api); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	kept := map[string]*entry{}
	for i := range entries {
		kept[entries[i].Tag] = &entries[i]
		if err := d.take(&entries[i]); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	if err := d.dir.clear(kept); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.announce()
	return d, nil
}

// take makes a part of what was saved of it, if its files are there.
func (d *Desk) take(e *entry) error {
	if e.State == Fetched && !e.Marked && d.dir.lacksResults(e) { // they are fetched again
		e.State, e.Files = string(batchapi.Finishing), 0
	}
	p := &Part{d: d, a: d.accounts[e.Account], e: *e, known: true}
	p.endpoint, _ = endpoint(e.Endpoint)
	d.parts = append(d.parts, p)
	if p.a != nil && !e.MadeAt.IsZero() {
		p.a.made = append(p.a.made, e.MadeAt)
	}
	if e.Over() {
		return nil
	}
	if p.a == nil {
		return fmt.Errorf("part %s is at %s: configure a key and a base URL for it", e.Tag, e.Account)
	}
	switch err := d.dir.check(e); {
	case errors.Is(err, fs.ErrNotExist):
		p.strip()
	case err != nil:
		return fmt.Errorf("part %s: %w", e.Tag, err)
	default:
		d.early = append(d.early, p)
	}
	return nil
}

// Members gives the members of the parts that earlier processes left, and their parts, before Start is called. If a file is
// damaged it ends early, and Err says so.
func (d *Desk) Members() iter.Seq2[Member, *Part] {
	return func(yield func(Member, *Part) bool) {
		for _, p := range d.early {
			if p.Status().State == Dropped {
				continue
			}
			more := true
			err := d.dir.each(&p.e.Status, func(_ int, m *member) error {
				who, err := m.of()
				if err == nil && !yield(who, p) {
					more, err = false, errStopped
				}
				return err
			})
			if !more {
				return
			}
			if err != nil {
				d.fail(err)
				return
			}
		}
	}
}

// errStopped ends an each early.
var errStopped = errors.New("stopped")

// Start begins to submit and to look. It returns at once; ctx ends it, and parts stay as they are.
func (d *Desk) Start(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx, d.cancel = context.WithCancel(ctx)
	for _, p := range d.parts {
		d.carryLocked(p)
	}
}

// carryLocked has a goroutine carry a part.
func (d *Desk) carryLocked(p *Part) {
	if d.ctx == nil || p.e.Over() || p.e.ready() || d.err != nil || d.ctx.Err() != nil {
		return
	}
	ctx := d.ctx
	d.carried.Go(func() { d.carry(ctx, p) })
}

// Changed is sent to when Ready, Full or Status may say something else.
func (d *Desk) Changed() <-chan struct{} { return d.changed }

// announce tells of a change.
func (d *Desk) announce() {
	wake.Up(d.changed)
}

// ringLocked wakes what waits for other parts.
func (d *Desk) ringLocked() {
	close(d.bell)
	d.bell = make(chan struct{})
}

// Ready returns a part that ended, and whose results are here, once; nil while there is none.
func (d *Desk) Ready() *Part {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.parts {
		if p.e.ready() && !p.handed {
			p.handed = true
			return p
		}
	}
	return nil
}

// Merged says that what came of a part is recorded safely. It goes, with its files. One that was refused becomes Dropped.
func (d *Desk) Merged(p *Part) error {
	d.mu.Lock()
	e := p.e
	if e.Over() {
		d.mu.Unlock()
		return nil
	}
	p.e = e.small()
	p.e.State = Merged
	if e.State == Refused { // nothing came of it
		p.e.State = Dropped
	}
	d.parts = forget(d.parts)
	d.mu.Unlock()
	if err := d.save(); err != nil {
		return err
	}
	d.dir.remove(&e)
	d.announce()
	return nil
}

// forget leaves out the oldest of the parts that are over, where there are many.
func forget(all []*Part) []*Part {
	over := 0
	for _, p := range all {
		if p.e.Over() {
			over++
		}
	}
	return slices.DeleteFunc(all, func(p *Part) bool {
		if !p.e.Over() || over <= mostMerged {
			return false
		}
		over--
		return true
	})
}

// Cancel has all batches end soon, and nothing more submitted. What is done by then becomes Ready. It does not wait for that.
// It is of the goroutine of Add.
func (d *Desk) Cancel() error {
	d.mu.Lock()
	d.calloff = true
	var gone []entry
	for _, f := range d.filling {
		f.w.close()
		gone = append(gone, f.p.e)
		f.p.dropLocked()
	}
	clear(d.filling)
	for _, p := range d.parts {
		if p.e.State == Waiting {
			gone = append(gone, p.e)
			p.dropLocked()
		}
	}
	d.ringLocked()
	d.mu.Unlock()
	if err := d.save(); err != nil {
		return err
	}
	for i := range gone {
		d.dir.remove(&gone[i])
	}
	d.announce()
	return nil
}

// dropLocked ends a part of which nothing ran.
func (p *Part) dropLocked() {
	p.e = p.e.small()
	p.e.State = Dropped
}

// Status returns how all parts stand, merged ones too, in the order in which they were begun.
func (d *Desk) Status() []Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]Status, len(d.parts))
	for i, p := range d.parts {
		all[i] = p.e.Status
	}
	return all
}

// Open is how many parts are not merged, and may still come to something in this process. When it is 0, Err says whether
// there are others.
func (d *Desk) Open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.filling)
	for _, p := range d.parts {
		if !p.e.Over() && !p.stuck {
			n++
		}
	}
	return n
}

// Err is why nothing more can come: the key is refused, say. Parts stay as they are. Where some can still come to something,
// it is silent of those that cannot.
func (d *Desk) Err() error {
	open := d.Open()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil || open > 0 {
		return d.err
	}
	lost := LostError{Dir: d.cfg.Dir}
	for _, p := range d.parts {
		switch {
		case p.bare && p.stuck:
			lost.Bare = append(lost.Bare, p.e.Status)
		case p.e.State == Lost:
			lost.Parts = append(lost.Parts, p.e.Status)
		}
	}
	err := errors.Join(d.stuck...)
	if len(lost.Parts)+len(lost.Bare) > 0 {
		err = errors.Join(err, &lost)
	}
	return err
}

// fail ends all of it.
func (d *Desk) fail(err error) {
	d.mu.Lock()
	if d.err == nil {
		d.err = err
	}
	if d.cancel != nil {
		d.cancel()
	}
	d.mu.Unlock()
	d.announce()
}

// Close ends it and waits for its goroutines, a minute at most for files that are being removed. What is being filled is
// dropped.
func (d *Desk) Close() error {
	d.mu.Lock()
	if d.cancel != nil {
		d.cancel()
	} else {
		d.ctx, d.cancel = context.WithCancel(context.Background())
		d.cancel()
	}
	d.mu.Unlock()
	d.carried.Wait()
	d.mu.Lock()
	dropped := slices.Collect(maps.Values(d.filling))
	clear(d.filling)
	d.mu.Unlock()
	for _, f := range dropped {
		f.w.drop(d.dir)
	}
	var errs []error
	for _, a := range d.accounts {
		if a != nil {
			errs = append(errs, a.sched.Close())
		}
	}
	return errors.Join(errs...)
}

// save has all that is known now on the disk when it returns.
func (d *Desk) save() error {
	d.mu.Lock()
	d.version++
	want := d.version
	d.mu.Unlock()
	d.saving.Lock()
	defer d.saving.Unlock()
	if d.written >= want { // somebody saved it along with theirs
		return nil
	}
	d.mu.Lock()
	if d.unsaved != nil { // what could not be saved must not be overtaken
		defer d.mu.Unlock()
		return d.unsaved
	}
	version, entries := d.version, make([]entry, len(d.parts))
	for i, p := range d.parts {
		entries[i] = p.e
		entries[i].Not = slices.Clone(p.e.Not)
	}
	d.mu.Unlock()
	text, err := encode(entries)
	if err == nil {
		err = d.cfg.Save(text)
	}
	if err != nil {
		err = fmt.Errorf("parts cannot be saved: %w", err)
		d.mu.Lock()
		d.unsaved = err
		d.mu.Unlock()
		d.fail(err)
		return err
	}
	d.written, d.savedAt = version, time.Now()
	return nil
}

// newTag returns a tag that no part has.
func (d *Desk) newTag() string {
	var b [6]byte
	for {
		_, _ = rand.Read(b[:]) // never fails
		tag := hex.EncodeToString(b[:])
		d.mu.Lock()
		taken := slices.ContainsFunc(d.parts, func(p *Part) bool { return p.e.Tag == tag })
		d.mu.Unlock()
		if !taken {
			return tag
		}
	}
}
