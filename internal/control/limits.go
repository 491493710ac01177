package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// limitsExample is a body of POST /limits.
const limitsExample = `{"limits": {"rpm": 500, "tpm": 30000, "concurrent": null}}`

// largestLimit is as much as a file of limits may state.
const largestLimit = 1e12

// ParseLimits reads the body of POST /limits: an object of limits by name, or one that has it as its limits. 0 and null
// remove a ceiling, and are 0 in what is returned.
func ParseLimits(body []byte) (map[limits.Dimension]int, error) {
	fields, err := object(body)
	if err != nil {
		return nil, err
	}
	if inner, wrapped := fields["limits"]; wrapped {
		if len(fields) > 1 {
			return nil, errors.New("nothing but limits may stand beside limits")
		}
		if fields, err = object(inner); err != nil {
			return nil, fmt.Errorf("limits: %w", err)
		}
	}
	if len(fields) == 0 {
		return nil, errors.New("no limit is there")
	}
	limits := make(map[limits.Dimension]int)
	known := dimensions()
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		d, ok := known[name]
		if !ok {
			return nil, unknown(name, known)
		}
		if limits[d], err = limit(fields[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return limits, nil
}

// object reads an object whose names are all different, and nothing behind it.
func object(body []byte) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	switch t, err := dec.Token(); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the body is empty")
	case err != nil:
		return nil, wrongJSON(err)
	case t != json.Delim('{'):
		return nil, errors.New("an object is needed")
	}
	fields := make(map[string]json.RawMessage)
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, wrongJSON(err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, wrongJSON(err)
		}
		key := name.(string) // the decoder takes nothing else there
		if _, twice := fields[key]; twice {
			return nil, fmt.Errorf("%.40q stands there twice", key)
		}
		fields[key] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, wrongJSON(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something stands behind the object")
	}
	return fields, nil
}

func wrongJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the JSON ends too early")
	}
	return fmt.Errorf("this is no JSON: %w", err)
}

// limit reads a number, null, or what a file of limits has for a limit that somebody told.
func limit(value json.RawMessage) (int, error) {
	if bytes.HasPrefix(value, []byte("{")) {
		fields, err := object(value)
		if err != nil {
			return 0, err
		}
		source := ""
		for _, name := range slices.Sorted(maps.Keys(fields)) { // of several that are wrong the same is named each time
			switch name {
			case "value", "confidence", "at":
			case "source":
				if json.Unmarshal(fields[name], &source) != nil || source != string(limits.SourceTold) {
					return 0, errors.New("only limits whose source is told are ceilings: send the number alone to make it one")
				}
			default:
				return 0, fmt.Errorf("%.40q is not known: a limit is a number", name)
			}
		}
		value = fields["value"]
	}
	if bytes.Equal(value, []byte("null")) {
		return 0, nil
	}
	var n float64
	switch err := json.Unmarshal(value, &n); {
	case err != nil:
		return 0, errors.New("a limit is a whole number, or null for none")
	case n < 0:
		return 0, fmt.Errorf("%v is below zero; null removes a ceiling", n)
	case n != math.Trunc(n):
		return 0, fmt.Errorf("%v is not a whole number", n)
	case n > largestLimit:
		return 0, fmt.Errorf("%v is above %d; null removes a ceiling", n, int(largestLimit))
	}
	return int(n), nil
}

// dimensions are those that have limits, by name.
func dimensions() map[string]limits.Dimension {
	known := make(map[string]limits.Dimension)
	for d := range new(sluice.Limits).All() {
		known[d.String()] = d
	}
	return known
}

// unknown says that nothing of that name can be set.
func unknown(name string, known map[string]limits.Dimension) error {
	switch name {
	case "burst_seconds":
		return errors.New("burst_seconds is told at the start alone: buckets have their size from then on")
	case "provider", "model":
		return fmt.Errorf("%s cannot be chosen: limits that are set here hold for every account and lane", name)
	}
	return fmt.Errorf("%.40q is no limit: it is one of %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
}
