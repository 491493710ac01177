package bench

import "time"

// Sections about many programs, hosts and providers, and about the first minutes.

func gateway() Section {
	return Section{
		Name: "serve", Title: "Gateway",
		Steps: append(loads(), promises()...),
		Notes: `The optimum of output may leave a debt at its end, which no client that goes on can.

With one connection, most of the time is Go's handing over between goroutines and their threads, of which the gateway has as many as the
proxy: on one thread (` + "`GOMAXPROCS=1`" + `) it took 0.77 to 0.84 of the proxy's time, and at 64 connections 0.49 to 0.69. Of the long streams, 260
events that the origin flushes one by one, 45 % is reading and writing, which is a third less than the proxy's (1.35 s for 6,000 calls
beside 1.79 s), and the accounting of each event takes that up again. Parts that come faster than one in a millisecond are passed on
together, each part is one write, and events that differ in their text alone are not parsed. The library's proxy cut up to one in twenty
of the streams and long answers short, at one connection; no call may fail through the gateway.`,
	}
}

// loads are the gateway's steps of how much comes through, at what cost, and to whom.
func loads() []Step {
	return []Step{
		{
			Name: "overhead", Text: `What the gateway costs beside ` + "`httputil.ReverseProxy`" + `, as the library has it and with a transport that keeps as many connections as there are calls (the usual
one keeps two), from and to programs of their own on the same cores. The gateway has a tenant with limits, those of the provider,
metrics, traffic and the accounting of tokens on. Medians of five rounds, each in turn.`,
			Command: benchmark("Gateway$", "1x", "./internal/cli"), Quick: benchmark("Gateway$/^(plain|sse)-1$/^64$", "1x", "./internal/cli"), Takes: 7 * minute, Read: Benchmarks,
			Tables: []Table{{First: "answers in KB/connections", Rows: `^BenchmarkGateway/(.*)$`, Columns: []Column{
				{Title: "CPU a call", Unit: "µs/call", Suffix: " µs"}, {Title: "CPU, of the proxy's", Unit: "proxy-cpu", Digits: 2, Asked: atMost(0.75)}, {Title: "of the tuned one's", Unit: "tuned-cpu", Digits: 2},
				{Title: "calls a second", Unit: "calls/s"}, {Title: "calls/s, of the proxy's", Unit: "proxy-rate", Digits: 2, Asked: atLeast(1.25)}, {Title: "of the tuned one's", Unit: "tuned-rate", Digits: 2},
				{Title: "memory", Unit: "MiB", Suffix: " MiB"}, {Title: "memory, of the proxy's", Unit: "proxy-memory", Digits: 2, Asked: atMost(1.3)}}}},
		},
		{
			Name: "load", Text: `Four times what the provider allows comes by the clock, from four tenants of the same weight of which two have twenty sessions each, in virtual
time: three minutes where output binds, 90 s else. *Of the quota*: what was used while calls came, of what the buckets held and was
refilled meanwhile.`,
			Command: tests("FourTimes", "./gateway"), Takes: 60 * second,
			Read: All(Said(`^(?P<calls>\d+) calls, (?P<answered>\d+) answered, .*?, (?P<throttled>\d+) of the provider's 429, (?P<used>[\d.]+) of the quota, (?P<optimum>[\d.]+) of the optimum`), Verdicts),
			Tables: []Table{{First: "what binds, how limits are known", Rows: `^TestFourTimesTheLoadIsHeldBackAndTheQuotaUsed/(.*)$`, Sorted: true, Columns: []Column{
				{Title: "calls", Unit: "calls"}, {Title: "answered", Unit: "answered", Below: "calls", Digits: 3, Asked: Asked{Op: "=", Bound: 1}},
				{Title: "of the quota", Unit: "used", Digits: 3, Asked: atLeast(0.97)}, {Title: "of the optimum", Unit: "optimum", Digits: 3},
				{Title: "the provider's 429", Unit: "throttled"}}}},
		},
		{
			Name: "sockets", Text: `The same over sockets, the imitation, the gateway and the clients in programs of their own, 15 s of load. Jain's index is over the four tenants.`,
			Command: benchmark("GatewayLoad", "1x", "./internal/cli"), Takes: 5 * minute, Read: Benchmarks,
			Tables: []Table{{First: "what binds", Rows: `^BenchmarkGatewayLoad/(.*)$`, Columns: []Column{
				{Title: "calls", Unit: "calls"}, {Title: "failed", Unit: "failed", Asked: none()}, {Title: "of the quota", Unit: "of-the-quota", Digits: 3, Asked: atLeast(0.97)},
				{Title: "the provider's 429", Unit: "upstream-429"}, {Title: "Jain's index", Unit: "jain", Digits: 3, Asked: atLeast(0.95)}}}},
		},
		{
			Name: "shares", Text: `Shares of what binds, of three tenants whose calls are of unlike sizes (400, 900 and 150 tokens declared, 64 used), by weights of 1:2:4 (0.143, 0.286,
0.571) and of 1:1:1, once they all wait. The test allows each share 5 %.`,
			Command: tests("TestSharesOfWhatBinds", "./gateway"), Takes: 60 * second,
			Read: All(Said(`shares map\[\S+?:(?P<one>[\d.]+) \S+?:(?P<two>[\d.]+) \S+?:(?P<four>[\d.]+)\], Jain's index (?P<jain>[\d.]+)$`), Verdicts),
			Tables: []Table{
				{First: "what binds, weights", Rows: `^TestSharesOfWhatBindsAreByWeight/(.*\[1 2 4\])$`, Sorted: true, Columns: []Column{{Title: "first", Unit: "one", Digits: 3}, {Title: "second", Unit: "two", Digits: 3},
					{Title: "third", Unit: "four", Digits: 3}, {Title: "each within 5 %", Unit: "passed", Yes: true}}},
				{First: "what binds, weights", Rows: `^TestSharesOfWhatBindsAreByWeight/(.*\[1 1 1\])$`, Sorted: true, Columns: []Column{{Title: "first", Unit: "one", Digits: 3}, {Title: "second", Unit: "two", Digits: 3},
					{Title: "third", Unit: "four", Digits: 3}, {Title: "Jain's index", Unit: "jain", Digits: 3, Asked: atLeast(0.95)}}},
			},
		},
	}
}

