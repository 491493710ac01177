package agents_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/proc/agents"
)

func TestEveryNoticeIsOneAndNoAnswerIs(t *testing.T) {
	claude := known(t, "claude")
	for notice, want := range map[string]sluice.Kind{
		"You've hit your limit · resets 4pm (America/Los_Angeles)":                                                 sluice.UsageWindow,
		"You’ve hit your session limit · resets 1:10am (UTC)":                                                      sluice.UsageWindow,
		"You've hit your weekly limit · resets Apr 3, 6am (America/Los_Angeles)":                                   sluice.UsageWindow,
		"You've hit your Opus limit · resets 3pm (UTC)":                                                            sluice.UsageWindow,
		"You're out of extra usage · resets 3pm (UTC)":                                                             sluice.UsageWindow,
		"Spending cap reached resets 6pm":                                                                          sluice.UsageWindow,
		"5-hour limit reached ∙ resets 4pm":                                                                        sluice.UsageWindow,
		"Session limit reached ∙ resets 4pm\n     /upgrade to increase your usage limit.":                          sluice.UsageWindow,
		"Opus weekly limit reached ∙ resets Nov 10, 12am":                                                          sluice.UsageWindow,
		"Claude AI usage limit reached|1772380800":                                                                 sluice.UsageWindow,
		"Claude usage limit reached. Your limit will reset at 3pm (America/Bogota).":                               sluice.UsageWindow,
		"API Error: Rate limit reached":                                                                            sluice.RateLimit,
		"API Error: Server is temporarily limiting requests (not your usage limit) · Rate limited":                 sluice.RateLimit,
		"API Error: 529 {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}": sluice.Overloaded,
		"API Error: 500 Internal server error":                                                                     sluice.ServerError,
		"Please run /login · API Error: 401 {\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"message\":\"Invalid bearer token\"}}": sluice.Auth,
		"API Error (Connection error.)":         sluice.Network,
		"API Error: Request timed out.":         sluice.Timeout,
		"Unable to connect to API (ECONNRESET)": sluice.Network,
		"Credit balance is too low":             sluice.QuotaExhausted,
		"Invalid API key · Please run /login":   sluice.Auth,
		"Not logged in · Please run /login":     sluice.Auth,
		"Execution error":                       sluice.CommandFailed,
		"Error: Reached max turns (3)":          sluice.CommandFailed,
		"Prompt is too long":                    sluice.ContextLength,
	} {
		for _, c := range []*agents.CLI{claude, nil} {
			if m := c.Read(agents.End{Stdout: text(notice + "\n")}, noon); m.Kind != want {
				t.Errorf("%q: %v, want %v (%s)", notice, m.Kind, want, m.Text)
			}
		}
		for _, c := range []string{"codex", "gemini", "aider"} { // which say it elsewhere
			if m := known(t, c).Read(agents.End{Stdout: text(notice)}, noon); m.Kind != sluice.OK {
				t.Errorf("%s: %q: %v", c, notice, m.Kind)
			}
		}
		for _, answer := range []string{
			"It means: " + notice, notice + " That is what it prints.", notice + "\n\nis what it prints", notice + "\n\nThis is what it prints.", notice + "\n\nClaude prints that.", `"` + notice + `"`, "The list is short\n\n- " + notice, "> " + notice + "\n\nYour test expects that.",
		} {
			if m := claude.Read(agents.End{Stdout: text(answer)}, noon); m.Kind != sluice.OK {
				t.Errorf("the answer %q: %v", answer, m.Kind)
			}
		}
	}
	for _, answer := range []string{
		"API Error: 429 means that you send too much.", "You've hit your limit when nothing is left.", "Rate limit reached", "429", "rate_limit",
		"You've hit your usage limit of words; resets are at midnight, and so on and so on and so on and so on and so on and so on and so on",
		"Credit balance is too low to buy that.", "Weekly limit reached by the 4th: yes. Session limit: no.",
	} {
		if m := claude.Read(agents.End{Stdout: text(answer)}, noon); m.Kind != sluice.OK {
			t.Errorf("the answer %q: %v (%s)", answer, m.Kind, m.Text)
		}
	}
}

const fourPM = "You've hit your limit · resets 4pm (America/Los_Angeles)"

