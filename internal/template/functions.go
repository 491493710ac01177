package template

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
)

// function is a function of templates, with its minimum and maximum number of arguments.
type function struct {
	min, max int
	call     func(args []any) (any, error)
}

// functions returns json and the functions of text/template, except call, the escapers, and slice, which cuts within characters.
// The index of a missing member is an error.
func functions() map[string]any {
	ordered := func(ok func(int) bool) function {
		return function{2, 2, func(args []any) (any, error) { c, err := compare(args[0], args[1]); return ok(c), err }}
	}
	last := func(args []any) (any, error) { return args[len(args)-1], nil } // see state.call
	return map[string]any{
		"and":     function{1, math.MaxInt, last},
		"or":      function{1, math.MaxInt, last},
		"not":     function{1, 1, func(args []any) (any, error) { return !truth(args[0]), nil }},
		"eq":      function{2, math.MaxInt, func(args []any) (any, error) { return equal(args) }},
		"ne":      function{2, 2, func(args []any) (any, error) { same, err := equal(args); return !same, err }},
		"lt":      ordered(func(c int) bool { return c < 0 }),
		"le":      ordered(func(c int) bool { return c <= 0 }),
		"gt":      ordered(func(c int) bool { return c > 0 }),
		"ge":      ordered(func(c int) bool { return c >= 0 }),
		"index":   function{1, math.MaxInt, index},
		"len":     function{1, 1, length},
		"print":   function{0, math.MaxInt, func(args []any) (any, error) { return fmt.Sprint(args...), nil }},
		"println": function{0, math.MaxInt, func(args []any) (any, error) { return fmt.Sprintln(args...), nil }},
		"printf":  function{1, math.MaxInt, func(args []any) (any, error) { return fmt.Sprintf(text(args[0]), args[1:]...), nil }},
		"json":    function{1, 1, toJSON},
	}
}

// truth reports whether a value is neither zero nor empty.
func truth(v any) bool {
	r := reflect.ValueOf(v)
	if r.Kind() == reflect.Map || r.Kind() == reflect.Slice {
		return r.Len() > 0
	}
	return r.IsValid() && !r.IsZero()
}

// compare compares two integers, two other numbers, or two texts.
func compare(a, b any) (int, error) {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	switch {
	case x.CanInt() && y.CanInt():
		return cmp.Compare(x.Int(), y.Int()), nil
	case x.CanFloat() && y.CanFloat():
		return cmp.Compare(x.Float(), y.Float()), nil
	case x.Kind() == reflect.String && y.Kind() == reflect.String:
		return strings.Compare(x.String(), y.String()), nil
	}
	return 0, fmt.Errorf("cannot compare a %T with a %T", a, b)
}

func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return v == nil || r.Kind() == reflect.Pointer && r.IsNil()
}

// equal reports whether the first value equals one of the others.
func equal(args []any) (same bool, err error) {
	x := args[0]
	for i := 1; i < len(args) && !same && err == nil; i++ {
		y, order := args[i], 0
		if a, b := reflect.ValueOf(x), reflect.ValueOf(y); x == nil || y == nil {
			same = isNil(x) && isNil(y)
		} else if a.Kind() == reflect.Bool && b.Kind() == reflect.Bool {
			same = a.Bool() == b.Bool()
		} else {
			order, err = compare(x, y)
			same = err == nil && order == 0
		}
	}
	return same, err
}

func index(args []any) (v any, err error) {
	v = args[0]
	for i := 1; i < len(args) && err == nil; i++ {
		v, err = member(v, args[i])
	}
	return v, err
}

// member returns a member of an object, an element of a list, a field of a struct, or a number of JSON as Int64 or Float64.
func member(v, key any) (any, error) {
	name := text(key)
	switch v := v.(type) {
	case map[string]any:
		if member, ok := v[name]; ok {
			return member, nil
		}
	case []any:
		if i, ok := key.(int); ok && i >= 0 && i < len(v) {
			return v[i], nil
		}
		return nil, fmt.Errorf("element %.20s does not exist: the list has %d elements", name, len(v))
	case json.Number:
		if number, err := v.Int64(); err == nil && name == "Int64" {
			return number, nil
		}
		if number, err := v.Float64(); err == nil && name == "Float64" {
			return number, nil
		}
	}
	if r := reflect.Indirect(reflect.ValueOf(v)); r.Kind() == reflect.Struct {
		if f := r.FieldByName(name); f.IsValid() && f.CanInterface() {
			return f.Interface(), nil
		}
	}
	return nil, fmt.Errorf("no field %.60q", name)
}

func length(args []any) (any, error) {
	switch r := reflect.ValueOf(args[0]); r.Kind() {
	case reflect.Map, reflect.Slice, reflect.String:
		return r.Len(), nil
	}
	return nil, fmt.Errorf("a %T has no length", args[0])
}

func toJSON(args []any) (any, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(args[0])
	return strings.TrimSuffix(b.String(), "\n"), err
}