// promises are its steps of what it keeps to meanwhile.
func promises() []Step {
	return []Step{
		{
			Name: "priority", Text: `A person's call of high priority while 500 of a batch wait, where one goes each second; and four clients of low priority beside sixty of a high one.`,
			Command: tests("Interactive|Starved", "./gateway"), Takes: 15 * second,
			Read: All(Said(`^longest (?P<ms>\d+) ms$`), Said(`^map\[high:\d+ low:(?P<low>\d+)\] of (?P<all>\d+), longest wait of a low one (?P<longest>\S+)$`), Verdicts),
			Tables: []Table{
				{First: "what binds", Rows: `^TestAnInteractiveCallWaitsForTwoTurnsOfARateAtMost/(.*)$`, Sorted: true, Columns: []Column{{Title: "longest wait", Unit: "ms", Suffix: " ms", Asked: atMost(2100)}}},
				{First: "low priority", Rows: `^(TestLowPriorityIsNotStarved)$`, Columns: []Column{{Title: "its calls", Unit: "low", Asked: atLeast(10)}, {Title: "of all", Unit: "all"}, {Title: "longest wait", Unit: "longest", Suffix: " s", Asked: atMost(180)}}},
			},
		},
		{
			Name: "disconnects", Text: `Clients that disconnect at any instant, streams, early answers, drained ones and bodies on disk among them: permits, goroutines, descriptors and files are
what they had been, or the test fails.`,
			Command: tests("Disconnect", "./gateway"), Takes: 30 * second,
			Read: All(Said(`^(?P<clients>\d+) clients left, after which it took (?P<back>\S+) until all was back$`), Verdicts),
			Tables: []Table{{First: "test", Rows: `^(TestClientsThatDisconnectLeaveNothingBehind)$`, Columns: []Column{{Title: "clients that left", Unit: "clients"},
				{Title: "all was back after", Unit: "back", Scale: 1000, Suffix: " ms"}, {Title: "took", Unit: "s", Digits: 1, Suffix: " s"}, {Title: "passed", Unit: "passed", Yes: true}}}},
		},
		{
			Name: "budgets", Text: `A gateway with 16 calls open is killed five times: its tenant's account is never below what the provider had answered.`,
			Command: tests("BudgetsSurvive", "./internal/cli"), Takes: 20 * second, Read: Verdicts, Tables: []Table{verdicts("test", `^(Test[^/]+)$`)},
		},
		{
			Name: "refusals", Text: `Refusals say when a call's turn comes: how far that was from the turn that it would have had. None counts as a failure of the upstream.`,
			Command: tests("ARefusal|AFullQueue", "./gateway"), Takes: 10 * second, Read: All(Said(`^(?P<off>-?[\d.]+m?s)$`), Verdicts),
			Tables: []Table{{First: "queue full, with", Rows: `^TestAFullQueueSaysWhenItsTurnWouldHaveCome/(.*)$`, Sorted: true, Columns: []Column{{Title: "off by", Unit: "off", Digits: 3, Suffix: " s"},
				{Title: "passed", Unit: "passed", Yes: true}}}, verdicts("test", `^(TestARefusal[^/]+)$`)},
		},
		{
			Name: "settings", Text: `Settings are read again 20 times under a load that wants more: no call is lost, new slots are in use at once.`,
			Command: tests("LimitsChangeAtOnce", "./internal/cli"), Takes: 15 * second, Read: All(Said(`^(?P<calls>\d+) calls during 20 readings$`), Verdicts),
			Tables: []Table{{First: "test", Rows: `^(TestLimitsChangeAtOnceUnderLoad)$`, Columns: []Column{{Title: "calls", Unit: "calls"}, {Title: "passed", Unit: "passed", Yes: true}}}},
		},
		{
			Name: "clients", Text: `Official clients of Go, Python and Node through the gateway, unchanged: each makes 60 calls, of which the provider alone would refuse some fifty. ` + "`.ci/run`" + ` has how they are
installed.`,
			Needs: []string{"$SLUICE_TEST_CLIENTS", "python3", "node"}, Command: tests("OfficialClients", "./internal/cli"), Takes: 90 * second,
			Read: All(Said(`^(?P<answered>\d+) answered, (?P<refused>\d+) refused by the provider, in (?P<took>[\d.]+) s$`), Verdicts),
			Tables: []Table{
				{First: "client", Rows: `^TestOfficialClientsSeeNoRefusalsOfTheProvider/(.*)$`, Sorted: true, Columns: []Column{{Title: "answered", Unit: "answered"}, {Title: "refused by the provider", Unit: "refused", Asked: atMost(1)}, {Title: "took", Unit: "took", Digits: 1, Suffix: " s"}}},
				verdicts("test", `^(TestOfficialClients[^/]+)$`)},
		},
	}
}