// What an agent or a test's report says of limits is no rejection, wherever it is written.
func TestAReportAboutLimitsIsNoRejection(t *testing.T) {
	for name, report := range map[string]string{
		"a task about limits": "I changed client.py so that HTTP 429 Too Many Requests is retried.\nThe test expects \"Rate limit exceeded. Please try again in 1s.\" to be raised.\n" +
			"FAILED tests/test_client.py::test_retry - AssertionError: expected RateLimitError, got None\n1 failed, 12 passed in 0.41s",
		"a quotation at its end": "Two tests of the client still fail.\nThey expect \"Rate limit exceeded. Please try again in 1s.\"",
		"one that is introduced": "Two tests of the client still fail. They expect this text:\n\n    Rate limit exceeded. Please try again in 1s.",
		"a fence":                "I could not fix the client. The server answers\n\n```\nError: 429 Too Many Requests\n```",
		"a response in a fence":  "The log has\n\n```\nHTTP/1.1 429 Too Many Requests\nretry-after: 30\n\n{\"error\":{\"type\":\"rate_limit_error\",\"message\":\"slow down\"}}\n```\n\nI could not fix it.",
		"a list":                 "## Summary\n\n- Added handling of `429 Too Many Requests`\n- Rate limit exceeded. Please try again in 1s.\n\nThe tests do not pass yet.",
		"a notice and more":      fourPM + "\nis printed by the agent. My test for that fails.\n1 failed",
		"a notice between":       "I looked at this notice.\n\n" + fourPM + "\n\nThe parser does not know it. My test for that fails.",
		"an overload":            "The server in the test answers 529 Overloaded, and the client does not retry.\nError: expected 2 calls, got 1",
		"a key":                  "The test fails with Invalid API key, because the mock has none.\nError: expected 200, got 401 in tests/auth.test.js",
		"money":                  "I wrote a test for insufficient_quota. It still fails: You exceeded your current quota, please check your plan and billing details.\n1 failed",
		"one line":               "The retry test still fails: the client got 'Rate limit exceeded. Please try again in 1s.' from the mock.",
		"one line with a label":  "Error: the retry test still fails with 429 Too Many Requests from the mock server.",
		"a transcript":           "exec\nbash -lc ./run\nERROR: 429 Too Many Requests\ncodex\nThe server limits us. I will fix the client.\nexec\nmake test\ncodex\nThe tests still fail.\ntokens used\n4,120",
		"a retry that went well": "Attempt 1 failed with status 429. Retrying with backoff...\nLoaded 3 files.\nError: tests failed",
		"a log, and more":        "2026-01-01 12:00:00 ERROR openai.RateLimitError: Error code: 429\n2026-01-01 12:00:05 INFO retried well\nI wrote the report.\nThe tests do not pass.",
		"pytest":                 "    def test_retry():\n>       client.complete()\nE       openai.RateLimitError: Rate limit exceeded. Please try again in 1s.\n\ntests/test_client.py:14: RateLimitError\n=== 1 failed, 12 passed in 0.41s ===",
		"unittest":               "ERROR: test_retry (tests.TestClient)\n-----\nTraceback (most recent call last):\n  File \"t.py\", line 3, in test_retry\n    client.complete()\nopenai.RateLimitError: Rate limit exceeded. Please try again in 1s.\n\n-----\nRan 13 tests in 0.41s\n\nFAILED (errors=1)",
		"jest":                   "FAIL src/client.test.js\n  ● retries › 429\n\n    Error: Rate limit exceeded. Please try again in 1s.\n\n      at Object.<anonymous> (src/client.test.js:12:9)\n\nTests:       1 failed, 3 passed, 4 total",
		"mocha":                  "  3 passing (12ms)\n  1 failing\n\n  1) retries on 429:\n     Error: Rate limit exceeded. Please try again in 1s.\n      at Context.<anonymous> (test.js:5:11)\n",
		"go test":                "--- FAIL: TestRetry (0.00s)\n    client_test.go:31: Error: 429 Too Many Requests: rate limit exceeded, try again in 1s\nFAIL\nexit status 1",
		"an indented error":      "Failing assertion\n\n    Error: Rate limit exceeded. Please try again in 1s.\n\nsee tests/x.py line 3",
		"one in lower case":      "got unexpected output\n  Error: 429 Too Many Requests\nwhile running the suite",
		"the output of a tool":   "Ran make test\n  └ Error: 429 Too Many Requests",
		"prose behind one":       "Error: Rate limit exceeded. Please try again in 1s.\n\nabove is what the mock raises, tests need an update",
		"prose on its line":      "Rate limit exceeded. Please try again in 1s. is the message I changed; the build fails because of a missing import.",
		"make":                   "Rate limit exceeded. Please try again in 1s.\nmake: *** [test] Error 1",
		"make, without a stop":   "Error: 429 Too Many Requests\nmake[1]: *** [test] Error 1",
		"a count":                "Error: 429 Too Many Requests\n1 test failed",
		"mocha, without a colon": "  1) retry\n     Error: Rate limit exceeded. Please try again in 1s.\n      at Context.<anonymous> (test.js:3:1)\n\n  3 passing\n  1 failing",
		"go test of a panic":     "panic: rate limit exceeded, retry in 5s [recovered]\n\tpanic: x\nFAIL\tex.com/x\t0.1s",
		"French":                 "The reviewer wrote « Rate limit exceeded. Please try again in 1s. » and the build failed",
		"German":                 "Ich habe die Meldung „Rate limit exceeded. Please try again in 1s.“ geprüft, die Tests scheitern",
		"Japanese":               "レート制限: Rate limit exceeded. Please try again in 1s. のテストが失敗しました",
		"Japanese marks":         "The reviewer wrote 「Rate limit exceeded. Please try again in 1s.」 and the build failed",
		"double low marks":       "The reviewer wrote ‟Rate limit exceeded. Please try again in 1s.‟ and the build failed",
		"cargo test":             "Error: rate limit exceeded, try again in 1s\nnote: run with `RUST_BACKTRACE=1`\n\nfailures:\n    retry\n\ntest result: FAILED. 12 passed; 1 failed; 0 ignored",
	} {
		quoted, _ := json.Marshal(report)
		for _, cli := range append(agents.Names(), "") {
			for source, end := range map[string]agents.End{
				"stdout": {Stdout: text(report)}, "stderr": {Stderr: text(report)}, "a record in words": {Records: []agents.Record{{Name: "r", Body: text(report)}}},
				"a record": {Records: []agents.Record{{Name: "r", Body: failedRecord(report)}}},
				"a result": {Stdout: text(`{"type":"result","subtype":"error_during_execution","is_error":true,"result":` + string(quoted) + `}`)},
			} {
				end.ExitCode = 1
				if m := known(t, cli).Read(end, noon); m.Kind != sluice.CommandFailed {
					t.Errorf("%s on %s of %q: %v (%s)", name, source, cli, m.Kind, m.Text)
				}
			}
		}
	}
}

