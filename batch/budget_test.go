package batch_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// payer answers after random times with random usage within what requests declare, and fails now and then. It adds up
// what a provider would bill.
type payer struct {
	mu      sync.Mutex
	luck    *rand.Rand
	faults  float64 // part of the calls that fail
	most    time.Duration
	in, out int // tokens, billed
	calls   int
}

const priceIn, priceOut = 3.0, 15.0 // USD per million

func (p *payer) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	est, err := provider.Estimate(provider.ChatCompletions, body)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.calls++
	wait := time.Duration(p.luck.Int64N(int64(p.most)))
	in, out := 1+p.luck.IntN(est.Cost.Input), p.luck.IntN(est.Cost.MaxOutput+1)
	fault, which := p.luck.Float64() < p.faults, p.luck.IntN(5)
	p.mu.Unlock()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	status, text := 200, fmt.Sprintf(`{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"yes"},`+
		`"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, in, out, in+out)
	billed := true
	if fault {
		switch which {
		case 0:
			status, text, billed = 500, `{"error":{"message":"oops","type":"server_error"}}`, false
		case 1:
			status, text, billed = 429, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`, false
		case 2: // the answer is lost, and billed
			p.bill(in, out)
			return nil, errors.New("connection reset by peer")
		case 3:
			text = strings.Replace(text, "yes", "WRONG", 1) // refused by the check, and billed
		case 4:
			status, text, billed = 400, `{"error":{"message":"bad","type":"invalid_request_error"}}`, false
		}
	}
	if billed {
		p.bill(in, out)
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
	}, nil
}

func (p *payer) bill(in, out int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.in += in
	p.out += out
}

func prices(provider.Provider, string) *provider.Price { return provider.FlatPrice(priceIn, priceOut) }

func TestABudgetIsExceededByTheOpenRequestsAtMost(t *testing.T) {
	for _, open := range []int{1, 4} {
		for name, c := range map[string]struct {
			budget batch.Budget
			most   int // requests
		}{
			"tokens": {batch.Budget{Tokens: 100_000}, 3 + open}, // of 25,001 tokens each, which are estimated far lower
			"cost":   {batch.Budget{Cost: 3 * 25_000 * priceIn / 1e6}, 2 + open},
		} {
			synctest.Test(t, func(t *testing.T) {
				f := newFiles(t, chats(200))
				s := &stub{answer: strings.Replace(chatAnswer, `"prompt_tokens":5`, `"prompt_tokens":25000`, 1)}
				cfg := f.config(t, roundTripper(func(r *http.Request) (*http.Response, error) {
					time.Sleep(time.Second)
					return s.RoundTrip(r)
				}))
				scheduler, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: open}})
				if err != nil {
					t.Fatal(err)
				}
				defer scheduler.Close()
				cfg.Scheduler = func(provider.Provider) (*sluice.Scheduler, error) { return scheduler, nil }
				cfg.Price, cfg.Budget = prices, c.budget
				_, err = run(t, cfg)
				if spent, ok := errors.AsType[*batch.BudgetError](err); !ok || len(s.sent) > c.most {
					t.Errorf("%s, %d at once: %d requests, %v, %v", name, open, len(s.sent), spent, err)
				}
			})
		}
	}
}

// TestABudgetIsUsedUp says that reserves far above what calls take do not end a run early.
func TestABudgetIsUsedUp(t *testing.T) {
	for _, faults := range []float64{0, 0.3} {
		synctest.Test(t, func(t *testing.T) {
			f := newFiles(t, strings.ReplaceAll(chats(400), `"model":"m"`, `"model":"m","max_tokens":1000`))
			p := &payer{luck: rand.New(rand.NewPCG(5, 6)), faults: faults, most: time.Second}
			cfg := f.config(t, p)
			cfg.Check = func(_ string, _ provider.Endpoint, body []byte) error {
				if strings.Contains(string(body), "WRONG") {
					return errors.New("wrong")
				}
				return nil
			}
			cfg.Budget.Tokens = 50_000
			_, err := run(t, cfg)
			spent, ok := errors.AsType[*batch.BudgetError](err)
			if !ok || spent.Used.Used < 50_000-1010 || spent.Used.Used > 50_000 || spent.Alone() {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestACallAboveTheWholeBudgetSaysSo(t *testing.T) {
	f := newFiles(t, chats(3))
	cfg := f.config(t, &stub{})
	cfg.Budget.Tokens = 1000
	_, err := run(t, cfg)
	spent, ok := errors.AsType[*batch.BudgetError](err)
	if !ok || !spent.Alone() || spent.Used.Used != 0 || !strings.Contains(err.Error(), `item "`+spent.ID+`" alone may use 4,`) {
		t.Errorf("error %v", err)
	}
	if state, err := work.LoadState(work.StatePath(f.out)); err != nil || state.Status != work.Stopped || !strings.Contains(state.Reason, "of 1,000 tokens") {
		t.Errorf("state %+v, error %v", state, err)
	}
}

func TestUnknownAnswersAreJudgedByThoseSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(500))
		cfg := f.config(t, &stub{})
		cfg.Budget.Tokens = 4200 // room for one unknown answer, and then for hundreds of 7 tokens
		rep, err := run(t, cfg)
		if _, ok := errors.AsType[*batch.BudgetError](err); ok || err != nil || rep.Done != 500 {
			t.Errorf("done %d, error %v", rep.Done, err)
		}
	})
}

func TestAPanicCountsAsAllThatItMayHaveUsed(t *testing.T) {
	f := newFiles(t, strings.ReplaceAll(chats(1), `"model":"m"`, `"model":"m","max_tokens":100`))
	cfg := f.config(t, &stub{})
	cfg.Check = func(string, provider.Endpoint, []byte) error { panic("odd") }
	cfg.Budget.Tokens = 500
	rep, err := run(t, cfg)
	if err != nil || rep.Report.Failed != 1 || len(rep.Budgets) != 1 || rep.Budgets[0].Used < 100 {
		t.Errorf("failed %d, error %v, used %v", rep.Report.Failed, err, rep.Budgets)
	}
}

func TestTheDeadlineStopsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(500))
		var last time.Time
		var mu sync.Mutex
		cfg := f.config(t, roundTripper(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			last = time.Now()
			mu.Unlock()
			time.Sleep(7 * time.Second)
			return (&stub{}).RoundTrip(r)
		}))
		at := time.Now().Add(150 * time.Second)
		cfg.Budget.Deadline = at
		rep, err := run(t, cfg)
		spent, ok := errors.AsType[*batch.BudgetError](err)
		if !ok || spent.What != batch.LimitedTime || last.After(at) || rep.Done == 0 {
			t.Errorf("error %v, last %v of %v, done %d", err, last, at, rep.Done)
		}
		if len(f.results(t)) != rep.Done || rep.Wall < 150*time.Second || rep.Wall > 157*time.Second {
			t.Errorf("%d recorded of %d, in %s", len(f.results(t)), rep.Done, rep.Wall)
		}
	})
}

