package batch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// TestWhateverUpstreamsDoEachItemIsRecordedOnce runs batches by upstreams that fail in all ways, at random, and are drained or
// cancelled, each resuming from those before.
func TestWhateverUpstreamsDoEachItemIsRecordedOnce(t *testing.T) {
	eachSeed(t, suite.Size(15, 100), func(t *testing.T, luck *rand.Rand) error {
		w := &weather{
			seed: luck.Uint64(), items: 1 + luck.IntN(60), names: 1 + luck.IntN(4), accounts: 1 + luck.IntN(4), keys: luck.IntN(4),
			attempts: 1 + luck.IntN(4), fatal: []int{0, 0, 2, 10, 40}[luck.IntN(5)], cost: luck.IntN(2) == 0,
		}
		return w.check(t)
	})
}

// weather is one random history of runs.
type weather struct {
	seed                                          uint64
	items, names, accounts, keys, attempts, fatal int
	cost                                          bool

	mu    sync.Mutex
	luck  *rand.Rand
	open  map[string]bool // items with a call open
	calls map[string]int  // of this run, by item
	ends  map[string]int  // of those, answers that refused the key or the account
	good  map[string]int  // answers, over all runs
	wrong error
}

func (w *weather) check(t *testing.T) error {
	w.luck = rand.New(rand.NewPCG(w.seed, 3))
	w.open, w.good = make(map[string]bool), make(map[string]int)
	files := newFiles(t, chats(w.items))
	for try := 0; ; try++ {
		if try == 40 {
			return errors.New("40 runs were not enough")
		}
		if try > 30 {
			w.fatal = 0
		}
		w.calls, w.ends = make(map[string]int), make(map[string]int)
		done, err := w.oneRun(t, files, try > 20)
		if err == nil {
			err = w.wrong
		}
		if err != nil || done {
			return err
		}
	}
}

// oneRun resumes, and says whether all is done.
func (w *weather) oneRun(t *testing.T, files files, peaceful bool) (done bool, err error) {
	cfg, schedulers, err := w.upstreams()
	if err != nil {
		return false, err
	}
	defer func() {
		for _, s := range schedulers {
			s.Close()
		}
	}()
	u, err := provider.NewUpstreams(cfg)
	if err != nil {
		return false, err
	}
	var results sync.Map
	b, err := batch.Open(batch.Config{Input: files.in, Output: files.out, Upstreams: u, Transport: w, Timeout: 20 * time.Second,
		OnResult: func(r *work.Result) { results.Store(r.ID, *r) }})
	if err != nil {
		return false, err
	}
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if !peaceful && w.luck.IntN(2) == 0 {
		end := b.Drain
		if w.luck.IntN(2) == 0 {
			end = cancel
		}
		defer time.AfterFunc(time.Duration(w.luck.IntN(30_000))*time.Millisecond, end).Stop()
	}
	rep, err := b.Run(ctx)
	_, stopped := errors.AsType[*work.StoppedError](err)
	_, unreached := errors.AsType[*batch.UnreachableError](err)
	if err != nil && !stopped && !unreached && !errors.Is(err, work.ErrDrained) && !errors.Is(err, context.Canceled) {
		return false, err
	}
	for _, s := range schedulers {
		for _, lane := range s.Snapshot().Lanes {
			if lane.InFlight != 0 || lane.Waiting != 0 {
				return false, fmt.Errorf("%d calls in flight and %d waiting after the run", lane.InFlight, lane.Waiting)
			}
		}
	}
	if err := w.judge(&results); err != nil {
		return false, err
	}
	return err == nil && rep.Left() == 0, nil
}

// judge compares what was recorded with what was sent.
func (w *weather) judge(results *sync.Map) (err error) {
	results.Range(func(id, value any) bool {
		r, sent := value.(work.Result), w.calls[id.(string)]
		switch {
		case r.Tally.Tries() != sent:
			err = fmt.Errorf("item %s: %d attempts and %d throttles are recorded, and %d calls were sent", id, r.Tally.Attempts, r.Tally.Throttles, sent)
		case r.Tally.Attempts > w.attempts+w.ends[id.(string)]:
			err = fmt.Errorf("item %s: %d attempts, and %d are allowed", id, r.Tally.Attempts, w.attempts)
		case r.Kind.Fatal():
			err = fmt.Errorf("item %s: recorded as %s", id, r.Kind)
		case r.Kind.Transient() && r.Tally.Attempts-w.ends[id.(string)] < w.attempts:
			err = fmt.Errorf("item %s: given up after %d attempts of %d: %v", id, r.Tally.Attempts, w.attempts, r.Err)
		case r.Kind == sluice.OK && w.good[id.(string)] == 0:
			err = fmt.Errorf("item %s: recorded, and never answered", id)
		}
		return err == nil
	})
	return err
}

