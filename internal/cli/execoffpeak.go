package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/wake"
)

// offPeak is the hours in which no command starts. Nil is none.
type offPeak struct {
	windows []quietHours

	mu    sync.Mutex
	until time.Time // when the present ones end; zero: none are
}

// quietHours are hours of some days of the week, as a clock of a zone shows them. They may end on the day after.
type quietHours struct {
	from, to int // minutes since midnight; to is above from, by up to a day
	days     [7]bool
	zone     *time.Location
}

// newOffPeak reads --not-between.
func newOffPeak(texts []string) (*offPeak, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	p := &offPeak{}
	for _, text := range texts {
		h, ok := parseHours(text)
		if !ok {
			return nil, fault.New(fault.Value, fmt.Errorf("--not-between %q is not a range of hours", text), "write hours, and optionally days and a zone: --not-between '12:00-19:00 Mon-Fri UTC'")
		}
		p.windows = append(p.windows, h)
	}
	if now := time.Now(); p.end(now).Sub(now) > 8*24*time.Hour-time.Minute {
		return nil, fault.New(fault.Value, errors.New("--not-between excludes every hour of the week"), "exclude fewer hours")
	}
	return p, nil
}

// parseHours reads hours, days and a zone. Defaults: every day, and the local zone.
func parseHours(text string) (h quietHours, ok bool) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return h, false
	}
	from, to, _ := strings.Cut(words[0], "-")
	if h.from, h.to = minuteOf(from), minuteOf(to); h.from < 0 || h.to < 0 || h.from == h.to {
		return h, false
	}
	if h.to < h.from {
		h.to += 24 * 60
	}
	h.zone, h.days = time.Local, [7]bool{true, true, true, true, true, true, true}
	rest := words[1:]
	if len(rest) > 0 {
		if days, ok := parseDays(rest[0]); ok {
			h.days, rest = days, rest[1:]
		}
	}
	if len(rest) == 0 {
		return h, true
	}
	zone, err := time.LoadLocation(rest[0])
	h.zone = zone
	return h, err == nil && len(rest) == 1
}

// minuteOf returns the minutes from midnight to a time such as 19:00; -1 for another text.
func minuteOf(text string) int {
	if text == "24:00" {
		return 24 * 60
	}
	t, err := time.Parse("15:04", text)
	if err != nil {
		return -1
	}
	return t.Hour()*60 + t.Minute()
}

// parseDays reads days such as Mon-Fri or Sat,Sun.
func parseDays(text string) (days [7]bool, ok bool) {
	for part := range strings.SplitSeq(strings.ToLower(text), ",") {
		first, last, isRange := strings.Cut(part, "-")
		a, b := weekday(first), weekday(last)
		if !isRange {
			b = a
		}
		if a < 0 || b < 0 {
			return days, false
		}
		for d := a; ; d = (d + 1) % 7 {
			if days[d] = true; d == b {
				break
			}
		}
	}
	return days, true
}

// weekday returns the number of a day by at least three letters of its name; -1 for none.
func weekday(name string) int {
	return slices.IndexFunc([]int{0, 1, 2, 3, 4, 5, 6}, func(i int) bool {
		return len(name) >= 3 && strings.HasPrefix(strings.ToLower(time.Weekday(i).String()), name)
	})
}

// has reports whether an instant is in the hours.
func (h *quietHours) has(t time.Time) bool {
	t = t.In(h.zone)
	today, minute := int(t.Weekday()), t.Hour()*60+t.Minute()
	return h.days[today] && minute >= h.from && minute < h.to ||
		h.days[(today+6)%7] && minute+24*60 >= h.from && minute+24*60 < h.to // those of yesterday
}

// end returns when something may start again, which is always at a full minute; zero: now. It looks 8 days ahead.
func (p *offPeak) end(now time.Time) time.Time {
	t := now
	for range 8 * 24 * 60 {
		if !slices.ContainsFunc(p.windows, func(h quietHours) bool { return h.has(t) }) {
			break
		}
		t = t.Truncate(time.Minute).Add(time.Minute)
	}
	if t.Equal(now) {
		return time.Time{}
	}
	return t
}

// reason says why nothing is started now; "" is no reason.
func (p *offPeak) reason() string {
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until.IsZero() {
		return ""
	}
	now := time.Now()
	return "paused until " + prose.Zoned(p.until, now) + " by --not-between (" + prose.Span(p.until.Sub(now)) + " left)"
}

// keep pauses the run in the hours, until the returned function is called.
func (p *offPeak) keep(r *execRun, shown *progress) (stop func()) {
	if p == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	p.step(r, shown, time.Now())
	wg.Go(func() {
		next := func() time.Duration {
			return time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + time.Millisecond))
		}
		for wake.In(ctx, next(), nil) == nil {
			p.step(r, shown, time.Now())
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// step pauses or resumes.
func (p *offPeak) step(r *execRun, shown *progress, now time.Time) {
	until := p.end(now)
	p.mu.Lock()
	was := p.until
	p.until = until
	p.mu.Unlock()
	switch {
	case was.IsZero() && !until.IsZero():
		r.pauses.Because("by --not-between, until " + until.UTC().Format(time.RFC3339))
		r.s.Warn(r.scheduler.Pause())
		r.s.Errorf("sluice: no item starts until %s (--not-between); running commands continue\n", prose.Zoned(until, now))
	case !was.IsZero() && until.IsZero():
		r.s.Warn(r.scheduler.Resume())
		r.pauses.Because("")
		r.s.Errorf("sluice: commands start again (--not-between is over)\n")
	}
	shown.refresh()
}