func hosts() Section {
	return Section{
		Name: "hosts", Title: "Several hosts",
		Text:  `By way of a real Redis. The provider refuses whatever is above its limit.`,
		Steps: append(sharing(), carrying()...),
		Notes: `The added wait's p99 is one or two moments in which nothing was scheduled, on two cores that also have the provider, the engine and four
processes; in virtual time it is 0.9 ms ([scale.md](scale.md)).`,
	}
}

// redis are the programs of an engine.
func redis() []string { return []string{"redis-server", "redis-cli"} }

// sharing are the steps of one quota that several programs share.
func sharing() []Step {
	return []Step{
		{
			Name: "members", Text: `Four processes share one limit: a bucket of 2 calls (50 RPM) or of a second (30,000 RPM), and slots; four minutes and one. At 50 RPM most of the script calls are
heartbeats.`,
			Needs: redis(), Command: benchmark("Members", "1x", "./cluster"), Quick: benchmark("Members/^30", "1x", "./cluster"), Takes: 11 * minute, Read: Benchmarks,
			Tables: []Table{{First: "limits and demand", Rows: `^BenchmarkMembers/(.*)$`, Columns: []Column{
				{Title: "of the quota", Unit: "used", Digits: 3, Asked: atLeast(0.97)},
				{Title: "Jain's index", Unit: "Jain", Digits: 3, Each: map[string]Asked{"50 RPM and 5 slots, even": atLeast(0.97), "30,000 RPM, even": atLeast(0.97)}},
				{Title: "the provider's 429", Unit: "throttles", Asked: none()}, {Title: "most in a minute", Unit: "most-a-minute"}, {Title: "most open", Unit: "most-open"},
				{Title: "script calls a start", Unit: "scripts/start", Digits: 2, Each: map[string]Asked{"30,000 RPM, even": atMost(1.2), "30,000 RPM, 32:1:0:0": atMost(1.2)}}}}},
		},
		{
			Name: "wait", Text: `Calls come at random, 400 a second at four processes, 80 % of 30,000 RPM; beside them the bare round trip of a script that does nothing, at the same load.`,
			Needs: redis(), Command: benchmark("AddedWait", "1x", "./cluster"), Takes: 160 * second, Rounds: 2, Read: Benchmarks,
			Tables: []Table{{First: "", Rows: `^BenchmarkAddedWait/(.*)$`, Labels: map[string]string{"bare": "bare `EVALSHA`", "bare#01": "bare `EVALSHA`, again", "ledger": "the ledger", "ledger#01": "the ledger, again"}, Columns: []Column{
				{Title: "p50", Unit: "p50-µs", Scale: 1e-3, Digits: 2, Suffix: " ms"}, {Title: "p99", Unit: "p99-µs", Scale: 1e-3, Digits: 2, Suffix: " ms", Spread: true},
				{Title: "p99, of the bare one's", Unit: "p99-µs", Over: "BenchmarkAddedWait/bare", Digits: 1, Suffix: " ×"},
				{Title: "script calls a start", Unit: "scripts/start", Digits: 2, Each: map[string]Asked{"ledger": atMost(1.2), "ledger#01": atMost(1.2)}}, {Title: "the provider's 429", Unit: "throttles", Asked: none()}}}},
		},
		{
			Name: "accidents", Text: `Accidents befall a batch of 2,400 items at four workers and 40 slots, with answers in 0.3 s.`,
			Needs: redis(), Command: benchmark("Hosts$", "1x", "./internal/cli"), Takes: 4 * minute, Read: Benchmarks,
			Tables: []Table{{First: "accident", Rows: `^BenchmarkHosts/(.*)$`, Columns: []Column{
				{Title: "lost", Unit: "lost", Asked: none()}, {Title: "recorded twice", Unit: "recorded-twice", Asked: none()}, {Title: "failed", Unit: "failed", Asked: none()},
				{Title: "called again", Unit: "called-again"}, {Title: "most open, beside the slots", Unit: "above-the-slots", Asked: atMost(0)},
				{Title: "slots back after", Unit: "slots-back-s", Digits: 1, Suffix: " s"}, {Title: "time", Unit: "s", Digits: 0, Suffix: " s"}}}},
		},
		{
			Name: "gateways", Text: `Two gateways and a run on one lane of 3,000 RPM. The run and a tenant of the first gateway want more than there is, another tenant of each gateway calls four
times a second. Above 1.0 of the quota is what its bucket held.`,
			Needs: redis(), Command: benchmark("GatewaysAndBatch", "1x", "./internal/cli"), Takes: 80 * second, Read: Benchmarks,
			Tables: []Table{{First: "", Rows: `^Benchmark(GatewaysAndBatch)$`, Labels: map[string]string{"GatewaysAndBatch": "two gateways and a run"}, Columns: []Column{
				{Title: "of the quota", Unit: "of-the-quota", Digits: 3, Asked: atLeast(0.97)}, {Title: "the provider's 429", Unit: "upstream-429", Asked: none()},
				{Title: "interactive wait, median", Unit: "interactive-p50-ms", Suffix: " ms"}, {Title: "95th percentile", Unit: "interactive-p95-ms", Suffix: " ms"}, {Title: "its calls failed", Unit: "interactive-failed", Asked: none()}}}},
		},
	}
}

