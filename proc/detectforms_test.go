package proc_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/proc"
)

const (
	answer = "You've hit your limit of what a rate limiter can do: 429 Too Many Requests is what API Error: 429 means."
	// Of a stream of claude: what its tools print is none of its errors.
	claudeInit = `{"type":"system","subtype":"init","session_id":"s","model":"claude-opus-4-5"}` + "\n" +
		`{"type":"user","message":{"content":[{"type":"tool_result","is_error":true,"content":"API Error: 429 {\"type\":\"error\",` +
		`\"error\":{\"type\":\"rate_limit_error\",\"message\":\"x\"}}"}]}}` + "\n"
	codexStart = `{"type":"thread.started","thread_id":"t"}` + "\n" + `{"type":"turn.started"}` + "\n"
	codexLimit = "You've hit your usage limit. Upgrade to Pro (https://openai.com/chatgpt/pricing) or try again at Mar 4th, 2026 10:34 AM."
)

// limitEvent is a rate_limit_event of claude.
func limitEvent(status, window string, resets time.Time, more string) string {
	return fmt.Sprintf(`{"type":"rate_limit_event","rate_limit_info":{"status":%q,"resetsAt":%d,"rateLimitType":%q,"isUsingOverage":false%s}}`+"\n",
		status, resets.Unix(), window, more)
}

