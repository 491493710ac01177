package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/wake"
)

// saveEvery is how often what tenants without a spending cap spent is written, and what other processes spent is taken in.
const saveEvery = 2 * time.Second

// gather is for how long what calls did cost is gathered before it is written.
const gather = 20 * time.Millisecond

// purses are what tenants spent, of this day and this month of UTC. They are kept in a file, to which each process that
// serves the same tenants adds its part.
//
// What a call under a spending cap may cost is in the file before it is sent. So that not every call has to write, the file is given a
// lead: it says that more was spent than was. Whoever is killed is charged for that lead and for what was in flight, and never too
// little.
type purses struct {
	path string // "": nowhere
	log  *slog.Logger
	stop chan struct{}
	now  chan struct{} // there is something to write that is not to wait
	wg   sync.WaitGroup

	asked atomic.Int64 // how often somebody wanted all written that there was

	saving sync.Mutex
	tried  int64 // of those, for how many that was done or failed

	mu  sync.Mutex
	all map[string]*purse
}

// purse is one tenant's.
type purse struct {
	in *purses

	mu         sync.Mutex
	day, month spent
	lead       float64 // that the file is given while calls under a cap come
	spends     bool    // such calls came since it was last looked
}

const (
	leadCalls = 256  // a lead is what so many calls like the last may cost,
	leadPart  = 0.01 // and at most such a part of a cap
)

// spent is what was spent in a period, in US dollars.
type spent struct {
	Period string  `json:"period"` // as 2026-01-31 or 2026-01
	USD    float64 `json:"usd"`

	own  float64    // the part of it that is not in the file yet; below zero, as the file has a lead
	held float64    // the part of it that open calls hold, as they were estimated when they came
	cap  budget.Cap // of this process, with its open calls
}

// fits reports whether an amount fits below a limit in US dollars (0: none) beside the amount that was spent and the corrected estimates of
// the open calls, and whether it would fit without those.
func (s *spent) fits(limit float64, more budget.Amount) (now, later bool) {
	s.cap.Limit[budget.USD], s.cap.Used[budget.USD] = math.Round(limit*budget.Dollar), math.Round((s.USD-s.held)*budget.Dollar)
	return s.cap.Fits(more), s.cap.FitsLater(more)
}

// purseDocument is what the file holds.
type purseDocument struct {
	Version int                    `json:"version"`
	Tenants map[string]purseRecord `json:"tenants"`
}

type purseRecord struct {
	Day   spent `json:"day"`
	Month spent `json:"month"`
}

// openPurses reads what was spent, and goes on to write it until it is closed.
func openPurses(path string, log *slog.Logger) (*purses, error) {
	p := &purses{path: path, log: log, stop: make(chan struct{}), now: make(chan struct{}, 1), all: make(map[string]*purse)}
	if path == "" {
		return p, nil
	}
	to, err := followed(path)
	if err != nil {
		return nil, fmt.Errorf("spending of tenants: %w", err)
	}
	p.path = to
	doc, err := readPurses(to)
	if err != nil {
		return nil, err
	}
	p.takeIn(doc)
	p.wg.Go(p.keep)
	return p, nil
}

func readPurses(path string) (doc purseDocument, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return purseDocument{Version: 1}, nil
	}
	if err != nil {
		return doc, fmt.Errorf("spending of tenants: %w", err)
	}
	if err = json.Unmarshal(b, &doc); err == nil && doc.Version != 1 {
		err = fmt.Errorf("the file version %d is unknown", doc.Version)
	}
	if err != nil {
		return doc, fmt.Errorf("spending of tenants: %s: %w", path, err)
	}
	now := time.Now()
	for name, r := range doc.Tenants {
		if min(r.Day.USD, r.Month.USD) < 0 {
			return doc, fmt.Errorf("spending of tenants: %s: the amount of %s is negative", path, name)
		}
		r.present(now)
		doc.Tenants[name] = r
	}
	return doc, nil
}

// of returns a tenant's purse.
func (p *purses) of(name string) *purse {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all[name] == nil {
		p.all[name] = &purse{in: p}
	}
	return p.all[name]
}

// keep writes what was spent from time to time.
func (p *purses) keep() {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.rest()
		case <-p.now:
			time.Sleep(gather)
		case <-p.stop:
			return
		}
		if err := p.save(); err != nil {
			p.log.Error("the spending of tenants cannot be saved", "error", err)
		}
	}
}

// rest ends the leads of tenants who spent nothing since it was last called.
func (p *purses) rest() {
	p.each(func(_ string, one *purse) {
		if !one.spends {
			one.lead = 0
		}
		one.spends = false
	})
}

