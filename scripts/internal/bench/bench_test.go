package bench_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/scripts/internal/bench"
)

// step is a step by its name, as serve/load.
func step(t *testing.T, name string) bench.Step {
	t.Helper()
	chosen, err := bench.Choose(bench.Sections(), []string{name})
	if err != nil {
		t.Fatal(err)
	}
	return chosen[0].Steps[0]
}

// recorded is what a step's command once printed: testdata/SECTION-STEP.txt.
func recorded(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", strings.ReplaceAll(name, "/", "-")+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryColumnOfARecordedStepShowsSomething(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txt")
	if len(files) < 20 {
		t.Fatalf("only %d recorded outputs", len(files))
	}
	for _, file := range files {
		name := strings.Replace(strings.TrimSuffix(filepath.Base(file), ".txt"), "-", "/", 1)
		t.Run(name, func(t *testing.T) {
			s := step(t, name)
			section, _, _ := strings.Cut(name, "/")
			_, part, _ := strings.Cut(name, "/")
			book := &bench.Book{Records: []*bench.Record{{Section: section, Step: part, Figures: s.Read(recorded(t, name))}}}
			page := bench.Page([]bench.Section{{Name: section, Title: section, Steps: []bench.Step{s}}}, book)
			shown := tables(page[strings.Index(page, "\n## "):])
			if len(shown) != len(s.Tables) {
				t.Fatalf("%d of %d tables have rows:\n%s", len(shown), len(s.Tables), page)
			}
			for i, table := range shown {
				for j, column := range s.Tables[i].Columns {
					if !slices.ContainsFunc(table[2:], func(row []string) bool { return strings.TrimSpace(row[j+1]) != "" }) {
						t.Errorf("table %d: column %q is empty:\n%v", i+1, column.Title, table)
					}
				}
			}
		})
	}
}

// tables are the cells of those of a page.
func tables(page string) (all [][][]string) {
	inside := false
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		if !inside {
			all, inside = append(all, nil), true
		}
		last := len(all) - 1
		all[last] = append(all[last], strings.Split(strings.Trim(line, "|\n"), "|"))
	}
	return all
}

// The figures of recorded outputs, by hand.
func TestFiguresAreRead(t *testing.T) {
	for _, want := range []struct {
		step, name, unit string
		values           []float64
		text             string
	}{
		{"explain/corpus", "TestCorpusIsClassified/errors.jsonl", "kinds", []float64{113}, ""},
		{"explain/corpus", "TestCorpusIsClassified/made errors.jsonl", "waits", []float64{63}, ""},
		{"explain/speed", "BenchmarkClassifyGoodAnswer", "ns/op", []float64{1216}, ""},
		{"explain/speed", "BenchmarkClassifyGoodAnswer", "allocs/op", []float64{1}, ""},
		{"admission/slot", "BenchmarkSlot/crowd/semaphore", "ns/op", []float64{37.13, 119.6, 503.8}, ""},
		{"kills/run", "TestKill/plain", "kills", []float64{20}, ""},
		{"kills/run", "TestKill/plain", "twice", []float64{15}, ""},
		{"kills/run", "TestKill/in order", "open", []float64{128}, ""},
		{"kills/run", "TestKill/in order", "passed", []float64{1}, ""},
		{"find/matrix", "rpm 500, burst 60 s", "span", nil, "[15..15]"},
		{"find/matrix", "rpm 60, window", "truly", nil, "18.6/18.6 (0.4)"},
		{"find/matrix", "rpm 500, refusals charged", "sweeps", nil, "99.6/99.6 (100.0)"},
		{"find/matrix", "headers: rpm 500, cap 8", "off", nil, "-"},
		{"plan/rows", "fireworks default-start all models", "debts", []float64{145}, ""},
		{"plan/rows", "deepseek all deepseek-flash", "rate", []float64{75000}, ""},
		{"plan/rows", "cohere trial command", "workers", nil, "1 worker NOT SAFE by [rpm]"},
		{"serve/priority", "TestAnInteractiveCallWaitsForTwoTurnsOfARateAtMost/tokens", "ms", []float64{581}, ""},
		{"serve/priority", "TestLowPriorityIsNotStarved", "longest", []float64{119.824}, ""},
		{"serve/refusals", "TestAFullQueueSaysWhenItsTurnWouldHaveCome/slots and 0 others", "off", []float64{-2}, ""},
		{"serve/disconnects", "TestClientsThatDisconnectLeaveNothingBehind", "back", []float64{0.031}, ""},
		{"find/sockets", "rpm 500, a minute's bucket", "ratio", []float64{1.021}, ""},
		{"hosts/members", "BenchmarkMembers/30,000 RPM, 32:1:0:0", "throttles", []float64{92}, ""},
		{"scale/cases", "4 members, 30,000 RPM, headers", "longest", []float64{1.5}, ""},
		{"scale/cases", "4 members, 30,000 RPM, headers", "minute", nil, "30421/30500"},
		{"members/aggressive", "aggressive", "missed", []float64{0}, ""},
		{"million/dedupe", "BenchmarkMillionTwins/hundreds", "run", []float64{1.21118414}, ""},
		{"serve/load", "TestFourTimesTheLoadIsHeldBackAndTheQuotaUsed/output, told", "passed", []float64{1}, ""},
		{"optimum/questions", "BenchmarkQuestions", "s/optimum", []float64{16.58}, ""},
	} {
		found := false
		for _, f := range step(t, want.step).Read(recorded(t, want.step)) {
			if f.Name == want.name && f.Unit == want.unit {
				if found && len(want.values) < 2 {
					t.Errorf("%s: %s has several in %s", want.step, want.name, want.unit)
				}
				if len(want.values) > 0 && (len(f.Values) != 1 || !slices.Contains(want.values, f.Values[0])) || f.Text != want.text {
					t.Errorf("%s: %+v, want %v %q", want.step, f, want.values, want.text)
				}
				found = true
			}
		}
		if !found {
			t.Errorf("%s: nothing is read of %s in %s", want.step, want.name, want.unit)
		}
	}
}

