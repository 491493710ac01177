package batch_test

import (
	"errors"
	"net/http"
	"os"
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

// A run that is drained or killed while its provider rejects everything is resumed at once, with a Scheduler that knows nothing of that.
func TestAResumeWaitsForThePauseOfTheRunBefore(t *testing.T) {
	for _, end := range []string{"drained", "killed", "drained, and its pause is ignored"} {
		t.Run(end, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { resumeInAPause(t, end) }) })
	}
}

func resumeInAPause(t *testing.T, end string) {
	ignored := strings.HasSuffix(end, "ignored")
	f := newFiles(t, chats(20))
	var mu sync.Mutex
	var asked []time.Time
	cfg := f.config(t, nil)
	cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, time.Now())
		if len(asked) > 8 {
			return respond(r, 200, chatAnswer)
		}
		return respond(r, 429, `{"error":{"message":"slow down","code":"rate_limit_exceeded"}}`, "Retry-After", "40")
	})
	pauses, left := &work.Pauses{}, []byte(nil)
	cfg.Scheduler = func(provider.Provider) (*sluice.Scheduler, error) {
		s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 8}, Observer: pauses})
		if err == nil {
			t.Cleanup(func() { s.Close() })
		}
		return s, err
	}
	open := func(ignore bool) *batch.Batch {
		pauses = &work.Pauses{IgnoreEarlier: ignore}
		cfg.Pauses = pauses
		b, err := batch.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	state := func() work.State {
		synctest.Wait()
		time.Sleep(2 * time.Second) // the file follows within a second
		s, err := work.LoadState(work.StatePath(f.out))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	b := open(false)
	time.AfterFunc(4*time.Second, func() {
		if s := state(); s.Throttles == 0 || s.PauseCount != 1 || s.Status != work.Paused {
			t.Errorf("during the pause: %+v", s)
		}
		left, _ = os.ReadFile(work.StatePath(f.out))
		b.Drain()
	})
	if _, err := b.Run(t.Context()); !errors.Is(err, work.ErrDrained) {
		t.Fatal(err)
	}
	b.Close()
	if end == "killed" {
		if err := os.WriteFile(work.StatePath(f.out), left, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := work.LoadState(work.StatePath(f.out))
	l := s.RateLimit
	if err != nil || !l.Until.After(time.Now()) || !strings.Contains(l.Text, "slow down") || l.Source != "code" || l.SeenAt.IsZero() {
		t.Fatalf("after the stop: %+v, %v", s, err)
	}
	sent := len(asked)
	b = open(ignored)
	time.AfterFunc(time.Until(l.Until)/2, func() {
		if ignored {
			return
		}
		s, err := work.LoadState(work.StatePath(f.out))
		now := s.RateLimit
		if now.Until.Before(l.Until) {
			t.Errorf("the pause is shortened from %v to %v", l.Until, now.Until)
		}
		if now.Until = l.Until; err != nil || now != l || s.PauseCount != 1 {
			t.Errorf("in the second run: %+v, want %+v; %d pauses, %v", now, l, s.PauseCount, err)
		}
	})
	if rep, err := b.Run(t.Context()); err != nil || rep.Done != 20 {
		t.Errorf("%+v, %v", rep, err)
	}
	b.Close()
	if first := asked[sent]; first.Before(l.Until) != ignored {
		t.Errorf("the second run sent a request %v before the end of the pause", l.Until.Sub(first))
	}
}
