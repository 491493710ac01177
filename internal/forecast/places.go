package forecast

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// Place is one account to which requests of a lane go.
type Place struct {
	Name     string // of the upstream, or else of the provider
	Provider provider.Provider
	Lane     provider.Tier // its Limits are those with which a client starts
	All      provider.Tier // the same for all lanes together

	prices []*pricing.Price
}

// Forever is longer than any time that can be planned.
const Forever = time.Duration(1<<63 - 1)

// upstreamsOf returns the upstreams that serve a request. Without upstreams, its provider is one.
func upstreamsOf(a *account.Accounts, r *batch.Request) []*provider.Upstream {
	if a.Upstreams() != nil {
		return a.Upstreams().Open(r.Model, r.Endpoint)
	}
	p := a.Provider
	if p.Name != r.Provider {
		p, _ = a.Settings.Registry.Lookup(r.Provider)
	}
	return []*provider.Upstream{{Name: r.Provider, Provider: p, Price: func(model string) *provider.Price { return a.Price(p, model) }}}
}

// nameOf returns the provider of a request, or the upstreams that serve it.
func nameOf(a *account.Accounts, r *batch.Request) string {
	var names []string
	for _, up := range upstreamsOf(a, r) {
		names = append(names, up.Name)
	}
	return strings.Join(names, ", ")
}

// placesOf returns the accounts for a request, with their initial limits and prices.
func placesOf(a *account.Accounts, r *batch.Request) (all []Place, err error) {
	known := make(map[string]int) // by account
	for _, up := range upstreamsOf(a, r) {
		label := a.Label(up.Name)
		i, ok := known[label]
		if !ok {
			place, err := placeAt(a, up.Provider, up.Name, r.Model, label)
			if err != nil {
				return nil, err
			}
			i, known[label] = len(all), len(all)
			all = append(all, place)
		}
		all[i].prices = append(all[i].prices, up.Price(cmp.Or(up.Models[r.Model], r.Model)))
	}
	return all, nil
}

// learnedPlace returns the account at the provider of a model; an account without limits if the provider is unknown. Learned limits replace
// unknown ones.
func learnedPlace(a *account.Accounts, model string) Place {
	p, err := a.Of(model)
	if err != nil {
		return Place{}
	}
	place, _ := placeAt(a, p, p.Name, model, "")
	for _, lane := range a.Snapshot().Lanes {
		for d, limit := range place.Lane.Limits.All() {
			i := slices.IndexFunc(lane.Budgets, func(b limits.BucketSnapshot) bool { return b.Dimension == d })
			if lane.Lane == model && *limit == 0 && i >= 0 && lane.Budgets[i].Limit != provider.Endless {
				*limit = int(lane.Budgets[i].Limit)
			}
		}
	}
	return place
}

// placeAt returns the account at p with its initial limits, and with the row of the tier for a model and for all models.
func placeAt(a *account.Accounts, p provider.Provider, name, model, label string) (Place, error) {
	var c sluice.Config
	if err := a.ApplyLimits(&c, p, label); err != nil {
		return Place{}, err
	}
	tier := func(model string, limits sluice.Limits) provider.Tier {
		row, _ := a.Settings.TierOf(p, model) // an error says that there are none for all models
		row.Provider, row.Limits = p.Name, limits
		return row
	}
	initial := c.Limits
	for d, start := range c.Start.All() {
		if initial.In(d).N == 0 {
			*initial.At(d) = *start
		}
	}
	return Place{Name: name, Provider: p, Lane: tier(model, initial), All: tier("", c.Account)}, nil
}

// planAt plans for accounts, each of which takes as many requests as it can: within the limits of a lane, or of all lanes together. The
// plan's Time is 0 if the limits of one account are unknown, and Forever above a century.
func planAt(places []Place, together bool, w plan.Workload) (sum plan.Plan, err error) {
	perSecond := 0.0
	for i, place := range places {
		tier := place.Lane
		if together {
			tier = place.All
		}
		p, err := plan.ForTier(tier, place.Provider, w, plan.Options{})
		switch {
		case errors.Is(err, plan.ErrNoLimits):
			return plan.Plan{}, nil
		case errors.Is(err, plan.ErrTooLong):
			p = plan.Plan{Pace: plan.Pace{Time: plan.Seconds{Duration: Forever}}}
		case err != nil:
			return plan.Plan{}, err
		}
		perSecond += 1 / p.Time.Seconds()
		if i == 0 {
			sum = p
			continue
		}
		sum.Throughput, sum.TooLarge = sum.Throughput+p.Throughput, min(sum.TooLarge, p.TooLarge)
		sum.Bounds = nil // no limit of one account binds all
	}
	if shared := float64(time.Second) / perSecond; len(places) > 1 && shared < float64(Forever) {
		sum.Time.Duration = time.Duration(shared)
	}
	return sum, nil
}

// presumedRPM is the limit that is assumed if no limit is known: the one of the lowest paid tier that several providers publish. A run with
// a deadline must assume a limit.
const presumedRPM = 500

// LiveTime returns a function that estimates how long a number of live requests takes, with their input tokens together, from initial and
// learned limits. models returns the number of requests of the input by model, and maxTokens is the declared maximum output. The largest
// share of one model determines the time, or the ceilings of an account for all its models.
func LiveTime(a *account.Accounts, maxTokens int, models func() map[string]int) func(requests, tokens int) time.Duration {
	return func(requests, tokens int) (longest time.Duration) {
		if requests <= 0 {
			return 0
		}
		all := 0
		for _, n := range models() {
			all += n
		}
		w := plan.Workload{InputTokens: int(float64(tokens)/float64(requests) + 0.5), MaxTokens: maxTokens}
		timeAt := func(p Place, together bool, requests int) time.Duration {
			w.Requests = requests
			planned, _ := planAt([]Place{p}, together, w) // an error says that the limits do not bound the requests
			return planned.Time.Duration
		}
		for model, n := range models() {
			place := learnedPlace(a, model)
			took := timeAt(place, false, max(1, requests*n/all))
			if took == 0 {
				place.Lane.Limits = sluice.Limits{RPM: presumedRPM}
				took = timeAt(place, false, max(1, requests*n/all))
			}
			longest = max(longest, took, timeAt(place, true, requests))
		}
		return longest
	}
}