// flush returns when all is in the file that was spent before. Calls that want it at once share a write, also one that fails: what
// cannot be written is tried again from time to time, and told of then.
func (p *purses) flush() {
	if p.path == "" {
		return
	}
	n := p.asked.Add(1)
	p.saving.Lock()
	defer p.saving.Unlock()
	if p.tried >= n {
		return
	}
	all := p.asked.Load()
	_ = p.saveLocked()
	p.tried = all
}

// soon has what was spent be written by somebody else, at once.
func (p *purses) soon() {
	wake.Up(p.now) // it is about to be
}

// close writes the last. It is called once.
func (p *purses) close() error {
	close(p.stop)
	p.wg.Wait()
	if p.path == "" {
		return nil
	}
	p.each(func(_ string, one *purse) { one.lead = 0 })
	return p.save()
}

// save adds what this process spent to the file, and takes in what others did.
func (p *purses) save() error {
	p.saving.Lock()
	defer p.saving.Unlock()
	return p.saveLocked()
}

func (p *purses) saveLocked() error {
	if !p.changed() {
		doc, err := readPurses(p.path)
		if err == nil {
			p.takeIn(doc)
		}
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.path), 0o700); err != nil {
		return err
	}
	return atomicfile.Locked(context.Background(), p.path, func() error {
		doc, err := readPurses(p.path)
		if err != nil {
			return err
		}
		parts := p.addTo(&doc, time.Now())
		if err := replaceFile(p.path, doc); err != nil {
			return err
		}
		p.written(parts)
		p.takeIn(doc)
		return nil
	})
}

func (p *purses) each(do func(name string, one *purse)) {
	p.mu.Lock()
	all := maps.Clone(p.all)
	p.mu.Unlock()
	for name, one := range all {
		one.mu.Lock()
		do(name, one)
		one.mu.Unlock()
	}
}

func (p *purses) changed() (any bool) {
	p.each(func(_ string, one *purse) { any = any || one.day.own != -one.lead || one.month.own != -one.lead })
	return any
}

// addTo adds what is not in the file yet, and returns it.
func (p *purses) addTo(doc *purseDocument, now time.Time) map[string]purseRecord {
	_, month := periods(now)
	if doc.Tenants == nil {
		doc.Tenants = make(map[string]purseRecord)
	}
	maps.DeleteFunc(doc.Tenants, func(_ string, r purseRecord) bool { return r.Month.Period < month })
	parts := make(map[string]purseRecord)
	p.each(func(name string, one *purse) {
		one.roll(now)
		part := purseRecord{one.day, one.month}
		part.Day.own += one.lead
		part.Month.own += one.lead
		parts[name] = part
		r, there := doc.Tenants[name]
		r.Day.add(&part.Day)
		r.Month.add(&part.Month)
		if there || r.Month.USD != 0 || r.Day.USD != 0 {
			doc.Tenants[name] = r
		}
	})
	return parts
}

// add adds this process's part to what the file says.
func (s *spent) add(ours *spent) {
	s.roll(ours.Period)
	if s.Period == ours.Period {
		s.USD = max(0, s.USD+ours.own)
	}
}

// written takes what is in the file now off what is not.
func (p *purses) written(parts map[string]purseRecord) {
	p.each(func(name string, one *purse) {
		part := parts[name]
		if one.day.Period == part.Day.Period {
			one.day.own -= part.Day.own
		}
		if one.month.Period == part.Month.Period {
			one.month.own -= part.Month.own
		}
	})
}

// takeIn makes the file's sums those that count, with what is not in it yet.
func (p *purses) takeIn(doc purseDocument) {
	for name, r := range doc.Tenants {
		one := p.of(name)
		one.mu.Lock()
		one.day.takeIn(r.Day)
		one.month.takeIn(r.Month)
		one.mu.Unlock()
	}
}

func (s *spent) takeIn(r spent) {
	s.roll(r.Period)
	if s.Period == r.Period {
		s.USD = max(0, r.USD+s.own)
	}
}

// roll begins a later period with nothing.
func (s *spent) roll(period string) {
	if s.Period < period {
		*s = spent{Period: period}
	}
}

// roll begins a new day and month when they come, and returns those that are counted.
func (p *purse) roll(now time.Time) (day, month string) {
	r := purseRecord{p.day, p.month}
	r.present(now)
	p.day, p.month = r.Day, r.Month
	day, month = periods(now)
	p.day.roll(day)
	p.month.roll(month)
	return p.day.Period, p.month.Period
}

// present takes what was spent in a future of more than a day for the present's: a clock was wrong then, or is now.
func (r *purseRecord) present(now time.Time) {
	day, month := periods(now)
	latestDay, latestMonth := periods(now.AddDate(0, 0, 1))
	if r.Day.Period > latestDay {
		r.Day.Period = day
	}
	if r.Month.Period > latestMonth {
		r.Month.Period = month
	}
}

