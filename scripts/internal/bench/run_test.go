package bench_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/scripts/internal/bench"
)

// say is a step whose command prints an answer of go env, as a benchmark prints its figures.
func say(name, variable string) bench.Step {
	return bench.Step{Name: name, Command: []string{"go", "env", variable}, Takes: time.Second, Env: []string{"GOPRIVATE=n=7"},
		Read: bench.Said(`^n=(?P<n>\d+)$`), Tables: []bench.Table{{First: "it", Rows: `^(.*)$`, Columns: []bench.Column{{Title: "n", Unit: "n"}}}}}
}

func values(b *bench.Book, step string) (all []float64) {
	for _, r := range b.Records {
		if r.Step == step {
			for _, f := range r.Figures {
				all = append(all, f.Values...)
			}
		}
	}
	return all
}

func TestASectionIsMeasured(t *testing.T) {
	book, saved := new(bench.Book), 0
	r := bench.Runner{Root: "../../..", Book: book, Save: func() error { saved++; return nil }, Rounds: 2}
	timed := bench.Step{Name: "timed", Command: []string{"go", "version"}, Takes: time.Second}
	if err := r.Run(t.Context(), bench.Section{Name: "s", Steps: []bench.Step{say("one", "GOPRIVATE"), timed}}); err != nil {
		t.Fatal(err)
	}
	if got := values(book, "one"); !slices.Equal(got, []float64{7, 7}) || saved != 2 {
		t.Errorf("%v, saved %d times", got, saved)
	}
	if got := values(book, "timed"); len(got) != 2 || got[0] <= 0 {
		t.Errorf("a command took %v", got)
	}
	one := book.Records[0]
	if one.Date.IsZero() || one.Commit == "" || one.Machine.Cores < 1 || one.Rounds != 2 || one.Quick {
		t.Errorf("%+v", one)
	}
}

func TestAStepIsMeasuredAnew(t *testing.T) {
	book := &bench.Book{Records: []*bench.Record{{Section: "s", Step: "one", Missing: "it was not there", Figures: []bench.Figure{{Name: "", Unit: "n", Values: []float64{3}}}}}}
	r := bench.Runner{Root: "../../..", Book: book, Save: func() error { return nil }, Quick: true}
	short, whole := say("one", "GOOS"), say("two", "GOPRIVATE")
	short.Quick = []string{"go", "env", "GOPRIVATE"}
	if err := r.Run(t.Context(), bench.Section{Name: "s", Steps: []bench.Step{short, whole}}); err != nil {
		t.Fatal(err)
	}
	one, two := book.Records[0], book.Records[1]
	if len(book.Records) != 2 || !one.Quick || one.Missing != "" || !slices.Equal(values(book, "one"), []float64{7}) {
		t.Errorf("%+v", one)
	}
	if two.Quick {
		t.Error("a command that is short already is no short look")
	}
}

func TestAFreshStepHasAHomeOfItsOwn(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("sh is not there")
	}
	fresh := bench.Step{Name: "one", Fresh: true, Takes: time.Second, Read: bench.Said(`^(?P<dir>.*)$`),
		Command: []string{"sh", "-c", `mkdir -p "$GOMODCACHE/a@v1" && chmod 500 "$GOMODCACHE/a@v1" && echo "$GOCACHE"`}}
	book := new(bench.Book)
	r := bench.Runner{Root: "../../..", Book: book, Save: func() error { return nil }}
	if err := r.Run(t.Context(), bench.Section{Name: "s", Steps: []bench.Step{fresh}}); err != nil {
		t.Fatal(err)
	}
	dir := book.Records[0].Figures[0].Text
	if !strings.Contains(dir, "sluice-bench-home-") {
		t.Fatalf("builds are kept in %q", dir)
	}
	if _, err := os.Stat(filepath.Dir(dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", dir, err)
	}
}

