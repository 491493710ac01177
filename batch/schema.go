package batch

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/prose"
)

// Schema is a JSON Schema that answers are checked against. Make one with ParseSchema; it is safe for concurrent use.
type Schema struct{ compiled *jsonschema.Schema }

// schemaBase is the start of the address that a schema has while it is compiled. Nothing is read from there.
const schemaBase = "sluice:///"

// ParseSchema compiles a schema of the draft that its $schema names, 2020-12 if it names none. References may lead within
// the document, and to the published schemas of the drafts themselves: no other file is read, and nothing is fetched.
func ParseSchema(doc []byte) (schema *Schema, err error) {
	defer func() {
		if r := recover(); r != nil { // in the library, as by a number with an exponent of millions
			err = fmt.Errorf("cannot be compiled: %v", r)
		}
	}()
	doc = bytes.TrimPrefix(doc, []byte("\ufeff"))
	if len(bytes.TrimSpace(doc)) == 0 {
		return nil, errors.New("is empty")
	}
	if scan := jsonscan.New(doc); !jsonscan.Valid(doc) {
		scan.Skip()
		scan.End()
		line := 1 + bytes.Count(doc[:min(scan.Offset(), len(doc))], []byte("\n"))
		return nil, fmt.Errorf("is not valid JSON: error at line %d", line)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return nil, err
	}
	const address = schemaBase + "schema"
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // none for any scheme
	if err := c.AddResource(address, value); err != nil {
		return nil, schemaError(err)
	}
	compiled, err := c.Compile(address)
	if err != nil {
		return nil, schemaError(err)
	}
	return &Schema{compiled}, nil
}

// schemaError words what the compiler found. The text of the library names the address of the fault.
func schemaError(err error) error {
	if bad, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if v, ok := errors.AsType[*jsonschema.ValidationError](bad.Err); ok {
			return fmt.Errorf("is not a schema: %s", faults(v))
		}
	}
	if load, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return fmt.Errorf("%q refers to another document, which Sluice does not read", strings.TrimPrefix(load.URL, schemaBase))
	}
	return errors.New(strings.ReplaceAll(err.Error(), schemaBase, ""))
}

var errNotJSON = errors.New("the response is not JSON")

// Check says what is wrong with an answer's text: it is no JSON, nor has a block of it, or that does not fit the schema.
// It returns nil if all is well.
func (s *Schema) Check(text string) error {
	doc := jsonIn(text)
	if doc == nil {
		return errNotJSON
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	switch {
	case err != nil:
		return errNotJSON
	case beyond(value):
		return fmt.Errorf("the response contains a number beyond 1e%d", maxExponent)
	}
	err = s.compiled.Validate(value)
	if v, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return fmt.Errorf("the response does not match the schema: %s", faults(v))
	}
	return err
}

// maxExponent is the maximum exponent and length of a number in a response. The library calculates exactly, which takes
// time for each digit, and it panics above 1e1000000.
const maxExponent = 400

// beyond reports whether a value contains a number beyond that.
func beyond(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), beyond)
	case []any:
		return slices.ContainsFunc(v, beyond)
	case json.Number:
		_, exponent, _ := strings.Cut(strings.ToLower(string(v)), "e")
		n, err := strconv.Atoi(cmp.Or(exponent, "0"))
		return err != nil || max(n, -n, len(v)) > maxExponent
	}
	return false
}

// mostFaults is how many faults of an answer are named.
const mostFaults = 3

// mostFaultText is how long the text of one may be: a schema may list many values, and an answer have long names.
const mostFaultText = 200

// faults words what does not fit: each fault by its place in the answer, and not what contains it.
func faults(v *jsonschema.ValidationError) string {
	all := appendFaults(nil, v)
	shown := min(len(all), mostFaults)
	var said []string
	for _, fault := range all[:shown] {
		said = append(said, faultText(fault))
	}
	if more := len(all) - shown; more > 0 {
		said = append(said, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(said, "; ")
}

// appendFaults appends the faults that have no further cause.
func appendFaults(all []*jsonschema.ValidationError, v *jsonschema.ValidationError) []*jsonschema.ValidationError {
	if len(v.Causes) == 0 {
		return append(all, v)
	}
	for _, cause := range v.Causes {
		all = appendFaults(all, cause)
	}
	return all
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
