package batch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/provider"
)

// about is a line of a chat that begins with a text of n bytes about something, and asks a question.
func about(id, subject string, n int) string {
	return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":{"model":"m","temperature":0.%d,"messages":[{"role":"system","content":%q},{"role":"user","content":"%s?"}]}}`+"\n",
		id, len(id), subject+strings.Repeat(".", n), id)
}

// watch is an imitation that answers after a while, and knows which prefixes had calls open at the same time.
type watch struct {
	mu     sync.Mutex
	status func(subject string, nth int) int
	took   func() time.Duration

	calls  map[string]int // by subject
	open   map[string]int
	warm   map[string]time.Time // until when
	early  []string             // calls that came while a cold prefix was being warmed
	starts map[string]time.Time // of the first call
}

func newWatch() *watch {
	return &watch{
		status: func(string, int) int { return 200 }, took: func() time.Duration { return time.Second },
		calls: map[string]int{}, open: map[string]int{}, warm: map[string]time.Time{}, starts: map[string]time.Time{},
	}
}

func (w *watch) RoundTrip(r *http.Request) (*http.Response, error) {
	call := &stub{}
	resp, err := call.RoundTrip(r)
	_, rest, _ := strings.Cut(call.sent[0].body, `"role":"system","content":"`)
	subject, _, _ := strings.Cut(rest, ".")
	w.mu.Lock()
	now := time.Now()
	if w.calls[subject]++; w.calls[subject] == 1 {
		w.starts[subject] = now
	}
	if w.open[subject]++; w.open[subject] > 1 && !now.Before(w.warm[subject]) {
		w.early = append(w.early, subject)
	}
	status, took := w.status(subject, w.calls[subject]), w.took()
	w.mu.Unlock()
	timer := time.NewTimer(took)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		err = r.Context().Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[subject]--
	if err != nil {
		return nil, err
	}
	if resp.StatusCode = status; status/100 == 2 {
		w.warm[subject] = time.Now().Add(5 * time.Minute)
	}
	return resp, nil
}

func warming(t testing.TB, f files, rt http.RoundTripper, slots int) batch.Config {
	cfg := f.config(t, rt)
	cfg.WarmUp = true
	cfg.Scheduler = func(provider.Provider) (*sluice.Scheduler, error) {
		s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: slots}})
		if err == nil {
			t.Cleanup(func() { s.Close() })
		}
		return s, err
	}
	return cfg
}

func TestTheFirstOfAPrefixGoesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		for i := range 600 { // all of one subject stand before the others
			text.WriteString(about(fmt.Sprintf("a%d", i), "a", 5000))
		}
		for i := range 40 {
			text.WriteString(about(fmt.Sprintf("x%d", i), fmt.Sprintf("s%d", i%20), 5000))
			text.WriteString(about(fmt.Sprintf("y%d", i), "short", 500))
		}
		w := newWatch()
		begun := time.Now()
		rep, err := run(t, warming(t, newFiles(t, text.String()), w, 64))
		if err != nil || rep.Done != 680 {
			t.Fatalf("%+v, %v", rep, err)
		}
		for _, subject := range w.early {
			if subject != "short" {
				t.Fatalf("%v came before they were warm", w.early)
			}
		}
		for subject, at := range w.starts {
			if at.Sub(begun) > time.Second { // few are sent at once until some were taken
				t.Errorf("%s was held up for %v", subject, at.Sub(begun))
			}
		}
		if want := 13 * time.Second; rep.Wall > want {
			t.Errorf("took %v, want at most %v", rep.Wall, want)
		}
	})
}

func TestAPrefixIsWarmForFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch()
		most := 0
		w.took = func() time.Duration { most = max(most, w.open["a"]); return time.Second }
		cfg := warming(t, newFiles(t, ""), w, 10)
		in, out := io.Pipe()
		cfg.Input, cfg.Stdin = "-", in
		var together []int // how many calls were open at once, of three that came together
		go func() {
			for i, gap := range []time.Duration{0, 4*time.Minute + 58*time.Second, 5*time.Minute + time.Second, time.Second} {
				time.Sleep(gap)
				w.mu.Lock()
				most = 0
				w.mu.Unlock()
				for k := range 3 {
					io.WriteString(out, about(fmt.Sprint(i, k), "a", 5000))
				}
				time.Sleep(2500 * time.Millisecond)
				w.mu.Lock()
				together = append(together, most)
				w.mu.Unlock()
			}
			out.Close()
		}()
		rep, err := run(t, cfg)
		if err != nil || rep.Done != 12 || len(w.early) > 0 {
			t.Fatalf("%+v, %v, early %v", rep, err, w.early)
		}
		// After a call alone the other two go together.
		if want := []int{2, 3, 2, 3}; !slices.Equal(together, want) {
			t.Errorf("open at once: %v, want %v", together, want)
		}
	})
}

func TestAFailureStrandsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch()
		w.status = func(_ string, nth int) int {
			if nth <= 3 {
				return 400
			}
			return 200
		}
		var text strings.Builder
		for i := range 30 {
			text.WriteString(about(fmt.Sprintf("a%d", i), "a", 5000))
		}
		rep, err := run(t, warming(t, newFiles(t, text.String()), w, 10))
		if err != nil || rep.Failed != 3 || rep.Done != 27 || len(w.early) > 0 {
			t.Fatalf("%+v, %v, early %v", rep, err, w.early)
		}
		if want := (4 + 3) * time.Second; rep.Wall != want {
			t.Errorf("took %v, want four calls alone and then three rounds of ten: %v", rep.Wall, want)
		}
	})
}

// TestEveryWaiterEnds runs many prefixes whose calls fail at random, to the end or until a stop.
func TestEveryWaiterEnds(t *testing.T) {
	eachSeed(t, suite.Size(12, 100), waiters)
}

func waiters(t *testing.T, luck *rand.Rand) error {
	w := newWatch()
	w.took = func() time.Duration { return time.Duration(luck.IntN(3000)+1) * time.Millisecond }
	bad := luck.IntN(60)
	w.status = func(string, int) int {
		if n := luck.IntN(100); n < bad {
			return []int{400, 429, 500, 503}[n%4]
		}
		return 200
	}
	n, subjects := luck.IntN(120)+1, luck.IntN(12)+1
	var text strings.Builder
	for i := range n {
		text.WriteString(about(fmt.Sprint(i), fmt.Sprint("s", luck.IntN(subjects)), 4500))
	}
	cfg := warming(t, newFiles(t, text.String()), w, luck.IntN(30)+1)
	cfg.Workers = luck.IntN(40) + 1
	b, err := batch.Open(cfg)
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := luck.IntN(4)
	at := time.Duration(luck.IntN(10_000)) * time.Millisecond
	var stopped time.Time
	if stop > 0 {
		defer time.AfterFunc(at, func() {
			stopped = time.Now()
			switch stop {
			case 1:
				b.Drain()
			case 2:
				b.Stop(errors.New("enough"))
			default:
				cancel()
			}
		}).Stop()
	}
	rep, err := b.Run(ctx)
	if !stopped.IsZero() && time.Since(stopped) > 4*time.Second {
		return fmt.Errorf("stopped %v late", time.Since(stopped))
	}
	if len(w.early) > 0 {
		return fmt.Errorf("%v came before they were warm", w.early)
	}
	if err == nil && rep.Done+rep.Failed != n {
		return fmt.Errorf("%d of %d items, and no error", rep.Done+rep.Failed, n)
	}
	if err != nil && stop == 0 {
		return err
	}
	return nil
}