func TestWhatTheEndOfACommandMeans(t *testing.T) {
	four := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC) // 4pm in Los Angeles
	limit := "You've hit your limit · resets 4pm (America/Los_Angeles)"
	for _, tt := range []struct {
		name string
		cli  string
		end  proc.End
		kind sluice.Kind
		from string
		till time.Time
	}{
		{"nothing at all", "", proc.End{}, sluice.OK, "", time.Time{}},
		{"an answer that talks of limits", "claude", proc.End{Stdout: text(answer)}, sluice.OK, "", time.Time{}},
		{"a warning of one that succeeded", "claude", proc.End{Stdout: text("4"), Stderr: text("API Error: Rate limit reached")}, sluice.OK, "", time.Time{}},
		{"out of time", "claude", proc.End{ExitCode: -1, Signal: "SIGKILL", TimedOut: true, Stderr: text(limit)}, sluice.Timeout, "timeout", time.Time{}},

		{"claude: a result that is an error", "claude", proc.End{Stdout: text(claudeResult(true, 429, limit))}, sluice.UsageWindow, "stdout", four},
		{"the same of no known command", "", proc.End{Stdout: text(claudeResult(true, 429, limit))}, sluice.UsageWindow, "stdout", four},
		{"claude: a result that is none", "claude", proc.End{Stdout: text(claudeResult(false, 0, limit))}, sluice.OK, "", time.Time{}},
		{"claude: the end of a stream", "claude", proc.End{ExitCode: 1, Stdout: text(claudeInit + claudeResult(true, 0, "API Error: Rate limit reached"))}, sluice.RateLimit, "stdout", time.Time{}},
		{"claude: the same behind a byte order mark", "claude", proc.End{Stdout: text("\ufeff" + claudeResult(true, 429, limit))}, sluice.UsageWindow, "stdout", four},
		{"claude: a tool's error in a stream", "claude", proc.End{Stdout: text(claudeInit + claudeResult(false, 0, "done"))}, sluice.OK, "", time.Time{}},
		{"claude: a tool's error in a stream that has no end", "claude", proc.End{ExitCode: 1, Stdout: text(claudeInit)}, sluice.CommandFailed, "exit status", time.Time{}},
		{"claude: an array of events", "claude", proc.End{Stdout: text("[" + strings.ReplaceAll(strings.TrimSpace(claudeInit), "\n", ",") + "," + claudeResult(true, 529, "Overloaded") + "]")}, sluice.Overloaded, "stdout", time.Time{}},
		{"claude: a status beside words that say nothing", "claude", proc.End{Stdout: text(claudeResult(true, 401, "That did not work"))}, sluice.Auth, "stdout", time.Time{}},
		{"claude: an error of its own", "claude", proc.End{ExitCode: 1, Stdout: text(`{"type":"result","subtype":"error_max_turns","is_error":true}`)}, sluice.CommandFailed, "stdout", time.Time{}},
		{"claude: an error of its own that is not called one", "claude", proc.End{Stdout: text(`{"type":"result","subtype":"error_max_turns","is_error":false}`)}, sluice.CommandFailed, "stdout", time.Time{}},
		{"an answer with an error in it, and then a crash", "", proc.End{ExitCode: 1, Stdout: text("API Error: Rate limit reached\n"), Stderr: text("Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    f()\nKeyError: 'x'\n")}, sluice.CommandFailed, "stderr", time.Time{}},
		{"an error of a command that another one ran", "", proc.End{ExitCode: 1, Stdout: text("API Error: Rate limit reached\n"), Stderr: text("subprocess.CalledProcessError: Command '['claude']' returned non-zero exit status 1.\n")}, sluice.RateLimit, "stdout", time.Time{}},
		{"claude: errors in a list", "claude", proc.End{ExitCode: 1, Stdout: text(`{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["Credit balance is too low"]}`)}, sluice.QuotaExhausted, "stdout", time.Time{}},
		{"claude: why is on standard error", "claude", proc.End{ExitCode: 1, Stdout: text(`{"type":"result","subtype":"error_during_execution","is_error":true}`), Stderr: text("API Error: 529 {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}")}, sluice.Overloaded, "stderr", time.Time{}},
		{"claude: a result whose middle was cut", "claude", proc.End{Stdout: text(`{"type":"result","is_error":false,"result":"` + answer + "\n[cut]\n" + limit + `"}`)}, sluice.OK, "", time.Time{}},
		{"claude: the same of one that failed", "claude", proc.End{ExitCode: 1, Stdout: text(`{"type":"result","is_error":false,"result":"` + answer + "\n[cut]\nAPI Error: Rate limit reached")}, sluice.CommandFailed, "exit status", time.Time{}},
		{"claude: a window closed, to the second", "claude", proc.End{ExitCode: 1, Stdout: text(limitEvent("rejected", "five_hour", four.Add(59*time.Second), "") + claudeResult(true, 429, limit))}, sluice.UsageWindow, "stdout", four.Add(59 * time.Second)},
		{"claude: a window closed, and the words do not say so", "claude", proc.End{ExitCode: 1, Stdout: text(limitEvent("rejected", "seven_day", four, "") + claudeResult(true, 429, "API Error: Rate limit reached"))}, sluice.UsageWindow, "stdout", four},
		{"claude: a window closed, and nothing else was said", "claude", proc.End{ExitCode: 1, Stdout: text(limitEvent("rejected", "five_hour", four, ""))}, sluice.UsageWindow, "stdout", four},
		{"claude: a window that opened again", "claude", proc.End{ExitCode: 1, Stdout: text(limitEvent("rejected", "five_hour", four, "") + limitEvent("allowed", "five_hour", four, ""))}, sluice.CommandFailed, "exit status", time.Time{}},
		{"claude: an answer that is JSON", "claude", proc.End{Stdout: text(`{"is_error":true,"error":"429 Too Many Requests"}`)}, sluice.OK, "", time.Time{}},
		{"an answer that is JSON with a type", "", proc.End{Stdout: text(`{"type":"error","message":"disk full"}`)}, sluice.OK, "", time.Time{}},
		{"codex: an error that is the last event", "codex", proc.End{Stdout: text(codexStart + `{"type":"error","message":"disk full"}`)}, sluice.CommandFailed, "stdout", time.Time{}},
		{"claude: a failed command's good result file", "claude", proc.End{ExitCode: 1, Records: []proc.Record{{Name: "r", Body: text(claudeResult(false, 0, "API Error: Rate limit reached"))}}}, sluice.CommandFailed, "exit status", time.Time{}},
		{"claude: beyond a window, on paid usage", "claude", proc.End{Stdout: text(limitEvent("rejected", "five_hour", four, "") + claudeResult(false, 0, "done"))}, sluice.OK, "", time.Time{}},
		{"claude: a window nearly closed", "claude", proc.End{ExitCode: 1, Stdout: text(limitEvent("allowed_warning", "five_hour", four, `,"utilization":0.9`))}, sluice.CommandFailed, "exit status", time.Time{}},
		{"claude: an error in text mode", "claude", proc.End{ExitCode: 1, Stdout: text(limit)}, sluice.UsageWindow, "stdout", four},
		{"claude: a notice in place of an answer", "claude", proc.End{Stdout: text(limit + "\n")}, sluice.UsageWindow, "stdout", four},
		{"an answer that quotes an event", "", proc.End{Stdout: text("It prints\n" + claudeResult(true, 429, limit) + "\nand ends.\n")}, sluice.OK, "", time.Time{}},
		{"an answer about errors, and then a mistake", "", proc.End{ExitCode: 1, Stdout: text(strings.Repeat("line\n", 50) + "Error: 429 Too Many Requests\n\nthat is all.\n"), Stderr: text("KeyError: 'x'")}, sluice.CommandFailed, "stderr", time.Time{}},

		{"codex: a turn that failed", "codex", proc.End{ExitCode: 1, Stdout: text(codexStart + `{"type":"error","message":"` + codexLimit + `"}` + "\n" + `{"type":"turn.failed","error":{"message":"` + codexLimit + `"}}`)}, sluice.UsageWindow, "stdout", time.Date(2026, 3, 4, 10, 34, 0, 0, time.UTC)},
		{"codex: an error that another try mended", "codex", proc.End{Stdout: text(codexStart + `{"type":"error","message":"Reconnecting... 1/5 (429 Too Many Requests)"}` + "\n" + `{"type":"turn.completed","usage":{"input_tokens":10,"cached_input_tokens":4,"output_tokens":2}}`)}, sluice.OK, "", time.Time{}},
		{"codex: an answer of a failed tool", "codex", proc.End{Stdout: text(codexStart + `{"type":"item.completed","item":{"type":"error","message":"429 Too Many Requests"}}`)}, sluice.OK, "", time.Time{}},
		{"codex: the last of standard error", "codex", proc.End{ExitCode: 1, Stderr: text("exec curl\nHTTP 401 Unauthorized: invalid api key\nERROR: " + codexLimit + "\n")}, sluice.UsageWindow, "stderr", time.Date(2026, 3, 4, 10, 34, 0, 0, time.UTC)},
		{"codex: what its tools printed before", "codex", proc.End{ExitCode: 1, Stderr: text("exec claude -p\nAPI Error: Rate limit reached\nERROR: no space left on device\n")}, sluice.CommandFailed, "stderr", time.Time{}},
		{"codex: events of earlier versions", "codex", proc.End{ExitCode: 1, Stdout: text(`{"id":"0","msg":{"type":"task_started"}}` + "\n" + `{"id":"0","msg":{"type":"error","message":"` + codexLimit + `"}}`)}, sluice.UsageWindow, "stdout", time.Date(2026, 3, 4, 10, 34, 0, 0, time.UTC)},

		{"gemini: an error object", "gemini", proc.End{ExitCode: 1, Stderr: text("Loaded cached credentials.\n{\n  \"session_id\": \"s\",\n  \"error\": {\n    \"type\": \"ApiError\",\n    \"message\": \"{\\\"error\\\":{\\\"code\\\":503,\\\"status\\\":\\\"UNAVAILABLE\\\",\\\"message\\\":\\\"The model is overloaded. Please try again later.\\\"}}\",\n    \"code\": 503\n  }\n}\n")}, sluice.Overloaded, "stderr", time.Time{}},
		{"gemini: an error object on standard output", "gemini", proc.End{ExitCode: 1, Stdout: text(`{"error":{"type":"Error","message":"You have exhausted your capacity on this model. Your quota will reset after 2h52m39s.","code":1}}`)}, sluice.UsageWindow, "stdout", noon.Add(2*time.Hour + 52*time.Minute + 39*time.Second)},
		{"gemini: an error of its own", "gemini", proc.End{ExitCode: 1, Stdout: text(`{"error":{"type":"Error","message":"Cannot find module x","code":1}}`)}, sluice.CommandFailed, "stdout", time.Time{}},
		{"gemini: an answer with an error in it", "gemini", proc.End{Stdout: text(`{"error":"no such town"}`)}, sluice.OK, "", time.Time{}},
		{"gemini: a status in the exit code", "gemini", proc.End{ExitCode: 429 & 0xff}, sluice.RateLimit, "exit code 173", time.Time{}},
		{"gemini: no key", "gemini", proc.End{ExitCode: 41, Stderr: text("Please set an Auth method")}, sluice.Auth, "exit code 41", time.Time{}},
		{"gemini: wrong arguments", "gemini", proc.End{ExitCode: 42, Stderr: text("No input provided")}, sluice.BadRequest, "exit code 42", time.Time{}},
		{"gemini: too many turns, of which one was throttled", "gemini", proc.End{ExitCode: 53, Stderr: text("Attempt 1 failed with status 429. Retrying with backoff...\nReached max session turns")}, sluice.CommandFailed, "exit code 53", time.Time{}},
		{"the same code of another command", "", proc.End{ExitCode: 41}, sluice.CommandFailed, "exit status", time.Time{}},
		{"gemini: a stream's result", "gemini", proc.End{ExitCode: 1, Stdout: text(`{"type":"init","session_id":"s"}` + "\n" + `{"type":"result","status":"error","error":{"type":"FatalAuthenticationError","message":"Invalid API key"}}`)}, sluice.Auth, "stdout", time.Time{}},
		{"gemini: a stream's warning", "gemini", proc.End{Stdout: text(`{"type":"init","session_id":"s"}` + "\n" + `{"type":"error","severity":"warning","message":"429 Too Many Requests"}` + "\n" + `{"type":"result","status":"success","stats":{"input_tokens":5,"output_tokens":6}}`)}, sluice.OK, "", time.Time{}},

		{"aider: an exception at the end", "aider", proc.End{Stdout: text("Aider v0.86\n\nlitellm.RateLimitError: AnthropicException - {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"Number of request tokens has exceeded your per-minute rate limit\"}}\nThe API provider has rate limited you. Try again later or check your quotas.\n")}, sluice.RateLimit, "stdout", time.Time{}},
		{"aider: an exception that another try mended", "aider", proc.End{Stdout: text("litellm.RateLimitError: AnthropicException - x\nRetrying in 0.2 seconds...\nlitellm.RateLimitError: is what I mean.\nTokens: 4.1k sent, 120 received. Cost: $0.01 message, $0.02 session.\n")}, sluice.OK, "", time.Time{}},
		{"aider: a prompt that is too long", "aider", proc.End{Stdout: text("Model gpt-4 has hit a token limit!\nToken counts below are approximate.\n")}, sluice.ContextLength, "stdout", time.Time{}},

		{"a result file", "", proc.End{ExitCode: 1, Records: []proc.Record{{Name: "agent/result.json", Body: failedRecord("Rate limit from agent: " + limit)}}}, sluice.UsageWindow, "agent/result.json", four},
		{"a result file's reason", "", proc.End{Records: []proc.Record{{Name: "result.json", Body: text(`{"selection_reason":"RateLimitError: ` + limit + `"}`)}}}, sluice.UsageWindow, "result.json", four},
		{"a reason that only mentions one", "", proc.End{Records: []proc.Record{{Name: "result.json", Body: text(`{"selection_reason":"best score; no RateLimitError: was met"}`)}}}, sluice.OK, "", time.Time{}},
		{"a result file's info", "", proc.End{Records: []proc.Record{{Name: "r", Body: text(`{"rate_limit_info":{"source":"agent","retry_after_seconds":66,"error_message":"limit"}}`)}}}, sluice.RateLimit, "r", time.Time{}},
		{"a result of our own", "", proc.End{ExitCode: 3, Records: []proc.Record{{Name: "r", Body: text(`{"kind":"overloaded","message":"busy"}`)}}}, sluice.Overloaded, "r", time.Time{}},
		{"a result that went well", "", proc.End{Records: []proc.Record{{Name: "r", Body: text(`{"kind":"ok","exit_code":0,"is_error":false,"result":"` + answer + `"}`)}}}, sluice.OK, "", time.Time{}},
		{"a record without an error", "", proc.End{Records: []proc.Record{{Name: "r", Body: text(`{"error":null,"exit_code":0,"stderr":"` + limit + `"}`)}}}, sluice.OK, "", time.Time{}},
		{"a record with an empty error", "", proc.End{Records: []proc.Record{{Name: "r", Body: text(`{"error":"","text":"` + answer + `"}`)}}}, sluice.OK, "", time.Time{}},
		{"a record with an empty error, and more", "", proc.End{Records: []proc.Record{{Name: "r", Body: text(`{"error":"","exit_code":-1,"stderr":"` + limit + `"}`)}}}, sluice.UsageWindow, "r", four},
		{"a record in words", "", proc.End{ExitCode: 2, Records: []proc.Record{{Name: ".failed/1.txt", Body: text(limit)}}}, sluice.UsageWindow, ".failed/1.txt", four},
		{"a record in words of one that succeeded", "", proc.End{Records: []proc.Record{{Name: ".failed/1.txt", Body: text(limit)}}}, sluice.OK, "", time.Time{}},
		{"a record that is damaged", "", proc.End{Records: []proc.Record{{Name: "r", Body: text(`{"error":{"message":"` + limit)}}}, sluice.OK, "", time.Time{}},
		{"what a request to an API prints", "", proc.End{Stdout: text(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)}, sluice.Overloaded, "stdout", time.Time{}},

		{"killed", "claude", proc.End{ExitCode: -1, Signal: "SIGKILL", Stderr: text(limit)}, sluice.CommandFailed, "stderr", time.Time{}},
		{"not found", "claude", proc.End{ExitCode: 127, Stderr: text("sh: claude: not found")}, sluice.CommandFailed, "stderr", time.Time{}},
		{"standard error before records", "", proc.End{ExitCode: 1, Stderr: text("Error: 401 Unauthorized: invalid x-api-key"), Records: []proc.Record{{Name: "r", Body: text(limit)}}}, sluice.Auth, "stderr", time.Time{}},
		{"fields before standard error", "", proc.End{ExitCode: 1, Stderr: text("Error: 401 Unauthorized: invalid x-api-key"), Records: []proc.Record{{Name: "r", Body: failedRecord(limit)}}}, sluice.UsageWindow, "r", four},
	} {
		m := known(t, tt.cli).Read(tt.end, noon)
		if m.Kind != tt.kind || m.Source != tt.from || !m.Until.Equal(tt.till) {
			t.Errorf("%s: %v from %q until %v, want %v from %q until %v (%s)", tt.name, m.Kind, m.Source, m.Until, tt.kind, tt.from, tt.till, m.Text)
		}
		if (m.Kind == sluice.OK) != (m.Text == "") {
			t.Errorf("%s: %v says %q", tt.name, m.Kind, m.Text)
		}
	}
}

