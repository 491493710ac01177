package batch_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

func TestResultsAndTheReportSayWhatCallsCost(t *testing.T) {
	const in, out = 2.5, 10 // dollars per million tokens
	for name, test := range map[string]struct {
		price  func(provider.Provider, string) *provider.Price
		costed int
	}{
		"a price":            {func(provider.Provider, string) *provider.Price { return provider.FlatPrice(in, out) }, 20},
		"no price":           {func(provider.Provider, string) *provider.Price { return nil }, 0},
		"nobody to be asked": {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFiles(t, chats(20))
			cfg := f.config(t, newSim(t, sim.Config{Latency: -1}).Transport())
			cfg.Price = test.price
			rep, err := run(t, cfg)
			if err != nil || rep.Costed != test.costed {
				t.Fatalf("%d results have a cost, want %d; error %v", rep.Costed, test.costed, err)
			}
			var sum float64
			for id, r := range f.results(t) {
				if (r.Sluice.CostUSD != nil) != (test.costed > 0) {
					t.Fatalf("%s costs %v", id, r.Sluice.CostUSD)
				}
				if r.Sluice.CostUSD == nil {
					continue
				}
				want := (float64(r.Sluice.InputTokens)*in + float64(r.Sluice.OutputTokens)*out) / 1e6
				if got := *r.Sluice.CostUSD; got <= 0 || math.Abs(got-want) > 1e-11 {
					t.Errorf("%s costs %v, want %v", id, got, want)
				}
				sum += *r.Sluice.CostUSD
			}
			if math.Abs(rep.Cost-sum) > 1e-10 {
				t.Errorf("the report says %v, the results %v", rep.Cost, sum)
			}
		})
	}
}

var usageStated = regexp.MustCompile(`,"usage":\{[^{}]*(\{[^{}]*\}[^{}]*)*\}`)

// TestAResponseWithoutUsageCostsItsEstimate has answers whose usage is unknown: the cap, the result and the report count the same.
func TestAResponseWithoutUsageCostsItsEstimate(t *testing.T) {
	f := newFiles(t, strings.ReplaceAll(chats(3), `"model":"m"`, `"model":"m","max_tokens":100`))
	silent := usageStated.ReplaceAllString(chatAnswer, "")
	cfg := f.config(t, &stub{answer: silent})
	cfg.Price = func(provider.Provider, string) *provider.Price { return provider.FlatPrice(1, 10) }
	cfg.Budget.Cost = 1
	rep, err := run(t, cfg)
	if err != nil || silent == chatAnswer || rep.Costed != 3 || rep.Estimated < 3*100*10/1e6 || rep.Estimated != rep.Cost || math.Abs(rep.Budgets[0].Used-rep.Cost) > 1e-9 {
		t.Errorf("cost %v, estimated %v, of the cap %v, error %v", rep.Cost, rep.Estimated, rep.Budgets, err)
	}
	if b, err := os.ReadFile(f.out); err != nil || strings.Count(string(b), `"cost_estimated_usd":0.00`) != 3 {
		t.Errorf("%s, error %v", b, err)
	}
}

// TestAResponseOfABatchWithoutUsageCostsItsEstimate has the same through a Batch API, at half the price.
func TestAResponseOfABatchWithoutUsageCostsItsEstimate(t *testing.T) {
	f := newFiles(t, strings.ReplaceAll(chats(3), `"model":"m"`, `"model":"m","max_tokens":100`))
	cfg, sent := f.viaConfig(t, sim.Config{Latency: -1})
	cfg.Budget.Cost = 1
	cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := sent.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		b = usageStated.ReplaceAll(b, nil)
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		return resp, err
	})
	rep, err := run(t, cfg)
	if least := 3 * 100 * 20 / 1e6 / 2; err != nil || rep.Costed != 3 || rep.Estimated < least || rep.Estimated > 2*least || rep.Estimated != rep.Cost || math.Abs(rep.Budgets[0].Used-rep.Cost) > 1e-9 {
		t.Errorf("%d costed, cost %v, estimated %v, of the cap %v, error %v", rep.Costed, rep.Cost, rep.Estimated, rep.Budgets, err)
	}
}