// A notice is none the less one for what a terminal or another program draws around it.
func TestADecoratedNoticeIsNoResult(t *testing.T) {
	line := strings.Repeat("─", 60)
	for name, out := range map[string]string{
		"in a box":            "╭" + line + "╮\n│ " + fourPM + " │\n╰" + line + "╯",
		"in a box of ASCII":   "+------+\n| " + fourPM + " |\n+------+",
		"in a coloured box":   "\x1b[31m║\x1b[0m \x1b[1m" + fourPM + "\x1b[0m \x1b[31m║\x1b[0m",
		"over two lines":      "╭" + line + "╮\n│ You've hit your limit · resets 4pm │\n│ (America/Los_Angeles)              │\n╰" + line + "╯",
		"between lines":       line + "\n" + fourPM + "\n" + line,
		"behind a bullet":     "⏺ " + fourPM,
		"with its hints":      "  ⎿  " + fourPM + "\n     /upgrade to increase your usage limit.\n\n     /extra-usage to keep going",
		"with a menu":         fourPM + "\n\nWhat do you want to do?\n❯ 1. Stop and wait for limit to reset\n  2. Upgrade your plan",
		"with a link":         fourPM + "\n\x1b]8;;https://claude.ai/upgrade\x1b\\/upgrade\x1b]8;;\x1b\\ to increase your usage limit",
		"by a cursor":         "\x1b[2J\x1b[H\x1b[3;1H" + strings.ReplaceAll(fourPM, " ", "\x1b[1C") + "\x1b[5;1H",
		"over a spinner":      "\x1b[?25l⠋ Thinking\n\x1b[2K\x1b[1A\x1b[2K\x1b[G" + fourPM + "\n\x1b[?25h\x1b(B",
		"in 8-bit codes":      "\u009b31m" + fourPM + "\u009b0m",
		"behind a name":       "[claude] " + fourPM,
		"behind a time":       "2026-03-01T12:00:00Z INFO " + fourPM,
		"behind a level":      "2026-03-01 12:00:00,123 CRITICAL " + fourPM,
		"in a box of hashes":  strings.Repeat("#", 60) + "\n# " + fourPM + " #\n" + strings.Repeat("#", 60),
		"in a box of stars":   strings.Repeat("*", 60) + "\n* " + fourPM + " *\n" + strings.Repeat("*", 60),
		"in a box with a bar": "+-- Claude --+\n| Claude AI usage limit reached|1772380800 |\n+------------+",
		"in bold":             "**" + fourPM + "**",
		"behind a dash":       "- " + fourPM,
		"behind an angle":     "> " + fourPM,
		"behind an hourglass": "⏳ " + fourPM,
		"behind a mark":       "ℹ " + fourPM,
		"behind an arrow":     "  ↳ " + fourPM,
		"over backspaces":     "...\b\b\b" + fourPM,
		"in Latin-1":          "You've hit your limit \xb7 resets 4pm (America/Los_Angeles)",
		"with an end":         fourPM + "\n\nSession ended.",
		"by a harness":        "Rate limit from agent: 5-hour limit reached ∙ resets 4pm",
		"behind some lines":   "happy 0.11\nUsing Claude Code from native installer\n" + fourPM,
		"three times":         fourPM + "\n" + fourPM + "\n" + fourPM,
		"by codex in a shell": "user\nfix it\n\x1b[31mERROR:\x1b[0m You've hit your usage limit. Upgrade to Pro (https://openai.com/chatgpt/pricing)\nor try again at 4:00 PM.",
		"by codex, shortly":   "ERROR: You've hit your usage limit. Try again at 3:05 PM.",
		"by codex, vaguely":   "You've hit your usage limit. Try again later.",
		"by gemini":           "│ ✕ [API Error: You have exhausted your daily quota on this model.] │",
	} {
		cli := "claude"
		if strings.HasPrefix(name, "by codex") || strings.HasPrefix(name, "by gemini") {
			cli = ""
		}
		for code := range 2 {
			for _, cli := range []string{cli, ""} {
				if m := known(t, cli).Read(agents.End{ExitCode: code, Stdout: text(out)}, noon); m.Kind != sluice.UsageWindow {
					t.Errorf("%s, exit code %d of %q: %v (%s)", name, code, cli, m.Kind, m.Text)
				}
			}
		}
	}
	if m := known(t, "claude").Read(agents.End{Stdout: text("I'll look at the files first.\n\nThe client has a loop.\n\n" + fourPM)}, noon); m.Kind != sluice.UsageWindow {
		t.Errorf("an answer that a limit cut off: %v", m.Kind)
	}
}

