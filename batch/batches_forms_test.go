package batch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// viaForm is a form of Batch API, with a provider that has it.
type viaForm struct {
	name, model, url string
	ask              string // is the member of a request that has the question, around %s
	made             string // is how the path ends of the call that makes a batch
	noPart           bool   // a batch that ends early has no results
	unread           bool   // the results do not say by which status a line was refused, or in which words
}

// viaForms are all forms.
func viaForms() []viaForm {
	const messages = `"messages":[{"role":"user","content":"%s"}]`
	return []viaForm{
		{name: "openai", model: "gpt-4o-mini", url: "/v1/chat/completions", ask: messages, made: "/v1/batches"},
		{name: "anthropic", model: "claude-haiku-4-5", url: "/v1/messages", ask: `"max_tokens":64,` + messages, made: "/v1/messages/batches"},
		{name: "gemini", model: "gemini-2.5-flash", url: "/v1beta/models/{model}:generateContent", ask: `"contents":[{"role":"user","parts":[{"text":"%s"}]}]`,
			made: ":batchGenerateContent", noPart: true, unread: true},
	}
}

// line is a request for a model. No question is one that no provider takes.
func (v viaForm) line(id, model, question string) string {
	ask := fmt.Sprintf(v.ask, question)
	if question == "" {
		ask = `"max_tokens":-1,` + `"contents":[],"messages":[]`
		if v.name == "gemini" {
			ask = `"contents":[]`
		}
	}
	if v.name != "gemini" {
		ask = `"model":"` + model + `",` + ask
	}
	url := strings.ReplaceAll(v.url, "{model}", model)
	return fmt.Sprintf(`{"custom_id":"%s","method":"POST","url":"%s","body":{%s}}`+"\n", id, url, ask)
}

// lines are requests with custom_ids from 1 to n.
func (v viaForm) lines(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		b.WriteString(v.line(fmt.Sprint(i), v.model, fmt.Sprintf("What is %d?", i)))
	}
	return b.String()
}

// run is a run through an imitation's Batch API of the form.
func (v viaForm) config(t testing.TB, f files, c sim.Config) (batch.Config, *sim.Server) {
	t.Helper()
	cfg, _ := f.viaConfig(t, c)
	server := newSim(t, c)
	cfg.Transport = server.Transport()
	var ok bool
	if cfg.Provider, ok = provider.Lookup(v.name); !ok {
		t.Fatalf("no provider %s", v.name)
	}
	return cfg, server
}

// oneForm runs a test for a form of which another does not differ.
func oneForm(t *testing.T, test func(*testing.T, viaForm)) {
	synctest.Test(t, func(t *testing.T) { test(t, viaForms()[0]) })
}

// eachForm runs a test for each form, in a time of its own.
func eachForm(t *testing.T, test func(*testing.T, viaForm)) {
	for _, form := range viaForms() {
		t.Run(form.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, form) })
		})
	}
}

func TestEachFormWritesTheOutputOfALiveRun(t *testing.T) {
	eachForm(t, func(t *testing.T, form viaForm) {
		other := strings.Replace(form.model, "-", "-x-", 1) // a batch of some forms has one model
		input := form.lines(40) + form.line("odd/ id.", form.model, "Is it odd?") + form.line("other", other, "Which model is it?") +
			form.line("bad", form.model, "")
		live, f := newFiles(t, input), newFiles(t, input)
		cfg, _ := form.config(t, live, sim.Config{})
		cfg.Batches = nil
		if _, err := run(t, cfg); err != nil {
			t.Fatal(err)
		}
		cfg, server := form.config(t, f, sim.Config{})
		cfg.Provider.Batches.Requests = 15
		rep, err := run(t, cfg)
		if err != nil {
			t.Fatal(err)
		}
		want, got := live.results(t), f.results(t)
		if len(want) != 43 || len(got) != 43 {
			t.Fatalf("%d lines live, %d by batch", len(want), len(got))
		}
		for id, w := range want {
			form.same(t, id, w, got[id])
		}
		batches := make(map[string]int)
		for _, b := range f.ways(t) {
			batches[b]++
		}
		sizes := []int{1, 12, 15, 15}
		if n := slices.Sorted(maps.Values(batches)); !slices.Equal(n, sizes) {
			t.Errorf("lines by batch: %v, want %v", batches, sizes)
		}
		if stats := server.Stats(); stats.Answered != 0 || stats.Batches.Batches != len(sizes) || stats.Batches.Answered != 42 {
			t.Errorf("%d live calls, %+v", stats.Answered, stats.Batches)
		}
		if b := rep.Batches; b.Parts != len(sizes) || b.Lines != 43 || b.Live != 0 || b.Pending != 0 || b.LiveCost < 1.99*b.Cost || b.LiveCost > 2.01*b.Cost {
			t.Errorf("report %+v", b)
		}
		f.tidy(t)
	})
}

