package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/internal/work"
)

// Hours are the hours of the week in which no command starts, as --not-between states them.
type Hours []*weekHours

// weekHours are minutes of a week from Sunday, as clocks of a time zone show them.
type weekHours struct {
	minutes [7 * day]bool
	zone    *time.Location
}

const day = 24 * 60 // in minutes

// ParseHours reads texts such as "12:00-19:00 Mon-Fri UTC". Hours may end on the next day. Days and zone are optional (default: all days,
// the local zone).
func ParseHours(texts []string) (hours Hours, err error) {
	for _, text := range texts {
		h, ok := parseHours(strings.Fields(text))
		if !ok {
			return nil, fault.New(fault.Value, fmt.Errorf("--not-between %q is not a range of hours", text),
				"write hours, and optionally days and a zone: --not-between '12:00-19:00 Mon-Fri UTC'")
		}
		hours = append(hours, h)
	}
	if now := time.Now(); hours.End(now).Sub(now) > 8*24*time.Hour-time.Minute {
		return nil, fault.New(fault.Value, errors.New("--not-between excludes every hour of the week"), "exclude fewer hours")
	}
	return hours, nil
}

func parseHours(words []string) (h *weekHours, ok bool) {
	h = &weekHours{}
	if len(words) == 0 {
		return h, false
	}
	first, last, _ := strings.Cut(words[0], "-")
	from, to := minuteOf(first), minuteOf(last)
	if from < 0 || to < 0 || from == to {
		return h, false
	}
	if to < from {
		to += day
	}
	words = words[1:]
	days := []int{0, 1, 2, 3, 4, 5, 6}
	if len(words) > 0 {
		if some := parseDays(words[0]); some != nil {
			days, words = some, words[1:]
		}
	}
	for _, d := range days {
		for m := from; m < to; m++ {
			h.minutes[(d*day+m)%len(h.minutes)] = true
		}
	}
	zone, err := time.LoadLocation(cmp.Or(strings.Join(words, " "), "Local"))
	h.zone = zone
	return h, err == nil
}

// minuteOf returns the minutes from midnight to a time such as 19:00, or -1 for another text.
func minuteOf(text string) int {
	if text == "24:00" {
		return day
	}
	t, err := time.Parse("15:04", text)
	if err != nil {
		return -1
	}
	return t.Hour()*60 + t.Minute()
}

// parseDays reads days such as Mon-Fri or Sat,Sun. It returns nil for another text.
func parseDays(text string) (days []int) {
	for part := range strings.SplitSeq(strings.ToLower(text), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, to := weekday(first), weekday(last)
		if from < 0 || to < 0 {
			return nil
		}
		for ; from != to; from = (from + 1) % 7 {
			days = append(days, from)
		}
		days = append(days, to)
	}
	return days
}

// weekday returns the number of a day by at least three letters of its name, or -1.
func weekday(name string) int {
	for d := range 7 {
		if len(name) >= 3 && strings.HasPrefix(strings.ToLower(time.Weekday(d).String()), name) {
			return d
		}
	}
	return -1
}

// has reports whether the hours contain an instant.
func (hs Hours) has(t time.Time) bool {
	return slices.ContainsFunc(hs, func(h *weekHours) bool {
		at := t.In(h.zone)
		return h.minutes[int(at.Weekday())*day+at.Hour()*60+at.Minute()]
	})
}

// End returns the end of the pause that contains now, which is at a full minute, or zero if there is none. A pause ends after at most 8
// days.
func (hs Hours) End(now time.Time) (end time.Time) {
	at := now
	for minutes := 0; hs.has(at) && minutes < 8*day; minutes++ {
		end = at.Truncate(time.Minute).Add(time.Minute)
		at = end
	}
	return end
}

// Reason returns the reason why no command starts at an instant, or "".
func (hs Hours) Reason(now time.Time) string {
	until := hs.End(now)
	if until.IsZero() {
		return ""
	}
	return "paused until " + prose.Zoned(until, now) + " by --not-between (" + prose.Span(until.Sub(now)) + " left)"
}

// Keep pauses a Scheduler in the hours and gives the pauses their reason, until the returned function is called. It calls changed after
// each pause and each resumption. The returned function can be called repeatedly.
func (hs Hours) Keep(s *sluice.Scheduler, pauses *work.Pauses, log *slog.Logger, changed func()) (stop func()) {
	if hs == nil {
		return func() {}
	}
	paused := false
	step := func(now time.Time) {
		var err error
		switch until := hs.End(now); {
		case paused != until.IsZero():
			return
		case !paused:
			pauses.Because("by --not-between, until " + until.UTC().Format(time.RFC3339))
			err = s.Pause()
			log.Info("no item starts until " + prose.Zoned(until, now) + " (--not-between); running commands continue")
		default:
			err = s.Resume()
			pauses.Because("")
			log.Info("commands start again (--not-between is over)")
		}
		if paused = !paused; err != nil {
			log.Warn(err.Error())
		}
		changed()
	}
	step(time.Now())
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		next := func() time.Duration {
			return time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + time.Millisecond))
		}
		for wake.In(ctx, next(), nil) == nil {
			step(time.Now())
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
