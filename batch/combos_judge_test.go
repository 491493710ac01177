package batch_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
)

// cut says whether the run was cut in that way.
func (p *plan) cut(ways ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, way := range ways {
		if p.ended && p.end == way {
			return true
		}
	}
	return false
}

// judgeReport compares what a run says of itself with what was seen.
func (p *plan) judgeReport(rep *batch.Report, err error) error {
	if p.twice != nil {
		return p.twice
	}
	good, failed := 0, 0
	for _, r := range p.results {
		if r.Kind == sluice.OK {
			good++
		} else {
			failed++
		}
	}
	switch {
	case good != rep.Done || failed != rep.Report.Failed:
		return fmt.Errorf("%d done and %d failed are reported, %d and %d were told of", rep.Done, rep.Report.Failed, good, failed)
	case math.Abs(rep.Cost-p.cost) > 1e-9:
		return fmt.Errorf("a cost of %v is reported, that of the results is %v", rep.Cost, p.cost)
	case p.cost-rep.Estimated > p.oracle.usd+1e-9:
		return fmt.Errorf("a cost of %v is recorded, %v of it estimated, and %v was billed", p.cost, rep.Estimated, p.oracle.usd)
	case err == nil && rep.Left() != 0:
		return fmt.Errorf("it ended well, and %d are left", rep.Left())
	case p.oracle.peak > mostOpen:
		return fmt.Errorf("%d calls were open at once, with %d slots", p.oracle.peak, mostOpen)
	case rep.Left() < 0:
		return fmt.Errorf("%d are left", rep.Left())
	}
	for _, u := range rep.Budgets {
		if u.Used > u.Limit && (u.What == batch.LimitedCost || u.What == batch.LimitedTokens) {
			return errors.New(u.String())
		}
	}
	b := &p.cfg.Budget
	if b.Tokens > 0 && p.oracle.tokens > b.Tokens || b.Cost > 0 && p.oracle.usd > b.Cost+1e-9 {
		return fmt.Errorf("%d tokens for %v USD were used", p.oracle.tokens, p.oracle.usd)
	}
	return p.judgeEnd(rep, err)
}

// judgeEnd says whether the run ended for the reason that it gives.
func (p *plan) judgeEnd(rep *batch.Report, err error) error {
	spent, stopped := errors.AsType[*batch.BudgetError](err)
	stop, fatal := errors.AsType[*work.StoppedError](err)
	_, unreached := errors.AsType[*batch.UnreachableError](err)
	_, unwritten := errors.AsType[*work.JournalError](err)
	b := &p.cfg.Budget
	ok := true
	switch {
	case err == nil:
	case stopped && rep.Left() == 0 && !p.stdin: // of which nobody knows whether there is more
		return fmt.Errorf("stopped with nothing left: %w", err)
	case stopped && spent.What == batch.LimitedTime:
		ok = !b.Deadline.IsZero() && !time.Now().Before(b.Deadline)
	case stopped && spent.What == batch.LimitedFailures:
		ok = spent.Unit == "items" && b.Failures > 0 && spent.Used.Used >= float64(b.Failures) ||
			spent.Unit == "share" && b.FailedShare > 0 && spent.Used.Used > b.FailedShare
	case stopped:
		ok = spent.Used.Used+spent.Next > spent.Limit && (b.Tokens > 0 || b.Cost > 0)
	case unreached:
		ok = p.faults > 0 // a call was cut off before any answer had come
	case fatal && stop.Kind.Fatal():
		ok = p.faults > 0
	case errors.Is(err, errEnough):
		ok = p.cut("stop")
	case errors.Is(err, work.ErrDrained):
		ok = p.cut("drain")
	case errors.Is(err, context.Canceled):
		ok = p.cut("cancel")
	default:
		ok = p.cut("write") && unwritten
	}
	if !ok {
		return fmt.Errorf("no reason to end with: %w", err)
	}
	return nil
}

// judgeCalls says whether more was paid for than had to be.
func (p *plan) judgeCalls() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := make(map[int]int)
	for _, it := range p.items {
		lines[it.question]++
	}
	lost := 0
	for n, times := range p.oracle.good {
		lost += times - p.own[n]
		switch {
		case p.cfg.Cache != "" && p.cached[p.sort][n]:
			return fmt.Errorf("question %d was called, and its answer is in the cache", n)
		case p.cfg.Cache != "" && times > 1, times > lines[n]:
			return fmt.Errorf("question %d of %d lines was answered %d times", n, lines[n], times)
		case times < p.own[n]:
			return fmt.Errorf("question %d was answered %d times, and %d are recorded", n, times, p.own[n])
		}
	}
	abandoned := p.ended && p.end != "drain" && p.end != "stop"
	if lost > 0 && !abandoned || lost > mostOpen {
		return fmt.Errorf("%d answers are not recorded", lost)
	}
	if p.cfg.Cache != "" {
		for n := range p.own {
			for sort := 1; sort <= p.sort; sort++ {
				p.cached[sort][n] = true
			}
		}
	}
	return nil
}

// asks returns the questions of the items.
func (p *plan) asks() map[string]int {
	all := make(map[string]int)
	for _, it := range p.items {
		all[it.id] = it.question
	}
	return all
}

// judgeOutput compares the output with the one before.
func (p *plan) judgeOutput(before map[string]result) error {
	after, _, err := p.read()
	if err != nil {
		return err
	}
	asks := p.asks()
	for id, was := range before {
		now, kept := after[id]
		switch {
		case was.Error != nil && p.cfg.RetryFailed:
		case kept && now.Sluice.Input == was.Sluice.Input && (now.Error == nil) == (was.Error == nil):
			if _, again := p.results[id]; again {
				return fmt.Errorf("%s was recorded, and ran again", id)
			}
		case p.cfg.Changed == batch.ChangedRedo && p.changedSince(&was, asks[id]):
		default:
			return fmt.Errorf("%s was recorded, and is not any more", id)
		}
	}
	for id, r := range p.results {
		now, ok := after[id]
		if !ok || (now.Error == nil) != (r.Kind == sluice.OK) || now.Sluice.Cached != r.Cached {
			return fmt.Errorf("%s is recorded as %+v, and was told of as %+v", id, now, r)
		}
		if n, sort, err := answered(r.Payload); r.Kind == sluice.OK && (err != nil || n != asks[id] || sort < p.sort) {
			return fmt.Errorf("%s asks %d, and has the answer %d of sort %d: %w", id, asks[id], n, sort, err)
		}
	}
	return nil
}

// changedSince says whether a result is of another request than the item's, as far as it tells.
func (p *plan) changedSince(was *result, asks int) bool {
	if was.Error != nil {
		return true
	}
	n, _, _ := answered(was.Response.Body)
	return n != asks
}