// same compares a result with that of a live run: all but ids, the time it took, and what says which way it came.
func (v viaForm) same(t testing.TB, id string, live, got result) {
	t.Helper()
	if v.unread && live.Error == nil != (got.Error == nil) || live.Sluice.Kind != got.Sluice.Kind {
		t.Errorf("%s: %+v %+v, live %+v %+v", id, got.Sluice, got.Error, live.Sluice, live.Error)
	}
	if live.Error != nil && v.unread {
		return
	}
	if v.name == "anthropic" && got.Response != nil && live.Error == nil {
		got.Response.RequestID = "none" // of an answer, the results do not say it
	}
	same(t, id, live, got)
	if live.Response == nil {
		return
	}
	if l, g := answerOf(t, live), answerOf(t, got); !reflect.DeepEqual(l, g) {
		t.Errorf("%s: %v\nlive %v", id, g, l)
	}
}

// answerOf is what stands in an answer, but for what no two of them have alike.
func answerOf(t testing.TB, r result) map[string]any {
	t.Helper()
	var body map[string]any
	if err := json.Unmarshal(r.Response.Body, &body); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"id", "created", "responseId", "request_id"} {
		delete(body, name)
	}
	return body
}

func TestLinesThatFailAreTakenToLaterParts(t *testing.T) {
	oneForm(t, func(t *testing.T, form viaForm) {
		f := newFiles(t, form.lines(300))
		cfg, server := form.config(t, f, sim.Config{Seed: 3, Batches: sim.Batches{Fail: 0.15, ExpireEvery: 3, FailEvery: 7, CutResults: 1}})
		cfg.Provider.Batches.Requests, cfg.Budget.Attempts = 60, 12
		rep, err := run(t, cfg)
		if err != nil {
			t.Fatal(err)
		}
		bad, again, all := 0, 0, f.results(t)
		for id, r := range all {
			switch {
			case r.Error != nil && r.Sluice.Kind != "bad_request":
				t.Errorf("%s failed: %+v %+v", id, r.Error, r.Sluice)
			case r.Error != nil:
				bad++
			case r.Sluice.Attempts+r.Sluice.Throttles > 1:
				again++
			}
			if n := r.Sluice.Attempts + r.Sluice.Throttles; n > 12 {
				t.Errorf("%s was tried %d times", id, n)
			}
		}
		stats := server.Stats()
		if len(all) != 300 || bad == 0 || again == 0 || rep.Done+rep.Report.Failed != 300 || rep.Done+bad != 300 || stats.Answered != 0 {
			t.Errorf("%d refused, %d tried again, %d live calls: %+v", bad, again, stats.Answered, rep.Report)
		}
		paidOnce(t, server, rep.Done)
		f.tidy(t)
	})
}

// paidOnce checks that so many requests were answered, each once.
func paidOnce(t testing.TB, server *sim.Server, requests int) {
	t.Helper()
	stats := server.Stats()
	for hash, n := range stats.Paid {
		if n != 1 {
			t.Errorf("request %s was paid for %d times", hash, n)
		}
	}
	if len(stats.Paid) != requests {
		t.Errorf("%d requests were paid for, want %d", len(stats.Paid), requests)
	}
}