func TestEveryNoticeIsOneAndNoAnswerIs(t *testing.T) {
	claude := known(t, "claude")
	for notice, want := range map[string]sluice.Kind{
		"You've hit your limit · resets 4pm (America/Los_Angeles)":                                                 sluice.UsageWindow,
		"You’ve hit your session limit · resets 1:10am (UTC)":                                                      sluice.UsageWindow,
		"You've hit your weekly limit · resets Apr 3, 6am (America/Los_Angeles)":                                   sluice.UsageWindow,
		"You've hit your Opus limit · resets 3pm (UTC)":                                                            sluice.UsageWindow,
		"You're out of extra usage · resets 3pm (UTC)":                                                             sluice.UsageWindow,
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
		for _, c := range []*proc.CLI{claude, nil} {
			if m := c.Read(proc.End{Stdout: text(notice + "\n")}, noon); m.Kind != want {
				t.Errorf("%q: %v, want %v (%s)", notice, m.Kind, want, m.Text)
			}
		}
		for _, c := range []string{"codex", "gemini", "aider"} { // which say it elsewhere
			if m := known(t, c).Read(proc.End{Stdout: text(notice)}, noon); m.Kind != sluice.OK {
				t.Errorf("%s: %q: %v", c, notice, m.Kind)
			}
		}
		for _, answer := range []string{
			"It means: " + notice, notice + " That is what it prints.", notice + "\n\nis what it prints", "> " + notice, `"` + notice + `"`, "- " + notice,
			notice + "\n" + notice + "\n" + notice,
		} {
			if m := claude.Read(proc.End{Stdout: text(answer)}, noon); m.Kind != sluice.OK {
				t.Errorf("the answer %q: %v", answer, m.Kind)
			}
		}
	}
	for _, answer := range []string{
		"API Error: 429 means that you send too much.", "You've hit your limit when nothing is left.", "Rate limit reached", "429", "rate_limit",
		"You've hit your usage limit of words; resets are at midnight, and so on and so on and so on and so on and so on and so on and so on",
		"Credit balance is too low to buy that.", "Weekly limit reached by the 4th: yes. Session limit: no.",
	} {
		if m := claude.Read(proc.End{Stdout: text(answer)}, noon); m.Kind != sluice.OK {
			t.Errorf("the answer %q: %v (%s)", answer, m.Kind, m.Text)
		}
	}
}

