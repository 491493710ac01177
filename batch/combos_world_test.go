package batch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
)

// oracle answers the question of a request with its number, unless luck is against it, and adds up what a provider would
// bill. It is both of two upstreams, of which one is dearer.
type oracle struct {
	mu     sync.Mutex
	luck   *rand.Rand
	faults float64
	most   time.Duration
	strict bool // only answers of the second sort are good

	open   int
	peak   int
	good   map[int]int // good answers of this run, by question
	tokens int         // billed in this run
	usd    float64
}

// begin forgets the run before.
func (o *oracle) begin(faults float64, most time.Duration, strict bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults, o.most, o.strict = faults, most, strict
	o.good, o.tokens, o.usd, o.peak = make(map[int]int), 0, 0, 0
}

func (o *oracle) bill(r *http.Request, in, out int) {
	o.tokens += in + out
	times := 1.0
	if r.URL.Host == "dear.test" {
		times = dearer
	}
	o.usd += times * (float64(in)*priceIn + float64(out)*priceOut) / 1e6
}

const dearer = 3

// mostOpen is how many calls there are slots for: 8 for each of two models, at one account or two.
const mostOpen = 16

// RoundTrip answers, or does whatever a provider may.
func (o *oracle) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	est, err := provider.Estimate(provider.ChatCompletions, body)
	if err != nil {
		return nil, err
	}
	question, _ := strconv.Atoi(string(asked.FindSubmatch(body)[1]))
	o.mu.Lock()
	o.open++
	o.peak = max(o.peak, o.open)
	wait := time.Duration(o.luck.Int64N(int64(o.most)))
	in, out := 1+o.luck.IntN(est.Cost.Input), o.luck.IntN(est.Cost.MaxOutput+1)
	if o.luck.IntN(2) == 0 {
		in, out = est.Cost.Input, est.Cost.MaxOutput
	}
	fate := -1
	if o.luck.Float64() < o.faults {
		fate = o.luck.IntN(9)
		if o.luck.IntN(50) == 0 {
			fate = 9 + o.luck.IntN(2)
		}
	}
	o.mu.Unlock()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	cut := false
	select {
	case <-timer.C:
	case <-r.Context().Done():
		cut = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open--
	if cut {
		o.bill(r, in, out) // for all that anybody knows
		return nil, context.Cause(r.Context())
	}
	return o.end(r, fate, question, in, out)
}

// end is what comes of a call.
func (o *oracle) end(r *http.Request, fate, question, in, out int) (*http.Response, error) {
	sort, finish := 2, "stop"
	if o.luck.Float64() < o.faults {
		sort = 1
	}
	content := fmt.Sprintf(`{\"n\":%d,\"sort\":%d}`, question, sort)
	switch fate {
	case 0:
		return respond(r, 500, `{"error":{"message":"oops","type":"server_error"}}`)
	case 1:
		return respond(r, 429, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`, "Retry-After", "2")
	case 2:
		o.bill(r, in, out)
		return nil, errors.New("connection reset by peer")
	case 3:
		return respond(r, 400, `{"error":{"message":"bad","type":"invalid_request_error"}}`)
	case 4, 5:
		content = `{\"n\":\"` + strings.Repeat("no ", 100) + `\"}` // does not fit the schema
	case 6:
		finish = "length"
	case 8:
		return nil, syscall.ECONNREFUSED
	case 9:
		return respond(r, 401, `{"error":{"message":"invalid api key","code":"invalid_api_key"}}`)
	case 10:
		return respond(r, 429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`)
	default:
		if sort == 2 || !o.strict {
			o.good[question]++
		}
	}
	o.bill(r, in, out)
	return respond(r, 200, fmt.Sprintf(`{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"%s"},`+
		`"finish_reason":"%s"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, content, finish, in, out, in+out))
}

// question is the line of an item that asks it: always the same request, some of them with a long beginning.
func question(id string, n int) string {
	system := ""
	if n%3 == 0 {
		system = `{"role":"system","content":[{"type":"text","text":"` + strings.Repeat("Be brief. ", 450) +
			`","cache_control":{"type":"ephemeral"}}]},`
	}
	return fmt.Sprintf(`{"custom_id":"%s","method":"POST","url":"/v1/chat/completions","body":{"model":"m%d","max_tokens":%d,"messages":[%s{"role":"user","content":"What is %d?"}]}}`,
		id, n%2, 20+n%50, system, n)
}

// upstreams are two ways to the oracle.
func (o *oracle) upstreams(t *testing.T, attempts int, prefer bool) (*provider.Upstreams, []*sluice.Scheduler) {
	t.Helper()
	cfg := provider.UpstreamsConfig{Attempts: attempts}
	if prefer {
		cfg.Prefer = provider.PreferCost
	}
	p, _ := provider.Lookup("openai-compatible")
	var schedulers []*sluice.Scheduler
	for i, name := range []string{"dear", "cheap"} {
		times := []float64{dearer, 1}[i]
		s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 4}, Attempts: attempts})
		if err != nil {
			t.Fatal(err)
		}
		schedulers = append(schedulers, s)
		cfg.Upstreams = append(cfg.Upstreams, provider.Upstream{
			Name: name, Provider: p, BaseURL: "http://" + name + ".test/v1", Scheduler: s, Models: map[string]string{"m0": "m0", "m1": "m1"},
			Price: func(string) *provider.Price { return provider.FlatPrice(times*priceIn, times*priceOut) },
		})
	}
	u, err := provider.NewUpstreams(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return u, schedulers
}

// account has the batch go to the oracle by the only account of a provider.
func account(t *testing.T, cfg *batch.Config, attempts int) *sluice.Scheduler {
	t.Helper()
	s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 8}, Attempts: attempts})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Provider, _ = provider.Lookup("sim")
	cfg.Price = prices
	cfg.Scheduler = func(provider.Provider) (*sluice.Scheduler, error) { return s, nil }
	return s
}
