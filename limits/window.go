package limits

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// MinPeriod and MaxPeriod are the minimum and the maximum period of a Window.
const (
	MinPeriod = time.Second
	MaxPeriod = day
)

// Window is a limit with a period: at most N requests or tokens in each Period. The zero Window limits nothing.
type Window struct {
	N      int           // maximum number of requests or tokens
	Period time.Duration // period of the limit, from MinPeriod to MaxPeriod
}

// ParseWindow parses a limit in the format of String, such as "100/10s".
func ParseWindow(text string) (Window, error) {
	count, per, ok := strings.Cut(text, "/")
	if !ok {
		return Window{}, fmt.Errorf("%q has no period: write it such as 100/10s", text)
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 {
		return Window{}, fmt.Errorf("%q is not a whole number above zero", count)
	}
	period, err := time.ParseDuration(per)
	if err != nil {
		return Window{}, fmt.Errorf("%q is not a period with its unit, such as 10s or 1m", per)
	}
	w := Window{n, period}
	return w, w.check()
}

func (w Window) check() error {
	switch {
	case w == Window{}:
		return nil
	case w.N < 1:
		return fmt.Errorf("%d is not above zero", w.N)
	case w.N > MaxLimit:
		return fmt.Errorf("%d is above %d", w.N, MaxLimit)
	case w.Period < MinPeriod || w.Period > MaxPeriod:
		return fmt.Errorf("the period %v is not between %v and 24h", w.Period, MinPeriod)
	}
	return nil
}

// String returns a text such as "100/10s". For the zero Window, String returns "".
func (w Window) String() string {
	if w == (Window{}) {
		return ""
	}
	period := w.Period.String()
	if strings.HasSuffix(period, "m0s") {
		period = strings.TrimSuffix(period, "0s")
	}
	if strings.HasSuffix(period, "h0m") {
		period = strings.TrimSuffix(period, "0m")
	}
	return fmt.Sprintf("%d/%s", w.N, period)
}

// MarshalText returns the result of String.
func (w Window) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText parses a limit like ParseWindow. An empty text sets the zero Window.
func (w *Window) UnmarshalText(b []byte) (err error) {
	if *w = (Window{}); len(b) > 0 {
		*w, err = ParseWindow(string(b))
	}
	return err
}

// Per converts the limit to another period. The result is rounded down, but at least 1. For the zero Window, Per returns 0.
func (w Window) Per(period time.Duration) int {
	if w.N == 0 {
		return 0
	}
	return max(1, int(math.Floor(float64(w.N)*period.Seconds()/w.Period.Seconds()+1e-9)))
}

// WindowOf returns a pointer to the field Requests or Tokens of the dimension. For other dimensions, WindowOf returns nil.
func (l *Limits) WindowOf(d Dimension) *Window {
	switch d {
	case Requests:
		return &l.Requests
	case Tokens:
		return &l.Tokens
	}
	return nil
}

// WindowName returns the name of the dimension's limit with a period in flags and files, or "" if the dimension has no such limit.
func (d Dimension) WindowName() string {
	if new(Limits).WindowOf(d) == nil {
		return ""
	}
	return dimensions[d].counted
}

// windowField returns the name of the field of Limits that has the limit with a stated period.
func windowField(d Dimension) string { return strings.ToUpper(d.WindowName()[:1]) + d.WindowName()[1:] }

// In returns the limit of a dimension with its period. If no period is configured, In uses Dimension.Window.
func (l *Limits) In(d Dimension) Window {
	if w := l.WindowOf(d); w != nil && w.N > 0 {
		return *w
	}
	return Window{*l.At(d), d.Window()}
}

// PerMinute returns the limits with all periods converted to a minute. If Burst is 0, the result's Burst is the longest
// period (at most a minute), because a window permits the entire amount at once.
func (l Limits) PerMinute() Limits {
	longest := time.Duration(0)
	for d, limit := range l.All() {
		if w := l.WindowOf(d); w != nil && w.N > 0 {
			*limit, longest, *w = w.Per(time.Minute), max(longest, min(w.Period, time.Minute)), Window{}
		}
	}
	if l.Burst == 0 {
		l.Burst = longest
	}
	return l
}