func TestUsageCostAndWindowsAreRead(t *testing.T) {
	reset := time.Date(2026, 3, 1, 15, 0, 0, 0, time.UTC)
	weekly := reset.Add(3 * 24 * time.Hour)
	for _, tt := range []struct {
		name, cli, out string
		exit           int
		usage          sluice.Usage
		cost           float64
		windows        []proc.WindowUse
	}{
		{name: "a result of claude", cli: "claude", out: claudeResult(false, 0, "4"), usage: sluice.Usage{Input: 1004, CachedInput: 900, Output: 50}, cost: 0.25},
		{name: "one that failed", cli: "claude", exit: 1, out: claudeResult(true, 529, "Overloaded"), usage: sluice.Usage{Input: 1004, CachedInput: 900, Output: 50}, cost: 0.25},
		{name: "codex", cli: "codex", out: codexStart + `{"type":"turn.completed","usage":{"input_tokens":10,"cached_input_tokens":4,"output_tokens":2}}`,
			usage: sluice.Usage{Input: 10, CachedInput: 4, Output: 2}},
		{name: "gemini", cli: "gemini", out: `{"response":"4","stats":{"models":{"a":{"tokens":{"prompt":7,"candidates":2,"thoughts":1,"cached":3}},"b":{"tokens":{"prompt":1,"candidates":1}}}}}`,
			usage: sluice.Usage{Input: 8, CachedInput: 3, Output: 4}},
		{name: "gemini's stream", cli: "gemini", out: `{"type":"init"}` + "\n" + `{"type":"result","status":"success","stats":{"input_tokens":5,"output_tokens":6,"cached":1}}`,
			usage: sluice.Usage{Input: 5, CachedInput: 1, Output: 6}},
		{name: "aider", cli: "aider", out: "Tokens: 4.1k sent, 1.2k cache hit, 120 received. Cost: $0.01 message, $0.02 session.\nTokens: 1,900 sent, 30 received. Cost: $0.0034 message, $0.023 session.\n",
			usage: sluice.Usage{Input: 6000, CachedInput: 1200, Output: 150}, cost: 0.023},
		{name: "claude's windows", cli: "claude", out: limitEvent("allowed", "five_hour", reset, `,"unifiedWindows":{"five_hour":{"utilization":0.25,"resetsAt":`+fmt.Sprint(reset.Unix())+`},"seven_day":{"utilization":1,"resetsAt":`+fmt.Sprint(weekly.UnixMilli())+`}}`),
			windows: []proc.WindowUse{{Name: "5-hour", Used: 0.25, HasUsed: true, Resets: reset}, {Name: "weekly", Used: 1, HasUsed: true, Resets: weekly}}},
		{name: "claude's window without a share", cli: "claude", out: limitEvent("allowed", "five_hour", reset, ""), windows: []proc.WindowUse{{Name: "5-hour", Resets: reset}}},
		{name: "a refusal's window, by its words", cli: "claude", exit: 1, out: "You've hit your weekly limit · resets 3pm (UTC)", windows: []proc.WindowUse{{Name: "weekly", Used: 1, HasUsed: true, Resets: reset}}},
		{name: "a refusal's window of one model", cli: "claude", exit: 1, out: "Opus weekly limit reached ∙ resets 3pm (UTC)", windows: []proc.WindowUse{{Name: "weekly Opus", Used: 1, HasUsed: true, Resets: reset}}},
		{name: "a refusal's window, by its end", cli: "claude", exit: 1, out: "You've hit your limit · resets 3pm (UTC)", windows: []proc.WindowUse{{Name: "5-hour", Used: 1, HasUsed: true, Resets: reset}}},
		{name: "a refusal's window, far off", cli: "claude", exit: 1, out: "You've hit your limit · resets Mar 4, 3pm (UTC)", windows: []proc.WindowUse{{Name: "weekly", Used: 1, HasUsed: true, Resets: weekly}}},
		{name: "codex's windows", cli: "codex", out: `{"type":"event_msg","payload":{"type":"token_count","rate_limits":{"primary":{"used_percent":25.0,"window_minutes":299,"resets_at":` + fmt.Sprint(reset.Unix()) + `},"secondary":{"used_percent":50,"window_minutes":10079,"resets_in_seconds":` + fmt.Sprint(int(weekly.Sub(noon).Seconds())) + `}}}}`,
			windows: []proc.WindowUse{{Name: "5-hour", Used: 0.25, HasUsed: true, Resets: reset}, {Name: "weekly", Used: 0.5, HasUsed: true, Resets: weekly}}},
		{name: "no instant at all", cli: "claude", out: `{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","resetsAt":9e14,"rateLimitType":"five_hour"}}`},
	} {
		m := known(t, tt.cli).Read(proc.End{ExitCode: tt.exit, Stdout: text(tt.out)}, noon)
		if m.Usage != tt.usage || m.HasUsage != (tt.usage != sluice.Usage{}) || m.Cost != tt.cost || m.HasCost != (tt.cost > 0) {
			t.Errorf("%s: %+v %v, $%v %v", tt.name, m.Usage, m.HasUsage, m.Cost, m.HasCost)
		}
		if fmt.Sprint(m.Windows) != fmt.Sprint(tt.windows) {
			t.Errorf("%s: windows %v, want %v", tt.name, m.Windows, tt.windows)
		}
	}
}

