package forecast_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/forecast"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/provider"
)

// places returns the accounts of a name: with requests per minute for a lane and for all lanes, and a price.
type places map[string][]forecast.Place

func (p places) Name(r batch.Request) string { return r.Provider }

func (p places) Places(r batch.Request) ([]forecast.Place, error) {
	if p[r.Provider] == nil {
		return nil, errors.New("no account")
	}
	return p[r.Provider], nil
}

func place(lane, all int, price *pricing.Price) forecast.Place {
	return forecast.Place{Lane: provider.Tier{Limits: sluice.Limits{RPM: lane}}, All: provider.Tier{Limits: sluice.Limits{RPM: all}}, Prices: []*pricing.Price{price}}
}

// survey sums up n requests of each of the models at a provider.
func survey(t *testing.T, p places, n, maxOutput int, by string, models ...string) (d forecast.DryRun) {
	t.Helper()
	s := forecast.NewSurvey(p)
	for _, model := range models {
		for range n {
			s.Add(request(by, model, 1000, maxOutput))
		}
	}
	if err := s.Sum(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

func request(by, model string, input, maxOutput int) batch.Request {
	r := batch.Request{Provider: by, Model: model, Size: 390}
	r.Price.Cost = sluice.Cost{Input: input, MaxOutput: maxOutput}
	return r
}

func TestADryRunAddsUpItsLanes(t *testing.T) {
	dollar := pricing.Flat(1000, 2000) // per million tokens: a request of 1,000 tokens costs 1 dollar, and 2 for 1,000 of output
	p := places{
		"one": {place(60, 0, dollar)}, "shared": {place(60, 60, dollar)}, "two": {place(60, 0, dollar), place(60, 0, pricing.Flat(2000, 2000))},
		"silent": {place(0, 0, nil)}, "half": {place(60, 0, dollar), place(0, 0, dollar)},
	}
	for _, c := range []struct {
		by          string
		maxOutput   int
		models      []string
		seconds     float64 // below zero: unknown
		least, most float64 // below zero: unknown
	}{
		{"one", 1000, []string{"a"}, 301, 300, 900},
		{"one", 0, []string{"a"}, 301, 300, -1},
		{"one", 1000, []string{"a", "b"}, 301, 600, 1800},
		{"shared", 1000, []string{"a", "b"}, 601, 600, 1800}, // ceilings hold for all models together
		{"two", 1000, []string{"a"}, 150.5, 300, 1200},       // each account takes half of them
		{"silent", 1000, []string{"a"}, -1, -1, -1},
		{"half", 1000, []string{"a"}, -1, 300, 900},
	} {
		d := survey(t, p, 300, c.maxOutput, c.by, c.models...)
		seconds, least, most := -1.0, -1.0, -1.0
		if d.TimeS != nil {
			seconds = *d.TimeS
		}
		if d.Cost != nil {
			if least = d.Cost.Least; d.Cost.Most != nil {
				most = *d.Cost.Most
			}
		}
		if seconds != c.seconds || least != c.least || most != c.most {
			t.Errorf("%+v: %v s, $%v to %v", c, seconds, least, most)
		}
		if n := int64(300_000 * len(c.models)); d.InputTokens != n || len(d.Models) != len(c.models) || (d.MaxOutputTokens == nil) != (c.maxOutput == 0) {
			t.Errorf("%s: %+v", c.by, d)
		}
	}
	s := forecast.NewSurvey(p)
	s.Add(request("nobody", "a", 1, 1))
	if err := s.Sum(&forecast.DryRun{}); err == nil {
		t.Error("requests go where no account is")
	}
}

func TestBatchesAreFilledUpToTheirBounds(t *testing.T) {
	for _, c := range []struct {
		row     provider.BatchesRow
		batches int
		boundBy string
		turns   int
	}{
		{provider.BatchesRow{}, 1, "", 0},
		{provider.BatchesRow{Requests: new(provider.Count(30))}, 4, "", 0},
		{provider.BatchesRow{Bytes: new(provider.Count(5000))}, 10, "", 0}, // 500 bytes each, with what stands around them
		{provider.BatchesRow{Pending: new(provider.Count(20))}, 1, "pending_requests", 5},
	} {
		known, err := provider.Published().With(provider.Row{Name: "openai", Batches: &c.row})
		if err != nil {
			t.Fatal(err)
		}
		v := forecast.NewVia(false, known)
		for range 100 {
			v.Add(request("openai", "gpt-4o", 1000, 100))
		}
		v.Sum([]*forecast.Lane{{Provider: "openai", Cost: &forecast.Cost{Least: 3, Most: new(8.0)}}})
		b := v.Accounts[0]
		if b.Batches != c.batches || b.BoundBy != c.boundBy || b.Turns != c.turns || b.Requests != 100 || b.Tokens != 100_000 {
			t.Errorf("%+v: %+v", c.row, b)
		}
		if v.Cost == nil || v.Cost.Least != 1.5 || *v.Cost.Most != 4 { // half of the live price
			t.Errorf("cost %+v", v.Cost)
		}
	}
	auto := forecast.NewVia(true, provider.Published())
	if auto.Add(request("modal", "m", 1, 1)); len(auto.Accounts) != 0 {
		t.Error("auto hands requests to a provider without a Batch API")
	}
}

func TestLiveCallsTakeAsLongAsTheirLimitsSay(t *testing.T) {
	for name, c := range map[string]struct {
		place forecast.Place
		err   error
		want  time.Duration
	}{
		"a limit for each model":     {place(60, 0, nil), nil, 301 * time.Second},
		"a ceiling for all of them":  {place(60, 60, nil), nil, 601 * time.Second},
		"no limit: 500 are presumed": {place(0, 0, nil), nil, (300/(500.0/60) + 2 - 1) * 1e9},
		"no account":                 {place(60, 60, nil), errors.New("unknown"), (300/(500.0/60) + 2 - 1) * 1e9},
	} {
		live := forecast.Live{Models: func() map[string]int { return map[string]int{"a": 10, "b": 10} },
			Place: func(string) (forecast.Place, error) { return c.place, c.err }}
		if got := live.Time(600, 600_000); (got - c.want).Abs() > time.Millisecond {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := live.Time(0, 0); got != 0 {
			t.Errorf("%s: nothing takes %v", name, got)
		}
	}
}
