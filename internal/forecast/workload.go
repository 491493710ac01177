package forecast

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// read reads the requests of the input that are for the model, or for the only one. others counts the requests for other models.
func (c *PlanConfig) read(by provider.Provider) (others int, err error) {
	cfg := batch.Config{
		Input: c.Input, Stdin: c.Stdin, Registry: c.Settings.Registry, Provider: by, Model: c.Model, MaxTokens: c.Workload.MaxTokens,
		BaseURL: "http://nowhere.invalid/v1", // nothing is sent: a model may be of a server that is unknown here
	}
	models := make(map[string]*Lane) // all versions of a model share limits, and the first has the name
	preview, err := batch.ReadPreview(cfg, func(r batch.Request) error {
		call := callOf(&r)
		if longest := max(call.Input, call.MaxTokens); longest > plan.LargestCall {
			return &batch.InputError{Path: c.Input, Line: r.Line,
				Problem: fmt.Sprintf("%s tokens exceed the maximum of %s", prose.Group(longest), prose.Group(plan.LargestCall))}
		}
		key := account.ModelKey(r.Model)
		if models[key] == nil {
			models[key] = &Lane{Model: r.Model}
		}
		models[key].calls = append(models[key].calls, call)
		return nil
	})
	if err != nil {
		return 0, err
	}
	chosen, err := c.choose(models)
	if err != nil {
		return 0, err
	}
	c.Model = cmp.Or(c.Model, chosen.Model)
	c.Workload.Calls, c.Workload.MaxTokens = chosen.calls, 0 // MaxTokens completed the requests, as in a run
	return preview.Remaining - len(chosen.calls), nil
}

// maxNames is the number of models that an error lists.
const maxNames = 20

// choose returns the calls of the model, or of the only one.
func (c *PlanConfig) choose(models map[string]*Lane) (*Lane, error) {
	sorted := slices.SortedFunc(maps.Values(models), func(a, b *Lane) int { return cmp.Compare(a.Model, b.Model) })
	chosen := models[account.ModelKey(c.Model)]
	switch {
	case len(sorted) == 0:
		return nil, fault.New(fault.Input, fmt.Errorf("%s has no requests", c.Input), "name a file with a request on each line")
	case c.Model == "" && len(sorted) == 1:
		return sorted[0], nil
	case chosen != nil:
		return chosen, nil
	}
	var names []string
	for _, m := range sorted[:min(maxNames, len(sorted))] {
		names = append(names, fmt.Sprintf("%s (%s)", m.Model, prose.Group(len(m.calls))))
	}
	if more := len(sorted) - len(names); more > 0 {
		names = append(names, "and "+prose.Count(more, "other"))
	}
	list := strings.Join(names, ", ")
	if c.Model == "" {
		return nil, fault.New(fault.Input, fmt.Errorf("%s contains requests to several models with different limits: %s", c.Input, list),
			"choose one model with --model")
	}
	return nil, fault.New(fault.Input, fmt.Errorf("%s has no requests for model %s, only for %s", c.Input, c.Model, list),
		"choose one of these models with --model")
}
