package batch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// TestWhicheverWayLinesGoEachIsPaidForOnce runs histories of random ways and options over an input that changes between runs, some
// of which are cut short.
func TestWhicheverWayLinesGoEachIsPaidForOnce(t *testing.T) {
	held := []uint64{1052} // its lines without a result held the budget that others waited for
	histories(t, suite.Size(2, 12), held, func(t *testing.T, seed uint64) ([]string, error) {
		j := newJourney(t, seed)
		err := j.live()
		return j.log, err
	})
}

// journey is runs on the same output, one after the other, each by its own way.
type journey struct {
	t *testing.T
	questionnaire
	files  files
	cache  string
	server *sim.Server
	faulty bool
	checks bool
	log    []string

	cuts   int // runs whose open calls were abandoned
	mu     sync.Mutex
	refuse map[string]int // remaining answers of an item that are refused
}

// newJourney draws what stays the same in all runs, and what the provider does.
func newJourney(t *testing.T, seed uint64) *journey {
	luck := rand.New(rand.NewPCG(seed, 21))
	c := sim.Config{Seed: seed, Batches: sim.Batches{Latency: time.Duration(1+luck.IntN(3600)) * time.Second}}
	j := &journey{t: t, questionnaire: newQuestionnaire(luck), files: newFiles(t, ""), cache: filepath.Join(t.TempDir(), "cache"), faulty: luck.IntN(3) > 0,
		checks: luck.IntN(3) == 0, refuse: make(map[string]int)}
	if j.faulty {
		b := &c.Batches
		b.Fail = luck.Float64() * 0.4
		b.ExpireEvery, b.FailEvery, b.CutResults = luck.IntN(4), luck.IntN(5), luck.IntN(3)
		if b.FailEvery == 1 { // nothing would ever be done
			b.FailEvery = 2
		}
		if b.ExpireEvery == 1 {
			b.ExpireEvery = 2
		}
		if luck.IntN(2) == 0 {
			b.Drop, b.ListDelay = 0.3, time.Second
		}
		if luck.IntN(3) == 0 {
			b.EnqueuedTokens = 400 + luck.IntN(2000)
		}
		c.Faults.ServerError = luck.Float64() * 0.3
	}
	j.server = newSim(t, c)
	j.add(3 + luck.IntN(50))
	return j
}

// inquiry is the body that asks a question.
func inquiry(question int) string {
	return fmt.Sprintf(`{"model":"m","max_tokens":40,"messages":[{"role":"user","content":"What is %d?"}]}`, question)
}

func (j *journey) text() string {
	var b strings.Builder
	for _, it := range j.items {
		fmt.Fprintf(&b, `{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":%s}`+"\n", it.id, inquiry(it.question))
	}
	return b.String()
}

// live runs until all is done.
func (j *journey) live() error {
	const most = 16
	for i := range most {
		if i > 0 && i < 8 {
			j.change()
		}
		done, err := j.run(i == most-1, i > 8)
		if err != nil {
			return fmt.Errorf("run %d: %w", i+1, err)
		}
		if done && i >= 8 && j.good() {
			break
		}
	}
	return j.whole()
}

// good says whether nothing that is recorded has failed.
func (j *journey) good() bool {
	all, err := j.read()
	for _, r := range all {
		if r.Error != nil {
			return false
		}
	}
	return err == nil
}

// whole judges the output at the end.
func (j *journey) whole() error {
	all, err := j.read()
	if err != nil {
		return err
	}
	for _, it := range j.items {
		if r, ok := all[it.id]; !ok || r.Error != nil && r.Sluice.Kind != "bad_request" {
			return fmt.Errorf("item %s at last: %+v", it.id, r)
		}
	}
	j.files.tidy(j.t)
	return nil
}

// config draws the options of a run.
func (j *journey) config(peaceful, patient bool) (batch.Config, string, time.Duration) {
	luck := j.luck
	coin := func(n int) bool { return luck.IntN(n) == 0 }
	cfg := j.files.config(j.t, j.server.Transport())
	cfg.Changed, cfg.RetryFailed = batch.ChangedRedo, peaceful || patient || coin(3)
	cfg.Feedback, cfg.Sync = coin(2), work.SyncMode(luck.IntN(2))
	if coin(2) {
		cfg.Cache = j.cache
	}
	if j.checks {
		cfg.Check = j.check
	}
	cfg.Batches = &batch.Batches{Poll: time.Minute, Grace: 30 * time.Second, LiveTime: perRequest}
	cfg.Provider.Batches.Requests = 1 + luck.IntN(30)
	cfg.Price = func(provider.Provider, string) *provider.Price { return provider.FlatPrice(priceIn, priceOut) }
	cfg.Key = func(provider.Provider) (string, error) { return sentinelKey, nil }
	cfg.Budget.Attempts = 1 + luck.IntN(5)
	if peaceful {
		cfg.Budget.Attempts, cfg.Budget.Deadline = 20, time.Now().Add(longestRun-time.Hour)
		return cfg, "", 0
	}
	if coin(5) {
		cfg.Limit = 1 + luck.IntN(len(j.items))
	}
	if coin(4) {
		cfg.Budget.Deadline = time.Now().Add(time.Duration(luck.IntN(3 * int(time.Hour))))
	}
	if coin(5) {
		cfg.Budget.Tokens = 100 + luck.IntN(3000)
	}
	if coin(6) {
		cfg.Budget.Cost = 0.0001 + luck.Float64()*0.01
	}
	if coin(8) {
		cfg.Budget.Failures = 1 + luck.IntN(4)
	}
	if cfg.Batches.Cancel = coin(6); coin(3) {
		cfg.Batches = nil
	}
	end, at := "", time.Duration(0)
	if coin(2) {
		end, at = [...]string{"drain", "cancel"}[luck.IntN(2)], time.Duration(luck.Int64N(int64(2*time.Hour)))
		if coin(2) {
			at /= 1000
		}
	}
	return cfg, end, at
}

