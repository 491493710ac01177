package parts_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/parts"
)

// warnings counts what is warned of.
type warnings struct {
	slog.Handler
	mu    sync.Mutex
	texts []string
}

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Level >= slog.LevelWarn {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool { text += fmt.Sprintf(" %s=%v", a.Key, a.Value); return true })
		w.texts = append(w.texts, text)
	}
	return nil
}

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w *warnings) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.texts)
}

func TestWhatDoesNotGetOnIsSaid(t *testing.T) {
	for _, op := range []string{"upload", "create", "find", "get", "fetch"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.api.takes = time.Minute
				start, lost := time.Now(), false
				b.api.fails = func(at string) error {
					if op == "find" && at == "create" && !lost { // else nothing is to be found
						lost = true
						return saying(sluice.Network, "reset")
					}
					if at == op && time.Since(start) < 10*time.Hour {
						return saying(sluice.ServerError, "503: overloaded by moon rays")
					}
					return nil
				}
				log := &warnings{}
				b.log = slog.New(log)
				d := b.open()
				defer d.Close()
				d.Start(context.Background())
				b.add(d, 0, 5)
				<-time.After(9 * time.Hour)
				synctest.Wait()
				s := d.Status()[0]
				if s.Problem == nil || !strings.Contains(s.Problem.Message, "moon rays") {
					t.Errorf("the part is %s with problem %v", s.State, s.Problem)
				}
				if saved, err := parts.Read(b.saved); err != nil || saved[0].Problem == nil {
					t.Errorf("what is saved does not say it: %+v, %v", saved, err)
				}
				if n := len(log.all()); n < 5 || n > 20 {
					t.Errorf("it was warned of %d times in nine hours: %q", n, log.all())
				}
				if err := b.merge(d); err != nil {
					t.Fatal(err)
				}
				if b.want(5); len(b.api.batches) != 1 {
					t.Errorf("%d batches were made", len(b.api.batches))
				}
			})
		})
	}
}

func TestAProblemThatPassedIsSaidNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		start := time.Now()
		b.api.fails = func(at string) error {
			if at == "get" && time.Since(start) < 10*time.Minute {
				return saying(sluice.ServerError, "503")
			}
			return nil
		}
		d := b.open()
		defer d.Close()
		d.Start(context.Background())
		b.add(d, 0, 5)
		<-time.After(30 * time.Minute)
		synctest.Wait()
		if s := d.Status()[0]; s.Problem != nil || s.State != string(batchapi.Running) {
			t.Errorf("the part is %s with problem %v", s.State, s.Problem)
		}
		if saved, err := parts.Read(b.saved); err != nil || saved[0].Problem != nil {
			t.Errorf("it is saved still: %v, %v", saved, err)
		}
	})
}

func TestAPartThatNeverFindsRoomIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		log := &warnings{}
		b.log = slog.New(log)
		b.api.refuse = func(int, *batchapi.Part, *doubled) *batchapi.Problem {
			return &batchapi.Problem{Kind: batchapi.NoRoom, Message: "the limit is 5 enqueued tokens", Tokens: 5}
		}
		d := b.open()
		defer d.Close()
		d.Start(context.Background())
		b.add(d, 0, 1)
		<-time.After(9 * time.Hour)
		synctest.Wait()
		if n := len(log.all()); n < 5 || n > 20 || !strings.Contains(log.all()[0], "5 enqueued tokens") {
			t.Errorf("it was warned of %d times in nine hours: %q", n, log.all())
		}
	})
}
