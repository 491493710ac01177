package bench

import "time"

// Sections are all that is measured, in the order of the page.
func Sections() []Section {
	return []Section{
		optimum(), admission(), million(), kills(), explain(), forecasts(), found(), members(), commands(), gateway(), hosts(), scale(), batches(), fresh(),
	}
}

// benchmark is the command of some of a package's benchmarks.
func benchmark(pattern, times, where string, more ...string) []string {
	words := append([]string{"go", "test", "-run", "^$", "-bench", pattern, "-benchtime", times}, more...)
	return append(words, "-timeout", "0", where)
}

// tests is the command of tests that say their figures.
func tests(pattern, where string) []string {
	return []string{"go", "test", "-tags", "full", "-count", "1", "-v", "-timeout", "0", "-run", pattern, where}
}

// verdicts shows how tests ended.
func verdicts(first, rows string) Table {
	return Table{First: first, Rows: rows, Columns: []Column{
		{Title: "passed", Unit: "passed", Yes: true},
		{Title: "time", Unit: "s", Digits: 1, Suffix: " s"},
	}}
}

const (
	second = time.Second
	minute = time.Minute
)

func atMost(bound float64) Asked  { return Asked{Op: "≤", Bound: bound} }
func atLeast(bound float64) Asked { return Asked{Op: "≥", Bound: bound} }
func none() Asked                 { return Asked{Op: "=", Bound: 0} }

// scenarioBounds are what is asked of scenarios: of their time over the optimum, and of how often they are throttled.
func scenarioBounds() (ratios, throttles map[string]Asked) {
	near, storm, slow := Asked{Op: "≤", Bound: 1.04, Goal: 1.02}, Asked{Op: "≤", Bound: 1.08, Goal: 1.05}, atMost(1.10)
	ratios = map[string]Asked{
		"A requests bound": near, "B tokens bound": near, "D silent queue": near, "F faults": {Op: "≤", Bound: 1.04, Goal: 1.03},
		"G limits only in headers": near, "C storm with Retry-After": storm, "C storm without": storm, "E slots, nothing told": storm,
		"H limit halves and doubles": slow, "H limit halves and doubles, in headers": slow, "L long answers": slow, "L long answers streamed": slow,
	}
	throttles = make(map[string]Asked)
	for _, name := range []string{"A requests bound", "B tokens bound", "D silent queue", "E slots, nothing told", "F faults", "G limits only in headers"} {
		throttles[name] = atMost(3)
	}
	return ratios, throttles
}

func optimum() Section {
	ratios, few := scenarioBounds()
	return Section{
		Name: "optimum", Title: "Time against the optimum",
		Text: `Whole batches over real sockets on loopback, against an imitation whose limits are known; L, with answers of 20 s, in virtual time.
A: 900 requests a minute, bursts of 15 s, 30 concurrent, 200 ms, limits told. B: 90,000 tokens a minute, bursts of 10 s, declared
lengths lognormal. C: every call refused from second 3 to 7. D: six are served at once and the others wait without a word.
E: nine at once, bare refusals, nothing told. F: 5 % server errors, 2 % resets, 2 % cut bodies, 1 % always 400. G: A with limits
only in headers. The others are A with one thing changed, as their names say. "No headers" and "daily limit in headers" are measured
against a provider whose bursts last a second, because nobody can know of longer ones.`,
		Steps: []Step{
			{
				Name: "scenarios", Command: benchmark("Scenario", "1x", "."), Quick: benchmark("Scenario/^(A|C)_", "1x", "."), Takes: 12 * minute,
				Read: Benchmarks,
				Tables: []Table{{First: "scenario", Rows: `^BenchmarkScenario/(.*)$`, Columns: []Column{
					{Title: "time", Unit: "ns/op", Scale: 1e-9, Digits: 1, Suffix: " s"},
					{Title: "of the optimum", Unit: "ratio-to-optimum", Digits: 3, Each: ratios},
					{Title: "throttles", Unit: "throttles", Each: few},
					{Title: "lost, doubled or wrong", Unit: "lost", Asked: none()},
				}}},
			},
			{
				Name: "batches", Text: `Whole batches. I: the money is spent after 100 answers. M: two models in one file, one pauses for 20 s. N: two upstreams of
ten calls a second, one is gone from second 5 on; the calls that were open there are tried again by the other.`,
				Command: benchmark("Scenario", "1x", "./batch"), Takes: 2 * minute, Read: Benchmarks,
				Tables: []Table{{First: "scenario", Rows: `^BenchmarkScenario/(.*)$`, Columns: []Column{
					{Title: "calls sent after it was spent", Unit: "sent-after", Asked: none()},
					{Title: "open then", Unit: "in-flight-then"},
					{Title: "the free model, of its optimum", Unit: "free-ratio", Digits: 3},
					{Title: "the paused one", Unit: "paused-ratio", Digits: 3},
					{Title: "of what both upstreams could", Unit: "ratio", Digits: 3},
					{Title: "throttles", Unit: "throttles"},
					{Title: "tried again", Unit: "tried-again"},
				}}},
			},
			{
				Name: "oracle", Text: `A client that knows every limit, over sockets: what is lost to the clock and to sockets alone.`,
				Command: benchmark("Oracle", "1x", "./sim"), Takes: 20 * second, Rounds: 3, Read: Benchmarks,
				Tables: []Table{{First: "client", Rows: `^Benchmark(Oracle)$`, Columns: []Column{
					{Title: "of the optimum", Unit: "ratio-to-optimum", Digits: 3},
					{Title: "throttles", Unit: "throttles"},
				}}},
			},
			loops(),
			questions(),
		},
		Notes: `Anthropic's output tokens are charged as they are produced, and a provider that charges so admits a call while one token is left. The
optimum goes into that debt at the end; Sluice reserves 1.1 × the 95th percentile of recent outputs for each call and does not. That is
the difference in J and in "anthropic whole": about ten seconds of the limit, once per run.`,
	}
}