var errRefused = errors.New("it is not what was asked for")

// check refuses some answers, some times.
func (j *journey) check(id string, _ provider.Endpoint, _ []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, known := j.refuse[id]; !known {
		j.refuse[id] = max(0, int(id[len(id)-1])-'6')
	}
	if j.refuse[id] > 0 {
		j.refuse[id]--
		return errRefused
	}
	return nil
}

// longestRun is longer than any that does not hang.
const longestRun = 96 * time.Hour

// run runs once and judges what came of it, and says whether all is done.
func (j *journey) run(peaceful, patient bool) (done bool, err error) {
	j.files.input(j.t, j.text())
	cfg, end, at := j.config(peaceful, patient)
	cancels := cfg.Batches != nil && cfg.Batches.Cancel
	j.log = append(j.log, fmt.Sprintf("%d items, batches %v, cache %v, retry %v, limit %d, cancel %v, requests %d, budget %+v, end %s at %s",
		len(j.items), cfg.Batches != nil, cfg.Cache != "", cfg.RetryFailed, cfg.Limit, cancels, cfg.Provider.Batches.Requests, cfg.Budget, end, at))
	before, err := j.read()
	if err != nil {
		return false, err
	}
	b, err := batch.Open(cfg)
	if err != nil {
		j.log = append(j.log, "  refused: "+err.Error())
		_, other := errors.AsType[*batch.OtherInputError](err)
		_, pending := errors.AsType[*batch.PendingError](err)
		if pending && (cfg.Batches == nil || cfg.Limit > 0) || other && cfg.Limit > 0 {
			return false, nil
		}
		return false, err
	}
	ctx, cancel := context.WithTimeout(j.t.Context(), longestRun)
	defer cancel()
	if end != "" {
		defer time.AfterFunc(at, map[string]func(){"drain": b.Drain, "cancel": cancel}[end]).Stop()
	}
	if end == "cancel" {
		j.cuts++
	}
	began := time.Now()
	rep, runErr := b.Run(ctx)
	if err := b.Close(); err != nil {
		return false, err
	}
	j.log = append(j.log, fmt.Sprintf("  done %d, failed %d, left %d in %v, batches %+v: %v", rep.Done, rep.Report.Failed, rep.Left(), time.Since(began), rep.Batches, runErr))
	if err := j.judge(&cfg, &rep, runErr, end); err != nil {
		return false, err
	}
	return runErr == nil && rep.Left() == 0 && cfg.Limit == 0, j.judgeOutput(before)
}

// judge says whether a run ended for a reason, and what it made the account pay.
func (j *journey) judge(cfg *batch.Config, rep *batch.Report, err error, end string) error {
	_, stopped := errors.AsType[*batch.BudgetError](err)
	ok := true
	switch {
	case err == nil:
		ok = rep.Left() == 0 || cfg.Batches != nil && cfg.Batches.Cancel
	case stopped:
		ok = rep.Left() > 0
	case errors.Is(err, work.ErrDrained):
		ok = end == "drain"
	case errors.Is(err, context.Canceled):
		ok = end == "cancel"
	default:
		_, ok = errors.AsType[*batch.UnreachableError](err)
		_, refused := errors.AsType[*batch.RefusedError](err)
		ok = (ok || refused) && j.faulty
	}
	if !ok {
		return fmt.Errorf("%d left: %w", rep.Left(), err)
	}
	return j.judgePaid()
}

// judgePaid says whether more was paid for than was asked, and than open calls that were abandoned.
func (j *journey) judgePaid() error {
	if j.checks {
		return nil
	}
	paid, excess := j.server.Stats().Paid, 0
	for q, times := range j.times {
		excess += max(0, paid[sim.RequestHash([]byte(inquiry(q)))]-times)
	}
	if excess > 8*j.cuts {
		return fmt.Errorf("%d answers too many were paid for, with %d runs cut short", excess, j.cuts)
	}
	return nil
}

// judgeOutput says whether anything is gone from the output that was in it.
func (j *journey) judgeOutput(before map[string]result) error {
	after, err := j.read()
	if err != nil {
		return err
	}
	for id, was := range before {
		now, kept := after[id]
		changed := len(j.past[id]) > 1
		if kept && now.Sluice.Input == was.Sluice.Input && now.Error == nil || changed || was.Error != nil {
			continue
		}
		return fmt.Errorf("%s was recorded, and is not any more", id)
	}
	return nil
}

// read reads the output, and checks each line by itself.
func (j *journey) read() (map[string]result, error) {
	b, err := os.ReadFile(j.files.out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	all := make(map[string]result)
	for line := range bytes.Lines(b) {
		var r result
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("output line %q: %w", line, err)
		}
		if _, twice := all[r.ID]; twice {
			return nil, fmt.Errorf("%s is recorded twice", r.ID)
		}
		all[r.ID] = r
		if r.Error != nil || j.checks {
			continue
		}
		var body struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if err := json.Unmarshal(r.Response.Body, &body); err != nil || len(body.Choices) != 1 {
			return nil, fmt.Errorf("%s: %s: %w", r.ID, r.Response.Body, err)
		}
		hash, _, _ := strings.Cut(body.Choices[0].Message.Content, " ")
		if !slices.ContainsFunc(j.past[r.ID], func(q int) bool { return hash == "sim:"+sim.RequestHash([]byte(inquiry(q))) }) {
			return nil, fmt.Errorf("%s has another's answer: %s", r.ID, body.Choices[0].Message.Content)
		}
	}
	return all, nil
}