func TestNoRequestIsSentAfterTheLastAllowedFailure(t *testing.T) {
	for status, limits := range map[int]sluice.Config{400: {}, 500: {Attempts: 1}, 429: {MaxThrottles: -1}} {
		limits.Limits.Concurrency = 1
		limits.Observer = sluice.ObserverFunc(func(sluice.Event) { time.Sleep(time.Millisecond) }) // gives the next request time to be sent
		for _, routed := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f := newFiles(t, chats(100))
				answer := &stub{status: status, answer: `{"error":{"message":"bad"}}`}
				cfg := f.config(t, answer)
				scheduler, err := sluice.New(limits)
				if err != nil {
					t.Fatal(err)
				}
				defer scheduler.Close()
				cfg.Scheduler = func(provider.Provider) (*sluice.Scheduler, error) { return scheduler, nil }
				if routed {
					cfg.Upstreams, err = provider.NewUpstreams(provider.UpstreamsConfig{Attempts: limits.Attempts, MaxThrottles: limits.MaxThrottles,
						Upstreams: []provider.Upstream{{Name: "a", Provider: cfg.Provider, BaseURL: cfg.BaseURL, Scheduler: scheduler}}})
					if err != nil {
						t.Fatal(err)
					}
				}
				cfg.Budget.Failures = 3
				rep, _ := run(t, cfg)
				if sent := len(answer.sent); rep.Report.Failed != 3 || sent != 3 {
					t.Errorf("%d, routed %v: %d failed, %d requests", status, routed, rep.Report.Failed, sent)
				}
			})
		}
	}
}

func TestAModelWithoutPriceIsRefusedWithABudgetOfMoney(t *testing.T) {
	f := newFiles(t, chats(1)+strings.Replace(chat(2), `"m"`, `"odd"`, 1)+"\n")
	cfg := f.config(t, &stub{})
	cfg.Price = func(_ provider.Provider, model string) *provider.Price {
		if model != "m" {
			return nil
		}
		return provider.FlatPrice(1, 1)
	}
	cfg.Budget.Cost = 1
	_, err := batch.Open(cfg)
	if in, ok := errors.AsType[*batch.InputError](err); !ok || in.Line != 2 || in.Hint == "" {
		t.Errorf("error %v", err)
	}
	cfg.Input, cfg.Stdin = "-", strings.NewReader(chats(1)+strings.Replace(chat(2), `"m"`, `"odd"`, 1)+"\n"+chat(3))
	rep, err := run(t, cfg)
	if in, ok := errors.AsType[*batch.InputError](err); !ok || in.Line != 2 || rep.Done > 1 {
		t.Errorf("done %d, error %v", rep.Done, err)
	}
}

func TestWrongBudgetsAreRefused(t *testing.T) {
	f := newFiles(t, chats(1))
	for _, b := range []batch.Budget{{Cost: -1}, {Cost: 1}, {Tokens: -1}, {Failures: -1}, {FailedShare: 1}, {FailedShare: -0.1}, {Attempts: -1}} {
		cfg := f.config(t, &stub{})
		cfg.Budget = b
		if _, err := batch.Open(cfg); err == nil {
			t.Errorf("%+v is accepted", b)
		} else if wrong, ok := errors.AsType[*batch.FieldError](err); !ok || wrong.Field != "Budget" {
			t.Errorf("%+v: %v", b, err)
		}
	}
}

// TestACorrectionCountsAsWhatItAdds has an answer refused whose text goes back with the next try, above the budget.
func TestACorrectionCountsAsWhatItAdds(t *testing.T) {
	f := newFiles(t, strings.ReplaceAll(chats(1), `"model":"m"`, `"model":"m","max_tokens":100`))
	long := strings.Replace(chatAnswer, `"content":"`, `"content":"`+strings.Repeat("word ", 5000), 1)
	if long == chatAnswer {
		t.Fatal(chatAnswer)
	}
	s := &stub{answer: long}
	cfg := f.config(t, s)
	cfg.Check = func(string, provider.Endpoint, []byte) error { return errors.New("wrong") }
	cfg.Feedback = true
	cfg.Budget.Tokens = 1000
	_, err := run(t, cfg)
	spent, ok := errors.AsType[*batch.BudgetError](err)
	if !ok || !spent.Alone() || len(s.sent) != 1 {
		t.Errorf("%d calls, error %v", len(s.sent), err)
	}
}
