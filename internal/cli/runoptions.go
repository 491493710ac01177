package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/rows"
)

// redoFlag says which recorded items run again.
type redoFlag struct{ which []string }

func (r *redoFlag) flag(words string) flag {
	return flag{name: "redo", field: &r.which, metavar: words, help: "Repeat items that have one of these states", common: true}
}

func (r *redoFlag) has(which string) bool { return slices.Contains(r.which, which) }

// changed returns what to do with items that differ from those that earlier runs recorded: refuse, unless the flag says otherwise.
func (r *redoFlag) changed() rows.Changed {
	switch {
	case r.has("changed"):
		return rows.ChangedRedo
	case r.has("none"):
		return rows.ChangedKeep
	}
	return rows.ChangedRefused
}

// check refuses none beside others.
func (r *redoFlag) check() error {
	if r.has("none") && len(r.which) > 1 {
		return fault.New(fault.Conflict, errors.New("--redo none and other values cannot be combined"), "omit none")
	}
	return nil
}

const fsyncInterval = "interval"

func fsyncFlag(field *string) flag {
	return flag{name: "fsync", field: field, metavar: "each|interval", help: "Flush each result to disk, or flush every 100 ms"}
}

func attemptsFlag(field *int) flag {
	return flag{name: "max-attempts", field: countFrom(field, 1), help: "Limit attempts per item, excluding rate-limited attempts"}
}

// check finds what is wrong with the flags together.
func (o *runOptions) check() error {
	switch {
	case o.output == "" && !o.rows.dryRun:
		return fault.New(fault.Missing, errors.New("no output file: -o is missing"), "name the file of results, such as -o out.jsonl")
	case o.output == "-":
		return fault.New(fault.Value, errors.New("the output is the checkpoint and cannot be a pipe"), "name a file, such as -o out.jsonl")
	case o.workers && o.shared.url == "":
		return fault.New(fault.Missing, errors.New("--distribute needs --redis, the server from which workers take requests"), "name the server with --redis redis://HOST")
	}
	if o.workers {
		o.account.Purpose = account.Submit
	}
	if o.account.Provider == "sim" {
		o.account.Model = cmp.Or(o.account.Model, "sim-small")
	}
	return cmp.Or(o.redo.check(), o.watch.check(), o.checkBatch(), o.checkFiles())
}

// usesBatches reports whether the run uses Batch APIs.
func (o *runOptions) usesBatches() bool { return o.batch || o.cancel }

// goesLive reports whether a run with Batch APIs sends requests live to meet its deadline.
func (o *runOptions) goesLive() bool { return o.batch && !o.cancel && o.budget.deadline.text != "" }

// checkBatch rejects options that Batch APIs do not support.
func (o *runOptions) checkBatch() error {
	switch {
	case !o.usesBatches():
		if o.redo.has("lost") {
			return fault.New(fault.Conflict, errors.New("--redo lost needs --batch or --cancel"), "add --batch, or --cancel to drop the lost batches")
		}
		return nil
	case o.input == "-":
		return fault.New(fault.Conflict, errors.New("--batch cannot read standard input, because it reads the input again later"), "write the items to a file")
	case o.shared.url != "":
		return fault.New(fault.Conflict, errors.New("--redis shares limits, which do not apply to --batch"), "omit --redis")
	case o.cancel && o.rows.dryRun:
		return fault.New(fault.Conflict, errors.New("--dry-run and --cancel cannot be combined"), "list pending batches with sluice status OUT.jsonl")
	}
	return nil
}

// checkFiles refuses files that would overwrite each other, or one that is read.
func (o *runOptions) checkFiles() error {
	system, isFile := strings.CutPrefix(o.system, "@")
	if !isFile {
		system = ""
	}
	named := []namedFile{
		{"the input", o.input, true}, {"the output", o.output, true}, {"--events", o.watch.events, true},
		{"--template", o.rows.template, true}, {"--schema", o.checks.schema, false}, {"--system", system, false},
		{"--env-file", o.account.Keys.File, false},
	}
	return checkApart(named, named[1:3])
}

// systemText returns the system prompt: what the flag says, or what stands in the file that it names.
func (o *runOptions) systemText() (string, error) {
	name, isFile := strings.CutPrefix(o.system, "@")
	if !isFile {
		return o.system, nil
	}
	b, err := regular.Read(name, 16)
	switch {
	case err != nil:
		return "", fault.New(fault.File, fmt.Errorf("system prompt: %w", err), "set --system to the text, or to @FILE")
	case !utf8.Valid(b):
		return "", fault.New(fault.File, fmt.Errorf("system prompt: %s is not valid UTF-8", name), "save the file as UTF-8")
	}
	return strings.TrimSpace(strings.TrimPrefix(string(b), "\ufeff")), nil
}

// settings reads --set name=json.
func (o *runOptions) settings() (map[string]json.RawMessage, error) {
	set := make(map[string]json.RawMessage)
	for _, text := range o.set {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" || !json.Valid([]byte(value)) {
			return nil, fault.New(fault.Value, fmt.Errorf("--set %s is not of the form name=json", text),
				`write a JSON value, with quotes around a string: --set temperature=0.2 --set 'user="me"'`)
		}
		set[name] = json.RawMessage(value)
	}
	return set, nil
}