func TestAWaitIsReadFromAResultFile(t *testing.T) {
	for body, want := range map[string]time.Duration{
		`{"rate_limit_info":{"source":"agent","retry_after_seconds":66,"error_message":"limit"}}`:                      66 * time.Second,
		`{"rate_limit_info":{"retry_after_seconds":66,"error_message":"Rate limit reached. Try again in 7 seconds."}}`: 7 * time.Second,
		`{"rate_limit_info":{"retry_after_seconds":1e14,"error_message":"limit"}}`:                                     0,
	} {
		m := (*proc.CLI)(nil).Read(proc.End{ExitCode: 1, Records: []proc.Record{{Name: "r", Body: text(body)}}}, noon)
		if m.Kind != sluice.RateLimit || m.Wait != want {
			t.Errorf("%s: %v, waits %v, want %v", body, m.Kind, m.Wait, want)
		}
	}
}

func TestUsageIsReadFromAResultFile(t *testing.T) {
	end := proc.End{Stdout: text("done\n"), Records: []proc.Record{{Name: "r", Body: text(claudeResult(false, 0, "4"))}}}
	if m := known(t, "claude").Read(end, noon); m.Usage.Input != 1004 || !m.HasUsage || m.Cost != 0.25 || !m.HasCost {
		t.Errorf("%+v", m)
	}
}

