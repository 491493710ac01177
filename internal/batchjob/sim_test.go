package batchjob_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// imitated returns an API of a form at an imitation.
func imitated(t *testing.T, form string, b sim.Batches) batchjob.API {
	t.Helper()
	s, err := sim.New(sim.Config{Batches: b})
	if err != nil {
		t.Fatal(err)
	}
	p, _ := provider.Lookup(form)
	to := provider.Target{BaseURL: "http://sim.invalid", Key: sentinel}
	api, err := batchjob.NewAPI(p, to, s.Transport())
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// filled is a part of so many requests, and what they are called.
func filled(api batchjob.API, form string, requests int) (*batchjob.File, map[string]bool) {
	model, endpoint, body := "gpt-4o-mini", provider.ChatCompletions, []byte(`{"model":"gpt-4o-mini","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	switch form {
	case "anthropic":
		model, endpoint, body = "claude-haiku-4-5", provider.Messages, []byte(`{"model":"claude-haiku-4-5","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`)
	case "gemini":
		model, endpoint, body = "gemini-2.5-flash", provider.GenerateContent, []byte(`{"contents":[{"parts":[{"text":"hi"}]}]}`)
	}
	f, ids := api.Frame(), make(map[string]bool)
	file := []byte(f.Open)
	for i := range requests {
		if i > 0 {
			file = append(file, f.Between...)
		}
		id := fmt.Sprintf("%s-%d", tag, i)
		ids[id] = true
		file = api.AppendRequest(file, id, endpoint, body)
	}
	p := part(endpoint, string(file)+f.Close, requests)
	p.Model = model
	return p, ids
}

// submit has a part run.
func submit(t *testing.T, api batchjob.API, p *batchjob.File) batchjob.Batch {
	t.Helper()
	file, err := api.Upload(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	b, err := api.Create(t.Context(), p, file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ended looks at a batch until it has ended.
func ended(t *testing.T, api batchjob.API, id string) batchjob.Batch {
	t.Helper()
	for range 10_000 {
		b, err := api.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if b.Status.Ended() {
			return b
		}
		time.Sleep(time.Second)
	}
	t.Fatal("it does not end")
	return batchjob.Batch{}
}

// results are the fates of the requests of a batch.
func results(t *testing.T, api batchjob.API, b batchjob.Batch) map[string]batchjob.Result {
	t.Helper()
	all := make(map[string]batchjob.Result)
	for _, file := range b.Results {
		var text strings.Builder
		err := io.ErrUnexpectedEOF
		for range 3 {
			text.Reset()
			if err = api.Fetch(t.Context(), file, &text); err == nil {
				break
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			r, err := api.ParseResult([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			if _, twice := all[r.ID]; twice {
				t.Errorf("%s came twice", r.ID)
			}
			all[r.ID] = r
		}
	}
	return all
}

func TestThroughTheImitation(t *testing.T) {
	for _, form := range forms {
		t.Run(form, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := imitated(t, form, sim.Batches{Latency: 100 * time.Second, Fail: 0.3, ListDelay: 5 * time.Second})
				begun := time.Now()
				p, ids := filled(api, form, 60)
				b := submit(t, api, p)
				if found, err := api.Find(t.Context(), p, begun); err != nil || len(found) != 0 {
					t.Errorf("listed at once: %+v %v", found, err)
				}
				time.Sleep(6 * time.Second)
				if found, err := api.Find(t.Context(), p, begun); err != nil || len(found) != 1 || found[0].ID != b.ID {
					t.Errorf("not listed: %+v %v", found, err)
				}
				b = ended(t, api, b.ID)
				if b.Status != batchjob.Completed || b.Requests != 60 || b.Succeeded+b.Failed != 60 || b.Failed == 0 {
					t.Errorf("%+v", b)
				}
				all, good := results(t, api, b), 0
				for id, r := range all {
					if !ids[id] || r.Fate != batchjob.Answered || len(r.Body) == 0 {
						t.Errorf("%s: %+v", id, r)
					}
					if r.Status == 200 {
						good++
					}
				}
				if len(all) != 60 || good != b.Succeeded {
					t.Errorf("%d results, %d good, of %+v", len(all), good, b)
				}
				if _, err := api.Get(t.Context(), "batch_unknown"); !errors.Is(err, batchjob.ErrUnknown) {
					t.Errorf("unknown: %v", err)
				}
			})
		})
	}
}

func TestImitatedBatchesThatEndEarly(t *testing.T) {
	for _, form := range forms {
		t.Run(form, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := imitated(t, form, sim.Batches{Latency: 100 * time.Second, ExpireEvery: 1})
				p, _ := filled(api, form, 10)
				b := ended(t, api, submit(t, api, p).ID)
				past := 0
				for _, r := range results(t, api, b) {
					if r.Fate == batchjob.PastWindow {
						past++
					}
				}
				want := 5
				if form == "gemini" {
					want = 0 // what is not answered has no line
				}
				if b.Status != batchjob.Expired || past != want {
					t.Errorf("%+v, %d past", b, past)
				}

				api = imitated(t, form, sim.Batches{Latency: 100 * time.Second})
				b = submit(t, api, p)
				time.Sleep(50 * time.Second)
				if err := api.Cancel(t.Context(), b.ID); err != nil {
					t.Fatal(err)
				}
				b = ended(t, api, b.ID)
				if err := api.Cancel(t.Context(), b.ID); err != nil {
					t.Errorf("cancelled again: %v", err)
				}
				off, all := 0, results(t, api, b)
				for _, r := range all {
					if r.Fate == batchjob.CalledOff {
						off++
					}
				}
				if b.Status != batchjob.Cancelled || off == 0 && len(all) == 10 {
					t.Errorf("%+v, %d called off of %d", b, off, len(all))
				}
			})
		})
	}
}

func TestImitatedTroubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := imitated(t, "openai", sim.Batches{EnqueuedTokens: 20})
		p, _ := filled(api, "openai", 60)
		b := ended(t, api, submit(t, api, p).ID)
		if b.Status != batchjob.Failed || b.Problem == nil || b.Problem.Kind != batchjob.NoRoom || b.Problem.Tokens != 20 {
			t.Errorf("%+v %+v", b, b.Problem)
		}
		for _, form := range forms {
			api := imitated(t, form, sim.Batches{MaxRequests: 50})
			p, _ := filled(api, form, 60)
			file, err := api.Upload(t.Context(), p)
			var b batchjob.Batch
			if err == nil {
				b, err = api.Create(t.Context(), p, file)
			}
			refused, is := errors.AsType[*batchjob.ProblemError](err)
			if err == nil {
				b = ended(t, api, b.ID)
			}
			want := batchjob.TooLarge
			if form == "gemini" {
				want = batchjob.Invalid // its errors have no codes that say so
			}
			if !is && b.Problem == nil || is && refused.Kind != want || !is && b.Problem.Kind != want {
				t.Errorf("%s: %v %+v", form, err, b.Problem)
			}

			api = imitated(t, form, sim.Batches{PerHour: 1})
			p, _ = filled(api, form, 2)
			submit(t, api, p)
			file, _ = api.Upload(t.Context(), p)
			_, err = api.Create(t.Context(), p, file)
			if call, ok := errors.AsType[*sluice.CallError](err); !ok || !call.Kind.Throttle() {
				t.Errorf("%s: beyond those of an hour: %v", form, err)
			}

			api = imitated(t, form, sim.Batches{Drop: 1})
			begun := time.Now()
			if form != "anthropic" {
				if _, err := api.Upload(t.Context(), p); err == nil {
					t.Error("the upload's answer was not lost")
				}
			}
			if form != "anthropic" { // without its answer, there is no file to create a batch of
				return
			}
			_, err = api.Create(t.Context(), p, file)
			if call, ok := errors.AsType[*sluice.CallError](err); !ok || call.Unsent {
				t.Errorf("%s: an answer that is lost is %v", form, err)
			}
			if found, err := api.Find(t.Context(), p, begun); err != nil || len(found) != 1 {
				t.Errorf("%s: found %+v %v", form, found, err)
			}
		}
	})
}

func TestImitatedResultsThatAreCutOrGone(t *testing.T) {
	for _, form := range forms {
		synctest.Test(t, func(t *testing.T) {
			api := imitated(t, form, sim.Batches{CutResults: 1})
			p, _ := filled(api, form, 20)
			b := ended(t, api, submit(t, api, p).ID)
			if err := api.Fetch(t.Context(), b.Results[0], io.Discard); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: cut: %v", form, err)
			}
			if n := len(results(t, api, b)); n != 20 {
				t.Errorf("%s: %d results", form, n)
			}
			api = imitated(t, form, sim.Batches{LoseResults: true})
			b = ended(t, api, submit(t, api, p).ID)
			if err := api.Fetch(t.Context(), b.Results[0], io.Discard); !errors.Is(err, batchjob.ErrGone) {
				t.Errorf("%s: gone: %v", form, err)
			}
		})
	}
}
