package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// workloadFile is what a file of requests says of a workload.
type workloadFile struct {
	calls  []plan.Call
	model  string // of all of them
	others int    // requests for other models, which have limits of their own
}

// mostNames is how many models an error lists.
const mostNames = 20

// readWorkload reads the lines that a run would send.
func (o *planOptions) readWorkload(s *term.Streams, p provider.Provider) (workloadFile, error) {
	cfg := batch.Config{
		Input: o.workload, Stdin: s.In, Registry: o.kept.Registry, Provider: p, Model: o.model, MaxTokens: o.stated.MaxTokens,
		BaseURL: "http://nowhere.invalid/v1", // nothing is sent: a model may be of a server that is not known here
	}
	models := make(map[string]*modelCalls)
	_, err := batch.ReadPreview(cfg, func(r batch.Request) error {
		c := plan.Call{Input: r.Price.Cost.Input, MaxTokens: r.Price.Cost.MaxOutput, Answers: r.Price.N}
		if r.Endpoint.Embeds() {
			c.Output = plan.NoOutput
		}
		if longest := max(c.Input, c.MaxTokens); longest > plan.LargestCall {
			return &batch.InputError{Path: o.workload, Line: r.Line,
				Problem: fmt.Sprintf("%s tokens exceed the maximum of %s", prose.Group(longest), prose.Group(plan.LargestCall))}
		}
		key := account.ModelKey(r.Model)
		if models[key] == nil {
			models[key] = &modelCalls{name: r.Model}
		}
		models[key].calls = append(models[key].calls, c)
		return nil
	})
	if err != nil {
		return workloadFile{}, workloadError(err)
	}
	return o.choose(models)
}

// modelCalls are the calls of a model, in all its versions, whose limits are one.
type modelCalls struct {
	name  string // of the first
	calls []plan.Call
}

// choose takes the calls of --model, or of the only one.
func (o *planOptions) choose(models map[string]*modelCalls) (workloadFile, error) {
	if len(models) == 0 {
		return workloadFile{}, fault.New(fault.Input, fmt.Errorf("%s has no requests", o.workload), "name a file with a request on each line")
	}
	sorted := slices.SortedFunc(maps.Values(models), func(a, b *modelCalls) int { return cmp.Compare(a.name, b.name) })
	chosen := models[account.ModelKey(o.model)]
	if o.model == "" && len(sorted) == 1 {
		chosen = sorted[0]
	}
	if chosen == nil {
		var names []string
		for _, m := range sorted[:min(mostNames, len(sorted))] {
			names = append(names, fmt.Sprintf("%s (%s)", m.name, prose.Group(len(m.calls))))
		}
		if more := len(sorted) - len(names); more > 0 {
			names = append(names, "and "+prose.Count(more, "other"))
		}
		list := strings.Join(names, ", ")
		if o.model == "" {
			return workloadFile{}, fault.New(fault.Input, fmt.Errorf("%s contains requests to several models with different limits: %s", o.workload, list),
				"choose one model with --model")
		}
		return workloadFile{}, fault.New(fault.Input, fmt.Errorf("%s has no requests for model %s, only for %s", o.workload, o.model, list),
			"choose one of these models with --model")
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
		return fault.New(fault.File, fmt.Errorf("--workload: %w", wrong.Err), "name a file of JSON lines, or - for standard input")
	}
	hint := fault.HintOf(err)
	if hint == "" {
		hint = "correct the line: sluice run must accept the item"
	}
	return fault.New(fault.Input, err, "%s", hint)
}