func TestAStepHasAnEngineOfItsOwn(t *testing.T) {
	for _, program := range []string{"redis-server", "redis-cli", "sh"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not there")
		}
	}
	one := bench.Step{Name: "one", Engine: true, Takes: time.Second, Read: bench.Said(`^(?P<port>\d+) (?P<answer>.*)$`),
		Command: []string{"sh", "-c", `echo "${SLUICE_TEST_REDIS##*:} $(redis-cli -u "$SLUICE_TEST_REDIS" ping)"`}}
	book := new(bench.Book)
	r := bench.Runner{Root: "../../..", Book: book, Save: func() error { return nil }}
	if err := r.Run(t.Context(), bench.Section{Name: "s", Steps: []bench.Step{one}}); err != nil {
		t.Fatal(err)
	}
	figures := book.Records[0].Figures
	if len(figures) != 2 || figures[1].Text != "PONG" {
		t.Fatalf("%+v", figures)
	}
	if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%.0f", figures[0].Values[0])); err == nil {
		conn.Close()
		t.Error("it still runs")
	}
}

func TestWhatCannotBeMeasuredKeepsItsFigures(t *testing.T) {
	old := func() *bench.Record {
		return &bench.Record{Section: "s", Step: "one", Commit: "old", Figures: []bench.Figure{{Name: "", Unit: "n", Values: []float64{3}}}}
	}
	silent, absent, both := say("one", "GOOS"), say("one", "GOPRIVATE"), say("one", "GOPRIVATE")
	absent.Needs, both.Needs = []string{"no-such-program"}, []string{"no-such-program", "$NO_SUCH_VARIABLE"}
	for name, c := range map[string]struct {
		step bench.Step
		why  string
		fail bool
	}{
		"prints none":       {silent, "its command printed no figure", true},
		"a program is gone": {absent, "no-such-program is not there", false},
		"two things are":    {both, "no-such-program and $NO_SUCH_VARIABLE are not there", false},
	} {
		t.Run(name, func(t *testing.T) {
			book := &bench.Book{Records: []*bench.Record{old()}}
			r := bench.Runner{Root: "../../..", Book: book, Save: func() error { return nil }}
			if err := r.Run(t.Context(), bench.Section{Name: "s", Steps: []bench.Step{c.step}}); (err != nil) != c.fail {
				t.Errorf("it ends with %v", err)
			}
			if got := book.Records[0]; len(book.Records) != 1 || got.Commit != "old" || got.Missing != c.why || !slices.Equal(values(book, "one"), []float64{3}) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestACommandThatFailsIsSaid(t *testing.T) {
	book, log := new(bench.Book), new(strings.Builder)
	failing := say("one", "GOPRIVATE")
	failing.Command = []string{"go", "no-such-command"}
	failing.Read = bench.Said(`^go no-such-(?P<n>\w+): unknown command`)
	r := bench.Runner{Root: "../../..", Book: book, Save: func() error { return nil }, Log: log}
	err := r.Run(t.Context(), bench.Section{Name: "s", Steps: []bench.Step{failing, say("two", "GOPRIVATE")}})
	if err == nil || !strings.Contains(err.Error(), "s/one: exit status 2") || !strings.Contains(log.String(), "unknown command") {
		t.Errorf("%v\n%s", err, log)
	}
	if got := book.Records[0]; got.Failed != "exit status 2" || got.Figures[0].Text != "command" {
		t.Errorf("%+v", got)
	}
	if got := values(book, "two"); !slices.Equal(got, []float64{7}) {
		t.Errorf("the step after it measured %v", got)
	}
}

func TestAnInterruptKeepsWhatWasMeasured(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	book := new(bench.Book)
	r := bench.Runner{Root: "../../..", Book: book, Save: func() error { cancel(stop); return nil }}
	err := r.Run(ctx, bench.Section{Name: "s", Steps: []bench.Step{say("one", "GOPRIVATE"), say("two", "GOPRIVATE")}})
	if !errors.Is(err, stop) || len(book.Records) != 1 || !slices.Equal(values(book, "one"), []float64{7}) {
		t.Errorf("%v: %+v", err, book.Records)
	}
}