func TestClocksOfRefusalsAreReadInTheirZones(t *testing.T) {
	for words, want := range map[string]string{
		"resets 2:30am (America/Los_Angeles)": "2026-03-08T10:30:00Z", // which that night's clocks leave out: it is 3:30 there
		"resets 4am (US/Pacific)":             "2026-03-08T11:00:00Z", // a legacy zone, after the change
		"resets Mar 9, 12am (Asia/Calcutta)":  "2026-03-08T18:30:00Z",
	} {
		now := time.Date(2026, 3, 8, 8, 0, 0, 0, time.UTC)
		m := known(t, "claude").Read(proc.End{ExitCode: 1, Stdout: text("You've hit your limit · " + words)}, now)
		if got := m.Until.UTC().Format(time.RFC3339); got != want || m.Kind != sluice.UsageWindow {
			t.Errorf("%s: %v until %s, want %s", words, m.Kind, got, want)
		}
	}
}

func TestResetsAreReadAsTheyAreWritten(t *testing.T) {
	const tuesday = "2026-03-31T12:00:00Z"
	for _, tt := range []struct{ now, words, want string }{
		{tuesday, "resets Apr 3, 6am", "2026-04-03T06:00:00Z"},
		{tuesday, "resets Apr 3, 6am (US/Pacific)", "2026-04-03T13:00:00Z"},
		{tuesday, "resets Apr 3 at 6am (PST)", "2026-04-03T13:00:00Z"}, // by the clocks there, whatever the season's name
		{tuesday, "resets Monday at 9am", "2026-04-06T09:00:00Z"},
		{tuesday, "resets Mon 9am (America/New_York)", "2026-04-06T13:00:00Z"},
		{tuesday, "resets tomorrow at 9am (UTC)", "2026-04-01T09:00:00Z"},
		{tuesday, "resets 12am (UTC)", "2026-04-01T00:00:00Z"},
		{tuesday, "resets 12pm (UTC)", "2026-03-31T12:00:00Z"},
		{"2026-03-31T12:03:00Z", "resets 12pm (UTC)", "2026-03-31T12:00:00Z"}, // it has just passed
		{"2026-03-31T12:07:00Z", "resets 12pm (UTC)", "2026-04-01T12:00:00Z"},
		{tuesday, "resets 12:30am (America/Los_Angeles)", "2026-04-01T07:30:00Z"},
		{tuesday, "resets 16:00 (Europe/Berlin)", "2026-03-31T14:00:00Z"},
		{tuesday, "resets 6am (Asia/Kathmandu)", "2026-04-01T00:15:00Z"},
		{tuesday, "resets 6am (GMT+5:30)", "2026-04-01T00:30:00Z"},
		{tuesday, "resets 6am (Etc/GMT+8)", "2026-03-31T14:00:00Z"},
		{tuesday, "resets 6am (EST5EDT)", "2026-04-01T10:00:00Z"},
		{tuesday, "resets in 3 hours 20 minutes", "2026-03-31T15:20:00Z"},
		{tuesday, "resets in 2d 4h", "2026-04-02T16:00:00Z"},
		{tuesday, "resets Mar 30, 6am (UTC)", "2026-03-30T06:00:00Z"},
		{"2026-12-31T22:00:00Z", "resets Jan 2, 6am (UTC)", "2027-01-02T06:00:00Z"},
		{"2026-11-01T05:00:00Z", "resets 1:30am (America/New_York)", "2026-11-01T06:30:00Z"}, // the later of the two
		{"2026-03-08T09:00:00Z", "resets 2:30am (America/Los_Angeles)", "2026-03-08T10:30:00Z"},
		{tuesday, "resets 4pm (Mars/Olympus)", ""},
		{tuesday, "resets 4pm (America/Nowhere)", ""},
		{tuesday, "resets Feb 30, 6am (UTC)", ""},
	} {
		now, _ := time.Parse(time.RFC3339, tt.now)
		m := known(t, "claude").Read(proc.End{ExitCode: 1, Stdout: text("You've hit your limit · " + tt.words)}, now)
		got := ""
		if !m.Until.IsZero() {
			got = m.Until.UTC().Format(time.RFC3339)
		}
		if got != tt.want || m.Kind != sluice.UsageWindow {
			t.Errorf("%s at %s: %v until %s, want %s", tt.words, tt.now, m.Kind, got, tt.want)
		}
	}
	now, _ := time.Parse(time.RFC3339, tuesday)
	for instant, want := range map[string]string{"1774972800": "2026-03-31T16:00:00Z", "1774972800000": "2026-03-31T16:00:00Z", "17749": ""} {
		m := known(t, "claude").Read(proc.End{ExitCode: 1, Stdout: text("Claude AI usage limit reached|" + instant)}, now)
		if m.Kind != sluice.UsageWindow || m.Until.IsZero() != (want == "") || want != "" && m.Until.UTC().Format(time.RFC3339) != want {
			t.Errorf("%s: %v until %v, want %s", instant, m.Kind, m.Until, want)
		}
	}
}

