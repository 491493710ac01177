package batch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// TestWhateverIsCombinedEachItemIsRecordedOnce runs histories of random options over an input that changes between runs.
// Some runs are drained, cancelled, stopped by budgets, or cannot write.
func TestWhateverIsCombinedEachItemIsRecordedOnce(t *testing.T) {
	histories(t, suite.Size(25, 200), nil, func(t *testing.T, seed uint64) ([]string, error) {
		h := newSaga(t, seed)
		err := h.live()
		return h.log, err
	})
}

// histories plays the histories of seeds, then n random histories, until one fails, and shows its log.
func histories(t *testing.T, n int, seeds []uint64, live func(t *testing.T, seed uint64) (log []string, err error)) {
	for i := range n {
		seeds = append(seeds, uint64(i))
	}
	for _, seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			if log, err := live(t, seed); err != nil {
				t.Errorf("seed %d: %v\n%s", seed, err, strings.Join(log, "\n"))
			}
		})
		if t.Failed() {
			return
		}
	}
}

// saga is runs on the same output, one after the other.
type saga struct {
	t *testing.T
	questionnaire
	files files
	cache string
	log   []string

	// The same in all runs:
	stdin     bool
	changed   batch.Changed
	rules     [3]batch.Rules // by the sort that is good enough
	upstreams bool
	attempts  int

	oracle *oracle
	known  map[string]result
	cached [3]map[int]bool // questions whose good answers were recorded by runs with the cache, by the worst sort they may be of
}

func newSaga(t *testing.T, seed uint64) *saga {
	luck := rand.New(rand.NewPCG(seed, 11))
	h := &saga{
		t: t, questionnaire: newQuestionnaire(luck), files: newFiles(t, ""), cache: filepath.Join(t.TempDir(), "cache"),
		stdin: luck.IntN(4) == 0, changed: batch.ChangedRedo, upstreams: luck.IntN(3) == 0, attempts: 1 + luck.IntN(4),
		oracle: &oracle{luck: rand.New(rand.NewPCG(seed, 12))},
		cached: [3]map[int]bool{1: {}, 2: {}},
	}
	if h.stdin || luck.IntN(4) == 0 {
		h.changed = batch.ChangedKeep
	}
	h.rules[1] = batch.Rules{FailOn: batch.FailOnLength, Schema: schema(t, `{"properties":{"n":{"type":"integer"}}}`)}
	h.rules[2] = batch.Rules{FailOn: batch.FailOnLength, Schema: schema(t, `{"properties":{"n":{"type":"integer"},"sort":{"const":2}}}`)}
	h.add(5 + luck.IntN(60))
	return h
}

// text is the input.
func (h *saga) text() string {
	var b strings.Builder
	for _, it := range h.items {
		b.WriteString(question(it.id, it.question) + "\n")
	}
	return b.String()
}

// live runs until all is done.
func (h *saga) live() error {
	const most = 14
	for i := range most {
		peaceful := i == most-1
		if i > 0 && !peaceful && i < 8 {
			h.change()
		}
		p := h.plan(peaceful, i > 8)
		h.log = append(h.log, p.String())
		done, err := p.run()
		if err != nil {
			return fmt.Errorf("run %d: %w", i+1, err)
		}
		if done && i >= 8 {
			break
		}
	}
	return h.whole()
}

// whole judges the output at the end.
func (h *saga) whole() error {
	_, order, err := h.read()
	extra := make(map[string]bool)
	for _, it := range h.gone {
		extra[it.id] = true
	}
	order = slices.DeleteFunc(order, func(id string) bool { return extra[id] })
	var want []string
	for _, it := range h.items {
		want = append(want, it.id)
	}
	slices.Sort(want)
	slices.Sort(order)
	if err == nil && !slices.Equal(order, want) {
		err = fmt.Errorf("the output has %v, want %v", order, want)
	}
	if err == nil && len(order) > 0 {
		for _, it := range h.items {
			if h.known[it.id].Error != nil {
				err = fmt.Errorf("item %s failed at last: %s", it.id, h.known[it.id].Error.Message)
			}
		}
	}
	return err
}

// read reads the output, and checks each line by itself.
func (h *saga) read() (all map[string]result, order []string, err error) {
	b, err := os.ReadFile(h.files.out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	all = make(map[string]result)
	for line := range bytes.Lines(b) {
		var r result
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, nil, fmt.Errorf("output line %q: %w", line, err)
		}
		if _, twice := all[r.ID]; twice {
			return nil, nil, fmt.Errorf("%s is recorded twice", r.ID)
		}
		if err := h.right(&r); err != nil {
			return nil, nil, err
		}
		all[r.ID], order = r, append(order, r.ID)
	}
	h.known = all
	return all, order, nil
}

