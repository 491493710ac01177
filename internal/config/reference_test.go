package config_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/sluice-llm/sluice/internal/suite"
)

//go:generate env SLUICE_TEST_WRITE=1 go test -count=1 -run TestReferenceOfSettings .

// node is an object of the JSON Schema, in the order of the file.
type node yaml.MapSlice

// get returns a member; nil if there is none.
func (n node) get(key string) any {
	for _, item := range n {
		if item.Key == key {
			if m, ok := item.Value.(yaml.MapSlice); ok {
				return node(m)
			}
			return item.Value
		}
	}
	return nil
}

// object returns the member as an object.
func (n node) object(key string) node { m, _ := n.get(key).(node); return m }

// kind returns the type of a setting as people read it, and its fields if it is an object or a list of objects.
func (n node) kind() (text string, fields node) {
	if ref, ok := n.get("$ref").(string); ok {
		if ref == "#/$defs/limits" {
			return "[limits](#limits)", nil
		}
		return "number, or number with a source", nil
	}
	var all []string
	switch t := n.get("type").(type) {
	case string:
		all = []string{t}
	case []any:
		for _, one := range t {
			if one != "null" {
				all = append(all, fmt.Sprint(one))
			}
		}
	}
	if items := n.object("items"); items != nil {
		of, below := items.kind()
		return "list of " + of, below
	}
	if values, ok := n.get("enum").([]any); ok {
		var words []string
		for _, v := range values {
			if v != nil && v != "" {
				words = append(words, fmt.Sprintf("`%v`", v))
			}
		}
		return strings.Join(words, ", "), nil
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		forms, _ := n.get(key).([]any)
		for _, form := range forms {
			if m, ok := form.(yaml.MapSlice); ok && node(m).get("type") != nil && len(all) < 2 {
				of, _ := node(m).kind()
				all = append(all, of)
			}
		}
	}
	return strings.Join(slices.Compact(all), " or "), n.object("properties")
}

// table writes the fields of an object, and then those of the objects in it.
func table(b *strings.Builder, path, description string, fields node) {
	title := "Top level"
	if path != "" {
		title = "`" + path + "`"
	}
	if description != "" {
		description += "\n\n"
	}
	fmt.Fprintf(b, "\n## %s\n\n%sfield | type | description\n---|---|---\n", title, description)
	type below struct {
		path   string
		fields node
	}
	var later []below
	for _, item := range fields {
		n := node(item.Value.(yaml.MapSlice))
		kind, own := n.kind()
		at := strings.TrimPrefix(path+"."+item.Key.(string), ".")
		if len(own) > 0 {
			kind = strings.Replace(kind, "object", fmt.Sprintf("[object](#%s)", strings.NewReplacer(".", "", "[]", "").Replace(at)), 1)
			later = append(later, below{at, own})
		}
		fmt.Fprintf(b, "`%s` | %s | %s\n", item.Key, strings.ReplaceAll(kind, "|", "\\|"), n.get("description"))
	}
	for _, l := range later {
		table(b, l.path, "", l.fields)
	}
}

func TestReferenceOfSettings(t *testing.T) {
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var whole yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(text, &whole, yaml.UseOrderedMap()); err != nil {
		t.Fatal(err)
	}
	schema := node(whole)
	var b strings.Builder
	b.WriteString("# Settings\n\nThis page lists all fields of the settings files that `--config` or the variable `SLUICE_CONFIG` selects. For editors, " +
		"use the [JSON Schema](../sluice.schema.json). Durations have a unit, such as `2s` or `5m`.\n")
	table(&b, "", "If `--config` is repeated, fields of later files override fields of earlier files. Settings files never contain API keys.", schema.object("properties"))
	limits := schema.object("$defs").object("limits")
	table(&b, "limits", fmt.Sprint(limits.get("description")), limits.object("properties"))
	suite.Generated(t, "../../docs/reference/settings.md", b.String())
}