func TestAResetKeepsTheZoneOfItsWords(t *testing.T) {
	exact := time.Date(2026, 3, 2, 0, 0, 7, 0, time.UTC)
	for stdout, want := range map[string]string{
		"You've hit your limit · resets 4pm (America/Los_Angeles)": "16:00:00 PST",
		"You've hit your limit · resets 5pm (US/Pacific)":          "17:00:00 PST",
		"You've hit your limit · resets 4pm (UTC)":                 "16:00:00 UTC",
		limitEvent("rejected", "five_hour", exact, "") + claudeResult(true, 429, "You've hit your limit · resets 4pm (America/Los_Angeles)"): "16:00:07 PST",
	} {
		m := known(t, "claude").Read(proc.End{ExitCode: 1, Stdout: text(stdout)}, noon.In(time.FixedZone("here", 3600)))
		if got := m.Until.Format("15:04:05 MST"); got != want {
			t.Errorf("%s: until %s, want %s", stdout, got, want)
		}
	}
	m := known(t, "claude").Read(proc.End{ExitCode: 1, Stdout: text("Claude AI usage limit reached|1772380800")}, noon)
	if m.Until.Location() != time.Local {
		t.Errorf("seconds since 1970 are told in %v", m.Until.Location())
	}
}

func TestAFailureIsToldShortlyAndWithoutKeys(t *testing.T) {
	key := "sk-ant-api03-" + strings.Repeat("a1B2", 20)
	m := (*proc.CLI)(nil).Read(proc.End{ExitCode: 3, Stderr: text("start\nboom with \x1b[31m" + key + "\x00 " + strings.Repeat("x", 900) + "\n\n---\n")}, noon)
	if m.Kind != sluice.CommandFailed || !strings.HasPrefix(m.Text, "exit status 3: boom with") || strings.Contains(m.Text, key) || len(m.Text) > 320 || strings.ContainsAny(m.Text, "\x00\x1b\n") {
		t.Errorf("%v: %q", m.Kind, m.Text)
	}
	if m := (*proc.CLI)(nil).Read(proc.End{ExitCode: -1, Signal: "SIGSEGV"}, noon); m.Text != "killed by SIGSEGV" {
		t.Errorf("%q", m.Text)
	}
}