// TestServiceTiersAndCachesAreChargedAsTheProviderDoes has responses of half the price, most of whose input is cached.
func TestServiceTiersAndCachesAreChargedAsTheProviderDoes(t *testing.T) {
	f := newFiles(t, chats(2))
	answer := regexp.MustCompile(`"usage":\{[^}]*\}`).ReplaceAllString(chatAnswer,
		`"usage":{"prompt_tokens":1000,"completion_tokens":100,"prompt_tokens_details":{"cached_tokens":800},"server_side_tool_usage_details":{"code_interpreter_calls":2}},"service_tier":"flex"`)
	cfg := f.config(t, &stub{answer: answer})
	price := *provider.FlatPrice(1, 10)
	price.Cached, price.Rates[limits.ServiceFlex] = 0.1, provider.FlatPrice(0.5, 5).Standard()
	cfg.Price = func(provider.Provider, string) *provider.Price { return &price }
	rep, err := run(t, cfg)
	if want := 2 * (200 + 80 + 10*100) * 0.5 / 1e6; err != nil || math.Abs(rep.Cost-want) > 1e-9 || rep.Estimated != 0 || rep.Unpriced != 4 {
		t.Errorf("cost %v, want %v, estimated %v, %d tool calls unpriced, error %v", rep.Cost, want, rep.Estimated, rep.Unpriced, err)
	}
}

func TestWhatUsedNothingHasNoCost(t *testing.T) {
	f := newFiles(t, chats(3))
	cfg := f.config(t, newSim(t, sim.Config{Latency: -1, Faults: sim.Faults{BadRequest: 1}}).Transport())
	cfg.Price = func(provider.Provider, string) *provider.Price { return provider.FlatPrice(1, 1) }
	rep, err := run(t, cfg)
	if err != nil || rep.Kinds[sluice.BadRequest] != 3 || rep.Costed != 0 {
		t.Errorf("%v, %d with a cost, error %v", rep.Kinds, rep.Costed, err)
	}
}

// TestASumBelowAnyPriceIsABoundToo: a budget that rounds to nothing is not one of any sum.
func TestASumBelowAnyPriceIsABoundToo(t *testing.T) {
	f, rt := newFiles(t, chats(3)), &stub{}
	cfg := f.config(t, rt)
	cfg.Price = func(provider.Provider, string) *provider.Price { return provider.FlatPrice(1, 1) }
	cfg.Budget.Cost = 1e-13
	_, err := run(t, cfg)
	if spent, ok := errors.AsType[*batch.BudgetError](err); !ok || spent.What != batch.LimitedCost || len(rt.sent) != 0 {
		t.Errorf("%d calls, %v", len(rt.sent), err)
	}
}

func TestNothingIsSentAfterADeadlineThatIsPastAtTheStart(t *testing.T) {
	f, rt := newFiles(t, chats(3)), &stub{}
	cfg := f.config(t, rt)
	cfg.Budget.Deadline = time.Now().Add(-time.Millisecond)
	_, err := run(t, cfg)
	if spent, ok := errors.AsType[*batch.BudgetError](err); !ok || spent.What != batch.LimitedTime || len(rt.sent) != 0 {
		t.Errorf("%d calls, %v", len(rt.sent), err)
	}
}

func TestTheCostIsUnknownIfThePriceOfAnAttemptIs(t *testing.T) {
	fm := newFarm(t)
	fm.add("a", &stub{err: io.ErrUnexpectedEOF})
	fm.add("b", &stub{}, func(u *provider.Upstream) {
		u.Price = func(string) *provider.Price { return provider.FlatPrice(10, 20) }
	})
	f := newFiles(t, chats(1))
	_, err := fm.run(f)
	if r := f.results(t)["1"]; err != nil || r.Sluice.Attempts != 2 || r.Sluice.CostUSD != nil {
		t.Errorf("%v attempts, cost %v, error %v", r.Sluice.Attempts, r.Sluice.CostUSD, err)
	}
}