func TestReaders(t *testing.T) {
	for name, c := range map[string]struct {
		read   bench.Reader
		output string
		want   string
	}{
		"a benchmark":                      {bench.Benchmarks, "BenchmarkX/a_b-2   \t       1\t  12 ns/op\t  0.5 of-it\n", "[{BenchmarkX/a b ns/op [12] } {BenchmarkX/a b of-it [0.5] }]"},
		"one that printed between":         {bench.Benchmarks, "BenchmarkX-2   \t\na | b\n       1\t  12 ns/op\n", "[{BenchmarkX ns/op [12] }]"},
		"one of one processor":             {bench.Benchmarks, "BenchmarkX/429 \t 1 \t 12 ns/op\n", "[{BenchmarkX/429 ns/op [12] }]"},
		"one that failed":                  {bench.Benchmarks, "--- FAIL: BenchmarkX\n    a_test.go:1: no\nBenchmarkX \n", "[]"},
		"tests":                            {bench.Verdicts, "--- PASS: TestA (1.50s)\n    --- FAIL: TestA/b_c (0.10s)\n    --- SKIP: TestA/d (0.00s)\n", "[{TestA passed [1] } {TestA s [1.5] } {TestA/b c passed [0] } {TestA/b c s [0.1] }]"},
		"a log":                            {bench.Said(`^(?P<n>[\d,]+) of (?P<of>.*)$`), "=== RUN   TestA\n=== NAME  TestA/b_c\n    a_test.go:1: 1,024 of all\n", "[{TestA/b c n [1024] } {TestA/b c of [] all}]"},
		"a log of a benchmark":             {bench.Said(`^(?P<took>\S+) long$`), "BenchmarkX-2 \t 1 \t 12 ns/op\n--- BENCH: BenchmarkX-2\n    a_test.go:1: 1m30s long\n", "[{BenchmarkX took [90] }]"},
		"a line that names its own figure": {bench.Said(`^(?P<name>.+): (?P<n>\d+)$`), "a_b: 3\n", "[{a b n [3] }]"},
		"a table":                          {bench.Cells("name", "n", "", "share"), "    a_test.go:1: | a, b | 3 | x | 5.0 % |\n| name | n | x | share |\n| too | few |\n", "[{a, b n [3] } {a, b share [5] }]"},
	} {
		if got := fmt.Sprint(c.read(c.output)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestWhatIsNoFigureIsNotRead(t *testing.T) {
	for _, s := range bench.Sections() {
		for _, one := range s.Steps {
			if one.Read == nil {
				continue
			}
			for _, text := range []string{"", "\n", "FAIL\nexit status 2\n", "panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n", "{", "|||||||||||\n",
				"# github.com/sluice-llm/sluice\n./a.go:3:1: syntax error\nFAIL\tgithub.com/sluice-llm/sluice [build failed]\n"} {
				if figures := one.Read(text); len(figures) > 0 {
					t.Errorf("%s/%s reads %+v in %q", s.Name, one.Name, figures, text)
				}
			}
		}
	}
}

// A benchmark that was renamed would be missed in silence: its command succeeds.
func TestWhatCommandsNameIsThere(t *testing.T) {
	for _, s := range bench.Sections() {
		for _, one := range s.Steps {
			for _, words := range [][]string{one.Command, one.Quick} {
				kind, pattern := "Benchmark", after(words, "-bench")
				if pattern == "" {
					kind, pattern = "Test", after(words, "-run")
				}
				if pattern == "" {
					continue
				}
				pattern, _, _ = strings.Cut(pattern, "/")
				if !slices.ContainsFunc(functions(t, words[len(words)-1], kind), regexp.MustCompile(pattern).MatchString) {
					t.Errorf("%s/%s: there is no %s that %q matches", s.Name, one.Name, kind, pattern)
				}
			}
		}
	}
}

func after(words []string, flag string) string {
	if i := slices.Index(words, flag); i >= 0 {
		return words[i+1]
	}
	return ""
}

// functions are the tests or benchmarks of a package.
func functions(t *testing.T, dir, kind string) (names []string) {
	files, _ := filepath.Glob(filepath.Join("..", "..", "..", dir, "*_test.go"))
	if len(files) == 0 {
		t.Errorf("%s has no tests", dir)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (`+kind+`\w+)\(`).FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}

func TestNamesAreUniqueAndChosen(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range bench.Sections() {
		for _, one := range s.Steps {
			name := s.Name + "/" + one.Name
			if seen[name] || one.Takes == 0 {
				t.Errorf("%s is there twice, or says no time", name)
			}
			seen[name] = true
		}
	}
	chosen, err := bench.Choose(bench.Sections(), []string{"serve/load", "explain"})
	if err != nil || len(chosen) != 2 || len(chosen[0].Steps) != 2 || len(chosen[1].Steps) != 1 || chosen[1].Steps[0].Name != "load" {
		t.Errorf("%+v %v", chosen, err)
	}
	if _, err := bench.Choose(bench.Sections(), []string{"server"}); err == nil {
		t.Error("a section that is not there is chosen")
	}
	if all, err := bench.Choose(bench.Sections(), nil); err != nil || len(all) != len(bench.Sections()) {
		t.Errorf("%d sections, %v", len(all), err)
	}
}
