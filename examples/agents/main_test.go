package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/pool"
	"github.com/sluice-llm/sluice/sim"
)

// newBench returns an imitation over a socket that has so many slots, and a function that makes a team of agents which call it.
func newBench(t *testing.T, slots int) (*sim.Server, func(pool.Store) *team) {
	t.Helper()
	server, err := sim.New(sim.Config{Concurrency: slots, Latency: 30 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	return server, func(store pool.Store) *team {
		scheduler, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: slots}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { scheduler.Close() })
		made, err := newTeam(scheduler, store, "gpt-4.1-mini", option.WithBaseURL(web.URL+"/v1"), option.WithAPIKey("any"))
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
}

func topics(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("number-%d", i)
	}
	return list
}

func TestManyAgentsShareFewSlotsAndTheLeadGoesFirst(t *testing.T) {
	server, newTeam := newBench(t, 2)
	team := newTeam(pool.NewMemoryStore())
	sentences, err := team.write(t.Context(), topics(12), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sentences {
		if !strings.HasPrefix(s, "sim:") {
			t.Errorf("sentence %q is not the imitation's", s)
		}
	}
	// A writer calls, uses its tool, and calls again; the lead calls once for each.
	if s := server.Stats(); s.Answered != 36 || s.Throttled != 0 || s.Peak != 2 || len(sentences) != 12 {
		t.Errorf("%d sentences, %d calls answered, %d refused, %d at once, want 12, 36, 0 and 2", len(sentences), s.Answered, s.Throttled, s.Peak)
	}
	var lead, writers time.Duration // that a call waited on average
	for _, e := range team.ended {
		switch {
		case e.ID == "lead" && e.Calls == 12:
			lead = e.wait()
		case e.Kind == "writer" && e.Calls == 2:
			writers += e.wait() / 12
		default:
			t.Errorf("%s made %d calls", e.ID, e.Calls)
		}
	}
	if lead > writers/2 {
		t.Errorf("a call of the lead waited for %v on average, one of a writer for %v", lead, writers)
	}
	var table strings.Builder
	team.report(&table)
	if lines := strings.Count(table.String(), "\n"); lines != 14 || !strings.Contains(table.String(), "\nlead ") {
		t.Errorf("the report is\n%s", &table)
	}
}

func TestCancelledWritersLeaveNoTraceAndTheNextRunGoesOnWhereTheyEnded(t *testing.T) {
	server, newTeam := newBench(t, 2)
	store, err := pool.NewFileStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	first := newTeam(store)
	sentences, err := first.write(t.Context(), topics(12), 3)
	if err != nil || len(sentences) < 3 || len(sentences) == 12 {
		t.Fatalf("%d sentences, error %v, want 3, or what little more came at once", len(sentences), err)
	}
	if m := first.agents.Metrics(); m.Active+m.Waiting+m.Orphans+m.Members != 0 {
		t.Errorf("it left %d calls open, %d waiting, %d permits without an owner and %d members", m.Active, m.Waiting, m.Orphans, m.Members)
	}
	kept, cancelled := 0, 0
	for _, topic := range topics(12) {
		var p progress
		c, err := store.Load("writer-" + topic)
		if err == nil {
			err = json.Unmarshal(c.Data, &p)
		}
		if err != nil && !errors.Is(err, pool.ErrNoCheckpoint) {
			t.Fatal(err)
		}
		if p.Draft != "" {
			kept += 2
		} else if len(p.Turns) > 0 {
			kept++
		}
	}
	for _, e := range first.ended {
		if errors.Is(e.cause, errEnough) {
			cancelled++
		}
	}
	if cancelled == 0 || kept < 2*len(sentences) || kept == 24 {
		t.Fatalf("%d writers were cancelled, and %d turns of 24 were kept", cancelled, kept)
	}

	second := newTeam(store)
	if sentences, err = second.write(t.Context(), topics(12), 0); err != nil || len(sentences) != 12 {
		t.Fatalf("%d sentences, error %v", len(sentences), err)
	}
	calls := int64(0)
	for _, e := range second.ended {
		if e.Kind == "writer" {
			calls += e.Calls
		}
	}
	if int(calls) != 24-kept {
		t.Errorf("the writers made %d calls, and %d of 24 turns were kept", calls, kept)
	}
	// It may refuse a call that was sent before it saw that a cancelled one is gone.
	if s := server.Stats(); s.Peak > 2 {
		t.Errorf("%d calls were open at once", s.Peak)
	}
}

func TestAnInterruptEndsAll(t *testing.T) {
	_, newTeam := newBench(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
	defer cancel()
	team := newTeam(pool.NewMemoryStore())
	if _, err := team.write(ctx, topics(12), 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
	if m := team.agents.Metrics(); m.Active+m.Waiting+m.Members != 0 {
		t.Errorf("it left %d calls open, %d waiting and %d members", m.Active, m.Waiting, m.Members)
	}
}

func TestAToolSaysWhatIsWrong(t *testing.T) {
	for _, tt := range []struct{ name, arguments, want string }{
		{"count_words", `{"text":"one two  three"}`, "3 words"},
		{"count_words", `{"text":`, "these are no arguments: "},
		{"other", `{}`, `there is no tool "other"`},
	} {
		if got := use(tt.name, tt.arguments); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s(%s) says %q, want %q", tt.name, tt.arguments, got, tt.want)
		}
	}
}
