package batchjob

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/provider"
)

// Config configures a Table.
type Config struct {
	APIs map[string]API // by account, which is the name of a provider

	// Dir is the directory of the table and of the files of its parts. Only one process may use it at a time. It is created with mode 0700
	// when it is needed.
	Dir string

	// Resubmit ends lost parts without results, so that the caller can send their items again. Each is looked for once more before.
	Resubmit bool

	Poll     time.Duration   // maximum time between two requests for the status of a batch. Default 1 min
	Grace    time.Duration   // time in which a provider may not list a new batch. Default 30 s
	Changed  chan<- struct{} // is sent to after changes. Nil: none
	Observer sluice.Observer // of the requests to the APIs, whose lane is "batch-api"; nil: none
	Logger   *slog.Logger    // nil discards

	save func(folder, []Row) error // default folder.save
}

// Table has the parts of a run. Its methods are safe for concurrent use, except Add, Flush and Cancel, which need one goroutine.
type Table struct {
	cfg      Config
	dir      folder
	accounts map[string]*account
	filling  []*Part // that are no rows yet

	saving  sync.Mutex // held during a save
	savedAt time.Time

	mu        sync.Mutex
	parts     []*Part       // in the order of their beginning
	numbered  int32         // parts that got a Number
	changing  chan struct{} // closed at the next change
	unsaved   bool          // a change is not saved yet
	err       error         // ended everything
	cancelled bool
	ctx       context.Context // of Start; nil before
	stop      context.CancelFunc
	carried   sync.WaitGroup
}

// Part is a part of a Table. One goroutine may use its methods.
type Part struct {
	Number   int32 // of the part in this process, from 1
	Endpoint provider.Endpoint
	table    *Table
	account  *account
	draft    *draft // of its items, while it is being filled

	// The Table's mu guards the fields below. Once Start was called, only the goroutine of the part changes them.
	row      Row
	admitted bool  // there is room for it at the provider
	stuck    error // why nothing more comes of it in this process
	given    bool  // by Ended

	seen   *Batch // as the provider described it last
	asked  bool   // the provider was asked to cancel its batch
	fresh  bool   // this process uploaded its file
	breaks int    // failures of its batches that were the provider's fault
}

// Row returns the row of the part.
func (p *Part) Row() Row {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	return p.row
}