func periods(now time.Time) (day, month string) {
	now = now.UTC()
	return now.Format("2006-01-02"), now.Format("2006-01")
}

// reserved is a call's part of a purse. The zero value is that of a call whose price is unknown.
type reserved struct {
	purse      *purse
	tenant     *Tenant
	day, month string  // that it counts for
	usd        float64 // the estimate when it came
	estimate   budget.Estimate
}

// reserve holds the estimate of a call, unless it does not fit: then it returns when to come again. That is never if the call alone
// exceeds a cap, and soon if open calls hold the room.
func (p *purse) reserve(now time.Time, t *Tenant, e budget.Estimate) (r reserved, until time.Time, ok bool) {
	p.mu.Lock()
	r, until, ok = p.holdLocked(now, t, e)
	behind := t.capped() && p.behindLocked()
	p.mu.Unlock()
	if ok && behind {
		p.in.flush()
	}
	return r, until, ok
}

// behindLocked reports whether more was spent than the file says.
func (p *purse) behindLocked() bool { return p.day.own > 0 || p.month.own > 0 }

// untilCallsEnd is when a call may come again whose room open calls hold.
const untilCallsEnd = time.Second

func (p *purse) holdLocked(now time.Time, t *Tenant, e budget.Estimate) (r reserved, until time.Time, ok bool) {
	day, month := p.roll(now)
	need := e.Amount()
	usd := need[budget.USD] / budget.Dollar
	if t.MaxCostDay > 0 && usd > t.MaxCostDay || t.MaxCostMonth > 0 && usd > t.MaxCostMonth {
		return r, time.Time{}, false
	}
	y, m, d := now.UTC().Date()
	for _, period := range [...]struct {
		spent *spent
		limit float64
		ends  time.Time
	}{{&p.day, t.MaxCostDay, time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)}, {&p.month, t.MaxCostMonth, time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)}} {
		switch fits, later := period.spent.fits(period.limit, need); {
		case !later:
			until = period.ends
		case !fits && until.IsZero():
			until = now.Add(untilCallsEnd)
		}
	}
	if !until.IsZero() {
		return r, until, false
	}
	r = reserved{p, t, day, month, usd, e}
	r.each(func(s *spent) {
		s.cap.Open(&e)
		s.held += usd
	})
	p.take(usd, day, month)
	if t.capped() {
		p.spends, p.lead = true, min(leadCalls*usd, leadPart*t.leastCap())
	}
	return r, time.Time{}, true
}

// each calls a function for the periods that the call counts for, if they are still the present ones.
func (r *reserved) each(do func(*spent)) {
	if r.purse.day.Period == r.day {
		do(&r.purse.day)
	}
	if r.purse.month.Period == r.month {
		do(&r.purse.month)
	}
}

// fits reports at the instant of sending whether the open calls still fit: responses may have shown since that they use more.
func (r *reserved) fits() bool {
	if r.purse == nil || !r.tenant.capped() {
		return true
	}
	r.purse.mu.Lock()
	defer r.purse.mu.Unlock()
	day, _ := r.purse.day.fits(r.tenant.MaxCostDay, budget.Amount{})
	month, _ := r.purse.month.fits(r.tenant.MaxCostMonth, budget.Amount{})
	return day && month
}

// spend counts the cost of a try, beside the estimate that is held.
func (r *reserved) spend(usd float64) {
	if r.purse != nil && usd != 0 {
		r.purse.mu.Lock()
		r.purse.take(usd, r.day, r.month)
		r.purse.mu.Unlock()
	}
}

// settle releases the estimate. It counts as spent if charged is true, for the day on which the call came.
func (r *reserved) settle(charged bool) {
	if r.purse == nil {
		return
	}
	r.purse.mu.Lock()
	usd := -r.usd
	if charged {
		usd += r.estimate.Amount()[budget.USD] / budget.Dollar
	}
	r.each(func(s *spent) {
		s.cap.Close(&r.estimate, budget.Amount{})
		s.held -= r.usd
	})
	r.purse.take(usd, r.day, r.month)
	behind := r.tenant.capped() && r.purse.behindLocked()
	r.purse.mu.Unlock()
	if behind {
		r.purse.in.soon()
	}
}

// take counts for a period, if it is still the present one.
func (p *purse) take(usd float64, day, month string) {
	if p.day.Period == day {
		p.day.USD, p.day.own = max(0, p.day.USD+usd), p.day.own+usd
	}
	if p.month.Period == month {
		p.month.USD, p.month.own = max(0, p.month.USD+usd), p.month.own+usd
	}
}

// sums are what was spent in the present day and month.
func (p *purse) sums(now time.Time) (day, month float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.roll(now)
	return p.day.USD, p.month.USD
}