func loops() Step {
	return Step{
		Name: "loops", Text: `Sluice, told nothing, beside loops that send what they have and wait as the official SDKs do, in virtual time, against five providers
that speak OpenAI's form. "Lost" is what a loop gave up on.`,
		Command: benchmark("Naive", "1x", "."), Takes: minute, Read: Benchmarks,
		Tables: []Table{{First: "provider and client", Rows: `^BenchmarkNaive/(.*)$`, Columns: []Column{
			{Title: "of the optimum", Unit: "ratio-to-optimum", Digits: 2},
			{Title: "throttles", Unit: "throttles"},
			{Title: "lost", Unit: "lost", Each: map[string]Asked{
				"A requests bound/sluice": none(), "B tokens bound/sluice": none(), "C storm with Retry-After/sluice": none(),
				"C storm without/sluice": none(), "refusals are charged/sluice": none()}},
		}}},
	}
}

func questions() Step {
	return Step{
		Name: "questions", Text: `The whole command, with ` + "`sluice sim`" + ` as a program of its own that allows 3,000 requests a minute, 50 at once and bursts of 10 s, of which
nothing is told: 1,319 prompts, as many as the questions of GSM8K's test, or with ` + "`SLUICE_QUESTIONS=FILE`" + ` those of a file of its
form. The burst and the slots are found out, so that some runs are throttled up to three times.`,
		Command: benchmark("Questions", "1x", "./internal/cli"), Takes: 20 * second, Rounds: 3, Read: Benchmarks,
		Tables: []Table{{First: "prompts", Rows: `^BenchmarkQuestions$`, Labels: map[string]string{"BenchmarkQuestions": "1,319"}, Columns: []Column{
			{Title: "time", Unit: "s/run", Digits: 1, Suffix: " s"},
			{Title: "optimum", Unit: "s/optimum", Digits: 1, Suffix: " s"},
			{Title: "of the optimum", Unit: "s/run", Over: "", Below: "s/optimum", Digits: 3},
			{Title: "throttles", Unit: "throttles"},
			{Title: "lost", Unit: "lost", Asked: none()},
		}}},
	}
}

func admission() Section {
	shapes := func(title, of, over string) Column {
		return Column{Title: title, Unit: "ns/op", Of: of, Over: over, Digits: 1, Suffix: map[bool]string{true: " ×", false: " ns"}[over != ""]}
	}
	return Section{
		Name: "admission", Title: "Admission",
		Text: `What a permit costs that is taken and given back, beside x/sync's semaphore in the same run. About 90 ns of the Scheduler's are two readings
of the clock.`,
		Steps: []Step{
			{
				Name: "scheduler", Text: `"Full" has three budgets, eight tenants and an Observer.`,
				Command: benchmark("Scheduler|Semaphore", "20000x", ".", "-count", "5"), Quick: benchmark("Scheduler|Semaphore", "2000x", "."), Takes: 30 * second,
				Read: Benchmarks,
				Tables: []Table{{First: "", Rows: `^BenchmarkSchedulerPlain/(.*)$`, Columns: []Column{
					shapes("semaphore", "BenchmarkSemaphore/*", ""), {Title: "allocs", Unit: "allocs/op", Of: "BenchmarkSemaphore/*"},
					shapes("Scheduler", "", ""), {Title: "allocs", Unit: "allocs/op"}, shapes("of the semaphore", "", "BenchmarkSemaphore/*"),
					shapes("full", "BenchmarkScheduler/*", ""), {Title: "allocs", Unit: "allocs/op", Of: "BenchmarkScheduler/*"},
				}}},
			},
			{
				Name: "wait", Text: `How even waits are: 256 callers on 8 slots that are held for a millisecond.`,
				Command: benchmark("Wait", "3x", ".", "-count", "3"), Takes: 20 * second, Read: Benchmarks,
				Tables: []Table{{First: "waits", Rows: `^BenchmarkWait/(.*)$`, Columns: []Column{
					{Title: "99th percentile, of the median", Unit: "p99/p50", Digits: 3, Suffix: " ×", Spread: true},
					{Title: "of the semaphore's", Unit: "p99/p50", Over: "BenchmarkWait/semaphore", Digits: 2, Suffix: " ×"}}}},
			},
			{
				Name: "gate", Text: `The gate alone, without a lock, a clock or a goroutine.`,
				Command: benchmark("Gate", "100000x", "./internal/gate", "-count", "5"), Takes: 20 * second, Read: Benchmarks,
				Tables: []Table{{First: "gate", Rows: `^BenchmarkGate/(.*)$`, Columns: []Column{
					{Title: "time", Unit: "ns/op", Digits: 0, Suffix: " ns", Spread: true}, {Title: "allocs", Unit: "allocs/op", Asked: none()}}}},
			},
			{
				Name: "slot", Text: `A slot by way of a Member of a pool, of the Scheduler and of a semaphore; "crowd" is 256 goroutines that share 8.`,
				Command: benchmark("Slot", "10000x", "./pool", "-count", "20"), Quick: benchmark("Slot", "10000x", "./pool"), Takes: 30 * second, Read: Benchmarks,
				Tables: []Table{{First: "taken from", Rows: `^BenchmarkSlot/(.*)$`, Columns: []Column{
					{Title: "time", Unit: "ns/op", Digits: 1, Suffix: " ns", Spread: true},
					{Title: "of the Scheduler's", Unit: "ns/op", Over: "BenchmarkSlot/scheduler", Digits: 2, Suffix: " ×"},
					{Title: "allocs", Unit: "allocs/op", Each: map[string]Asked{"member": atMost(1)}}}}},
			},
		},
	}
}

