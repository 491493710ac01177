package batch

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/prose"
)

// Schema is a JSON Schema that answers are checked against. Make one with ParseSchema; it is safe for concurrent use.
type Schema struct{ compiled *jsonschema.Schema }

// SchemaError says what is wrong with a schema, and where.
type SchemaError struct {
	Place string // a pointer into the document; "" is the whole of it, or that no place is known
	Err   error
}

// Error names the place and the fault.
func (e *SchemaError) Error() string {
	if e.Place == "" {
		return e.Err.Error()
	}
	return "at " + e.Place + ": " + e.Err.Error()
}

// Unwrap returns the fault.
func (e *SchemaError) Unwrap() error { return e.Err }

// schemaURL is the address that a schema has while it is compiled. Nothing is ever read from it, nor from any other.
const schemaURL = "sluice:///schema"

// errOutside is the fault of a reference that leads elsewhere.
var errOutside = errors.New("refers to another document, which Sluice does not read")

// ParseSchema compiles a schema of the draft that its $schema names, 2020-12 if it names none. References may lead within
// the document, and to the published schemas of the drafts themselves: no other file is read, and nothing is fetched. It
// fails with a *SchemaError.
func ParseSchema(doc []byte) (s *Schema, err error) {
	defer func() {
		if r := recover(); r != nil { // of the library
			s, err = nil, &SchemaError{Err: fmt.Errorf("cannot be compiled: %v", r)}
		}
	}()
	doc = bytes.TrimPrefix(doc, []byte("\ufeff"))
	if len(bytes.TrimSpace(doc)) == 0 {
		return nil, &SchemaError{Err: errors.New("is empty")}
	}
	if scan := jsonscan.New(doc); !jsonscan.Valid(doc) {
		scan.Skip()
		scan.End()
		line := 1 + bytes.Count(doc[:min(scan.Offset(), len(doc))], []byte("\n"))
		return nil, &SchemaError{Err: fmt.Errorf("is not valid JSON: error at line %d", line)}
	}
	d := decoder{Scanner: jsonscan.New(doc)}
	value := d.value()
	if d.monstrous {
		return nil, &SchemaError{Err: fmt.Errorf("contains a number beyond 1e%d", mostExponent)}
	}
	switch value.(type) {
	case map[string]any, bool:
	default:
		return nil, &SchemaError{Err: errors.New("is not a schema: expected an object, true or false")}
	}
	if deeper(value, mostNested) {
		return nil, &SchemaError{Err: fmt.Errorf("is nested deeper than %d levels", mostNested)}
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(closed{})
	if err := c.AddResource(schemaURL, value); err != nil {
		return nil, &SchemaError{Err: err}
	}
	compiled, err := c.Compile(schemaURL)
	if err != nil {
		return nil, schemaError(err, value)
	}
	return &Schema{compiled}, nil
}

// mostNested is how deeply a schema may be nested: compiling one takes the cube of that.
const mostNested = 300

// deeper reports whether a value has more levels than that.
func deeper(v any, levels int) bool {
	below := func(v any) bool { return deeper(v, levels-1) }
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			if levels == 0 || below(member) {
				return true
			}
		}
	case []any:
		return len(v) > 0 && levels == 0 || slices.ContainsFunc(v, below)
	}
	return false
}

// closed loads nothing.
type closed struct{}

// Load fails.
func (closed) Load(string) (any, error) { return nil, errOutside }

// schemaError words what the compiler found.
func schemaError(err error, doc any) error {
	if load, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		place, ref := refTo(doc, load.URL)
		if place == "" {
			ref = load.URL
		}
		return &SchemaError{Place: place, Err: fmt.Errorf("%q %w", ref, errOutside)}
	}
	if re, ok := errors.AsType[*jsonschema.InvalidRegexError](err); ok {
		why := re.Err
		if inner := errors.Unwrap(why); inner != nil {
			why = inner
		}
		return &SchemaError{Place: pointerOf(re.URL), Err: fmt.Errorf("the pattern %s cannot be used: %w", clip([]byte(strconv.Quote(re.Regex))), why)}
	}
	if bad, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if v, ok := errors.AsType[*jsonschema.ValidationError](bad.Err); ok {
			return &SchemaError{Err: fmt.Errorf("is not a schema: %s", faults(v))}
		}
	}
	if gone, ok := errors.AsType[*jsonschema.JSONPointerNotFoundError](err); ok {
		return &SchemaError{Err: fmt.Errorf("the reference to %s has no target", pointerOf(gone.URL))}
	}
	if gone, ok := errors.AsType[*jsonschema.AnchorNotFoundError](err); ok {
		return &SchemaError{Err: fmt.Errorf("the reference to the anchor %s has no target", strings.TrimPrefix(gone.Reference, schemaURL))}
	}
	return &SchemaError{Err: errors.New(strings.ReplaceAll(err.Error(), schemaURL, ""))}
}

