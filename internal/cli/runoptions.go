package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// naming are the flags whose value names something. An empty one is a variable that is not set: without what it was to name, calls
// would go to somebody else, or be held to nothing.
func (*runOptions) naming() []string {
	return []string{
		"provider", "base-url", "key-env", "keys-file", "ca-file", "config", "limits", "tier", "template", "schema", "cache", "events", "report",
		"metrics-listen",
	}
}

// check finds what is wrong with the flags themselves, and reads what they point to.
func (o *runOptions) check() error {
	for _, name := range o.naming() {
		if o.flags.Changed(name) && o.flags.Lookup(name).Value.String() == "" {
			return usageError(fmt.Errorf("--%s is empty", name), "leave --%s out if that is meant; else look whether the variable is set that it is taken from", name)
		}
	}
	err := cmp.Or(checkWord("progress", o.progress), checkWord("sync", o.sync), checkWord("order", o.order), checkWordIfAny("changed", o.changed))
	if err != nil {
		return err
	}
	switch {
	case o.output == "" && !o.rows.dryRun:
		return usageError(errors.New("no output file: -o is missing"), "say where results go, such as -o out.jsonl")
	case o.output == "-":
		return usageError(errors.New("the output is the checkpoint and cannot be a pipe"), "name a file, such as -o out.jsonl")
	case o.events == "-":
		return usageError(errors.New("--events needs a file: standard output is for --json"), "name one, such as --events events.jsonl")
	case o.attempts < 1:
		return usageError(fmt.Errorf("--attempts %d is below one", o.attempts), "an item is tried at least once")
	case o.timeout < 0:
		return usageError(fmt.Errorf("--timeout %s is below zero", o.timeout), "say how long one try may take, such as --timeout 2m")
	case o.maxTokens < 0:
		return usageError(fmt.Errorf("--max-tokens %d is below zero", o.maxTokens), "leave --max-tokens out to have none set")
	case o.account.maxThrottles < 0:
		return usageError(fmt.Errorf("--max-throttles %d is below zero", o.account.maxThrottles), "say how often an item may be throttled")
	}
	if err := o.checkDistributed(); err != nil {
		return err
	}
	if err := o.checkVia(); err != nil {
		return err
	}
	return o.checkFiles()
}

// checkFiles refuses files that would overwrite each other, or one that is read.
func (o *runOptions) checkFiles() error {
	system, isFile := strings.CutPrefix(o.system, "@")
	if !isFile {
		system = ""
	}
	named := []struct {
		what, path string
		apart      bool // from all before it, and not only from what is written
	}{
		{"the input", o.input, true}, {"the output", o.output, true}, {"--events", o.events, true}, {"--report", o.report.name, true},
		{"--template", o.rows.template, true}, {"--schema", o.checks.schema, false}, {"--system", system, false},
		{"--config", o.account.settings.config, false}, {"--limits", o.account.settings.limits, false},
		{"--keys-file", o.account.keysFile, false}, {"--ca-file", o.account.caFile, false},
	}
	written := named[1:4]
	for i, a := range named {
		others := written
		if a.apart {
			others = named[:i]
		}
		for _, b := range others {
			if sameFile(a.path, b.path) {
				return usageError(fmt.Errorf("%s and %s are the same file %s", b.what, a.what, a.path), "give each a file of its own")
			}
		}
	}
	return nil
}

// systemText returns the system prompt: what the flag says, or what stands in the file that it names.
func (o *runOptions) systemText() (string, error) {
	name, isFile := strings.CutPrefix(o.system, "@")
	if !isFile {
		return o.system, nil
	}
	b, err := readNamed(name, 16)
	switch {
	case err != nil:
		return "", usageError(fmt.Errorf("system prompt: %w", err), "--system takes the text itself, or @FILE")
	case !utf8.Valid(b):
		return "", usageError(fmt.Errorf("system prompt: %s is not valid UTF-8", name), "save it as UTF-8")
	}
	return strings.TrimSpace(strings.TrimPrefix(string(b), "\ufeff")), nil
}

// settings reads --set name=json.
func (o *runOptions) settings() (map[string]json.RawMessage, error) {
	set := make(map[string]json.RawMessage)
	for _, text := range o.set {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" || !json.Valid([]byte(value)) {
			return nil, usageError(fmt.Errorf("--set %s is not of the form name=json", text),
				`texts need their quotes: --set temperature=0.2 --set 'user="me"'`)
		}
		set[name] = json.RawMessage(value)
	}
	return set, nil
}
