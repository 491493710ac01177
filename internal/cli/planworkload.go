package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// workloadFile is what a file of requests, or of their lengths, says of a workload.
type workloadFile struct {
	calls     []plan.Call
	rows      int    // how many requests the file has, where calls are a sample of them; else 0
	model     string // of all of them; "" when the file does not say
	others    int    // requests for other models, which have limits of their own
	hasOutput bool   // the file says how long the answers were
}

// readWorkload reads the lines that a run would send, or a table of lengths.
func (o *planOptions) readWorkload(s *streams, account provider.Provider) (workloadFile, error) {
	var f workloadFile
	var err error
	if strings.HasSuffix(strings.ToLower(o.workload), ".csv") {
		f, err = readLengths(o.workload)
	} else {
		f, err = o.readRequests(s, account)
	}
	if err == nil && f.hasOutput && o.flags.Changed("output-tokens") {
		return f, usageError(fmt.Errorf("--output-tokens, and %s says them too", o.workload), "leave --output-tokens out")
	}
	if err == nil && len(f.calls) == 0 {
		err = usageError(fmt.Errorf("%s has no requests", o.workload), "give a file with a request on each line")
	}
	return f, err
}

// mostNames is how many models an error lists.
const mostNames = 20

// readRequests reads the lines that a run would send.
func (o *planOptions) readRequests(s *streams, account provider.Provider) (workloadFile, error) {
	cfg := batch.Config{
		Input: o.workload, Stdin: s.in, Registry: o.kept.registry, Provider: account, Model: o.model, MaxTokens: o.stated.MaxTokens,
		BaseURL: "http://nowhere.invalid/v1", // nothing is sent: a model may be of a server that is not known here
	}
	models := make(map[string]*modelCalls)
	for r, err := range batch.Requests(cfg) {
		if err != nil {
			return workloadFile{}, workloadError(err)
		}
		c := plan.Call{Input: r.Price.Cost.Input, MaxTokens: r.Price.Cost.MaxOutput, Answers: r.Price.N}
		if r.Endpoint.Embeds() {
			c.Output = plan.NoOutput
		}
		if longest := max(c.Input, c.MaxTokens); longest > plan.LargestCall {
			return workloadFile{}, workloadError(&batch.InputError{Path: o.workload, Line: r.Line,
				Problem: fmt.Sprintf("%s tokens are more than the %s that can be planned with", group(longest), group(plan.LargestCall))})
		}
		key := modelKey(r.Model)
		if models[key] == nil {
			models[key] = &modelCalls{name: r.Model}
		}
		models[key].calls = append(models[key].calls, c)
	}
	return o.choose(models)
}

// modelCalls are the calls of a model, in all its versions, whose limits are one.
type modelCalls struct {
	name  string // of the first
	calls []plan.Call
}

// modelKey is the same for names for which sameModel is true.
func modelKey(model string) string { return strings.ToLower(family(model)) }

// choose takes the calls of --model, or of the only one.
func (o *planOptions) choose(models map[string]*modelCalls) (workloadFile, error) {
	if len(models) == 0 {
		return workloadFile{}, nil
	}
	sorted := slices.SortedFunc(maps.Values(models), func(a, b *modelCalls) int { return cmp.Compare(a.name, b.name) })
	chosen := models[modelKey(o.model)]
	if o.model == "" && len(sorted) == 1 {
		chosen = sorted[0]
	}
	if chosen == nil {
		var names []string
		for _, m := range sorted[:min(mostNames, len(sorted))] {
			names = append(names, fmt.Sprintf("%s (%s)", m.name, group(len(m.calls))))
		}
		if more := len(sorted) - len(names); more > 0 {
			names = append(names, "and "+count(more, "other"))
		}
		list := strings.Join(names, ", ")
		if o.model == "" {
			return workloadFile{}, usageError(fmt.Errorf("%s is for several models, which have limits of their own: %s", o.workload, list),
				"choose one with --model")
		}
		hint := "choose one of them with --model, and its limits"
		if o.seen != nil {
			hint = "give the events of a run of these, or leave --events out"
		}
		return workloadFile{}, usageError(fmt.Errorf("%s has no requests for %s, whose limits are planned with, but for %s", o.workload, o.model, list), "%s", hint)
	}
	f := workloadFile{model: chosen.name, calls: chosen.calls}
	for _, m := range sorted {
		f.others += len(m.calls)
	}
	f.others -= len(f.calls)
	return f, nil
}

// workloadError is an error of reading lines, as run reports it.
func workloadError(err error) error {
	if wrong, ok := errors.AsType[*batch.ConfigError](err); ok && wrong.Field == "Input" {
		return usageError(fmt.Errorf("--workload: %w", wrong.Err), "give a file of JSON lines, a table as .csv, or - for standard input")
	}
	hint := hintOf(err)
	if hint == "" {
		hint = "mend the line: the forms are those of sluice run"
	}
	return usageError(err, "%s", hint)
}

// mostLengths is how many rows of a table are kept; of more, a sample stands for all.
const mostLengths = 1_000_000

// readLengths reads a table with a column of input tokens and others.
func readLengths(path string) (workloadFile, error) {
	file, err := os.Open(path)
	if err != nil {
		return workloadFile{}, usageError(fmt.Errorf("--workload: %w", err), "give a table with a header, or a file of JSON lines")
	}
	defer file.Close()
	table, err := plan.ReadLengths(file, mostLengths)
	if err != nil {
		return workloadFile{}, usageError(fmt.Errorf("%s %w", path, err), "a header such as input_tokens,output_tokens names "+
			"the columns (or ContextTokens,GeneratedTokens); below it a row for each request, of whole numbers of tokens")
	}
	return workloadFile{calls: table.Calls, rows: table.Rows, hasOutput: table.HasOutput}, nil
}