// Open opens the table that earlier processes left. It returns a *FileError for a file that is missing or cannot be read.
func Open(cfg Config) (*Table, error) {
	if cfg.Poll <= 0 {
		cfg.Poll = time.Minute
	}
	if cfg.Grace <= 0 {
		cfg.Grace = 30 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.save == nil {
		cfg.save = folder.save
	}
	rows, err := Read(cfg.Dir)
	if err != nil {
		return nil, err
	}
	t := &Table{
		cfg: cfg, dir: folder(cfg.Dir), accounts: make(map[string]*account), changing: make(chan struct{}),
	}
	for name, api := range cfg.APIs {
		s, err := sluice.New(sluice.Config{
			Name: name, Limits: sluice.Limits{Concurrency: maxCalls}, MaxThrottles: throttles, Observer: cfg.Observer,
		})
		if err != nil {
			return nil, errors.Join(err, t.Close())
		}
		t.accounts[name] = &account{name: name, api: api, sched: s}
	}
	open := make(map[string]bool)
	for i := range rows {
		if err = t.load(&rows[i]); err != nil {
			return nil, errors.Join(err, t.Close())
		}
		open[rows[i].Tag] = t.parts[i].row.Open()
	}
	if err = t.dir.clean(open); err == nil && cfg.Resubmit { // load may have dropped parts
		err = t.save(true)
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	wake.Up(cfg.Changed)
	return t, nil
}

// load adds a row that an earlier process saved. With Resubmit, it drops an open part without a file of items.
func (t *Table) load(r *Row) error {
	p := t.newPart(t.accounts[r.Account], *r)
	t.parts = append(t.parts, p)
	if !r.Open() {
		return nil
	}
	if p.account == nil {
		return fmt.Errorf("part %s is at %s: configure a key and a base URL for it", r.Tag, r.Account)
	}
	if r.Results && !exists(t.dir.results(r.Tag)) {
		if p.row.Results = false; r.Batch != "" { // they are fetched again
			p.row.State = Sent
		}
	}
	items := t.dir.items(r.Tag)
	switch {
	case exists(items):
		return nil
	case !t.cfg.Resubmit:
		return &FileError{Path: items, Err: fmt.Errorf("the file is missing: it has %d items of batch %q", r.Requests, r.Batch),
			hint: "restore the file, submit its items again with --redo lost (which may cost twice), or drop them with --cancel --redo lost"}
	}
	t.cfg.Logger.Warn("a batch part is dropped, because its file is missing", "file", items, "batch", r.Batch, "requests", r.Requests)
	p.row = r.small()
	return nil
}

// exists reports whether a file exists. It is true for a file that cannot be examined: reading it reports the error.
func exists(name string) bool {
	_, err := os.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

func (t *Table) newPart(a *account, r Row) *Part {
	t.numbered++
	return &Part{Number: t.numbered, table: t, account: a, Endpoint: endpointOf(r.Endpoint), row: r}
}

// Start starts to submit parts and to look at batches, until ctx ends or Close is called. Parts keep their states then.
func (t *Table) Start(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ctx, t.stop = context.WithCancel(ctx)
	for _, p := range t.parts {
		t.carryLocked(p)
	}
}

// carryLocked starts the goroutine of a part.
func (t *Table) carryLocked(p *Part) {
	if t.ctx == nil || t.ctx.Err() != nil || p.stuck != nil || p.row.State == Ended || !p.row.Open() {
		return
	}
	ctx := t.ctx
	t.carried.Go(func() { t.carry(ctx, p) })
}

// selected returns some of the parts.
func (t *Table) selected(is func(p *Part) bool) (parts []*Part) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.parts {
		if is(p) {
			parts = append(parts, p)
		}
	}
	return parts
}

// Parts returns the open parts.
func (t *Table) Parts() []*Part {
	return t.selected(func(p *Part) bool { return p.row.Open() })
}

// Rows returns all rows.
func (t *Table) Rows() []Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	rows := make([]Row, len(t.parts))
	for i, p := range t.parts {
		rows[i] = p.row
	}
	return rows
}

// Ended returns a part that ended, once; nil if there is none.
func (t *Table) Ended() *Part {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.parts {
		if p.row.State == Ended && !p.given {
			p.given = true
			return p
		}
	}
	return nil
}

// Pending returns the number of parts that may end in this process, or that Ended returned and that are not recorded.
func (t *Table) Pending() int {
	return len(t.selected(func(p *Part) bool { return p.row.Open() && p.stuck == nil }))
}

// Full reports whether several parts wait for room at one account, so that more parts would only take up disk space.
func (t *Table) Full() bool {
	waiting := make(map[*account]int)
	return len(t.selected(func(p *Part) bool {
		if p.row.State == New && !p.admitted && p.stuck == nil {
			waiting[p.account]++
		}
		return waiting[p.account] > 1
	})) > 0
}

// maxRecorded limits the recorded rows in a table.
const maxRecorded = 1000

// Recorded is called once the results of an ended part are recorded. It removes the files of the part.
func (t *Table) Recorded(p *Part) error {
	err := t.update(p, func(r *Row) {
		*r = r.small()
		recorded := 0
		for i, q := range slices.Backward(t.parts) {
			if q.row.Open() {
				continue
			}
			if recorded++; recorded > maxRecorded {
				t.parts = slices.Delete(t.parts, i, i+1)
				break
			}
		}
	})
	if err == nil {
		t.dir.remove(p.row.Tag)
	}
	return err
}

// Cancel cancels all batches, and ends parts that were not submitted. It does not wait for the batches to end.
func (t *Table) Cancel() error {
	if err := t.Flush(); err != nil {
		return err
	}
	t.mu.Lock()
	t.cancelled = true
	for _, p := range t.parts {
		if p.row.State == New && !p.admitted {
			p.row.State = Ended
		}
	}
	t.mu.Unlock()
	return t.save(true)
}

// Err returns the error after which nothing more can come of the table, or, if no part is pending, why parts are stuck: a *LostError, for
// example.
func (t *Table) Err() error {
	pending := t.Pending()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil || pending > 0 {
		return t.err
	}
	var err error
	lost := LostError{}
	for _, p := range t.parts {
		switch {
		case p.stuck == nil:
		case p.row.Lost:
			lost.add(&p.row)
		default:
			err = errors.Join(err, p.stuck)
		}
	}
	if len(lost.Batches) > 0 {
		err = errors.Join(err, &lost)
	}
	return err
}

// fail ends everything.
func (t *Table) fail(err error) {
	t.mu.Lock()
	if t.err == nil {
		t.err = err
	}
	if t.stop != nil {
		t.stop()
	}
	t.mu.Unlock()
	wake.Up(t.cfg.Changed)
}

// Close stops the table and waits for its goroutines. Parts keep their states. A part that is being filled is dropped.
func (t *Table) Close() error {
	t.mu.Lock()
	if t.stop == nil {
		t.ctx, t.stop = context.WithCancel(context.Background())
	}
	t.stop()
	t.mu.Unlock()
	t.carried.Wait()
	for _, p := range t.filling {
		p.draft.drop()
	}
	t.filling = nil
	var errs []error
	for _, a := range t.accounts {
		errs = append(errs, a.sched.Close())
	}
	return errors.Join(errs...)
}

// update changes the row of a part and saves the table.
func (t *Table) update(p *Part, change func(r *Row)) error {
	t.mu.Lock()
	change(&p.row)
	t.mu.Unlock()
	return t.save(true)
}

// countsEvery is the minimum time between two saves of changes that are only for display.
const countsEvery = 5 * time.Second

// save tells of a change, and has it on disk when it returns. A change that is not needed after a crash may be saved later.
func (t *Table) save(needed bool) error {
	t.mu.Lock()
	t.unsaved = true
	close(t.changing)
	t.changing = make(chan struct{})
	t.mu.Unlock()
	defer wake.Up(t.cfg.Changed)
	t.saving.Lock()
	defer t.saving.Unlock()
	t.mu.Lock()
	unsaved, err := t.unsaved, t.err
	later := !unsaved || !needed && time.Since(t.savedAt) < countsEvery // it is saved together with another change
	t.unsaved = later && unsaved
	t.mu.Unlock()
	switch {
	case errors.Is(err, errUnsaved): // a change that is not saved must not be followed by others
		return err
	case later:
		return nil
	}
	if rows := t.Rows(); len(rows) > 0 {
		err = t.cfg.save(t.dir, rows)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errUnsaved, err)
		t.fail(err)
		return err
	}
	t.savedAt = time.Now()
	return nil
}

var errUnsaved = errors.New("the state of batches cannot be saved")

// newTag returns a random tag.
func newTag() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// errLost stops the work on a part that a LostError describes.
var errLost = errors.New("the part is lost")

// LostError is returned for batches that the provider does not know, or whose results it does not have any more. Their items remain.
type LostError struct {
	Account string   // provider of the first batch
	Batches []string // IDs
	Lines   int      // requests of all batches
}

func (e *LostError) add(r *Row) {
	e.Account = cmp.Or(e.Account, r.Account)
	e.Batches = append(e.Batches, r.Batch)
	e.Lines += r.Requests
}

// Error names the first batches.
func (e *LostError) Error() string {
	const most = 5
	names := strings.Join(e.Batches[:min(most, len(e.Batches))], ", ")
	if more := len(e.Batches) - most; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s does not know %s or deleted the results: %d lines have no result", e.Account, names, e.Lines)
}

// Hint says what can be done.
func (e *LostError) Hint() string {
	return "use the key that submitted the batches, submit the lines again with --redo lost (which may cost twice), " +
		"or drop them with --cancel --redo lost"
}

// FaultCode is the code of the error in the catalogue of errors.
func (e *LostError) FaultCode() string { return fault.Batches }