func million() Section {
	plain := func(name, benchmarkName string, takes time.Duration) Step {
		pattern := "(^BenchmarkMillionPlain$)|(^" + benchmarkName + "$)"
		return Step{Name: name, Command: benchmark(pattern, "1x", "./batch"), Briefly: []string{"SLUICE_ITEMS=50000"}, Takes: takes, Read: Benchmarks,
			Tables: []Table{{First: "a million items", Rows: `^Benchmark(Million.*)$`, Labels: map[string]string{
				"Million": "lines, in order of completion", "MillionInOrder": "`--order input`", "MillionRows": "a table with a template",
				"MillionPlain/each": "each line read and written, a write a line, without a call", "MillionPlain/buffered": "the same, buffered",
			}, Columns: []Column{
				{Title: "items a second", Unit: "items/s"},
				{Title: "of the plain copy, a write each", Unit: "items/s", Over: "BenchmarkMillionPlain/each", Digits: 3},
				{Title: "memory at the peak", Unit: "peak-MiB", Suffix: " MiB", Asked: atMost(128)},
			}}}}
	}
	deduped := func(name, sets string, takes time.Duration) Step {
		return Step{Name: name, Command: benchmark("MillionTwins/"+sets, "1x", "./batch"), Briefly: []string{"SLUICE_ITEMS=50000"}, Takes: takes, Read: twins, Tables: []Table{twinsTable()}}
	}
	return Section{
		Name: "million", Title: "A million items",
		Text: `Scan, parse, estimate, permit (requests, tokens and slots limited), an answer of the imitation in the same process, usage parsed, journal on
disk; beside it the same file read and written without a call. Each in a process of its own, so that its peak of memory is its own.`,
		Steps: []Step{
			plain("lines", "BenchmarkMillion", 60*second), plain("order", "BenchmarkMillionInOrder", 60*second), plain("rows", "BenchmarkMillionRows", 70*second),
			deduped("dedupe", "unlike", 100*second), deduped("hundreds", "hundreds", 40*second),
		},
		Notes: `The three largest parts of the processors' time are the imitation itself (about a fifth: it reads the request, counts it and writes an
answer), memory that is allocated and collected, and the write of a line for each result, which is what makes a kill cost no more than what
was open. Answers, permits and lines are taken from lists for use again where they are ours; what is left are ` + "`net/http`" + `'s requests, answers and
headers. A larger heap before each collection spares 15 % of the time and doubles the memory.`,
	}
}

// twins are the figures of a benchmark of --dedupe: how long the whole run and the second one took.
func twins(output string) []Figure {
	return All(Benchmarks, Said(`^(?P<items>\d+) items: opened in (?P<opened>\S+), run in (?P<run>\S+), 0 recorded before, (?P<calls>\d+) calls, (?P<twins>\d+) twins$`))(output)
}

func twinsTable() Table {
	return Table{First: "lines", Rows: `^BenchmarkMillionTwins/(.*)$`, Labels: map[string]string{
		"unlike": "all unlike, and again with half of the output cut off", "hundreds": "10,000 requests, each on a hundred lines, and again with half cut off"},
		Columns: []Column{
			{Title: "calls", Unit: "calls"},
			{Title: "items a second, of the whole run", Unit: "items", Below: "run"},
			{Title: "memory at the peak", Unit: "peak-MiB", Suffix: " MiB", Asked: atMost(128)},
		}}
}
