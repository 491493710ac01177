package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/provider"
)

// rules check texts. A field names the rule of its text, or of each text in its list, in the tag check.
var rules = map[string]func(text string) error{
	"address": func(text string) error { return checkUnless(CheckAddress, text, "") },
	"metrics": func(text string) error { return checkUnless(CheckAddress, text, "", "none") },
	"host":    CheckHost,
	"redis":   func(text string) error { return checkUnless(cluster.CheckURL, text, "") },
	"base":    provider.CheckBase,
	"price":   func(text string) error { return checkUnless(checkPrice, text, "") },
	"name": func(text string) error {
		return wrongIf(strings.ContainsFunc(text, notInName), "want letters, digits, dots, dashes and underscores")
	},
	"variable": func(text string) error { // the text may be a key, and is not quoted
		return wrongIf(!provider.IsVariable(text), "the value is not the name of an environment variable, such as MY_API_KEY")
	},
	"file": func(text string) error { return wrongIf(text == "-", "want a file") },
}

func wrongIf(wrong bool, text string) error {
	if wrong {
		return errors.New(text)
	}
	return nil
}

// checkUnless checks a text unless it is one of the words.
func checkUnless(check func(string) error, text string, words ...string) error {
	if slices.Contains(words, text) {
		return nil
	}
	return check(text)
}

func checkPrice(text string) error {
	_, err := pricing.ParseRate(text)
	return err
}

// CheckHost returns an error if host is not a name by which clients can address a gateway.
func CheckHost(host string) error {
	other := func(r rune) bool { return notInName(r) && !strings.ContainsRune(":[]", r) }
	return wrongIf(host == "" || strings.ContainsFunc(host, other),
		"want a host name without https:// or a path, such as gateway.example.com")
}

// CheckAddress returns an error if address is not a host and a port to listen at.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	_, wrong := strconv.ParseUint(port, 10, 16)
	other := func(r rune) bool { return notInName(r) && !strings.ContainsRune(":%", r) }
	return wrongIf(err != nil || wrong != nil || strings.ContainsFunc(host, other), "want a host and a port, such as 127.0.0.1:8787")
}

// CheckMetrics returns an error if address, where metrics are served, is not a host and a port. "" is allowed.
func CheckMetrics(address string) error {
	if address == "" || CheckAddress(address) == nil {
		return nil
	}
	return fault.New(fault.Value, fmt.Errorf("--metrics %q is not an address", address), "use a host and a port, for example --metrics 127.0.0.1:9464")
}

// CheckEvents returns an error if the file of events is standard output.
func CheckEvents(file string) error {
	if file != "-" {
		return nil
	}
	return fault.New(fault.Value, errors.New("--events needs a file, not -"), "name a file, for example --events events.jsonl")
}

func notInName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_')
}

// inspect returns the first error of the document: a field that its type does not have, or a value that does not fit the type or the
// rule of its field. The error names the line and the path of the value.
func (d *document) inspect(n ast.Node, t reflect.Type, rule string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	mapping, isMap := n.(ast.MapNode)
	list, isList := n.(*ast.SequenceNode)
	switch {
	case n.Type() == ast.NullType:
		return nil
	case isMap && t.Kind() == reflect.Struct:
		return d.inspectFields(mapping.MapRange(), t)
	case isList && t.Kind() == reflect.Slice:
		for _, element := range list.Values {
			if err := d.inspect(element, t.Elem(), rule); err != nil {
				return err
			}
		}
		return nil
	}
	if err := checkValue(n, t, rules[rule]); err != nil {
		return d.atNode(n, err)
	}
	return nil
}

// inspectFields inspects the fields of a mapping for a struct.
func (d *document) inspectFields(f *ast.MapNodeIter, t reflect.Type) error {
	known := maps.Collect(fields(t))
	for f.Next() {
		field, ok := known[f.Key().GetToken().Value]
		if !ok {
			return d.unknown(f.Key())
		}
		if err := d.inspect(f.Value(), field.Type, field.Tag.Get("check")); err != nil {
			return err
		}
		v := reflect.New(field.Type)
		if strings.HasSuffix(field.Tag.Get("yaml"), ",omitempty") && yaml.NodeToValue(f.Value(), v.Interface()) == nil && v.Elem().IsZero() {
			return d.atNode(f.Value(), errors.New("is empty or zero: omit the field to use the default"))
		}
	}
	return nil
}

// checkValue checks a value that is not a mapping. check is nil if its field has no rule.
func checkValue(n ast.Node, t reflect.Type, check func(string) error) error {
	if t == reflect.TypeFor[time.Duration]() {
		t = reflect.TypeFor[Duration]()
	}
	v := reflect.New(t)
	err := yaml.NodeToValue(n, v.Interface())
	text, isText := v.Interface().(encoding.TextUnmarshaler)
	mistyped, isType := errors.AsType[*yaml.TypeError](err)
	number, isFloat := n.(*ast.FloatNode)
	scalar, isScalar := n.(ast.ScalarNode)
	switch {
	case t == reflect.TypeFor[time.Time]() && v.Elem().IsZero(): // the parser reads other texts as no time
		return errors.New("want an instant, such as 2026-01-31T12:00:00Z")
	case isText && !isScalar:
		return cmp.Or(text.UnmarshalText(nil), errors.New("want a text"))
	case isType:
		return errors.New("want " + cmp.Or(forms[mistyped.DstType.Kind()], fieldsForm))
	case fault.Is[yaml.Error](err):
		return errors.New("want " + cmp.Or(forms[t.Kind()], fieldsForm))
	case err != nil:
		return err
	case isFloat && t.Kind() == reflect.Int && number.Value != math.Trunc(number.Value): // the parser drops the fraction
		return errors.New("want a whole number")
	case check != nil && isScalar:
		return check(fmt.Sprint(scalar.GetValue()))
	}
	return nil
}

// forms describe the values of types.
var forms = map[reflect.Kind]string{
	reflect.Int: "a whole number", reflect.Float64: "a number", reflect.Bool: "true or false", reflect.String: "a text",
	reflect.Slice: "a list, with a dash before each entry",
}

const fieldsForm = "fields, such as name: value"

// unknown is the error about a field that does not exist, or not in this place.
func (d *document) unknown(key ast.Node) error {
	name, known := key.GetToken().Value, names(nil, reflect.TypeFor[File]())
	text := fmt.Sprintf("unknown field %q", name)
	if slices.Contains(known, name) { // similar names would also be wrong in this place
		text = fmt.Sprintf("field %q belongs below another field", name)
		known = []string{"providers", "limits", "upstreams", "serve"}
	}
	err := d.wrong(line(key.GetToken()), "", errors.New(text+provider.DidYouMean(provider.Nearest(name, known))))
	low := strings.ToLower(name)
	if strings.Contains(low, "key") || strings.Contains(low, "secret") || strings.Contains(low, "token") {
		err.hint = keyHint
	}
	return err
}

// names appends the names of all fields of a type, and of the types of its fields.
func names(all []string, t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	for name, field := range fields(t) {
		all = names(append(all, name), field.Type)
	}
	return all
}

// fields yields the fields of a struct with their names; none of another type.
func fields(t reflect.Type) iter.Seq2[string, reflect.StructField] {
	return func(yield func(string, reflect.StructField) bool) {
		if t.Kind() != reflect.Struct {
			return
		}
		for _, field := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
			if name != "" && name != "-" && !yield(name, field) {
				return
			}
		}
	}
}
