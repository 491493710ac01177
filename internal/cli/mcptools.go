package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/internal/work"
)

// deskTool is a command as a tool. Its arguments are flags of the command, by the same names with underscores, and those of own.
type deskTool struct {
	name, about string
	flags       []string
	own         map[string]*jsonschema.Schema
	required    []string
	spends      bool // it may
	args        func(*toolDesk, map[string]any) (args []string, stdin string, err error)
}

// deskTools are those that an agent gets.
func deskTools() []deskTool {
	text := func(about string) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Description: about} }
	return []deskTool{
		{
			name: "plan",
			about: "Says what limits and a workload come to: open calls (slots), workers, requests per minute, time and cost. " +
				"Computes alone: nothing is sent. Give the limits (rpm, tpm, concurrent, rate_limit), or a provider with a tier.",
			flags: append(limitNames(), "provider", "model", "tier", "latency", "input-tokens", "cached-tokens", "output-tokens",
				"max-tokens", "requests", "workload", "safety", "graphs", "price-in", "price-out", "max-cost", "deadline", "simulate"),
			args: planArgs,
		},
		{
			name: "find",
			about: "Finds out what a provider really enforces, and how many workers are safe. Without probe it says what that would cost and " +
				"sends nothing. With probe it makes real calls, which cost money: token_budget bounds them.",
			flags: []string{"provider", "model", "tier", "max-workers", "min-output-tokens", "token-budget", "max-cost", "price-in", "price-out", "quick"},
			own: map[string]*jsonschema.Schema{
				"probe": {Type: "boolean", Description: "make real calls; only where whoever started this server allowed it"},
			},
			required: []string{"model"},
			spends:   true,
			args:     findArgs,
		},
		{
			name: "status",
			about: "Says how a run of sluice run or sluice exec stands: what is done, failed and left, and whether it is alive. " +
				"Reads the files of the run.",
			own: map[string]*jsonschema.Schema{
				"path": text("the run's output, such as out.jsonl, or the directory of sluice exec; of another directory, the runs in it"),
			},
			required: []string{"path"},
			args:     statusArgs,
		},
		{
			name:  "explain",
			about: "Says what an error of a provider means, how long to wait, and what to do about it. Nothing is sent.",
			flags: []string{"status", "header", "provider"},
			own: map[string]*jsonschema.Schema{
				"text": text("the error, as it was met: a body, what an SDK threw, a line of a log"),
			},
			required: []string{"text"},
			args: func(_ *toolDesk, given map[string]any) ([]string, string, error) {
				said, _ := given["text"].(string)
				delete(given, "text")
				return nil, said, nil
			},
		},
	}
}

func planArgs(d *toolDesk, given map[string]any) ([]string, string, error) {
	name, ok := given["workload"].(string)
	if !ok {
		return nil, "", nil
	}
	path, err := d.inside(name)
	given["workload"] = path
	return nil, "", err
}

func findArgs(d *toolDesk, given map[string]any) ([]string, string, error) {
	probe, _ := given["probe"].(bool)
	delete(given, "probe")
	if !probe {
		return []string{"--dry-run"}, "", nil
	}
	budget, _ := given["token_budget"].(float64)
	switch {
	case d.probeTokens == 0:
		return nil, "", errors.New("probing is not allowed here: whoever starts sluice mcp does so by --probe-tokens N; without probe, find says what it would cost")
	case budget < 1:
		return nil, "", errors.New("probe needs a token_budget of at least 1: without probe, find says what is usual")
	}
	if left, ok := d.spend(budget); !ok {
		return nil, "", fmt.Errorf("token_budget %.0f is above %d, which is left of the %d that whoever started this server allows", budget, left, d.probeTokens)
	}
	return []string{"--progress=none"}, "", nil
}

func statusArgs(d *toolDesk, given map[string]any) ([]string, string, error) {
	name, _ := given["path"].(string)
	delete(given, "path")
	path, err := d.inside(name)
	if err != nil {
		return nil, "", err
	}
	runs := []string{path}
	if info, err := os.Stat(path); err == nil && info.IsDir() && !ofExec(path) {
		runs = runsIn(path)
	}
	for _, run := range runs { // whose files may be links by themselves
		results, state := places(run)
		for _, file := range []string{run, results, work.AsidePath(results), state, state + ".bak"} {
			if _, err := d.inside(file); err != nil {
				return nil, "", err
			}
		}
	}
	return []string{"--", path}, "", nil
}

// add adds a tool to the server.
func (d *toolDesk) add(server *mcp.Server, t deskTool) {
	closed := false
	tool := &mcp.Tool{
		Name: t.name, Description: t.about, InputSchema: t.schema(),
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: !t.spends, DestructiveHint: &closed, OpenWorldHint: &t.spends},
	}
	mcp.AddTool(server, tool, func(ctx context.Context, _ *mcp.CallToolRequest, given map[string]any) (*mcp.CallToolResult, toolAnswer, error) {
		if given == nil {
			given = map[string]any{}
		}
		probe := t.spends && given["probe"] == true
		rest, stdin, err := t.args(d, given)
		if err != nil {
			return nil, toolAnswer{}, err
		}
		args := []string{t.name, "--json"}
		for _, flag := range t.flags {
			switch v := given[argument(flag)].(type) {
			case nil:
			case []any:
				for _, one := range v {
					args = append(args, "--"+flag+"="+flagText(one))
				}
			default:
				args = append(args, "--"+flag+"="+flagText(v))
			}
		}
		answer, err := d.call(ctx, stdin, append(args, rest...)...)
		if taken, ok := given["token_budget"].(float64); ok && probe {
			d.settle(taken, answer)
		}
		return nil, answer, err
	})
}

// argument is the name of a flag as one of a tool's arguments.
func argument(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// schema describes the arguments. Flags are described by the command itself.
func (t *deskTool) schema() *jsonschema.Schema {
	command, _, err := newRoot(newStreams(nil, strings.NewReader(""), io.Discard, io.Discard)).Find([]string{t.name})
	if err != nil {
		panic(err) // a tool is called as its command is
	}
	schema := &jsonschema.Schema{
		Type: "object", Properties: map[string]*jsonschema.Schema{}, Required: t.required,
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	for name, own := range t.own {
		schema.Properties[name] = own
		schema.PropertyOrder = append(schema.PropertyOrder, name)
	}
	slices.Sort(schema.PropertyOrder)
	for _, name := range t.flags {
		schema.Properties[argument(name)] = flagSchema(command.Flags().Lookup(name))
		schema.PropertyOrder = append(schema.PropertyOrder, argument(name))
	}
	return schema
}

// flagSchema describes a flag.
func flagSchema(f *pflag.Flag) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string", Description: f.Usage}
	switch f.Value.Type() {
	case "int":
		s.Type = "integer"
	case "float64":
		s.Type = "number"
	case "bool":
		s.Type = "boolean"
	case "duration":
		s.Description += "; such as 300ms, 90s or 1h30m"
	case "stringArray":
		s.Type, s.Items = "array", &jsonschema.Schema{Type: "string"}
	}
	return s
}