// TestALineThatWasNotRunCostsNoAttempt has every other batch expire, and one attempt allowed. Where a refusal says that a
// part is too large, it is split before.
func TestALineThatWasNotRunCostsNoAttempt(t *testing.T) {
	oneForm(t, func(t *testing.T, form viaForm) {
		f := newFiles(t, form.lines(80))
		cfg, server := form.config(t, f, sim.Config{Batches: sim.Batches{ExpireEvery: 2, MaxRequests: 15}})
		cfg.Provider.Batches.Requests, cfg.Budget.Attempts = 20, 1
		rep, err := run(t, cfg)
		if err != nil || rep.Done != 80 {
			t.Fatalf("%+v, %v", rep.Report, err)
		}
		for id, r := range f.results(t) {
			if r.Sluice.Attempts != 1 || r.Sluice.Throttles != 0 {
				t.Errorf("%s: %+v", id, r.Sluice)
			}
		}
		paidOnce(t, server, 80)
		f.tidy(t)
	})
}

func TestEachFormCancelled(t *testing.T) {
	eachForm(t, func(t *testing.T, form viaForm) {
		f := newFiles(t, form.lines(90))
		cfg, server := form.config(t, f, sim.Config{Batches: sim.Batches{Latency: time.Hour}})
		cfg.Provider.Batches.Requests = 30
		abandon(t, cfg, 30*time.Minute)
		cfg.Batches.Cancel = true
		rep, err := run(t, cfg)
		if err != nil || rep.Report.Failed != 0 || rep.Done == 0 != form.noPart || rep.Left() == 0 {
			t.Fatalf("%+v, %v", rep.Report, err)
		}
		f.tidy(t)
		made := server.Stats().Batches.Batches
		cfg.Batches.Cancel = false
		if rep, err := run(t, cfg); err != nil || rep.Done+rep.Already != 90 || server.Stats().Batches.Batches <= made {
			t.Errorf("%+v, %v", rep.Report, err)
		}
		paidOnce(t, server, 90)
		f.tidy(t)
	})
}

func TestEachFormWaitsForRoom(t *testing.T) {
	eachForm(t, func(t *testing.T, form viaForm) {
		f := newFiles(t, form.lines(60))
		cfg, server := form.config(t, f, sim.Config{Batches: sim.Batches{Latency: time.Hour, EnqueuedTokens: 20 * 7, Pending: 45, PerHour: 3}})
		cfg.Provider.Batches.Requests = 20
		rep, err := run(t, cfg)
		refused := server.Stats().Batches.Refused
		if err != nil || rep.Done != 60 || refused["enqueued_tokens"]+refused["pending"] == 0 {
			t.Fatalf("%+v, %v, %v", rep.Report, err, refused)
		}
		paidOnce(t, server, 60)
		f.tidy(t)
	})
}

func TestResultsThatAreLost(t *testing.T) {
	oneForm(t, func(t *testing.T, form viaForm) {
		f := newFiles(t, form.lines(30))
		cfg, server := form.config(t, f, sim.Config{})
		keeps := cfg.Transport
		lost := newSim(t, sim.Config{Batches: sim.Batches{LoseResults: true}})
		cfg.Transport = lost.Transport()
		_, err := run(t, cfg)
		if err == nil || !strings.Contains(err.Error(), "deleted the results") {
			t.Fatalf("error %v", err)
		}
		if lost.Stats().Batches.Batches != 1 || len(lost.Stats().Paid) != 30 {
			t.Errorf("%+v", lost.Stats().Batches)
		}
		cfg.Transport = keeps
		if _, err := run(t, cfg); err == nil || server.Stats().Batches.Batches != 0 {
			t.Fatalf("it is submitted again unasked: %v", err)
		}
		cfg.Batches.Resubmit = true
		if rep, err := run(t, cfg); err != nil || rep.Done != 30 {
			t.Errorf("%+v, %v", rep.Report, err)
		}
		paidOnce(t, server, 30)
		f.tidy(t)
	})
}