// carrying are those of what the queue and the ledger take.
func carrying() []Step {
	return []Step{
		{
			Name: "items", Text: `Calls that take no time: the provider, the engine, the collector and four workers all on the same cores.`,
			Needs: redis(), Command: benchmark("HostsTrivialCalls", "1x", "./internal/cli"), Takes: 30 * second, Rounds: 3, Read: Benchmarks,
			Tables: []Table{{First: "", Rows: `^Benchmark(HostsTrivialCalls)$`, Labels: map[string]string{"HostsTrivialCalls": "30,000 items"}, Columns: []Column{
				{Title: "items a second", Unit: "items/s", Spread: true}, {Title: "lost", Unit: "lost", Asked: none()}, {Title: "recorded twice", Unit: "recorded-twice", Asked: none()}}}},
		},
		{
			Name: "queue", Text: `A million tasks of 300 bytes through the queue alone, beside plain ` + "`XADD`, `XREADGROUP` and `XACK`" + ` of the same payloads with the same pipelining, which know no
results, leases or first wins.`,
			Needs: redis(), Engine: true, Command: benchmark("Queue", "1000000x", "./cluster"), Quick: benchmark("Queue", "60000x", "./cluster"), Takes: 90 * second, Read: Benchmarks,
			Tables: []Table{{First: "", Rows: `^BenchmarkQueue/(.*)$`, Columns: []Column{
				{Title: "tasks a second", Unit: "tasks/s"}, {Title: "of the plain commands", Unit: "tasks/s", Over: "BenchmarkQueue/plain", Digits: 3},
				{Title: "memory of the engine, more at most", Unit: "MiB-more", Digits: 1, Suffix: " MiB"}}}},
		},
		{
			Name: "script", Text: `The engine's own time for a script with one ask and one settlement, beside members that wait, and for a script that does nothing.`,
			Needs: redis(), Engine: true, Command: benchmark("LedgerScript", "5000x", "./cluster"), Takes: 20 * second, Rounds: 3, Read: Benchmarks,
			Tables: []Table{{First: "", Rows: `^BenchmarkLedgerScript/(.*)$`, Columns: []Column{
				{Title: "script", Unit: "script-µs", Suffix: " µs", Spread: true}, {Title: "one that does nothing", Unit: "bare-µs", Digits: 1, Suffix: " µs"}}}},
		},
	}
}