func TestAnAnswerThatQuotesANoticeIsAResult(t *testing.T) {
	for name, answer := range map[string]string{
		"in a sentence":       "The page now says so. Its text is: " + fourPM + ". All 12 tests pass.",
		"behind a colon":      "The CLI prints:\n\n" + fourPM,
		"behind a verb":       "When the quota is over, the agent says\n" + fourPM,
		"in a fence":          "It prints\n\n```\n" + fourPM + "\n```",
		"between paragraphs":  "First:\n\n" + fourPM + "\n\nThat is printed.",
		"in a numbered list":  "1. Rate limit\n2. " + fourPM,
		"in a table":          "| text | meaning |\n|---|---|\n| " + fourPM + " | the limit |",
		"among others":        "The notices are these:\n\n" + fourPM + "\n5-hour limit reached ∙ resets 4pm",
		"in JSON":             `{"text":"` + fourPM + `"}`,
		"in code":             `    print("` + fourPM + `")`,
		"in a diff":           "+" + fourPM,
		"in bold":             "That is the text\n\n**" + fourPM + "**",
		"in a column":         "Strings on the page\n\n| text |\n|---|\n| " + fourPM + " |",
		"in a table of ASCII": "+------+\n| text |\n+------+\n| " + fourPM + " |\n+------+",
		"between rules":       "Changed strings\n\n---\n" + fourPM + "\n---",
		"see below":           "I reviewed the notice (see below).\n\n" + fourPM,
		"with a setting":      "Rate limit from config: I moved this setting to limits.yaml and all tests pass.",
		"of codex":            "ERROR: exceeded retry limit, last status: 429 Too Many Requests is what codex prints",
		"that asks to retry":  "You've hit your usage limit. I changed it so that it says try again later in German.",
		"with an explanation": fourPM + " means that the quota is over.",
	} {
		for _, cli := range []string{"claude", ""} {
			if m := known(t, cli).Read(agents.End{Stdout: text(answer)}, noon); m.Kind != sluice.OK {
				t.Errorf("%s of %q: %v (%s)", name, cli, m.Kind, m.Text)
			}
		}
	}
	log := "worker 1 of 4 began\n\nit read 3 files\n\nit asked twice\n\nit ended\n\n" + fourPM
	if m := known(t, "").Read(agents.End{Stdout: text(log)}, noon); m.Kind != sluice.OK {
		t.Errorf("a log that another command prints: %v", m.Kind)
	}
}