func TestCommandsAreRecognisedByTheirNames(t *testing.T) {
	for program, want := range map[string]string{
		"claude": "claude", "/usr/local/bin/codex": "codex", `C:\Tools\Gemini.CMD`: "gemini", "./aider": "aider", "aider.exe": "aider",
		"claudette": "", "bash": "", "": "", "not-codex": "",
	} {
		if got := proc.Recognise(program).Name(); got != want {
			t.Errorf("%q is %q, want %q", program, got, want)
		}
	}
	for _, name := range proc.Names() {
		if known(t, name).Name() != name {
			t.Error(name)
		}
	}
	if _, ok := proc.Known("other"); ok {
		t.Error("any name is known")
	}
	if d := known(t, "claude").Windows(); d["5-hour"] != 5*time.Hour || d["weekly"] != 7*24*time.Hour {
		t.Errorf("%v", d)
	}
}

// Every end of a command is read while others wait for their turn: a whole megabyte costs some milliseconds.
func TestAMegabyteOfEventsIsReadAtOnce(t *testing.T) {
	line := `{"type":"assistant","message":{"content":[{"type":"text","text":"` + strings.Repeat("word ", 200) + `"}]}}` + "\n"
	out := text(strings.Repeat(line, 1<<20/len(line)) + claudeResult(false, 0, "done"))
	least := time.Hour // of several, since a busy machine does other things meanwhile
	for range 20 {
		begin := time.Now()
		if m := known(t, "claude").Read(proc.End{Stdout: out}, noon); m.Kind != sluice.OK || !m.HasUsage {
			t.Fatal(m)
		}
		least = min(least, time.Since(begin))
	}
	if least > 250*time.Millisecond {
		t.Errorf("%v for %d bytes", least, len(out))
	}
}

func BenchmarkAMegabyteOfEvents(b *testing.B) {
	line := `{"type":"assistant","message":{"content":[{"type":"text","text":"` + strings.Repeat("word ", 200) + `"}]}}` + "\n"
	out := text(strings.Repeat(line, 1<<20/len(line)) + claudeResult(false, 0, "done"))
	claude := known(b, "claude")
	b.SetBytes(int64(len(out)))
	b.ReportAllocs()
	for b.Loop() {
		claude.Read(proc.End{Stdout: out}, noon)
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range corpus(f, "errors.jsonl") {
		f.Add(1, text(s.Text), text(claudeResult(true, s.Status, s.Text)), failedRecord(s.Text))
	}
	f.Add(0, text("\x00\xff{\"type\":\"result\",\"is_error\":tr"), text(codexStart), text(`[{"error":`))
	f.Add(173, text(claudeInit), text(limitEvent("rejected", "five_hour", noon, `,"unifiedWindows":{"five_hour":{"utilization":1}}`)), text(`{"rate_limit_info":{"retry_after_seconds":1e300}}`))
	f.Add(0, text("Tokens: 1k sent, k received. Cost: $ message, $nan session."), text("litellm.Timeout: x"), bytes.Repeat([]byte("{\"a\":"), 1000))
	clis := []*proc.CLI{nil}
	for _, name := range proc.Names() {
		clis = append(clis, known(f, name))
	}
	f.Fuzz(func(t *testing.T, code int, stderr, stdout, record []byte) {
		for _, c := range clis {
			end := proc.End{ExitCode: code, Stderr: stderr, Stdout: stdout, Records: []proc.Record{{Name: "r", Body: record}}}
			m := c.Read(end, noon)
			if m.Kind == sluice.OK && code != 0 {
				t.Errorf("a command that failed went well")
			}
			if (m.Kind == sluice.OK) != (m.Text == "") || len(m.Text) > 2000 || m.Wait < 0 || m.Cost < 0 || m.Usage.Input < 0 || m.Usage.Output < 0 {
				t.Errorf("%+v", m)
			}
			if !m.Until.IsZero() && m.Until.Sub(noon).Abs() > 500*24*time.Hour {
				t.Errorf("until %v", m.Until)
			}
			for _, w := range m.Windows {
				if w.Name == "" || w.Used < 0 || w.Used > 1 {
					t.Errorf("%+v", w)
				}
			}
		}
	})
}
