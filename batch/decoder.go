package batch

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// mostExponent bounds numbers: the library of schemas counts with them exactly, which takes as long as they have digits.
const mostExponent = 400

// decoder makes values of JSON as the library of schemas wants them. Of members of one name the last counts.
type decoder struct {
	jsonscan.Scanner
	monstrous bool // there was a number beyond the bound
}

func (d *decoder) value() any {
	switch d.Peek() {
	case '{':
		m := make(map[string]any)
		for d.Enter('{'); d.Next('}'); {
			name := string(jsonscan.Name(d.Key()))
			m[name] = d.value()
		}
		return m
	case '[':
		list := []any{}
		for d.Enter('['); d.Next(']'); {
			list = append(list, d.value())
		}
		return list
	case '"':
		if quoted := d.Span(); quoted != nil {
			return string(jsonscan.Unquote(quoted))
		}
		return nil
	case 't', 'f':
		return d.Truth()
	case 'n':
		d.Skip()
		return nil
	}
	number := d.Span()
	d.monstrous = d.monstrous || beyond(number)
	return json.Number(number)
}

// beyond reports whether a number has more digits, or a larger exponent, than the bound.
func beyond(number []byte) bool {
	if i := bytes.IndexAny(number, "eE"); i >= 0 {
		n, err := strconv.Atoi(string(number[i+1:]))
		if err != nil || n > mostExponent || n < -mostExponent {
			return true
		}
	}
	return len(number) > 2*mostExponent
}
