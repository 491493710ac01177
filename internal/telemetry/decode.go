package telemetry

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
)

// mostLine is how long a line of a file of events may be, in bytes.
const mostLine = 1 << 20

// ReadEvents calls each for every event of a file. It returns whether the
// last line was cut off, as a killed run leaves it; that one is left out. It fails with the number of a line that is no
// event, with the error of each, and with that of r.
func ReadEvents(r io.Reader, each func(e *sluice.Event) error) (cut bool, err error) {
	lines := work.NewLineReader(r, mostLine)
	var d decoder
	for {
		line, err := lines.Next()
		if err == io.EOF {
			return false, nil
		}
		if long, ok := errors.AsType[*work.TooLongError](err); ok {
			return false, fmt.Errorf("events line %d: longer than %d bytes", long.Line, mostLine)
		}
		if err != nil {
			return false, fmt.Errorf("events after line %d: %w", line.Number, err)
		}
		if blank(line.Bytes) {
			continue
		}
		e, err := d.decode(line.Bytes)
		if err != nil && line.Torn {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("events line %d: %w", line.Number, err)
		}
		if err := each(&e); err != nil {
			return false, err
		}
	}
}

func blank(line []byte) bool {
	for _, c := range line {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}

// decoder reads lines of events. It keeps the words that come again and again.
type decoder struct{ words map[string]string }

const mostWords = 1000

// word returns a text, in one copy however often it comes.
func (d *decoder) word(s *jsonscan.Scanner) string {
	if s.Peek() != '"' {
		s.Skip()
		return ""
	}
	text := jsonscan.Unquote(orEmpty(s.Span()))
	if known, ok := d.words[string(text)]; ok {
		return known
	}
	word := string(text)
	if d.words == nil {
		d.words = make(map[string]string)
	}
	if len(d.words) < mostWords && len(word) <= mostID {
		d.words[word] = word
	}
	return word
}

// orEmpty stands in for a string that is broken.
func orEmpty(span []byte) []byte {
	if span == nil {
		return []byte(`""`)
	}
	return span
}

var errNoEvent = errors.New(`not an event: the field "event" is missing`)

// decode reads one line.
func (d *decoder) decode(line []byte) (sluice.Event, error) {
	var e sluice.Event
	var wrong error
	s := jsonscan.New(line)
	for s.Enter('{'); s.Next('}'); {
		name := jsonscan.Name(s.Key())
		if err := d.field(&e, &s, name); err != nil && wrong == nil {
			wrong = fmt.Errorf("%s: %w", name, err)
		}
	}
	if !s.End() {
		return e, fmt.Errorf("not a JSON object: error at byte %d", s.Offset()+1)
	}
	if wrong == nil && e.Type == "" {
		wrong = errNoEvent
	}
	if e.Type == limits.EventThrottled {
		e.Outcome.Dimension, e.Outcome.Limit = e.Dimension, e.Limit
	}
	return e, wrong
}

// field reads the value of one field. Those that are unknown are left out: a later version may have more.
func (d *decoder) field(e *sluice.Event, s *jsonscan.Scanner, name []byte) (err error) {
	switch string(name) {
	case "event":
		e.Type = limits.EventType(d.word(s))
	case "at":
		e.At, err = instant(s)
	case "until":
		e.Until, err = instant(s)
	case "account":
		e.Account = d.word(s)
	case "member":
		e.Member = d.word(s)
	case "lane":
		e.Lane = d.word(s)
	case "tenant":
		e.Tenant = d.word(s)
	case "call":
		e.Call = s.Text()
	case "source":
		e.Source = limits.Source(d.word(s))
	case "finish_reason":
		e.Finish = d.word(s)
	case "dimension":
		err = e.Dimension.UnmarshalText([]byte(d.word(s)))
	case "kind":
		err = e.Outcome.Kind.UnmarshalText([]byte(d.word(s)))
	case "error":
		e.Outcome.Err = errors.New(s.Text())
	case "usage":
		e.Outcome.HasUsage = true
		err = usage(s, &e.Outcome.Usage)
	case "cost_usd":
		e.Cost, err = dollars(s)
	case "cost_estimated_usd":
		e.Estimated, err = dollars(s)
	case "reused":
		e.Reused = s.Truth()
	default:
		err = countField(e, s, name)
	}
	return err
}

// countField reads a field that is a whole number.
func countField(e *sluice.Event, s *jsonscan.Scanner, name []byte) (err error) {
	switch string(name) {
	case "attempt":
		e.Attempt, err = count(s)
	case "throttles":
		e.Throttles, err = count(s)
	case "others_succeeded":
		e.Outcome.Others, err = count(s)
	case "wait_ms":
		e.Wait, err = millis(s)
	case "latency_ms":
		e.Latency, err = millis(s)
	case "limit":
		var n int
		n, err = count(s)
		e.Limit = int64(n)
	case "active":
		e.InFlight, err = count(s)
	case "max":
		e.Slots, err = count(s)
	case "waiting":
		e.Waiting, err = count(s)
	default:
		s.Skip()
	}
	return err
}

// mostCount is more of anything than can be.
const mostCount = 1 << 50

// count reads a number of things.
func count(s *jsonscan.Scanner) (int, error) {
	n, ok := s.Number()
	if !ok || n < 0 || n > mostCount {
		return 0, errors.New("not a count")
	}
	return int(n), nil
}

// millis reads a time in milliseconds.
func millis(s *jsonscan.Scanner) (time.Duration, error) {
	n, err := count(s)
	if err != nil || int64(n) > math.MaxInt64/int64(time.Millisecond) {
		return 0, errors.New("not a time in milliseconds")
	}
	return time.Duration(n) * time.Millisecond, nil
}

// instant reads a point in time.
func instant(s *jsonscan.Scanner) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s.Text())
	if err != nil {
		return t, errors.New("not an RFC 3339 time")
	}
	return t, nil
}

// dollars reads a sum of money.
func dollars(s *jsonscan.Scanner) (float64, error) {
	usd, err := strconv.ParseFloat(string(s.Span()), 64)
	if err != nil || !(usd >= 0) || math.IsInf(usd, 0) {
		return 0, errors.New("not an amount of money")
	}
	return usd, nil
}

// usage reads the tokens of an answer.
func usage(s *jsonscan.Scanner, u *sluice.Usage) (err error) {
	if s.Peek() != '{' {
		s.Skip()
		return errors.New("not an object")
	}
	for s.Enter('{'); s.Next('}'); {
		var to *int
		switch string(jsonscan.Name(s.Key())) {
		case "input_tokens":
			to = &u.Input
		case "cached_input_tokens":
			to = &u.CachedInput
		case "output_tokens":
			to = &u.Output
		default:
			s.Skip()
			continue
		}
		n, wrong := count(s)
		if *to = n; wrong != nil {
			err = wrong
		}
	}
	return err
}
