package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/limits"
)

// Oracle is a client that knows every limit, and so goes as fast as the
// provider lets anyone go. It keeps its own accounts, by another arithmetic
// than the server's, from the Config alone. It is the check of
// [Config.Optimum], and the yardstick of other clients over real sockets.
type Oracle struct {
	// Config is that of the server.
	Config Config
	// Margin is how far the server's clock, which starts when the first
	// request arrives there, is taken to lag behind the client's. A refusal
	// adds 2 ms. Zero: 5 ms; negative: none.
	Margin time.Duration
}

// Report is how a run of an Oracle went.
type Report struct {
	Elapsed   time.Duration
	Answered  int
	Failed    int // for good, by a 4xx answer
	Throttled int // refusals met, of which an oracle should know none
	Faulted   int // attempts that failed and were repeated
}

// Run sends every body until it is answered or refused for good. It fails only
// if a body is not JSON, ctx ends or the Config is none for an Oracle.
func (o Oracle) Run(ctx context.Context, client *http.Client, baseURL string, bodies [][]byte) (Report, error) {
	config, err := o.Config.withDefaults()
	if err != nil {
		return Report{}, err
	}
	if config.Drained {
		return Report{}, errors.New("sim: Config.Drained: buckets fill from the first request on, which an Oracle would hold back")
	}
	o.Margin = defaultTo(o.Margin, 5*time.Millisecond)
	r := &oracleRun{
		oracle: o, config: config, client: client, url: baseURL + "/v1/chat/completions",
		pacer: newPacer(config), places: len(bodies), results: make(chan oracleResult),
	}
	if config.Concurrency > 0 {
		r.places = min(r.places, config.Concurrency)
	}
	if config.Queue > 0 {
		r.places = min(r.places, 2*config.Queue) // the next one waits at the door
	}
	for i, body := range bodies {
		job, err := newOracleJob(config.Charge, body)
		if err != nil {
			return Report{}, fmt.Errorf("body %d: %w", i, err)
		}
		r.todo = append(r.todo, job)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer r.drain()
	defer cancel()
	err = r.run(ctx)
	return r.report, err
}

// oracleJob is a body and what it costs.
type oracleJob struct {
	body []byte
	cost spending
}

// newOracleJob works out the cost from the decoded body, as clients do.
func newOracleJob(rule limits.Charge, body []byte) (*oracleJob, error) {
	var chat struct {
		MaxTokens int `json:"max_tokens"`
		Messages  []struct{ Content string }
	}
	if err := json.Unmarshal(body, &chat); err != nil {
		return nil, err
	}
	chars := 0
	for _, message := range chat.Messages {
		chars += utf8.RuneCountInString(message.Content)
	}
	return &oracleJob{body: body, cost: spendingOf(rule, max(1, (chars+3)/4), chat.MaxTokens)}, nil
}

// oracleResult is how one call ended.
type oracleResult struct {
	job    *oracleJob
	status int // 0: no whole answer
	output int // tokens
}

// oracleRun is one run; its own goroutine alone touches it.
type oracleRun struct {
	oracle  Oracle
	config  Config
	client  *http.Client
	url     string
	pacer   *pacer
	places  int // calls open at most
	results chan oracleResult

	begun  time.Time
	again  []*oracleJob // to be repeated, which goes before
	todo   []*oracleJob
	open   int
	report Report
}

func (r *oracleRun) run(ctx context.Context) error {
	r.begun = time.Now()
	for len(r.again)+len(r.todo)+r.open > 0 {
		queue := &r.todo
		if len(r.again) > 0 {
			queue = &r.again
		}
		if len(*queue) == 0 || r.open >= r.places {
			if err := r.receive(ctx, nil); err != nil {
				return err
			}
			continue
		}
		job := (*queue)[0]
		now := r.now()
		if at := r.pacer.earliest(now, job.cost); at > now {
			timer := time.NewTimer(at + r.oracle.Margin - time.Since(r.begun))
			err := r.receive(ctx, timer.C)
			timer.Stop()
			if err != nil {
				return err
			}
			continue
		}
		r.pacer.spend(now, job.cost)
		*queue = (*queue)[1:]
		r.open++
		go func() { r.results <- r.call(ctx, job) }()
	}
	r.report.Elapsed = time.Since(r.begun)
	return nil
}

// receive takes the result of one call, or returns with the timer.
func (r *oracleRun) receive(ctx context.Context, timer <-chan time.Time) error {
	select {
	case <-timer:
	case <-ctx.Done():
		return context.Cause(ctx)
	case result := <-r.results:
		r.open--
		r.settle(result)
	}
	return nil
}

// drain waits for what is open.
func (r *oracleRun) drain() {
	for range r.open {
		<-r.results
	}
}

// now is the time on the server's clock.
func (r *oracleRun) now() time.Duration {
	return max(0, time.Since(r.begun)-r.oracle.Margin)
}

func (r *oracleRun) settle(result oracleResult) {
	now := r.now()
	switch {
	case result.status == http.StatusOK:
		r.report.Answered++
		r.pacer.produced(now, result.output)
	case result.status == http.StatusTooManyRequests:
		r.report.Throttled++
		r.oracle.Margin += 2 * time.Millisecond
		r.pacer.refund(now, result.job.cost)
		r.again = append(r.again, result.job)
	case result.status >= 400 && result.status < 500:
		r.report.Failed++
	default:
		r.report.Faulted++
		r.again = append(r.again, result.job)
	}
}

// call makes one attempt.
func (r *oracleRun) call(ctx context.Context, job *oracleJob) oracleResult {
	result := oracleResult{job: job}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(job.body))
	if err != nil {
		return result
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := r.client.Do(request)
	if err != nil {
		return result
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return result
	}
	var answer struct {
		Usage struct {
			Completion int `json:"completion_tokens"`
		}
	}
	json.Unmarshal(body, &answer) // an error has none
	result.status = response.StatusCode
	result.output = answer.Usage.Completion
	return result
}
