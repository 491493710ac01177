package batchjob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/provider"
)

const (
	lane       = "batch-api"     // of all requests to Batch APIs
	maxCalls   = 4               // concurrent requests to an account's Batch API: each may carry a file
	throttles  = 1 << 20         // rate-limited attempts of one request: there is a day's time
	firstPoll  = 5 * time.Second // shortest wait after a rejection, and before results are fetched again
	maxRefusal = 5 * time.Minute // longest wait for room that other programs take up
	maxWait    = time.Hour       // of a wait that a change ends
)

// account is an account with a Batch API.
type account struct {
	name  string
	api   API
	sched *sluice.Scheduler

	// The Table's mu guards the other fields.
	requests int       // maximum in a part, learned from a rejection; 0 is unknown
	room     int       // tokens that all parts may have at the provider, learned from a rejection; 0 is unknown
	full     bool      // the provider has no room until a part ends
	refusals int       // of parts, in a row
	until    time.Time // nothing is submitted before
}

// call makes a request that may take several attempts. Without again, it makes another attempt only if nothing reached the provider.
func call[T any](ctx context.Context, a *account, name string, again bool, fn func(context.Context) (T, error)) (result T, err error) {
	var last error
	_, err = a.sched.Do(ctx, sluice.Call{ID: name, Lane: lane}, func(ctx context.Context, _ *sluice.Permit) sluice.Outcome {
		result, last = fn(ctx)
		o := outcomeOf(ctx, last)
		o.Final = o.Final || !again && !o.Unsent
		return o
	})
	if _, rejected := errors.AsType[*ProblemError](last); err == nil || rejected {
		err = last
	}
	if err == nil {
		return result, nil
	}
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Provider != a.name {
		name = a.name + ": " + name
	}
	return result, fmt.Errorf("%s: %w", name, err)
}

// outcomeOf returns the outcome of an attempt. An error that only describes the content of a response is none.
func outcomeOf(ctx context.Context, err error) sluice.Outcome {
	failed, isCall := errors.AsType[*sluice.CallError](err)
	switch {
	case err == nil, errors.Is(err, ErrUnknown), errors.Is(err, ErrGone):
		return sluice.Outcome{Kind: sluice.OK}
	case ctx.Err() != nil:
		return sluice.Outcome{Kind: sluice.Network, Err: err, Abandoned: true, Final: true}
	case !isCall:
		return sluice.Outcome{Kind: sluice.OK}
	}
	o := failed.Outcome
	if o.Err == nil {
		o.Err = err
	}
	return o
}

// outcome returns how a request failed. It is OK if err does not say it.
func outcome(err error) sluice.Outcome {
	if failed, ok := errors.AsType[*sluice.CallError](err); ok {
		return failed.Outcome
	}
	return sluice.Outcome{}
}

// passes reports whether the same request may succeed later.
func passes(err error) bool {
	kind := outcome(err).Kind
	return kind.Transient() || kind.Throttle()
}

// hadNoEffect reports whether a failed request certainly did nothing.
func hadNoEffect(err error) bool {
	o := outcome(err)
	rejections := []sluice.Kind{sluice.RateLimit, sluice.UsageWindow, sluice.BadRequest, sluice.ContextLength, sluice.ContentFilter}
	return o.Unsent || o.TooLarge || o.Kind.Fatal() || slices.Contains(rejections, o.Kind)
}

// admit waits until there is room for a part at its account. Parts of an account are submitted in the order of the table. It returns
// false if the part is not to be submitted.
func (t *Table) admit(ctx context.Context, p *Part) bool {
	for ctx.Err() == nil {
		t.mu.Lock()
		wait, ok := t.roomLocked(p, time.Now())
		p.admitted = ok
		changed, cancelled := t.changing, t.cancelled
		t.mu.Unlock()
		if ok || cancelled {
			return !cancelled
		}
		_ = wake.In(ctx, wait, changed)
	}
	return false
}

// roomLocked reports whether a part may be submitted now, or the time after which to ask again.
func (t *Table) roomLocked(p *Part, now time.Time) (time.Duration, bool) {
	a := p.account
	open, tokens, requests, made, age, before := 0, 0, 0, 0, time.Duration(0), true
	for _, q := range t.parts {
		if since := now.Sub(q.row.MadeAt); q.account == a && since < time.Hour {
			made, age = made+1, max(age, since)
		}
		switch {
		case q.account != a || q.stuck != nil:
		case q == p:
			before = false
		case q.row.AtProvider() || q.row.State == New && q.admitted:
			open, tokens, requests = open+1, tokens+q.row.Input, requests+q.row.Requests
			if q.row.Batch == "" {
				made++
			}
		case before && q.row.State == New:
			return maxWait, false
		}
	}
	if now.Before(a.until) {
		return a.until.Sub(now), false
	}
	allowed := a.api.Limits()
	if open > 0 && (a.full || a.room > 0 && tokens+p.row.Input > a.room || allowed.Pending > 0 && requests+p.row.Requests > allowed.Pending) {
		return maxWait, false
	}
	if allowed.PerHour > 0 && made >= allowed.PerHour {
		return time.Hour - age, false
	}
	return 0, true
}

// refusedLocked submits nothing for some time after a rejection.
func (a *account) refusedLocked(o sluice.Outcome) {
	a.refusals++
	a.until = time.Now().Add(max(o.Wait, wake.Jitter(min(firstPoll<<min(a.refusals-1, 10), maxRefusal))))
	if o.Until.After(a.until) {
		a.until = o.Until
	}
}

// maxAlone is the number of rejections for lack of room, while the account has no other part, after which a part counts as too large: the
// provider counts tokens that Sluice only estimates. After that, each such rejection halves the size of parts.
const maxAlone = 3

// minRoom returns the estimated tokens that are never too many by themselves for an account with a limit; 0 is an unknown limit.
func minRoom(limit int) int {
	if limit > 0 {
		return limit / 16
	}
	return 90_000 // OpenAI's first tier (https://platform.openai.com/docs/models/gpt-4o)
}

// learnRoom learns from a rejection for lack of room. It reports whether the part would never fit, and whether the account has no other
// part at the provider.
func (t *Table) learnRoom(p *Part, limit int) (never, alone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := p.account
	if limit > 0 {
		a.room = limit
	}
	alone = !slices.ContainsFunc(t.parts, func(q *Part) bool { return q != p && q.account == a && q.row.AtProvider() && q.stuck == nil })
	if a.full = !alone; alone && !time.Now().Before(a.until) { // else the same lack of room was counted
		a.refusedLocked(sluice.Outcome{})
	}
	never = p.row.Requests > 1 &&
		(limit > 0 && p.row.Input > limit || alone && a.refusals >= maxAlone && p.row.Input > minRoom(limit))
	if never && (limit == 0 || p.row.Input <= limit) {
		a.requests = max(1, p.row.Requests/2)
	}
	return never, alone
}