// pointerOf returns where in the document an address leads.
func pointerOf(address string) string {
	_, fragment, _ := strings.Cut(address, "#")
	if plain, err := url.PathUnescape(fragment); err == nil {
		fragment = plain
	}
	return fragment
}

// refTo finds the first reference of a document, by its members' names, that leads to an address, and what it says.
func refTo(doc any, address string) (place, ref string) {
	base, err := url.Parse(schemaURL)
	if err != nil {
		return "", ""
	}
	return (&refs{address: address}).find(doc, base, "")
}

// refs looks for a reference.
type refs struct{ address string }

func (r *refs) find(v any, base *url.URL, at string) (place, ref string) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range []string{"$id", "id"} {
			if id, ok := v[name].(string); ok {
				if next, err := base.Parse(id); err == nil {
					base = next
				}
			}
		}
		for _, name := range []string{"$schema", "$ref", "$dynamicRef", "$recursiveRef"} {
			to, ok := v[name].(string)
			if next, err := base.Parse(to); ok && err == nil {
				next.Fragment, next.RawFragment = "", ""
				if next.String() == r.address {
					return at + "/" + name, to
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if place, ref = r.find(v[name], base, at+"/"+token(name)); place != "" {
				return place, ref
			}
		}
	case []any:
		for i, v := range v {
			if place, ref = r.find(v, base, at+"/"+strconv.Itoa(i)); place != "" {
				return place, ref
			}
		}
	}
	return "", ""
}

// token writes a name as a pointer does.
func token(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// Check says what is wrong with an answer's text: it is no JSON, nor has a block of it, or that does not fit the schema.
// It returns nil if all is well.
func (s *Schema) Check(text string) error {
	doc := jsonIn(text)
	if doc == nil {
		return errNotJSON
	}
	return s.check(doc)
}

var errNotJSON = errors.New("the response is not JSON")

// check checks a JSON text.
func (s *Schema) check(doc []byte) (err error) {
	d := decoder{Scanner: jsonscan.New(doc)}
	value := d.value()
	switch {
	case !d.End():
		return errNotJSON
	case d.monstrous:
		return fmt.Errorf("the response contains a number beyond 1e%d", mostExponent)
	}
	defer func() {
		if recover() != nil { // in the library: one response must not end the run
			err = errors.New("the response cannot be checked against the schema")
		}
	}()
	err = s.compiled.Validate(value)
	if v, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return fmt.Errorf("the response does not match the schema: %s", faults(v))
	}
	return err
}

// mostFaults is how many faults of an answer are named.
const mostFaults = 3

// mostFaultText is how long the text of one may be: a schema may list many values, and an answer have long names.
const mostFaultText = 200

// faults words what does not fit: each fault by its place in the answer, and not what contains it.
func faults(v *jsonschema.ValidationError) string {
	var said []string
	more := 0
	var walk func(*jsonschema.ValidationError)
	walk = func(v *jsonschema.ValidationError) {
		if len(v.Causes) > 0 {
			for _, cause := range v.Causes {
				walk(cause)
			}
			return
		}
		if len(said) == mostFaults {
			more++
			return
		}
		said = append(said, faultText(v))
	}
	walk(v)
	text := strings.Join(said, "; ")
	if more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// faultText words one fault.
func faultText(v *jsonschema.ValidationError) string {
	text := strings.TrimPrefix(v.Error(), "at '")
	place, what, ok := strings.Cut(text, "': ")
	switch {
	case !ok:
		what = v.Error()
	case place == "":
		what = "at the top level: " + what
	default:
		what = "at " + place + ": " + what
	}
	return prose.Clip(what, mostFaultText)
}
