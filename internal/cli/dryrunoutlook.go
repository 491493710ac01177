package cli

import (
	"cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// outlook is what a run would do, as it is gathered from its requests.
type outlook struct {
	preview batch.Preview
	lanes   map[laneName]*laneOutlook
	all     map[string]*calls // by provider: those of all its models
	luck    *rand.Rand
	survey  func(batch.Request) *surveyed // who serves a request; nil: its provider
}

// laneName is a model at a provider, or at the upstreams of that name: what limits are for.
type laneName struct{ provider, model string }

// laneOutlook is what goes to one model.
type laneOutlook struct {
	laneName
	calls
	upstreams   *surveyed // nil: none
	in, mostOut int64     // tokens; out as far as requests bound it
	unbounded   int       // requests that do not bound their output
}

// calls are how many requests there are, and a fair sample of them.
type calls struct {
	n      int
	sample []plan.Call
}

// mostSampled is how many calls of a lane are planned with: enough for means, and for stretches that are heavy.
const mostSampled = 10_000

func newOutlook(survey func(batch.Request) *surveyed) *outlook {
	return &outlook{survey: survey, lanes: make(map[laneName]*laneOutlook), all: make(map[string]*calls), luck: rand.New(rand.NewPCG(1, 2))}
}

// add adds a request that is left to do.
func (l *outlook) add(r batch.Request) {
	by := l.survey(r)
	if by != nil {
		r.Provider = by.name()
	}
	name := laneName{r.Provider, r.Model}
	lane := l.lanes[name]
	if lane == nil {
		lane = &laneOutlook{laneName: name, upstreams: by}
		l.lanes[name] = lane
	}
	if l.all[r.Provider] == nil {
		l.all[r.Provider] = &calls{}
	}
	c := plan.Call{Input: r.Price.Cost.Input, MaxTokens: r.Price.Cost.MaxOutput, Answers: r.Price.N}
	lane.in += int64(c.Input)
	switch {
	case r.Endpoint.Embeds():
		c.Output = plan.NoOutput
	case c.MaxTokens == 0:
		lane.unbounded++
	default:
		lane.mostOut += int64(c.MaxTokens)
	}
	lane.add(c, l.luck)
	l.all[r.Provider].add(c, l.luck)
}

// add adds a call. Every call is as likely to be in the sample as any other.
func (c *calls) add(call plan.Call, luck *rand.Rand) {
	if c.n++; len(c.sample) < mostSampled {
		c.sample = append(c.sample, call)
	} else if i := luck.IntN(c.n); i < mostSampled {
		c.sample[i] = call
	}
}

// sorted are the lanes, the largest first.
func (l *outlook) sorted() []*laneOutlook {
	return slices.SortedFunc(maps.Values(l.lanes), func(a, b *laneOutlook) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.provider, b.provider), cmp.Compare(a.model, b.model))
	})
}

// forecaster says how long calls take, by the limits that a run with these flags begins with.
type forecaster struct {
	accounts *accounts
	begins   map[string]begun // by provider
}

// begun is what a client at a provider begins with.
type begun struct {
	name     string // of the upstream, or else of the provider
	provider provider.Provider
	limits   sluice.Limits // of each lane
	account  sluice.Limits // of all lanes together
	err      error
}

// at returns what a client at that provider begins with.
func (f *forecaster) at(name string) begun {
	if b, ok := f.begins[name]; ok {
		return b
	}
	a := f.accounts
	p := a.provider
	if p.Name != name {
		p, _ = a.settings.registry.Lookup(name)
	}
	b := begun{name: name, provider: p, err: a.flags.checkAddress(p)}
	if b.err == nil {
		var c sluice.Config
		b.err = a.settings.Apply(&c, p, a.flags.model, a.limits)
		a.room.bound(&c)
		b.limits, b.account = over(c.Limits, c.Start), c.Account
	}
	f.begins[name] = b
	return b
}

// tier returns the row of --tier for a lane, with the limits that it begins with.
func (f *forecaster) tier(lane laneName, limits sluice.Limits) provider.Tier {
	t := provider.Tier{Provider: lane.provider}
	if name := f.accounts.settings.tier; name != "" {
		if row, err := f.accounts.settings.registry.Find(lane.provider, name, lane.model); err == nil {
			t = row
		}
	}
	t.Limits = limits
	return t
}

// of returns what clients begin with where the calls of a lane may go.
func (f *forecaster) of(l *laneOutlook) ([]begun, error) {
	if l.upstreams != nil {
		return f.beginsAt(l.upstreams)
	}
	b := f.at(l.provider)
	return []begun{b}, b.err
}

// lane plans the calls of a lane, which go to all. No plan and no error: no limits are known.
func (f *forecaster) lane(l *laneOutlook, all []begun) (*plan.Plan, error) {
	return f.among(all, l.model, &l.calls, func(b begun) sluice.Limits { return b.limits })
}

// account plans the calls of all lanes that go to the same accounts by the ceilings that they share.
func (f *forecaster) account(all []begun, c *calls) (*plan.Plan, error) {
	return f.among(all, "", c, func(b begun) sluice.Limits { return b.account })
}

func (f *forecaster) plan(t provider.Tier, by provider.Provider, c *calls) (*plan.Plan, error) {
	p, err := plan.ForTier(t, by, plan.Workload{Requests: c.n, Calls: c.sample}, plan.Options{})
	switch {
	case errors.Is(err, plan.ErrNoLimits):
		return nil, nil
	case errors.Is(err, plan.ErrTooLong):
		return &plan.Plan{Time: forever}, nil
	case err != nil:
		return nil, err
	}
	return &p, nil
}

// forever is longer than any time that can be planned.
const forever = time.Duration(1<<63 - 1)
