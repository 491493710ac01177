package provider_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// upstreams makes some of one model, m, each with a Scheduler of its own.
func upstreams(t *testing.T, cfg provider.UpstreamsConfig, names ...string) *provider.Upstreams {
	t.Helper()
	for _, name := range names {
		cfg.Upstreams = append(cfg.Upstreams, upstream(t, name, sluice.Config{Limits: sluice.Limits{Concurrency: 1}}))
	}
	u, err := provider.NewUpstreams(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, up := range u.All() {
			for _, lane := range up.Scheduler.Snapshot().Lanes {
				if lane.InFlight != 0 || lane.Waiting != 0 {
					t.Errorf("%s: %d in flight, %d waiting at the end", up.Name, lane.InFlight, lane.Waiting)
				}
			}
		}
	})
	return u
}

func upstream(t *testing.T, name string, cfg sluice.Config) provider.Upstream {
	t.Helper()
	s, err := sluice.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	p, _ := provider.Lookup("openai-compatible")
	return provider.Upstream{Name: name, Provider: p, BaseURL: "http://" + name + ".test", Scheduler: s, Models: map[string]string{"m": "m"}}
}

var errRefused = errors.New("refused")

// do makes a call of the model m, whose attempts come to what fn says of the upstream's name.
func do(ctx context.Context, u *provider.Upstreams, fn func(name string) sluice.Outcome) (sluice.Tally, error) {
	return u.Do(ctx, sluice.Call{Lane: "m"}, provider.ChatCompletions, func(_ context.Context, _ *sluice.Permit, via provider.Destination) sluice.Outcome {
		return fn(via.Upstream.Name)
	})
}

func TestACallThatHadItsPermitWhenTheUpstreamWasLeftOutIsNotSent(t *testing.T) {
	for range 50 { // whether the permit or the move comes first is up to the runtime
		synctest.Test(t, func(t *testing.T) {
			only := upstream(t, "a", sluice.Config{Limits: sluice.Limits{Concurrency: 1}, Attempts: 1})
			u := upstreams(t, provider.UpstreamsConfig{Upstreams: []provider.Upstream{only}, Attempts: 1})
			var calls sync.WaitGroup
			for i := range 3 {
				calls.Go(func() {
					tally, err := do(t.Context(), u, func(string) sluice.Outcome {
						time.Sleep(time.Second)
						return sluice.Outcome{Kind: sluice.Auth, Err: errRefused}
					})
					failure, ok := errors.AsType[*sluice.CallError](err)
					none, also := errors.AsType[*provider.NoUpstreamError](err)
					if !ok || !also || failure.Kind != sluice.Auth || len(none.Left) != 1 || !errors.Is(err, errRefused) {
						t.Errorf("error %v", err)
					}
					if want := 1; tally.Attempts > want || i > 0 && tally.Attempts+tally.Throttles > 1 || failure.Tally != tally {
						t.Errorf("tally %+v", tally)
					}
				})
				synctest.Wait()
			}
			calls.Wait()
			if sent := u.Report()[0].Sent; sent != 1 {
				t.Errorf("%d calls were sent", sent)
			}
		})
	}
}

func TestUpstreamsThatCannotBeAreRefused(t *testing.T) {
	a, b := upstream(t, "a", sluice.Config{}), upstream(t, "b", sluice.Config{})
	change := func(up provider.Upstream, f func(*provider.Upstream)) provider.Upstream { f(&up); return up }
	for want, all := range map[string][]provider.Upstream{
		"provider: UpstreamsConfig has 0 upstreams: it must have 1 to 64":               nil,
		`provider: upstream "": its Name is empty`:                                      {change(a, func(up *provider.Upstream) { up.Name = "" })},
		`provider: upstream "a": its Scheduler is nil`:                                  {change(a, func(up *provider.Upstream) { up.Scheduler = nil })},
		`provider: two upstreams have the name "a"`:                                     {a, a},
		`provider: upstream "b": another upstream of account "x" has another Scheduler`: {change(a, func(up *provider.Upstream) { up.Account = "x" }), change(b, func(up *provider.Upstream) { up.Account = "x" })},
		`provider: upstream "a": model "m" has an empty ID`:                             {change(a, func(up *provider.Upstream) { up.Models = map[string]string{"m": ""} })},
		`provider: upstream "a": base URL "a:b:c" is not an http or https URL`:          {change(a, func(up *provider.Upstream) { up.BaseURL = "a:b:c" })},
	} {
		if _, err := provider.NewUpstreams(provider.UpstreamsConfig{Upstreams: all}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestTheModelOfABodyIsReplacedAndNothingElse(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"a"}`: `{"model":"b\"c"}`,
		` { "x" : {"model":"a"}, "model" :  "a" , "y":1} `: ` { "x" : {"model":"a"}, "model" :"b\"c" , "y":1} `,
		`{"model":1,"model":"a"}`:                          `{"model":"b\"c","model":"b\"c"}`,
		`{"mod\u0065l":"a"}`:                               `{"mod\u0065l":"b\"c"}`,
		`{"contents":[]}`:                                  `{"contents":[]}`,
		`{"model":"a"`:                                     `{"model":"a"`,
		`["model"]`:                                        `["model"]`,
		``:                                                 ``,
	} {
		if got := string(provider.WithModel([]byte(body), `b"c`)); got != want {
			t.Errorf("%s becomes %s, want %s", body, got, want)
		}
	}
}
