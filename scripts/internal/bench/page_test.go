package bench_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/scripts/internal/bench"
)

func TestThePageIsWhatTheBookSays(t *testing.T) {
	docs := filepath.Join("..", "..", "..", "docs")
	book, err := bench.Open(filepath.Join(docs, "benchmarks.json"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(docs, "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	if want := bench.Page(bench.Sections(), book); string(page) != want {
		at := 0
		for at < min(len(page), len(want)) && page[at] == want[at] {
			at++
		}
		t.Errorf("docs/benchmarks.md is not what docs/benchmarks.json says: go run ./scripts/bench --render\nthere: %.200q\nwant:  %.200q",
			page[max(0, at-20):], want[max(0, at-20):])
	}
}

// small is a section with each kind of column.
func small() bench.Section {
	return bench.Section{Name: "small", Title: "Small things", Text: "How small they are.", Notes: "They are small.", Steps: []bench.Step{{
		Name: "one", Env: []string{"A=b c"}, Command: []string{"go", "test", "-run", "^$", "-bench", "X"}, Quick: []string{"go", "version"}, Takes: time.Second,
		Tables: []bench.Table{{First: "thing", Rows: `^BenchmarkX/(.*)$`, Labels: map[string]string{"b": "the second"}, Columns: []bench.Column{
			{Title: "time", Unit: "ns/op", Scale: 1e-3, Digits: 1, Suffix: " µs", Spread: true},
			{Title: "of y", Unit: "ns/op", Over: "BenchmarkY/*", Digits: 2, Each: map[string]bench.Asked{"a": {Op: "≤", Bound: 1.5, Goal: 1.2}}},
			{Title: "lost", Unit: "lost", Asked: bench.Asked{Op: "=", Bound: 0}},
			{Title: "said", Unit: "said"},
		}}},
	}, {Name: "two", Command: []string{"true"}, Takes: time.Second}}}
}

func measured() *bench.Record {
	return &bench.Record{Section: "small", Step: "one", Date: time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC), Commit: "abc", Load: 0.25, Took: 61, Rounds: 3,
		Machine: bench.Machine{CPU: "Abacus", Cores: 2, Go: "go1.26", OS: "linux/amd64"},
		Figures: []bench.Figure{
			{Name: "BenchmarkX/a", Unit: "ns/op", Values: []float64{3_000_000, 1_000_000, 2_000_000, 2_000_000, 9_000_000}},
			{Name: "BenchmarkX/a", Unit: "lost", Values: []float64{0}},
			{Name: "BenchmarkX/b", Unit: "ns/op", Values: []float64{1000, 2000}},
			{Name: "BenchmarkX/b", Unit: "lost", Values: []float64{1}},
			{Name: "BenchmarkX/b", Unit: "said", Text: "a | b"},
			{Name: "BenchmarkY/a", Unit: "ns/op", Values: []float64{1_250_000}},
		}}
}

func TestAPage(t *testing.T) {
	page := bench.Page([]bench.Section{small()}, &bench.Book{Records: []*bench.Record{measured()}})
	for _, want := range []string{
		"\n1 of 3 figures keep to what is asked of them.\n",
		"\n| Small things | a | of y: 1.60 | ≤ 1.5, better ≤ 1.2 |\n| Small things | the second | lost: 1 | = 0 |\n",
		"\nNot measured yet: `small/two`.\n",
		"\n## Small things\n\nHow small they are.\n\n`A='b c' go test -run '^$' -bench X`\\\n2026-03-01 12:30 UTC at abc, Abacus, 2 cores, go1.26, linux/amd64, a load of 0.2 at the start, 1 min 01 s in 3 rounds.\n",
		"\n| thing | time | of y | lost (asked: = 0) | said | asked |\n|---|---|---|---|---|---|\n" +
			"| a | 2,000.0 µs (1,000.0 to 9,000.0) | **1.60** | 0 |  | ≤ 1.5, better ≤ 1.2 **missed** |\n" +
			"| the second | 1.5 µs (1.0 to 2.0) |  | **1** | a \\| b |  |\n",
		"\n`true`\n\nNot measured yet.\n\nThey are small.\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "short look**") {
		t.Error("it says that it was a short look")
	}
}

func TestAPageSaysWhatIsNotWhole(t *testing.T) {
	r := measured()
	r.Quick, r.Failed, r.Missing = true, "exit status 1", "parallel is not there"
	page := bench.Page([]bench.Section{small()}, &bench.Book{Records: []*bench.Record{r, {Section: "small", Step: "two", Missing: "there is no moon"}}})
	for _, want := range []string{"\n`A='b c' go version`\\\n", "**A short look**: not to be compared.", "**The command failed**: exit status 1.",
		"Not measured again: parallel is not there.", "\n`true`\n\nNot measured: there is no moon.\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

func TestAPageSaysWhatIsKnownOfFiguresFromElsewhere(t *testing.T) {
	r := measured()
	r.Note = "on a quiet day"
	page := bench.Page([]bench.Section{small()}, &bench.Book{Records: []*bench.Record{r}})
	if want := "-bench X`\\\n2026-03-01 at abc, on a quiet day.\n\n| thing |"; !strings.Contains(page, want) {
		t.Errorf("the page lacks %q:\n%s", want, page)
	}
}

func TestABookIsTheSameWhenItIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.json")
	empty, err := bench.Open(path)
	if err != nil || len(empty.Records) != 0 {
		t.Fatalf("%+v %v", empty, err)
	}
	book := &bench.Book{Records: []*bench.Record{measured(), {Section: "small", Step: "two", Missing: "there is no moon"}}}
	if err := book.Save(path); err != nil {
		t.Fatal(err)
	}
	again, err := bench.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	sections := []bench.Section{small()}
	if got, want := bench.Page(sections, again), bench.Page(sections, book); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bench.Open(path); err == nil || !strings.Contains(err.Error(), "book.json") {
		t.Errorf("half a book: %v", err)
	}
}

func TestBoundsAreKeptToTheirEdge(t *testing.T) {
	for _, c := range []struct {
		asked  bench.Asked
		figure float64
		missed bool
	}{
		{bench.Asked{Op: "≤", Bound: 3}, 3, false}, {bench.Asked{Op: "≤", Bound: 3}, 4, true}, {bench.Asked{Op: "≤", Bound: 3}, 2, false},
		{bench.Asked{Op: "≥", Bound: 3}, 3, false}, {bench.Asked{Op: "≥", Bound: 3}, 4, false}, {bench.Asked{Op: "≥", Bound: 3}, 2.99, true},
		{bench.Asked{Op: "=", Bound: 0}, 0, false}, {bench.Asked{Op: "=", Bound: 0}, 1, true}, {bench.Asked{Op: "=", Bound: 0}, -1, true},
		{bench.Asked{}, 99, false},
	} {
		s := bench.Section{Name: "s", Title: "S", Steps: []bench.Step{{Name: "one", Command: []string{"true"},
			Tables: []bench.Table{{Rows: "x", Columns: []bench.Column{{Unit: "u", Digits: 2, Asked: c.asked}}}}}}}
		page := bench.Page([]bench.Section{s}, &bench.Book{Records: []*bench.Record{{Section: "s", Step: "one", Figures: []bench.Figure{{Name: "x", Unit: "u", Values: []float64{c.figure}}}}}})
		if missed := strings.Contains(page, "| **"); missed != c.missed {
			t.Errorf("%v of %+v: missed is %v\n%s", c.figure, c.asked, missed, page)
		}
	}
}

func TestRowsAreInTheOrderOfTheirLabelsWhereThatIsWanted(t *testing.T) {
	record := &bench.Record{Section: "s", Step: "one", Figures: []bench.Figure{{Name: "b", Unit: "u", Values: []float64{1}}, {Name: "a", Unit: "u", Values: []float64{2}}}}
	for sorted, want := range map[bool]string{true: "| a | 2 |\n| b | 1 |\n", false: "| b | 1 |\n| a | 2 |\n"} {
		s := bench.Section{Name: "s", Title: "S", Steps: []bench.Step{{Name: "one", Command: []string{"true"},
			Tables: []bench.Table{{Rows: ".", Sorted: sorted, Columns: []bench.Column{{Unit: "u"}}}}}}}
		if page := bench.Page([]bench.Section{s}, &bench.Book{Records: []*bench.Record{record}}); !strings.Contains(page, want) {
			t.Errorf("sorted %v: the page lacks %q:\n%s", sorted, want, page)
		}
	}
}

func TestVerdictsAreYesOrNo(t *testing.T) {
	s := bench.Section{Name: "s", Title: "S", Steps: []bench.Step{{Name: "one", Command: []string{"true"},
		Tables: []bench.Table{{First: "test", Rows: ".", Columns: []bench.Column{{Title: "passed", Unit: "passed", Yes: true}}}}}}}
	page := bench.Page([]bench.Section{s}, &bench.Book{Records: []*bench.Record{{Section: "s", Step: "one",
		Figures: []bench.Figure{{Name: "a", Unit: "passed", Values: []float64{1, 1}}, {Name: "b", Unit: "passed", Values: []float64{1, 0, 1}}}}}})
	for _, want := range []string{"\n1 of 2 figures keep", "\n| S | b | passed: no | yes |\n", "\n| test | passed |\n|---|---|\n| a | yes |\n| b | **no** |\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}
