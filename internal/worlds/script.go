package worlds

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Script is a world with expectations, as text:
//
//	# Lines that start with # explain.
//	world {"seed": 1,
//	  "load": ...}
//	by 2s sent <= 10
//	end 429s <= 3
//	end time <= 1.05 x optimum
//
// The JSON of the world ends with the first line that starts with "by" or "end". Figures are sent, ok, 429s, overloads
// and errors by an instant or at the end; and at the end also failed (items), idle and stalled (seconds), refused (requests
// of foreign clients), and time (seconds, or multiples of the optimum).
type Script struct {
	World        *World
	Expectations []string
}

// ParseScript reads a script.
func ParseScript(text string) (*Script, error) {
	s := new(Script)
	var world strings.Builder
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "by ") || strings.HasPrefix(line, "end "):
			s.Expectations = append(s.Expectations, line)
		default:
			world.WriteString(strings.TrimPrefix(line, "world ") + " ")
		}
	}
	var err error
	s.World, err = Parse(world.String(), Random)
	return s, err
}

// Check plays the script's world with a client. It returns the expectations that do not hold, with the figures.
func (s *Script) Check(maker Maker) (failures []string, err error) {
	r := Play(s.World, maker, nil)
	if r.Violation != "" {
		failures = append(failures, r.Violation)
	}
	for _, expectation := range s.Expectations {
		figure, ok, err := s.hold(expectation, &r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", expectation, err)
		}
		if !ok {
			failures = append(failures, fmt.Sprintf("%s: %.6g", expectation, figure))
		}
	}
	return failures, nil
}

// hold evaluates one expectation.
func (s *Script) hold(expectation string, r *Result) (figure float64, ok bool, err error) {
	words := strings.Fields(expectation)
	until := never
	if words[0] == "by" && len(words) > 1 {
		if until, err = time.ParseDuration(words[1]); err != nil {
			return 0, false, err
		}
		words = words[1:]
	}
	if len(words) != 4 && !(len(words) == 6 && words[4] == "x" && words[5] == "optimum") {
		return 0, false, fmt.Errorf("want: by INSTANT or end, figure, <= or >=, number")
	}
	bound, err := strconv.ParseFloat(words[3], 64)
	if err != nil {
		return 0, false, err
	}
	if figure, err = r.figure(words[1], until); err != nil {
		return 0, false, err
	}
	if len(words) == 6 {
		optimum, _ := Optimum(s.World)
		figure /= optimum.Seconds()
	}
	switch words[2] {
	case "<=":
		return figure, figure <= bound, nil
	case ">=":
		return figure, figure >= bound, nil
	}
	return 0, false, fmt.Errorf("unknown comparison %q", words[2])
}

// figure returns a figure of a play, as of an instant.
func (r *Result) figure(name string, until time.Duration) (float64, error) {
	switch name {
	case "time":
		return r.Time.Seconds(), nil
	case "idle":
		return r.Idle.Seconds(), nil
	case "stalled":
		return r.Stalled.Seconds(), nil
	case "failed":
		return float64(r.Failed + r.GivenUp), nil
	case "refused":
		return float64(r.Refused), nil
	}
	counts := map[string]float64{"sent": 0, "ok": 0, "429s": 0, "overloads": 0, "errors": 0}
	kinds := map[int]string{-1: "sent", 200: "ok", 429: "429s", 503: "overloads", 529: "overloads"}
	for _, m := range r.moments {
		if m.at <= until {
			counts[cmp.Or(kinds[m.status], "errors")]++
		}
	}
	if count, ok := counts[name]; ok {
		return count, nil
	}
	return 0, fmt.Errorf("unknown figure %q", name)
}
