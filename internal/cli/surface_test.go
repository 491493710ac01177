package cli_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/internal/cli"
	"github.com/sluice-llm/sluice/internal/telemetry"
)

// surface is all that docs/api.md promises, one line each.
func surface(t *testing.T) []string {
	t.Helper()
	all := make(map[string]bool)
	add := func(format string, args ...any) { all[fmt.Sprintf(format, args...)] = true }
	goSurface(t, add)
	commandSurface(cli.Commands(), add)
	exitSurface(t, add)
	metricSurface(t, add)
	fieldSurface(t, add)
	schemaSurface(t, add)
	return slices.Sorted(maps.Keys(all))
}

// commandSurface adds the commands and flags that help shows.
func commandSurface(cmd *cobra.Command, add func(string, ...any)) {
	if cmd.Hidden {
		return
	}
	add("command %s", cmd.CommandPath())
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Hidden:
		case f.Shorthand != "":
			add("flag %s -%s, --%s %s", cmd.CommandPath(), f.Shorthand, f.Name, f.Value.Type())
		default:
			add("flag %s --%s %s", cmd.CommandPath(), f.Name, f.Value.Type())
		}
	})
	for _, sub := range cmd.Commands() {
		commandSurface(sub, add)
	}
}

func exitSurface(t *testing.T, add func(string, ...any)) {
	text := read(t, "errors.go")
	codes := regexp.MustCompile(`(?m)^\texit(\w+) += (\d+)`).FindAllStringSubmatch(text, -1)
	if len(codes) < 7 {
		t.Fatalf("errors.go has %d exit codes", len(codes))
	}
	for _, m := range codes {
		add("exit %s %s", m[2], strings.ToLower(m[1]))
	}
}

// metricSurface adds what Prometheus is told of, with the labels.
func metricSurface(t *testing.T, add func(string, ...any)) {
	form := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: (\{[^}]*\})`)
	for _, c := range []prometheus.Collector{telemetry.NewMetrics(nil), telemetry.NewGateway(nil, nil), telemetry.NewEngine()} {
		descriptions := make(chan *prometheus.Desc, 1000)
		c.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			m := form.FindStringSubmatch(d.String())
			if m == nil {
				t.Fatalf("a metric is described as %s", d)
			}
			add("metric %s %s", m[1], m[2])
		}
	}
}

// fieldSurface adds the fields of the JSON that we write, by the package whose types have them.
func fieldSurface(t *testing.T, add func(string, ...any)) {
	for _, name := range []string{".", "batch", "find", "gateway", "plan", "pool", "proc", "work", "internal/cli", "internal/control", "internal/parts", "internal/stress", "internal/telemetry"} {
		for _, file := range sources(t, filepath.Join("../..", name)) {
			ast.Inspect(file, func(n ast.Node) bool {
				field, ok := n.(*ast.Field)
				if !ok || field.Tag == nil {
					return true
				}
				tag, err := strconv.Unquote(field.Tag.Value)
				if err != nil {
					t.Fatal(err)
				}
				if key, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ","); key != "" && key != "-" {
					add("json %s: %s", name, key)
				}
				return true
			})
		}
	}
}

// sources are the files of a directory that are not tests.
func sources(t *testing.T, dir string) (files []*ast.File) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no sources in %s: %v", dir, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// schemaSurface adds the fields of sluice.yaml.
func schemaSurface(t *testing.T, add func(string, ...any)) {
	var schema any
	if err := json.Unmarshal([]byte(read(t, "../../docs/sluice.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		node, ok := v.(map[string]any)
		if !ok {
			if list, ok := v.([]any); ok {
				for _, v := range list {
					walk(path, v)
				}
			}
			return
		}
		for key, v := range node {
			fields, ok := v.(map[string]any)
			switch {
			case ok && (key == "properties" || key == "$defs"):
				for name, v := range fields {
					if key == "properties" {
						add("yaml %s%s", path, name)
					}
					walk(path+name+".", v)
				}
			default:
				walk(path, v)
			}
		}
	}
	walk("", schema)
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// listed are the lines of a file in api; none of one that is not there.
func listed(t *testing.T, name string) (lines []string) {
	b, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// without are the lines that others are not among.
func without(lines, others []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		_, found := slices.BinarySearch(others, line)
		return found
	})
}

// TestWhatWasPromisedIsStillThere compares what programs and scripts can rely on with api/, as docs/api.md tells. scripts/api
// has it write the files instead.
func TestWhatWasPromisedIsStillThere(t *testing.T) {
	const dir = "../../api"
	now := surface(t)
	if version := os.Getenv("SLUICE_TEST_WRITE"); version != "" && version != "next" {
		writeSurface(t, filepath.Join(dir, version+".txt"), "What Sluice "+version+" promises; docs/api.md says what that means. scripts/api writes this file.", now)
	}
	versions, err := filepath.Glob(filepath.Join(dir, "v*.txt"))
	if err != nil || len(versions) == 0 {
		t.Fatalf("no version in %s: %v", dir, err)
	}
	slices.SortFunc(versions, newer)
	promised := listed(t, versions[0])
	slices.Sort(promised)
	for _, line := range without(promised, now) {
		t.Errorf("gone or changed since %s: %s", filepath.Base(versions[0]), line)
	}
	added, next := without(now, promised), filepath.Join(dir, "next.txt")
	if os.Getenv("SLUICE_TEST_WRITE") != "" {
		writeSurface(t, next, "What came since the last version; scripts/api writes this file.", added)
	}
	if has := listed(t, next); !slices.Equal(has, added) {
		slices.Sort(has)
		t.Errorf("api/next.txt is not what came since %s: run scripts/api\nit lacks:\n\t%s\nit has too much:\n\t%s", filepath.Base(versions[0]),
			strings.Join(without(added, has), "\n\t"), strings.Join(without(has, added), "\n\t"))
	}
}

// newer puts files of later versions first.
func newer(a, b string) int {
	number := func(name string) (n int) {
		major, minor := 0, 0
		if _, err := fmt.Sscanf(filepath.Base(name), "v%d.%d.txt", &major, &minor); err != nil {
			return -1
		}
		return major*1_000_000 + minor
	}
	return number(b) - number(a)
}

func writeSurface(t *testing.T, name, head string, lines []string) {
	t.Helper()
	text := "# " + head + "\n" + strings.Join(lines, "\n") + "\n"
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