func scale() Section {
	return Section{
		Name: "scale", Title: "Many members, simulated",
		Text: `The cases of [scale.md](scale.md), which says what they mean: real gates on the model that the script is tested against, in virtual time. In no minute
may more come than the limit and one bucket.`,
		Steps: []Step{{
			Name: "cases", Command: benchmark("Scale", "1x", "./cluster"), Quick: benchmark("Scale/^4_members", "1x", "./cluster"), Takes: 6 * minute,
			Read: Cells("name", "used", "jain", "p50", "p99", "longest", "scripts", "vain", "wakes", "refused", "busy", "minute"),
			Tables: []Table{{First: "case", Rows: `^(.*)$`, Columns: []Column{
				{Title: "used", Unit: "used", Digits: 3}, {Title: "Jain", Unit: "jain", Digits: 3}, {Title: "wait p50", Unit: "p50", Digits: -1, Suffix: " ms"}, {Title: "p99", Unit: "p99", Digits: -1, Suffix: " ms"},
				{Title: "longest", Unit: "longest", Digits: 1, Suffix: " s"}, {Title: "scripts a start", Unit: "scripts", Digits: 2}, {Title: "of them in vain", Unit: "vain", Digits: 2},
				{Title: "wakes", Unit: "wakes"}, {Title: "refused", Unit: "refused"}, {Title: "engine busy", Unit: "busy", Digits: 1, Suffix: " %"}, {Title: "most in a minute/allowed", Unit: "minute"}}}},
		}},
	}
}

