package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// ErrLimitExceeded matches every *LimitError in errors.Is.
var ErrLimitExceeded = errors.New("limit is exceeded")

// LimitError is returned for a call that would exceed a limit of the member or of the pool.
type LimitError struct {
	Member string               // ID of the member ("": the limit belongs to the pool)
	Check  limits.ResourceCheck // usage and limit (the usage includes unsent calls with a permit)
}

// Error returns a message with the member or the pool, and with the usage and the limit.
func (e *LimitError) Error() string {
	if e.Member == "" {
		return fmt.Sprintf("the pool may make no more calls: %s", e.Check)
	}
	return fmt.Sprintf("member %q may make no more calls: %s", e.Member, e.Check)
}

// Is reports whether target is ErrLimitExceeded.
func (e *LimitError) Is(target error) bool { return target == ErrLimitExceeded }

// errTimeLimit is the cause of a context that a limit of time ended.
var errTimeLimit = errors.New("time limit")

// Resources compares the usage of the member with its limits.
func (m *Member) Resources() limits.ResourceChecks {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	return lookedAt(&m.cfg.Limits).CheckAll(m.usageLocked())
}

func (m *Member) usageLocked() limits.ResourceUsage {
	return limits.ResourceUsage{Time: age(&m.cfg.Limits, m.start), Tokens: m.tokens, LLMCalls: m.calls}
}

// age is the time since start, where that is limited.
func age(l *limits.ResourceLimits, start time.Time) time.Duration {
	if l.Time == nil {
		return 0
	}
	return time.Since(start)
}

// lookedAt is the part of l that is looked at here: of the use of the rest, nothing is known, and so nothing is said.
func lookedAt(l *limits.ResourceLimits) limits.ResourceLimits {
	return limits.ResourceLimits{Time: l.Time, Tokens: l.Tokens, LLMCalls: l.LLMCalls, WarningThreshold: l.WarningThreshold}
}

// limits reports whether l has a limit that is looked at here.
func bounds(l *limits.ResourceLimits) bool {
	return l.Tokens != nil || l.LLMCalls != nil || l.Time != nil
}

// exceededLocked is a *LimitError if one call more is too many, beside those that have a permit and were not sent yet.
// It uses a token at least; how many it will use, nobody knows.
func (m *Member) exceededLocked() error {
	own, all := m.usageLocked(), m.pool.usageLocked()
	own.LLMCalls += int64(m.unsent)
	all.LLMCalls += int64(m.pool.total.unsent)
	if err := over(m.id, &m.cfg.Limits, own); err != nil {
		return err
	}
	return over("", &m.pool.cfg.Limits, all)
}

func over(member string, l *limits.ResourceLimits, u limits.ResourceUsage) error {
	for _, r := range []limits.Resource{limits.ResourceLLMCalls, limits.ResourceTokens, limits.ResourceTime} {
		if c := l.Check(r, u); c.Limited && c.Used >= c.Limit {
			return limitError(member, c)
		}
	}
	return nil
}

func limitError(member string, c limits.ResourceCheck) error {
	c.Status = limits.ResourceExceeded // the whole of a limit in use is a warning elsewhere: here one call more is asked for
	return &LimitError{Member: member, Check: c}
}

// timeErrorLocked is the *LimitError of a call that a limit of time ended.
func (m *Member) timeErrorLocked() error {
	own := m.cfg.Limits.Check(limits.ResourceTime, m.usageLocked())
	all := m.pool.cfg.Limits.Check(limits.ResourceTime, m.pool.usageLocked())
	if !own.Limited || all.Limited && m.pool.start.Add(*m.pool.cfg.Limits.Time).Before(m.start.Add(*m.cfg.Limits.Time)) {
		return limitError("", all)
	}
	return limitError(m.id, own)
}

// timeLimit returns ctx with the deadline that the limits of the member and the pool set. Where they set none, it returns
// nil for cancel.
func (m *Member) timeLimit(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	var end time.Time
	for _, l := range []struct {
		limit *time.Duration
		start time.Time
	}{{m.cfg.Limits.Time, m.start}, {m.pool.cfg.Limits.Time, m.pool.start}} {
		if l.limit == nil {
			continue
		}
		if at := l.start.Add(*l.limit); end.IsZero() || at.Before(end) {
			end = at
		}
	}
	if end.IsZero() {
		return ctx, nil
	}
	return context.WithDeadlineCause(ctx, end, errTimeLimit)
}