func (w *weather) upstreams() (cfg provider.UpstreamsConfig, schedulers []*sluice.Scheduler, err error) {
	cfg = provider.UpstreamsConfig{Attempts: w.attempts}
	if w.cost {
		cfg.Prefer = provider.PreferCost
	}
	p, _ := provider.Lookup("openai-compatible")
	for range min(w.accounts, w.names) {
		limits := sluice.Limits{Concurrency: 1 + w.luck.IntN(6)}
		if w.luck.IntN(2) == 0 {
			limits.RPM = 60 + w.luck.IntN(600)
		}
		s, err := sluice.New(sluice.Config{Limits: limits, Attempts: w.attempts})
		if err != nil {
			return cfg, nil, err
		}
		schedulers = append(schedulers, s)
	}
	for i := range w.names {
		of := i % len(schedulers)
		up := provider.Upstream{Name: fmt.Sprint("u", i), Provider: p, BaseURL: fmt.Sprintf("http://u%d.test/v1", i), Account: fmt.Sprint("a", of), Scheduler: schedulers[of],
			Models: map[string]string{"m": "m"}}
		usd := float64(w.luck.IntN(10))
		up.Price = func(string) *provider.Price {
			if !(usd > 2) {
				return nil
			}
			return provider.FlatPrice(usd, usd)
		}
		for k := range w.keys {
			up.Keys = append(up.Keys, provider.Key{Value: fmt.Sprintf("key-%d-of-upstream-%d", k, i)})
		}
		cfg.Upstreams = append(cfg.Upstreams, up)
	}
	return cfg, schedulers, nil
}

var asked = regexp.MustCompile(`What is (\d+)\?`)

// RoundTrip does whatever a provider may.
func (w *weather) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	id := string(asked.FindSubmatch(body)[1])
	w.mu.Lock()
	if w.open[id] {
		w.wrong = fmt.Errorf("item %s: two calls are open", id)
	}
	if w.good[id] > 0 {
		w.wrong = fmt.Errorf("item %s: called again after its answer", id)
	}
	w.open[id] = true
	w.calls[id]++
	fate, latency := w.luck.IntN(100), time.Duration(w.luck.IntN(800))*time.Millisecond
	if w.luck.IntN(1000) < w.fatal {
		fate = 100 + w.luck.IntN(2)
		w.ends[id]++
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.open[id] = false
		w.mu.Unlock()
	}()
	select {
	case <-time.After(latency):
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	switch {
	case fate >= 24 && fate < 100:
		w.mu.Lock()
		w.good[id]++
		w.mu.Unlock()
		return respond(r, 200, chatAnswer)
	case fate == 20:
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	return misfortune(r, fate)
}

// misfortune is what comes of a call that gets no good answer.
func misfortune(r *http.Request, fate int) (*http.Response, error) {
	switch {
	case fate < 6:
		return respond(r, 500, `{"error":{"message":"internal"}}`)
	case fate < 10:
		return respond(r, 503, `{"error":{"message":"overloaded"}}`)
	case fate < 14:
		return respond(r, 429, `{"error":{"message":"slow down"}}`)
	case fate < 15:
		return respond(r, 429, `{"error":{"message":"slow down"}}`, "Retry-After", "9")
	case fate < 18:
		return nil, syscall.ECONNRESET
	case fate < 20:
		return nil, syscall.ECONNREFUSED
	case fate < 23:
		return respond(r, 400, `{"error":{"message":"bad request"}}`)
	case fate < 24:
		return respond(r, 200, strings.TrimSuffix(chatAnswer, "}"))
	case fate == 100:
		return respond(r, 401, `{"error":{"message":"invalid api key","code":"invalid_api_key"}}`)
	}
	return respond(r, 429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`)
}

func respond(r *http.Request, status int, body string, header ...string) (*http.Response, error) {
	resp := &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: int64(len(body)),
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader([]byte(body)))}
	if len(header) == 2 {
		resp.Header.Set(header[0], header[1])
	}
	return resp, nil
}