func batches() Section {
	return Section{
		Name: "batches", Title: "Batch APIs",
		Text: `Runs by way of an imitation of each provider's Batch API.`,
		Steps: []Step{
			{
				Name: "kills", Text: `Runs are killed at 20 instants, before and after an upload, a creation, a look and a fetch took effect, and while results are recorded: no line runs twice, none
is lost, each id is recorded once, or the command fails. Most of the time is the half minute in which a batch of unknown fate is looked
for. Beside Anthropic's, which keep no names, another's batch of the same size is made at every kill.`,
				Command: benchmark("ViaKills", "1x", "./internal/cli"), Takes: 150 * second, Read: Benchmarks,
				Tables: []Table{{First: "form", Rows: `^BenchmarkViaKills/(.*)$`, Columns: []Column{{Title: "time", Unit: "ns/op", Scale: 1e-9, Digits: 1, Suffix: " s"}}}},
			},
			{
				Name: "lines", Text: `120,000 lines with batches of 5,000, little room for enqueued tokens, 1 % of lines that fail, and a batch of which half expires: every id once, nothing paid for
twice, or the command fails. The time of the plain copy is that of reading and writing the same file.`,
				Command: benchmark("ViaLines", "1x", "./internal/cli", "-v"), Takes: 4 * minute,
				Read: All(Benchmarks, Said(`^(?P<batches>\d+) batches, of which (?P<full>\d+) had no room; (?P<answered>\d+) lines answered, (?P<failed>\d+) failed, (?P<expired>\d+) expired$`)),
				Tables: []Table{{First: "form", Rows: `^BenchmarkViaLines/(.*)$`, Columns: []Column{
					{Title: "time", Unit: "s/run", Digits: 1, Suffix: " s"}, {Title: "lines/s", Unit: "lines/s"}, {Title: "plain copy", Unit: "s/copy", Digits: 2, Suffix: " s"},
					{Title: "memory", Unit: "MiB-peak", Suffix: " MiB"}, {Title: "batches", Unit: "batches"}, {Title: "without room", Unit: "full"}, {Title: "lines that expired", Unit: "expired"}}}},
			},
		},
		Notes: `Most of the time is waiting for batches to end and for room; Mistral's refusals say nothing of when there is room, so that waits double.`,
	}
}

func fresh() Section {
	one := func(name, text string, takes time.Duration, words ...string) Step {
		return Step{Name: name, Text: text, Command: words, Fresh: true, Takes: takes, Tables: []Table{{First: "", Rows: `^(the command)$`, Columns: []Column{
			{Title: "time", Unit: "s", Digits: 1, Suffix: " s"}}}}}
	}
	return Section{
		Name: "fresh", Title: "The first minutes",
		Text: `The README's commands on a machine with Go and nothing else: a home of their own, empty caches of modules and builds. What it takes to fetch the modules is in the time.`,
		Steps: []Step{
			one("run", `The first command.`, minute, "sh", "-c", `go run ./cmd/sluice run --provider sim examples/prompts.jsonl -o "$HOME/out.jsonl"`),
			one("test", `The tests.`, 4*minute, "go", "test", "./..."),
		},
	}
}
