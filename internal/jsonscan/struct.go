package jsonscan

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// Structs are read and written by the names and the option omitzero of their json tags. Their fields are structs, signed integers,
// float64, bool, string, json.RawMessage (a value as it is), and pointers to these, of which nil is null. []string is written only.

// plan has the fields of a struct type.
type plan struct {
	fields []planField
	byName map[string]int // indexes of fields
}

type planField struct {
	index int
	key   string // "name":
	omit  bool
}

var plans sync.Map // reflect.Type to *plan

func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	p := &plan{byName: make(map[string]int)}
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" {
			p.byName[name] = len(p.fields)
			p.fields = append(p.fields, planField{i, strconv.Quote(name) + ":", options == "omitzero"})
		}
	}
	plans.Store(t, p)
	return p
}

// AppendStruct appends the struct that v points to, as an object on one line. A raw value that is not JSON is appended as a text.
func AppendStruct(b []byte, v any) []byte { return appendStruct(b, reflect.ValueOf(v).Elem()) }

func appendStruct(b []byte, v reflect.Value) []byte {
	b = append(b, '{')
	for _, f := range planOf(v.Type()).fields {
		value := v.Field(f.index)
		if f.omit && value.IsZero() {
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = appendValue(append(b, f.key...), value)
	}
	return append(b, '}')
}

func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return append(b, "null"...)
		}
		return appendValue(b, v.Elem())
	case reflect.Struct:
		return appendStruct(b, v)
	case reflect.String:
		return AppendString(b, v.String())
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool())
	case reflect.Float64:
		return strconv.AppendFloat(b, v.Float(), 'f', -1, 64)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.String {
			b = append(b, '[')
			for i := range v.Len() {
				if i > 0 {
					b = append(b, ',')
				}
				b = AppendString(b, v.Index(i).String())
			}
			return append(b, ']')
		}
		if text := v.Bytes(); !Valid(text) {
			return AppendString(b, text)
		}
		return AppendCompact(b, v.Bytes())
	}
	return strconv.AppendInt(b, v.Int(), 10)
}

// Struct reads an object into the struct that v points to. It skips unknown members, and does not change fields whose members are missing
// or null. Raw values share memory with the scanned bytes. The error names the first member of a wrong type.
func (s *Scanner) Struct(v any) error { return s.structure(reflect.ValueOf(v).Elem()) }

func (s *Scanner) structure(v reflect.Value) (wrong error) {
	if s.Peek() != '{' {
		s.Skip()
		return errors.New("not an object")
	}
	p := planOf(v.Type())
	for s.Enter('{'); s.Next('}'); {
		name := Name(s.Key())
		i, known := p.byName[string(name)]
		if !known || s.Peek() == 'n' {
			s.Skip()
			continue
		}
		if err := s.value(v.Field(p.fields[i].index)); err != nil && wrong == nil {
			wrong = fmt.Errorf("%s: %w", name, err)
		}
	}
	return wrong
}

func (s *Scanner) value(v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return s.value(v.Elem())
	case reflect.Struct:
		return s.structure(v)
	}
	c := s.Peek()
	span := s.Span()
	switch {
	case span == nil: // which Bad tells
	case v.Kind() == reflect.Slice:
		v.SetBytes(span)
	case v.Kind() == reflect.Bool:
		v.SetBool(c == 't')
		if c != 't' && c != 'f' {
			return errors.New("not true or false")
		}
	case v.Kind() == reflect.String:
		if c != '"' {
			return errors.New("not a text")
		}
		v.SetString(string(Unquote(span)))
	case v.Kind() == reflect.Float64:
		f, err := strconv.ParseFloat(string(span), 64)
		if err != nil || math.IsInf(f, 0) {
			return errors.New("not a number")
		}
		v.SetFloat(f)
	default:
		n, err := strconv.ParseInt(string(span), 10, 64)
		if err != nil {
			return errors.New("not a whole number")
		}
		v.SetInt(n)
	}
	return nil
}
