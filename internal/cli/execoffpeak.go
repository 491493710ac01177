package cli

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// offPeak is the hours in which nothing is started. Nil is none.
type offPeak struct {
	windows []quietHours

	mu    sync.Mutex
	until time.Time // when the present ones end; zero: none are
}

// quietHours are hours of some days of the week, in a zone. What begins before midnight may end after it.
type quietHours struct {
	from, to time.Duration // since midnight; to is above from, by up to a day
	days     [7]bool
	zone     *time.Location
}

var weekdays = [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// newOffPeak reads --not-between.
func newOffPeak(texts []string) (*offPeak, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	p := &offPeak{}
	for _, text := range texts {
		h, err := parseHours(text)
		if err != nil {
			return nil, usageError(fmt.Errorf("--not-between %q: %w", text, err), "write it such as '12:00-19:00 Mon-Fri UTC': hours, then days and a zone if you like")
		}
		p.windows = append(p.windows, h)
	}
	if p.always(time.Now()) {
		return nil, usageError(errors.New("--not-between leaves no hour in which something may start"), "leave some of the week out")
	}
	return p, nil
}

// parseHours reads hours, days and a zone, of which the last two may be left out: every day, and the local zone.
func parseHours(text string) (h quietHours, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return h, errors.New("nothing is there")
	}
	from, to, ok := strings.Cut(words[0], "-")
	if !ok {
		return h, fmt.Errorf("%s is not of the form 12:00-19:00", words[0])
	}
	if h.from, err = parseClock(from); err != nil {
		return h, err
	}
	if h.to, err = parseClock(to); err != nil {
		return h, err
	}
	if h.to == h.from {
		return h, errors.New("the hours end when they begin: 00:00-24:00 is a whole day")
	}
	if h.to < h.from {
		h.to += 24 * time.Hour
	}
	h.zone, h.days = time.Local, [7]bool{true, true, true, true, true, true, true}
	rest := words[1:]
	if len(rest) > 0 {
		if days, ok := parseDays(rest[0]); ok {
			h.days, rest = days, rest[1:]
		}
	}
	switch len(rest) {
	case 0:
		return h, nil
	case 1:
		if h.zone, err = time.LoadLocation(rest[0]); err != nil {
			return h, fmt.Errorf("%q is neither days nor a zone such as UTC or Europe/Rome", rest[0])
		}
		return h, nil
	}
	return h, fmt.Errorf("%q is too much", strings.Join(rest[1:], " "))
}

func parseClock(text string) (time.Duration, error) {
	if text == "24:00" {
		return 24 * time.Hour, nil
	}
	t, err := time.Parse("15:04", text)
	if err != nil {
		return 0, fmt.Errorf("%q is no time of the day such as 19:00", text)
	}
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, nil
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
			days[d] = true
			if d == b {
				break
			}
		}
	}
	return days, true
}

// weekday returns the number of a day by the beginning of its name; -1 for none.
func weekday(name string) int {
	for i, day := range weekdays {
		if strings.HasPrefix(name, day) && strings.HasPrefix(strings.ToLower(time.Weekday(i).String()), name) {
			return i
		}
	}
	return -1
}

// end returns when the hours end that now is in; zero where it is in none. A clock of their zone tells: of an hour that it skips
// nothing is in them, and one that it shows twice is in them twice.
func (h *quietHours) end(now time.Time) time.Time {
	t := now.In(h.zone)
	for {
		left := h.left(t)
		if left == 0 {
			break
		}
		next := t.Add(left)
		_, set := t.ZoneBounds()
		if set.IsZero() || !next.After(set) {
			return next
		}
		t = set // the clock is set before they end, perhaps out of them
	}
	if t.Equal(now) {
		return time.Time{}
	}
	return t
}

// left is how long the hours go on that a clock is in which shows t; 0: it is in none.
func (h *quietHours) left(t time.Time) time.Duration {
	hour, minute, second := t.Clock()
	since := time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute + time.Duration(second)*time.Second + time.Duration(t.Nanosecond())
	for back := range 2 { // those of yesterday may not be over
		day, at := (int(t.Weekday())+7-back)%7, since+time.Duration(back)*24*time.Hour
		if h.days[day] && at >= h.from && at < h.to {
			return h.to - at
		}
	}
	return 0
}

// end returns when something may start again; zero: now.
func (p *offPeak) end(now time.Time) time.Time {
	until := now
	for range 7 * 24 * len(p.windows) { // hours may follow on hours
		next := until
		for i := range p.windows {
			if end := p.windows[i].end(until); end.After(next) {
				next = end
			}
		}
		if next.Equal(until) {
			break
		}
		until = next
	}
	if until.Equal(now) {
		return time.Time{}
	}
	return until
}

// always reports whether the hours leave nothing of a week.
func (p *offPeak) always(now time.Time) bool { return p.end(now).Sub(now) > 8*24*time.Hour }

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
	return "paused until " + zoned(p.until, now) + " by --not-between (" + span(p.until.Sub(now)) + " left)"
}

// lookAgain is how long the hours are not looked at, at most: a computer that sleeps or whose clock is set wakes in others.
const lookAgain = time.Minute

// keep pauses the run in the hours, until the returned function is called.
func (p *offPeak) keep(r *execRun, shown *progress) (stop func()) {
	if p == nil {
		return func() {}
	}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	p.step(r, shown, time.Now())
	wg.Go(func() {
		for {
			timer := time.NewTimer(p.wait(time.Now()))
			select {
			case <-quit:
				timer.Stop()
				return
			case <-timer.C:
				p.step(r, shown, time.Now())
			}
		}
	})
	return sync.OnceFunc(func() {
		close(quit)
		wg.Wait()
	})
}

// wait is how long nothing changes.
func (p *offPeak) wait(now time.Time) time.Duration {
	until := p.end(now)
	if !until.IsZero() {
		return min(lookAgain, until.Sub(now)+time.Millisecond)
	}
	return min(lookAgain, now.Truncate(time.Minute).Add(time.Minute).Sub(now)+time.Millisecond) // hours begin on minutes
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
		r.s.note(r.scheduler.Pause())
		r.s.errorf("sluice: nothing is started until %s (--not-between); what runs goes on\n", zoned(until, now))
	case !was.IsZero() && until.IsZero():
		r.s.note(r.scheduler.Resume())
		r.pauses.Because("")
		r.s.errorf("sluice: commands start again (--not-between is over)\n")
	}
	shown.refresh()
}
