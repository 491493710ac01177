package batch_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

func TestLaterRunsGoOnWithTheRest(t *testing.T) {
	f := newFiles(t, strings.Replace(chats(30), `"m"`, `"n"`, 1))
	cfg := f.config(t, &stub{})
	done := 0
	for _, step := range []struct{ limit, total, ran int }{{5, 5, 5}, {5, 5, 0}, {12, 12, 7}, {3, 3, 0}, {0, 30, 18}} {
		cfg.Limit = step.limit
		b, err := batch.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		models := 0
		for _, n := range b.Models() {
			models += n
		}
		rep, err := b.Run(context.Background())
		if err != nil || rep.Total != step.total || models != step.total || rep.Done != step.ran || rep.Left() != 0 {
			t.Fatalf("%+v: %+v, %v of models, %v", step, rep, models, err)
		}
		b.Close()
		if done += rep.Done; len(f.results(t)) != done {
			t.Fatalf("%d results of %d", len(f.results(t)), done)
		}
	}
}

func TestLookSaysWhatARunWouldDo(t *testing.T) {
	text := chats(10)
	f := newFiles(t, text)
	s := &stub{}
	cfg := f.config(t, s)
	cfg.Model = ""
	see := func(cfg batch.Config) (batch.Preview, []string) {
		t.Helper()
		var got []string
		cfg.Scheduler = func(provider.Provider) (*sluice.Scheduler, error) { panic("no scheduler is needed") }
		p, err := batch.ReadPreview(cfg, func(r batch.Request) error { got = append(got, fmt.Sprint(r.Line)); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return p, got
	}
	p, lines := see(cfg)
	if want := (batch.Preview{Total: 10, Remaining: 10}); !cmp.Equal(p, want) || len(lines) != 10 {
		t.Errorf("%+v %v", p, lines)
	}
	if _, err := os.Stat(f.out); err == nil || len(s.sent) > 0 {
		t.Error("something was sent or written")
	}
	limited := cfg
	limited.Limit = 4
	if rep, err := run(t, limited); err != nil || rep.Done != 4 {
		t.Fatal(rep, err)
	}
	before, _ := os.ReadFile(f.out)
	j, err := work.OpenJournal(f.out, work.JournalConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := os.WriteFile(f.out, append(before, before[:len(before)/9]...), 0o600); err != nil { // another run is writing
		t.Fatal(err)
	}
	p, lines = see(cfg)
	if want := (batch.Preview{Total: 10, Done: 4, Remaining: 6}); !cmp.Equal(p, want) || strings.Join(lines, " ") != "5 6 7 8 9 10" {
		t.Errorf("%+v %v", p, lines)
	}
	stdin := cfg
	stdin.Input, stdin.Stdin = "-", strings.NewReader(text)
	if p2, lines2 := see(stdin); !cmp.Equal(p2, p) || !slices.Equal(lines, lines2) {
		t.Errorf("standard input: %+v %v", p2, lines2)
	}
	if after, _ := os.ReadFile(f.out); len(after) != len(before)+len(before)/9 {
		t.Error("the output was changed")
	}
	for name, c := range map[string]func(*batch.Config){
		"line 2: ":                       func(c *batch.Config) { c.Input = writeInput(t, "in", chats(1)+"{\n") },
		"differs from the recorded item": func(c *batch.Config) { f.input(t, strings.ReplaceAll(text, "What", "Who")) },
		"none of them is for an item of": func(c *batch.Config) { c.Input = writeInput(t, "in", chat(77)) },
		"is the same file as the input":  func(c *batch.Config) { c.Output = c.Input },
		"is not a regular file":          func(c *batch.Config) { c.Output = t.TempDir() },
	} {
		bad := cfg
		c(&bad)
		if _, err := batch.ReadPreview(bad, func(batch.Request) error { return nil }); !strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("%v, want %s", err, name)
		}
		f.input(t, text)
	}
}