// right says whether a result may be that of its item.
func (h *saga) right(r *result) error {
	if r.Error != nil {
		return nil
	}
	n, _, err := answered(r.Response.Body)
	if err != nil || !slices.Contains(h.past[r.ID], n) {
		return fmt.Errorf("%s, which asked %v, has the answer %d: %w", r.ID, h.past[r.ID], n, err)
	}
	if r.Sluice.Cached && (r.Sluice.CostUSD == nil || *r.Sluice.CostUSD != 0) {
		return fmt.Errorf("%s cost something, and was not called", r.ID)
	}
	return nil
}

// answered returns which question an answer is to, and its sort, if it is an accepted one.
func answered(body []byte) (question, sort int, err error) {
	var a struct {
		Choices []struct {
			Message      struct{ Content string }
			FinishReason string `json:"finish_reason"`
		}
	}
	var content struct{ N, Sort int }
	if err := json.Unmarshal(body, &a); err != nil {
		return -1, 0, err
	}
	if len(a.Choices) != 1 || a.Choices[0].FinishReason != "stop" {
		return -1, 0, errors.New("it is no good answer")
	}
	err = json.Unmarshal([]byte(a.Choices[0].Message.Content), &content)
	return content.N, content.Sort, err
}

// plan is one run.
type plan struct {
	*saga
	cfg     batch.Config
	faults  float64
	latency time.Duration
	end     string // how it is cut: drain, stop, cancel, write; "" not at all
	at      time.Duration
	pause   time.Duration // when its first account pauses; 0 is not
	costly  bool          // prefers cost
	sort    int           // of answers, at least

	mu      sync.Mutex
	ended   bool // it was cut
	results map[string]work.Result
	cost    float64
	own     map[int]int // good results of its own calls, by question
	twice   error
}

var errEnough = errors.New("enough")

// plan draws the options of a run.
func (h *saga) plan(peaceful, patient bool) *plan {
	luck := h.luck
	coin := func(n int) bool { return luck.IntN(n) == 0 }
	p := &plan{saga: h, faults: luck.Float64() * 0.6, latency: time.Duration(1 + luck.IntN(2000)*int(time.Millisecond)),
		costly: coin(2), sort: 1 + luck.IntN(2), results: make(map[string]work.Result), own: make(map[int]int)}
	p.cfg = batch.Config{
		Input: h.files.in, Output: h.files.out, Transport: h.oracle, Changed: h.changed,
		Check: p.check(), Feedback: coin(2), RetryFailed: peaceful || patient || coin(3),
		Timeout: time.Hour, OnResult: p.note, Budget: batch.Budget{Attempts: h.attempts},
	}
	if coin(2) {
		p.cfg.Cache = h.cache
	}
	if coin(8) {
		p.cfg.Workers = 1 + luck.IntN(4)
	}
	if peaceful {
		p.faults = 0
		return p
	}
	if coin(4) {
		p.cfg.Limit = 1 + luck.IntN(len(h.items))
	}
	if coin(2) {
		p.end = [...]string{"drain", "stop", "cancel", "write"}[luck.IntN(4)]
		p.at = time.Duration(luck.IntN(15_000)) * time.Millisecond
	}
	if coin(4) {
		p.pause = time.Duration(1+luck.IntN(8000)) * time.Millisecond
	}
	p.budget(coin)
	return p
}

// check returns a check that panics at the bad answers of an item, in some runs.
func (p *plan) check() func(string, provider.Endpoint, []byte) error {
	odd := fmt.Sprint("i", p.luck.IntN(200))
	return func(id string, e provider.Endpoint, body []byte) error {
		err := p.rules[p.sort].Check(id, e, body)
		if err != nil && id == odd {
			panic("odd")
		}
		return err
	}
}

func (p *plan) budget(coin func(int) bool) {
	b := &p.cfg.Budget
	if coin(4) {
		b.Cost = math.Exp(p.luck.Float64()*5) * 0.002
	}
	if coin(4) {
		b.Tokens = int(math.Exp(p.luck.Float64()*5) * 500)
	}
	if coin(6) {
		b.Failures = 1 + p.luck.IntN(6)
	}
	if coin(6) {
		b.FailedShare = 0.05 + p.luck.Float64()/3
	}
	if coin(6) {
		b.Deadline = time.Now().Add(time.Duration(p.luck.IntN(20_000)) * time.Millisecond)
	}
}

