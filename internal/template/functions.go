package template

import (
	"cmp"
	"fmt"
	"html"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"unicode"
)

// standard returns the functions of text/template. Unlike there, the index of a missing member is an error.
func standard() map[string]any {
	neither := func(any, ...any) any { return nil } // see call
	return map[string]any{
		"and": neither, "or": neither,
		"not":      func(v any) bool { return !truth(v) },
		"eq":       equal,
		"ne":       func(a, b any) (bool, error) { same, err := equal(a, b); return !same, err },
		"lt":       ordered(func(c int) bool { return c < 0 }),
		"le":       ordered(func(c int) bool { return c <= 0 }),
		"gt":       ordered(func(c int) bool { return c > 0 }),
		"ge":       ordered(func(c int) bool { return c >= 0 }),
		"index":    index,
		"slice":    slice,
		"len":      length,
		"print":    fmt.Sprint,
		"println":  fmt.Sprintln,
		"printf":   printf,
		"html":     func(args ...any) string { return html.EscapeString(fmt.Sprint(args...)) },
		"urlquery": func(args ...any) string { return url.QueryEscape(fmt.Sprint(args...)) },
		"js":       escapeJS,
	}
}

// truth reports whether a value is neither zero nor empty.
func truth(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return false
	case reflect.Map, reflect.Slice, reflect.String:
		return r.Len() > 0
	case reflect.Struct:
		return true
	default:
		return !r.IsZero()
	}
}

// plain returns numbers as int64 or float64, and texts of any type as string.
func plain(v any) any {
	switch r := reflect.ValueOf(v); {
	case r.CanInt():
		return r.Int()
	case r.CanFloat():
		return r.Float()
	case r.Kind() == reflect.String:
		return r.String()
	}
	return v
}

func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return v == nil || r.Kind() == reflect.Pointer && r.IsNil()
}

// equal reports whether a equals b or one of the further values.
func equal(a, b any, more ...any) (same bool, err error) {
	x, y := plain(a), plain(b)
	switch typ := reflect.TypeOf(x); {
	case x == nil || y == nil:
		same = isNil(x) && isNil(y)
	case typ != reflect.TypeOf(y) || !typ.Comparable():
		return false, fmt.Errorf("cannot compare a %T with a %T", a, b)
	default:
		same = x == y
	}
	if same || len(more) == 0 {
		return same, nil
	}
	return equal(a, more[0], more[1:]...)
}

// ordered returns a function that compares two numbers or texts and applies ok to the result.
func ordered(ok func(int) bool) func(a, b any) (bool, error) {
	return func(a, b any) (bool, error) {
		x, y := plain(a), plain(b)
		if reflect.TypeOf(x) == reflect.TypeOf(y) {
			switch x := x.(type) {
			case int64:
				return ok(cmp.Compare(x, y.(int64))), nil
			case float64:
				return ok(cmp.Compare(x, y.(float64))), nil
			case string:
				return ok(cmp.Compare(x, y.(string))), nil
			}
		}
		return false, fmt.Errorf("cannot compare a %T with a %T", a, b)
	}
}

// index returns a member of an object or an element of a list.
func index(v any, keys ...any) (any, error) {
	for _, key := range keys {
		switch of := v.(type) {
		case map[string]any:
			member, ok := of[Text(key)]
			if !ok {
				return nil, fmt.Errorf("no field %.60q", Text(key))
			}
			v = member
		case []any:
			i, ok := key.(int)
			if !ok || i < 0 || i >= len(of) {
				return nil, fmt.Errorf("element %.20s does not exist: the list has %d elements", Text(key), len(of))
			}
			v = of[i]
		default:
			return nil, fmt.Errorf("%.60q is neither an object nor a list", Text(v))
		}
	}
	return v, nil
}

// slice returns the part of a text or list from the first bound to the second.
func slice(v any, bounds ...int) (any, error) {
	r := reflect.ValueOf(v)
	if r.Kind() != reflect.String && r.Kind() != reflect.Slice {
		return nil, fmt.Errorf("cannot slice a %T", v)
	}
	part := [2]int{0, r.Len()}
	if copy(part[:], bounds); len(bounds) > 2 || part[0] < 0 || part[0] > part[1] || part[1] > r.Len() {
		return nil, fmt.Errorf("the range %d does not exist: the length is %d", bounds, r.Len())
	}
	return r.Slice(part[0], part[1]).Interface(), nil
}

func length(v any) (int, error) {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Map, reflect.Slice, reflect.String:
		return r.Len(), nil
	}
	return 0, fmt.Errorf("len of type %T", v)
}

// printf refuses formats that pad to more than MaxBytes, because fmt holds all of the text in memory.
func printf(format string, args ...any) (string, error) {
	const widest = 1_000_000 // of fmt
	padding := 0
	for digits := range strings.FieldsFuncSeq(format, func(r rune) bool { return r < '0' || r > '9' }) {
		n, err := strconv.Atoi(digits)
		if err != nil {
			n = widest
		}
		padding += min(n, widest)
	}
	for _, arg := range args {
		if r := reflect.ValueOf(arg); r.CanInt() {
			n := min(max(r.Int(), -widest), widest)
			padding += strings.Count(format, "*") * int(max(n, -n))
		}
	}
	if padding > MaxBytes {
		return "", TooLong
	}
	return fmt.Sprintf(format, args...), nil
}

// escapeJS returns a text as it can stand in a string of JavaScript.
func escapeJS(args ...any) string {
	var b strings.Builder
	for _, r := range fmt.Sprint(args...) {
		switch {
		case strings.ContainsRune(`\'"`, r):
			b.WriteByte('\\')
			b.WriteRune(r)
		case strings.ContainsRune("<>&=", r) || !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