func TestEachFormSendsRemainingItemsLiveByADeadline(t *testing.T) {
	eachForm(t, func(t *testing.T, form viaForm) {
		f := newFiles(t, form.lines(200))
		cfg, server := form.config(t, f, sim.Config{Seed: 5, Latency: time.Millisecond, Batches: sim.Batches{Fail: 0.2, ExpireEvery: 2, Latency: time.Hour}})
		cfg.Provider.Batches.Requests = 50
		byDeadline(&cfg, 80*time.Minute) // there is no time for batches of the items that remain after the first ones
		rep, err := run(t, cfg)
		if err != nil || rep.Done+rep.Report.Failed != 200 {
			t.Fatalf("%+v, %v", rep.Report, err)
		}
		live, all := 0, f.results(t)
		for id, b := range f.ways(t) {
			if b == "" {
				live++
			}
			if r := all[id]; r.Error != nil && r.Sluice.Kind != "bad_request" || r.Error == nil && *r.Sluice.CostUSD <= 0 {
				t.Errorf("%s: %+v", id, r)
			}
		}
		if stats := server.Stats(); live < 50 || live != rep.Batches.Live || live != stats.Answered || rep.Batches.Lines+live != 200 || stats.Batches.Batches < 4 {
			t.Errorf("%d lines live, %d calls: %+v", live, stats.Answered, rep.Batches)
		}
		paidOnce(t, server, rep.Done)
		f.tidy(t)
	})
}

// TestEachFormIsPaidOnceThoughAnswersAreLost has half of the answers to uploads and creations never arrive. At an account whose
// batches bear no names there are those of others, too, of as many requests.
func TestEachFormIsPaidOnceThoughAnswersAreLost(t *testing.T) {
	eachForm(t, func(t *testing.T, form viaForm) {
		const each = 10
		parts := suite.Size(6, 12)
		f := newFiles(t, form.lines(parts*each))
		cfg, server := form.config(t, f, sim.Config{Seed: 2, Batches: sim.Batches{Latency: time.Hour, ListDelay: 5 * time.Second}})
		cfg.Provider.Batches.Requests, cfg.Batches.Grace = each, 30*time.Second
		own, others := cfg.Transport, 0
		var creations, sent atomic.Int32
		if form.name == "anthropic" {
			others = 5
		}
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, form.made) {
				if n := int(creations.Add(1)); n <= others {
					foreignBatch(t, own, n, each)
				}
			}
			resp, err := own.RoundTrip(r)
			if err == nil && sent.Add(1) > 1 && rand.IntN(2) == 0 { // after five lost ones in a row, a provider that never answered is not there
				resp.Body.Close()
				return nil, errors.New("the answer was lost")
			}
			return resp, err
		})
		rep, err := run(t, cfg)
		stats := server.Stats().Batches
		if err != nil || rep.Done != parts*each || stats.Batches != parts+others {
			t.Errorf("%+v, %v, %+v", rep.Report, err, stats)
		}
		if len(f.results(t)) != parts*each {
			t.Errorf("%d results", len(f.results(t)))
		}
		paidOnce(t, server, (parts+others)*each)
		f.tidy(t)
	})
}

// foreignBatch has somebody else make a batch of Anthropic's form at the account.
func foreignBatch(t *testing.T, rt http.RoundTripper, serial, requests int) {
	t.Helper()
	var all []string
	for i := range requests {
		all = append(all, fmt.Sprintf(`{"custom_id":"%d","params":{"model":"claude-haiku-4-5","max_tokens":9,"messages":[{"role":"user","content":"foreign %d of %d"}]}}`,
			i+1, i, serial))
	}
	text := `{"requests":[` + strings.Join(all, ",") + `]}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://sim.invalid/v1/messages/batches", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Anthropic-Version", "2023-06-01")
	resp, err := rt.RoundTrip(r)
	if err == nil { // else its answer was lost, as ours are
		resp.Body.Close()
	}
}