// String is the plan for people.
func (p *plan) String() string {
	c := &p.cfg
	return fmt.Sprintf("%d items, stdin %v, changed %d, upstreams %v, attempts %d, feedback %v, cache %v, "+
		"retry failed %v, sort %d, workers %d, limit %d, budget %+v, faults %.2f, end %s at %s", len(p.items), p.stdin, c.Changed,
		p.upstreams, p.attempts, c.Feedback, c.Cache != "", c.RetryFailed, p.sort, c.Workers, c.Limit, c.Budget, p.faults, p.end, p.at)
}

// note is told of each result.
func (p *plan) note(r *work.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, twice := p.results[r.ID]; twice {
		p.twice = fmt.Errorf("%s is told of twice", r.ID)
	}
	kept := *r
	kept.Payload = bytes.Clone(r.Payload)
	p.results[r.ID] = kept
	p.cost += r.Cost
	if r.Kind == sluice.OK && !r.Cached {
		n, _, _ := answered(r.Payload)
		p.own[n]++
	}
}

// run runs it and judges what came of it, and says whether all is done.
func (p *plan) run() (done bool, err error) {
	before, _, err := p.read()
	if err != nil {
		return false, err
	}
	p.files.input(p.t, p.text())
	if p.stdin {
		p.cfg.Input, p.cfg.Stdin = "-", io.Reader(strings.NewReader(p.text()))
	}
	p.oracle.begin(p.faults, p.latency, p.sort == 2)
	schedulers := p.connect()
	defer func() {
		for _, s := range schedulers {
			s.Close()
		}
	}()
	b, err := batch.Open(p.cfg)
	if _, other := errors.AsType[*batch.OtherInputError](err); other && p.cfg.Limit > 0 {
		return false, nil // none of those lines is recorded
	}
	if err != nil {
		return false, err
	}
	if p.pause > 0 {
		defer time.AfterFunc(p.pause, func() { _ = schedulers[0].Pause() }).Stop()
		defer time.AfterFunc(p.pause+time.Minute, func() { _ = schedulers[0].Resume() }).Stop()
	}
	rep, runErr := p.doRun(b)
	if now := b.Spending(); now.Held != (budget.Amount{}) || now.Open+now.Waiting != 0 {
		return false, fmt.Errorf("the spending caps are %+v after the run", now)
	}
	p.log = append(p.log, fmt.Sprintf("  done %d, failed %d, left %d: %v", rep.Done, rep.Report.Failed, rep.Left(), runErr))
	for _, s := range schedulers {
		for _, lane := range s.Snapshot().Lanes {
			if lane.InFlight != 0 || lane.Waiting != 0 {
				return false, fmt.Errorf("%d in flight and %d waiting after the run", lane.InFlight, lane.Waiting)
			}
		}
	}
	for _, judge := range []func() error{
		func() error { return p.judgeReport(&rep, runErr) },
		func() error { return p.judgeCalls() },
		func() error { return p.judgeOutput(before) },
	} {
		if err := judge(); err != nil {
			return false, err
		}
	}
	return runErr == nil && p.cfg.Limit == 0 && rep.AlreadyFailed == 0 && rep.Report.Failed == 0, nil
}

func (p *plan) connect() (schedulers []*sluice.Scheduler) {
	if p.upstreams {
		p.cfg.Upstreams, schedulers = p.oracle.upstreams(p.t, p.attempts, p.costly)
		p.cfg.Price = prices // is not looked at
		return schedulers
	}
	return []*sluice.Scheduler{account(p.t, &p.cfg, p.attempts)}
}

// doRun runs a batch that is cut as planned.
func (p *plan) doRun(b *batch.Batch) (batch.Report, error) {
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	if p.end != "" {
		end := map[string]func(){"drain": b.Drain, "stop": func() { b.Stop(errEnough) }, "cancel": cancel, "write": b.FailWrites}[p.end]
		defer time.AfterFunc(p.at, func() {
			p.mu.Lock()
			p.ended = true
			p.mu.Unlock()
			end()
		}).Stop()
	}
	rep, err := b.Run(ctx)
	if closeErr := b.Close(); err == nil {
		err = closeErr
	}
	return rep, err
}
