package batch

import (
	"errors"
	"reflect"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// checker is a compiled schema that counts its steps: with alternatives within alternatives, checking a short answer may
// take as long as anybody likes. It checks one answer at a time.
type checker struct {
	compiled *jsonschema.Schema
	left     int // steps
}

// How many steps a check may have: each is one schema at one value. Checks whose time grows as the answer does have
// enough.
const (
	leastSteps   = 200_000
	stepsPerByte = 8
)

// errSteps ends a check of too many.
var errSteps = errors.New("the answer takes too long to check against the schema")

// newChecker compiles a schema.
func newChecker(doc any) (*checker, error) {
	c := jsonschema.NewCompiler()
	c.UseLoader(closed{})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, &SchemaError{Err: err}
	}
	compiled, err := c.Compile(schemaURL)
	if err != nil {
		return nil, schemaError(err, doc)
	}
	k := &checker{compiled: compiled}
	k.count(reflect.ValueOf(compiled), make(map[*jsonschema.Schema]bool))
	return k, nil
}

// validate checks a value in so many steps at most, and panics with errSteps beyond.
func (k *checker) validate(value any, steps int) error {
	k.left = steps
	return k.compiled.Validate(value)
}

// count makes every schema that is reached from v count. The library calls nothing for each of them but their formats.
func (k *checker) count(v reflect.Value, seen map[*jsonschema.Schema]bool) {
	switch v.Kind() {
	case reflect.Interface:
		k.count(v.Elem(), seen)
	case reflect.Slice:
		for i := range v.Len() {
			k.count(v.Index(i), seen)
		}
	case reflect.Map:
		for each := v.MapRange(); each.Next(); {
			k.count(each.Value(), seen)
		}
	case reflect.Pointer:
		switch to := v.Interface().(type) {
		case *jsonschema.DynamicRef:
			if to != nil {
				k.count(reflect.ValueOf(to.Ref), seen)
			}
		case *jsonschema.Schema:
			if to == nil || seen[to] || strings.Contains(to.Location, "://json-schema.org/") { // a draft's, which all share
				return
			}
			seen[to] = true
			to.Format = k.counting(to.Format)
			for i := range v.Elem().NumField() {
				if v.Elem().Type().Field(i).IsExported() {
					k.count(v.Elem().Field(i), seen)
				}
			}
		}
	}
}

// counting returns a format that counts, and is else as the one that there was.
func (k *checker) counting(was *jsonschema.Format) *jsonschema.Format {
	counts := &jsonschema.Format{Validate: func(v any) error {
		if k.left--; k.left < 0 {
			panic(errSteps)
		}
		if was != nil {
			return was.Validate(v)
		}
		return nil
	}}
	if was != nil {
		counts.Name = was.Name
	}
	return counts
}

// take returns a checker that nobody uses.
func (s *Schema) take() (*checker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		k := s.free[n-1]
		s.free = s.free[:n-1]
		return k, nil
	}
	return newChecker(s.doc)
}

// give puts one back.
func (s *Schema) give(k *checker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, k)
}
