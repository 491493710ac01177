package batch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
)

// sdk is a Handler that fails the first attempt of each item.
type sdk struct {
	prepareErr, closeErr     error
	prepared, closed, handed int
}

func (s *sdk) Prepare(context.Context) error { s.prepared++; return s.prepareErr }

func (s *sdk) Close() error { s.closed++; return s.closeErr }

func (s *sdk) Handle(_ context.Context, permit *sluice.Permit, r batch.HandlerRequest) (provider.Answer, sluice.Outcome) {
	s.handed++
	if permit.Attempt() == 1 {
		return provider.Answer{}, sluice.Outcome{Kind: sluice.ServerError, Err: errors.New("try again")}
	}
	return provider.Answer{Body: []byte("plain text of " + r.ID + " for " + r.Model)}, sluice.Outcome{}
}

func TestAHandlerMakesTheRequests(t *testing.T) {
	f := newFiles(t, `{"prompt":"a","topic":"x"}`+"\n"+`{"prompt":"b"}`+"\n")
	h := &sdk{closeErr: errors.New("hung up")}
	cfg := f.config(t, nil)
	cfg.Handler, cfg.Workers, cfg.Model = h, 1, "m"
	rep, err := run(t, cfg)
	if !errors.Is(err, h.closeErr) || rep.Done != 2 || rep.Attempts != 4 {
		t.Errorf("report %+v, error %v: want 2 done by 4 attempts, and the error of Close", rep, err)
	}
	if h.prepared != 1 || h.closed != 1 || h.handed != 4 {
		t.Errorf("prepared, closed, handed %d, %d, %d", h.prepared, h.closed, h.handed)
	}
	for id, line := range f.results(t) {
		if body := string(line.Response.Body); line.Response.Status != 200 || !strings.HasPrefix(body, `"plain text of `+id) {
			t.Errorf("item %s has %d %s", id, line.Response.Status, body)
		}
	}
}

func TestAHandlerThatCannotBePreparedGetsNoRequest(t *testing.T) {
	f := newFiles(t, `{"prompt":"a"}`+"\n")
	h := &sdk{prepareErr: errors.New("no such host")}
	cfg := f.config(t, nil)
	cfg.Handler, cfg.Model = h, "m"
	rep, err := run(t, cfg)
	if !errors.Is(err, h.prepareErr) || rep.Done+h.handed != 0 || h.closed != 1 {
		t.Errorf("report %+v, error %v, %+v", rep, err, h)
	}
}

// cached is a line for a model with a system prompt that is marked for the provider's cache.
func cached(id int, model string) string {
	return fmt.Sprintf(`{"custom_id":"%s%d","params":{"model":%q,"max_tokens":1,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"messages":[]}}`+"\n", model, id, model)
}

func TestTheFirstRequestOfALaneThatIsToBeCachedGoesAlone(t *testing.T) {
	text := chat(1) + "\n"
	for i := range 5 {
		text += cached(i, "a") + cached(i, "b")
	}
	f := newFiles(t, text)
	synctest.Test(t, func(t *testing.T) {
		h := &slow{begun: make(map[string]int), ended: make(map[string]int)}
		cfg := f.config(t, nil)
		cfg.Handler = h
		if rep, err := run(t, cfg); err != nil || rep.Done != 11 {
			t.Errorf("report %+v, error %v", rep, err)
		}
		if h.early != 0 || h.most < 8 {
			t.Errorf("%d requests of a cold lane, %d at once", h.early, h.most)
		}
	})
}

// slow is a Handler that counts requests which go before the first one of their lane has a response.
type slow struct {
	mu                sync.Mutex
	open, most, early int
	begun, ended      map[string]int // by model
}

func (s *slow) Handle(_ context.Context, _ *sluice.Permit, r batch.HandlerRequest) (provider.Answer, sluice.Outcome) {
	s.mu.Lock()
	if s.open++; s.begun[r.Model] > 0 && s.ended[r.Model] == 0 {
		s.early++
	}
	s.begun[r.Model]++
	s.most = max(s.most, s.open)
	s.mu.Unlock()
	time.Sleep(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	s.ended[r.Model]++
	return provider.Answer{Body: []byte("{}")}, sluice.Outcome{}
}

func TestResponsesOfAHandlerAreNotThoseOfAProvider(t *testing.T) {
	f := newFiles(t, `{"prompt":"a"}`+"\n")
	cfg := f.config(t, nil)
	cfg.Model, cfg.Cache, cfg.Handler = "m", t.TempDir(), &sdk{}
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	s := &stub{}
	cfg.Handler, cfg.Transport, cfg.Output = nil, s, cfg.Output+"2"
	if rep, err := run(t, cfg); err != nil || s.count() != 1 {
		t.Errorf("%d requests, %+v, %v", s.count(), rep, err)
	}
}
