package agents_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/proc/agents"
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
		end  agents.End
		kind sluice.Kind
		from string
		till time.Time
	}{
		{"nothing at all", "", agents.End{}, sluice.OK, "", time.Time{}},
		{"an answer that talks of limits", "claude", agents.End{Stdout: text(answer)}, sluice.OK, "", time.Time{}},
		{"a warning of one that succeeded", "claude", agents.End{Stdout: text("4"), Stderr: text("API Error: Rate limit reached")}, sluice.OK, "", time.Time{}},
		{"out of time", "claude", agents.End{ExitCode: -1, Signal: "SIGKILL", TimedOut: true, Stderr: text(limit)}, sluice.Timeout, "timeout", time.Time{}},

		{"claude: a result that is an error", "claude", agents.End{Stdout: text(claudeResult(true, 429, limit))}, sluice.UsageWindow, "stdout", four},
		{"the same of no known command", "", agents.End{Stdout: text(claudeResult(true, 429, limit))}, sluice.UsageWindow, "stdout", four},
		{"claude: a result that is none", "claude", agents.End{Stdout: text(claudeResult(false, 0, limit))}, sluice.OK, "", time.Time{}},
		{"claude: the end of a stream", "claude", agents.End{ExitCode: 1, Stdout: text(claudeInit + claudeResult(true, 0, "API Error: Rate limit reached"))}, sluice.RateLimit, "stdout", time.Time{}},
		{"claude: the same behind a byte order mark", "claude", agents.End{Stdout: text("\ufeff" + claudeResult(true, 429, limit))}, sluice.UsageWindow, "stdout", four},
		{"claude: a tool's error in a stream", "claude", agents.End{Stdout: text(claudeInit + claudeResult(false, 0, "done"))}, sluice.OK, "", time.Time{}},
		{"claude: a tool's error in a stream that has no end", "claude", agents.End{ExitCode: 1, Stdout: text(claudeInit)}, sluice.CommandFailed, "exit status", time.Time{}},
		{"claude: an array of events", "claude", agents.End{Stdout: text("[" + strings.ReplaceAll(strings.TrimSpace(claudeInit), "\n", ",") + "," + claudeResult(true, 529, "Overloaded") + "]")}, sluice.Overloaded, "stdout", time.Time{}},
		{"claude: a status beside words that say nothing", "claude", agents.End{Stdout: text(claudeResult(true, 401, "That did not work"))}, sluice.Auth, "stdout", time.Time{}},
		{"claude: an error of its own", "claude", agents.End{ExitCode: 1, Stdout: text(`{"type":"result","subtype":"error_max_turns","is_error":true}`)}, sluice.CommandFailed, "stdout", time.Time{}},
		{"claude: an error of its own that is not called one", "claude", agents.End{Stdout: text(`{"type":"result","subtype":"error_max_turns","is_error":false}`)}, sluice.CommandFailed, "stdout", time.Time{}},
		{"an answer with an error in it, and then a crash", "", agents.End{ExitCode: 1, Stdout: text("API Error: Rate limit reached\n"), Stderr: text("Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    f()\nKeyError: 'x'\n")}, sluice.CommandFailed, "stderr", time.Time{}},
		{"an error of a command that another one ran", "", agents.End{ExitCode: 1, Stdout: text("API Error: Rate limit reached\n"), Stderr: text("subprocess.CalledProcessError: Command '['claude']' returned non-zero exit status 1.\n")}, sluice.RateLimit, "stdout", time.Time{}},
		{"claude: errors in a list", "claude", agents.End{ExitCode: 1, Stdout: text(`{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["Credit balance is too low"]}`)}, sluice.QuotaExhausted, "stdout", time.Time{}},
		{"claude: why is on standard error", "claude", agents.End{ExitCode: 1, Stdout: text(`{"type":"result","subtype":"error_during_execution","is_error":true}`), Stderr: text("API Error: 529 {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}")}, sluice.Overloaded, "stderr", time.Time{}},
		{"claude: a result whose middle was cut", "claude", agents.End{Stdout: text(`{"type":"result","is_error":false,"result":"` + answer + "\n[cut]\n" + limit + `"}`)}, sluice.OK, "", time.Time{}},
		{"claude: the same of one that failed", "claude", agents.End{ExitCode: 1, Stdout: text(`{"type":"result","is_error":false,"result":"` + answer + "\n[cut]\nAPI Error: Rate limit reached")}, sluice.CommandFailed, "exit status", time.Time{}},
		{"claude: a window closed, to the second", "claude", agents.End{ExitCode: 1, Stdout: text(limitEvent("rejected", "five_hour", four.Add(59*time.Second), "") + claudeResult(true, 429, limit))}, sluice.UsageWindow, "stdout", four.Add(59 * time.Second)},
		{"claude: a window closed, and the words do not say so", "claude", agents.End{ExitCode: 1, Stdout: text(limitEvent("rejected", "seven_day", four, "") + claudeResult(true, 429, "API Error: Rate limit reached"))}, sluice.UsageWindow, "stdout", four},
		{"claude: a window closed, and nothing else was said", "claude", agents.End{ExitCode: 1, Stdout: text(limitEvent("rejected", "five_hour", four, ""))}, sluice.UsageWindow, "stdout", four},
		{"claude: a window that opened again", "claude", agents.End{ExitCode: 1, Stdout: text(limitEvent("rejected", "five_hour", four, "") + limitEvent("allowed", "five_hour", four, ""))}, sluice.CommandFailed, "exit status", time.Time{}},
		{"claude: an answer that is JSON", "claude", agents.End{Stdout: text(`{"is_error":true,"error":"429 Too Many Requests"}`)}, sluice.OK, "", time.Time{}},
		{"an answer that is JSON with a type", "", agents.End{Stdout: text(`{"type":"error","message":"disk full"}`)}, sluice.OK, "", time.Time{}},
		{"codex: an error that is the last event", "codex", agents.End{Stdout: text(codexStart + `{"type":"error","message":"disk full"}`)}, sluice.CommandFailed, "stdout", time.Time{}},
		{"claude: a failed command's good result file", "claude", agents.End{ExitCode: 1, Records: []agents.Record{{Name: "r", Body: text(claudeResult(false, 0, "API Error: Rate limit reached"))}}}, sluice.CommandFailed, "exit status", time.Time{}},
		{"claude: beyond a window, on paid usage", "claude", agents.End{Stdout: text(limitEvent("rejected", "five_hour", four, "") + claudeResult(false, 0, "done"))}, sluice.OK, "", time.Time{}},
		{"claude: a window nearly closed", "claude", agents.End{ExitCode: 1, Stdout: text(limitEvent("allowed_warning", "five_hour", four, `,"utilization":0.9`))}, sluice.CommandFailed, "exit status", time.Time{}},
		{"claude: an error in text mode", "claude", agents.End{ExitCode: 1, Stdout: text(limit)}, sluice.UsageWindow, "stdout", four},
		{"claude: a notice in place of an answer", "claude", agents.End{Stdout: text(limit + "\n")}, sluice.UsageWindow, "stdout", four},
		{"an answer that quotes an event", "", agents.End{Stdout: text("It prints\n" + claudeResult(true, 429, limit) + "\nand ends.\n")}, sluice.OK, "", time.Time{}},
		{"an answer about errors, and then a mistake", "", agents.End{ExitCode: 1, Stdout: text(strings.Repeat("line\n", 50) + "Error: 429 Too Many Requests\n\nthat is all.\n"), Stderr: text("KeyError: 'x'")}, sluice.CommandFailed, "stderr", time.Time{}},

		{"codex: a turn that failed", "codex", agents.End{ExitCode: 1, Stdout: text(codexStart + `{"type":"error","message":"` + codexLimit + `"}` + "\n" + `{"type":"turn.failed","error":{"message":"` + codexLimit + `"}}`)}, sluice.UsageWindow, "stdout", time.Date(2026, 3, 4, 10, 34, 0, 0, time.UTC)},
		{"codex: an error that another try mended", "codex", agents.End{Stdout: text(codexStart + `{"type":"error","message":"Reconnecting... 1/5 (429 Too Many Requests)"}` + "\n" + `{"type":"turn.completed","usage":{"input_tokens":10,"cached_input_tokens":4,"output_tokens":2}}`)}, sluice.OK, "", time.Time{}},
		{"codex: an answer of a failed tool", "codex", agents.End{Stdout: text(codexStart + `{"type":"item.completed","item":{"type":"error","message":"429 Too Many Requests"}}` + "\n" + `{"type":"turn.completed"}`)}, sluice.OK, "", time.Time{}},
		{"codex: the last of standard error", "codex", agents.End{ExitCode: 1, Stderr: text("exec curl\nHTTP 401 Unauthorized: invalid api key\nERROR: " + codexLimit + "\n")}, sluice.UsageWindow, "stderr", time.Date(2026, 3, 4, 10, 34, 0, 0, time.UTC)},
		{"codex: what its tools printed before", "codex", agents.End{ExitCode: 1, Stderr: text("exec claude -p\nAPI Error: Rate limit reached\nERROR: no space left on device\n")}, sluice.CommandFailed, "stderr", time.Time{}},
		{"codex: events of earlier versions", "codex", agents.End{ExitCode: 1, Stdout: text(`{"id":"0","msg":{"type":"task_started"}}` + "\n" + `{"id":"0","msg":{"type":"error","message":"` + codexLimit + `"}}`)}, sluice.UsageWindow, "stdout", time.Date(2026, 3, 4, 10, 34, 0, 0, time.UTC)},

		{"gemini: an error object", "gemini", agents.End{ExitCode: 1, Stderr: text("Loaded cached credentials.\n{\n  \"session_id\": \"s\",\n  \"error\": {\n    \"type\": \"ApiError\",\n    \"message\": \"{\\\"error\\\":{\\\"code\\\":503,\\\"status\\\":\\\"UNAVAILABLE\\\",\\\"message\\\":\\\"The model is overloaded. Please try again later.\\\"}}\",\n    \"code\": 503\n  }\n}\n")}, sluice.Overloaded, "stderr", time.Time{}},
		{"gemini: an error object on standard output", "gemini", agents.End{ExitCode: 1, Stdout: text(`{"error":{"type":"Error","message":"You have exhausted your capacity on this model. Your quota will reset after 2h52m39s.","code":1}}`)}, sluice.UsageWindow, "stdout", noon.Add(2*time.Hour + 52*time.Minute + 39*time.Second)},
		{"gemini: an error of its own", "gemini", agents.End{ExitCode: 1, Stdout: text(`{"error":{"type":"Error","message":"Cannot find module x","code":1}}`)}, sluice.CommandFailed, "stdout", time.Time{}},
		{"gemini: an answer with an error in it", "gemini", agents.End{Stdout: text(`{"error":"no such town"}`)}, sluice.OK, "", time.Time{}},
		{"gemini: a status in the exit code", "gemini", agents.End{ExitCode: 429 & 0xff}, sluice.RateLimit, "exit code 173", time.Time{}},
		{"gemini: no key", "gemini", agents.End{ExitCode: 41, Stderr: text("Please set an Auth method")}, sluice.Auth, "exit code 41", time.Time{}},
		{"gemini: wrong arguments", "gemini", agents.End{ExitCode: 42, Stderr: text("No input provided")}, sluice.BadRequest, "exit code 42", time.Time{}},
		{"gemini: too many turns, of which one was throttled", "gemini", agents.End{ExitCode: 53, Stderr: text("Attempt 1 failed with status 429. Retrying with backoff...\nReached max session turns")}, sluice.CommandFailed, "exit code 53", time.Time{}},
		{"the same code of another command", "", agents.End{ExitCode: 41}, sluice.CommandFailed, "exit status", time.Time{}},
		{"gemini: a stream's result", "gemini", agents.End{ExitCode: 1, Stdout: text(`{"type":"init","session_id":"s"}` + "\n" + `{"type":"result","status":"error","error":{"type":"FatalAuthenticationError","message":"Invalid API key"}}`)}, sluice.Auth, "stdout", time.Time{}},
		{"gemini: a stream's warning", "gemini", agents.End{Stdout: text(`{"type":"init","session_id":"s"}` + "\n" + `{"type":"error","severity":"warning","message":"429 Too Many Requests"}` + "\n" + `{"type":"result","status":"success","stats":{"input_tokens":5,"output_tokens":6}}`)}, sluice.OK, "", time.Time{}},

		{"aider: an exception at the end", "aider", agents.End{Stdout: text("Aider v0.86\n\nlitellm.RateLimitError: AnthropicException - {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"Number of request tokens has exceeded your per-minute rate limit\"}}\nThe API provider has rate limited you. Try again later or check your quotas.\n")}, sluice.RateLimit, "stdout", time.Time{}},
		{"aider: an exception that another try mended", "aider", agents.End{Stdout: text("litellm.RateLimitError: AnthropicException - x\nRetrying in 0.2 seconds...\nlitellm.RateLimitError: is what I mean.\nTokens: 4.1k sent, 120 received. Cost: $0.01 message, $0.02 session.\n")}, sluice.OK, "", time.Time{}},
		{"aider: a prompt that is too long", "aider", agents.End{Stdout: text("Model gpt-4 has hit a token limit!\nToken counts below are approximate.\n")}, sluice.ContextLength, "stdout", time.Time{}},

		{"a result file", "", agents.End{ExitCode: 1, Records: []agents.Record{{Name: "agent/result.json", Body: failedRecord("Rate limit from agent: " + limit)}}}, sluice.UsageWindow, "agent/result.json", four},
		{"a result file's reason", "", agents.End{Records: []agents.Record{{Name: "result.json", Body: text(`{"selection_reason":"RateLimitError: ` + limit + `"}`)}}}, sluice.UsageWindow, "result.json", four},
		{"a reason that only mentions one", "", agents.End{Records: []agents.Record{{Name: "result.json", Body: text(`{"selection_reason":"best score; no RateLimitError: was met"}`)}}}, sluice.OK, "", time.Time{}},
		{"a result file's info", "", agents.End{Records: []agents.Record{{Name: "r", Body: text(`{"rate_limit_info":{"source":"agent","retry_after_seconds":66,"error_message":"limit"}}`)}}}, sluice.RateLimit, "r", time.Time{}},
		{"a result of our own", "", agents.End{ExitCode: 3, Records: []agents.Record{{Name: "r", Body: text(`{"kind":"overloaded","message":"busy"}`)}}}, sluice.Overloaded, "r", time.Time{}},
		{"a result that went well", "", agents.End{Records: []agents.Record{{Name: "r", Body: text(`{"kind":"ok","exit_code":0,"is_error":false,"result":"` + answer + `"}`)}}}, sluice.OK, "", time.Time{}},
		{"a record without an error", "", agents.End{Records: []agents.Record{{Name: "r", Body: text(`{"error":null,"exit_code":0,"stderr":"` + limit + `"}`)}}}, sluice.OK, "", time.Time{}},
		{"a record with an empty error", "", agents.End{Records: []agents.Record{{Name: "r", Body: text(`{"error":"","text":"` + answer + `"}`)}}}, sluice.OK, "", time.Time{}},
		{"a record with an empty error, and more", "", agents.End{Records: []agents.Record{{Name: "r", Body: text(`{"error":"","exit_code":-1,"stderr":"` + limit + `"}`)}}}, sluice.UsageWindow, "r", four},
		{"a record in words", "", agents.End{ExitCode: 2, Records: []agents.Record{{Name: ".failed/1.txt", Body: text(limit)}}}, sluice.UsageWindow, ".failed/1.txt", four},
		{"a record in words of one that succeeded", "", agents.End{Records: []agents.Record{{Name: ".failed/1.txt", Body: text(limit)}}}, sluice.OK, "", time.Time{}},
		{"a record that is damaged", "", agents.End{Records: []agents.Record{{Name: "r", Body: text(`{"error":{"message":"` + limit)}}}, sluice.OK, "", time.Time{}},
		{"what a request to an API prints", "", agents.End{Stdout: text(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)}, sluice.Overloaded, "stdout", time.Time{}},

		{"claude: a coloured notice", "claude", agents.End{Stdout: text("\x1b[31m\x1b[1mYou've hit your limit\x1b[0m · resets 4pm (America/Los_Angeles)\x1b[K\n")}, sluice.UsageWindow, "stdout", four},
		{"claude: a coloured result", "claude", agents.End{Stdout: text("\x1b]0;claude\x07\x1b[2m" + claudeResult(true, 429, limit) + "\x1b[0m\n")}, sluice.UsageWindow, "stdout", four},
		{"claude: a notice on standard error alone", "claude", agents.End{Stderr: text(limit + "\n")}, sluice.UsageWindow, "stderr", four},
		{"the same of another command", "", agents.End{Stdout: text(" \n"), Stderr: text("\x1b[31m" + limit + "\x1b[39m\n")}, sluice.UsageWindow, "stderr", four},
		{"claude: a notice with a paragraph behind it", "claude", agents.End{Stdout: text(limit + "\n\nUpgrade to Max for more usage:\nhttps://claude.ai/upgrade\n")}, sluice.UsageWindow, "stdout", four},
		{"claude: a notice twice", "claude", agents.End{Stdout: text(limit + "\n" + limit + "\n")}, sluice.UsageWindow, "stdout", four},
		{"claude: a notice twice, with a line between", "", agents.End{Stdout: text(limit + "\r\n\r\n" + limit + "\r\n")}, sluice.UsageWindow, "stdout", four},
		{"claude: a notice behind a warning of Node", "claude", agents.End{Stdout: text(nodeWarning + limit + "\n")}, sluice.UsageWindow, "stdout", four},
		{"claude: a result behind one", "claude", agents.End{Stdout: text(nodeWarning + claudeResult(true, 429, limit))}, sluice.UsageWindow, "stdout", four},
		{"claude: a notice behind one on standard error", "", agents.End{Stderr: text(nodeWarning + limit + "\n")}, sluice.UsageWindow, "stderr", four},
		{"claude: an answer beside a warning of Node", "claude", agents.End{Stdout: text("4"), Stderr: text(nodeWarning)}, sluice.OK, "", time.Time{}},
		{"claude: a notice behind a byte order mark", "claude", agents.End{Stdout: text("\ufeff" + limit + "\n")}, sluice.UsageWindow, "stdout", four},
		{"claude: a notice behind an erased line", "claude", agents.End{Stdout: text("\r\x1b[2K- thinking\r\x1b[2K" + limit + "\r\n")}, sluice.UsageWindow, "stdout", four},
		{"claude: a notice behind many", "claude", agents.End{Stdout: text(strings.Repeat("\x1b[2K\x1b[1G\x1b[36m-\x1b[39m thinking", 500) + "\x1b[2K\x1b[1G" + limit)}, sluice.UsageWindow, "stdout", four},
		{"claude: a notice before a cursor that goes back", "claude", agents.End{Stdout: text("- thinking\x1b[1G" + limit + "\x1b[G\r\n")}, sluice.UsageWindow, "stdout", four},
		{"claude: a notice over a line of words", "claude", agents.End{Stdout: text("- thinking\r" + limit + "\n")}, sluice.UsageWindow, "stdout", four},
		{"claude: a notice before an erased line", "claude", agents.End{Stdout: text(limit + "\n- thinking\r\x1b[K")}, sluice.UsageWindow, "stdout", four},
		{"claude: a notice on standard error beside an erased line", "claude", agents.End{Stdout: text("- thinking\r\x1b[2K"), Stderr: text(limit)}, sluice.UsageWindow, "stderr", four},
		{"claude: an answer over a notice that was erased", "claude", agents.End{Stdout: text(limit + "\r\x1b[2K4\n")}, sluice.OK, "", time.Time{}},
		{"claude: the last result is an error", "claude", agents.End{Stdout: text(claudeResult(false, 0, "4") + "\n" + claudeResult(true, 429, limit))}, sluice.UsageWindow, "stdout", four},
		{"claude: the last result is none", "claude", agents.End{Stdout: text(claudeResult(true, 429, limit) + "\n" + claudeResult(false, 0, "4") + "\n")}, sluice.OK, "", time.Time{}},
		{"the last result of no known command", "", agents.End{ExitCode: 1, Stdout: text(claudeResult(false, 0, "4") + "\n" + claudeResult(true, 529, "Overloaded"))}, sluice.Overloaded, "stdout", time.Time{}},
		{"claude: a result with words behind it", "claude", agents.End{Stdout: text(claudeResult(true, 429, limit) + "\nsaved\nbye\n")}, sluice.UsageWindow, "stdout", four},
		{"claude: a spending cap with a reset", "claude", agents.End{Stdout: text("Spending cap reached resets 6pm\n")}, sluice.UsageWindow, "stdout", noon.Add(6 * time.Hour)},
		{"the same on standard error", "", agents.End{ExitCode: 1, Stderr: text("Spending cap reached resets 6pm\n")}, sluice.UsageWindow, "stderr", noon.Add(6 * time.Hour)},
		{"the same as a result", "claude", agents.End{ExitCode: 1, Stdout: text(claudeResult(true, 429, "Spending cap reached resets 6pm"))}, sluice.UsageWindow, "stdout", noon.Add(6 * time.Hour)},
		{"claude: no extra usage", "claude", agents.End{Stdout: text("You're out of extra usage\n")}, sluice.UsageWindow, "stdout", time.Time{}},
		{"the same of one that failed", "", agents.End{ExitCode: 1, Stderr: text("You're out of extra usage · resets 6pm\n")}, sluice.UsageWindow, "stderr", noon.Add(6 * time.Hour)},
		{"claude: a full context", "claude", agents.End{ExitCode: 1, Stdout: text(blocked(true, "Prompt is too long"))}, sluice.ContextLength, "stdout", time.Time{}},
		{"claude: a full context of which nothing is said", "claude", agents.End{Stdout: text(blocked(false, ""))}, sluice.ContextLength, "stdout", time.Time{}},
		{"claude: a blocking limit of a window", "claude", agents.End{Stdout: text(blocked(false, limit))}, sluice.UsageWindow, "stdout", four},
		{"claude: a blocking limit of a window in an event", "claude", agents.End{Stdout: text(limitEvent("rejected", "five_hour", four, "") + blocked(true, "stopped"))}, sluice.UsageWindow, "stdout", four},
		{"claude: a context that no window lets compact", "claude", agents.End{ExitCode: 1, Stdout: text(blocked(true, "Prompt is too long · automatic compaction failed: "+limit))}, sluice.UsageWindow, "stdout", four},
		{"claude: a window closed, with an exit code of 0", "", agents.End{Stdout: text(limitEvent("rejected", "five_hour", four, ""))}, sluice.UsageWindow, "stdout", four},
		{"a limit that says when to try again", "", agents.End{ExitCode: 1, Stderr: text("rate limit: try again in 7 seconds\n")}, sluice.RateLimit, "stderr", time.Time{}},

		{"claude: nothing at all", "claude", agents.End{Stdout: text("\n")}, sluice.CommandFailed, "exit status", time.Time{}},
		{"claude: nothing, and a warning", "claude", agents.End{Stderr: text("Warning: no stdin data\n")}, sluice.CommandFailed, "stderr", time.Time{}},
		{"claude: nothing but a result file", "claude", agents.End{Records: []agents.Record{{Name: "r", Body: text(claudeResult(false, 0, "4"))}}}, sluice.OK, "", time.Time{}},
		{"claude: an empty object", "claude", agents.End{Stdout: text("{}\n")}, sluice.CommandFailed, "exit status", time.Time{}},
		{"the same of another command", "", agents.End{Stdout: text("{}\n")}, sluice.OK, "", time.Time{}},
		{"claude: a result that is cut off", "claude", agents.End{Stdout: text(claudeResult(false, 0, "a long answer")[:80])}, sluice.CommandFailed, "exit status", time.Time{}},
		{"claude: a result that is cut off earlier", "claude", agents.End{Stdout: text(claudeResult(false, 0, "4")[:20])}, sluice.CommandFailed, "stdout", time.Time{}},
		{"claude: a stream that is cut off", "claude", agents.End{Stdout: text(claudeInit + claudeResult(false, 0, "4")[:60])}, sluice.CommandFailed, "exit status", time.Time{}},
		{"claude: a stream that is cut off after its first event", "claude", agents.End{Stdout: text(`{"type":"system","subtype":"init"}` + "\n" + `{"type":"result","is_err`)}, sluice.CommandFailed, "exit status", time.Time{}},
		{"claude: a stream that is cut off, and why", "claude", agents.End{Stdout: text(claudeInit), Stderr: text(limit)}, sluice.UsageWindow, "stderr", four},
		{"claude: an array that is cut off", "claude", agents.End{Stdout: text(`[{"type":"system","subtype":"init"},{"type":"resu`)}, sluice.CommandFailed, "stdout", time.Time{}},
		{"codex: a turn that has no end", "codex", agents.End{Stdout: text(codexStart)}, sluice.CommandFailed, "exit status", time.Time{}},
		{"codex: a turn that failed, with an exit code of 0", "codex", agents.End{Stdout: text(codexStart + `{"type":"turn.failed","error":{"message":"` + codexLimit + `"}}`)}, sluice.UsageWindow, "stdout", time.Date(2026, 3, 4, 10, 34, 0, 0, time.UTC)},
		{"gemini: an error object, with an exit code of 0", "gemini", agents.End{Stdout: text(`{"session_id":"s","error":{"type":"Error","message":"Cannot find module x","code":1}}`)}, sluice.CommandFailed, "stdout", time.Time{}},
		{"gemini: a response that is cut off", "gemini", agents.End{Stdout: text(`{"session_id":"s","response":"Par`)}, sluice.CommandFailed, "stdout", time.Time{}},
		{"claude: an answer that begins with a bracket", "claude", agents.End{Stdout: text("{name} is a placeholder, and so is {this")}, sluice.OK, "", time.Time{}},
		{"claude: an answer of two objects", "claude", agents.End{Stdout: text("{\"a\":1}\n{\"b\":2}\n")}, sluice.OK, "", time.Time{}},

		{"claude: an error behind a time", "claude", agents.End{Stdout: text("2026-03-01T12:00:00Z API Error: 429 {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"x\"}}")}, sluice.RateLimit, "stdout", time.Time{}},
		{"codex: an error behind a time", "codex", agents.End{Stdout: text("2026-03-01T12:00:00Z ERROR: exceeded retry limit, last status: 429 Too Many Requests")}, sluice.RateLimit, "stdout", time.Time{}},
		{"an error with which Node ended", "", agents.End{ExitCode: 1, Stderr: text("file:///a.js:3\n    throw new X();\n          ^\n\nRateLimitError: 429 Rate limit exceeded.\n    at a (b.js:1:2) {\n  status: 429\n}\n\nNode.js v20.1.0\n")}, sluice.RateLimit, "stderr", time.Time{}},
		{"an error with which go run ended", "", agents.End{ExitCode: 1, Stderr: text("Error: 429 Too Many Requests.\nexit status 1\n")}, sluice.RateLimit, "stderr", time.Time{}},
		{"an error behind a sign", "", agents.End{ExitCode: 1, Stderr: text("Starting the agent\n❌ Error: 429 Too Many Requests\n")}, sluice.RateLimit, "stderr", time.Time{}},
		{"an error behind an indented sign", "gemini", agents.End{ExitCode: 1, Stderr: text("Loaded cached credentials.\n  ⚠️ Error: 429 Too Many Requests\n")}, sluice.RateLimit, "stderr", time.Time{}},
		{"an error with its request", "", agents.End{ExitCode: 1, Stderr: text("Error: Rate limit exceeded. Please slow down.\nrequest_id=req_1\n")}, sluice.RateLimit, "stderr", time.Time{}},
		{"aider: an error in a box", "aider", agents.End{Stdout: text("┌──┐\n│ litellm.RateLimitError: OpenAIException - Rate limit reached for gpt-4o │\n└──┘")}, sluice.RateLimit, "stdout", time.Time{}},
		{"aider: an error behind a time, over a spinner", "aider", agents.End{Stdout: text("⠋ Waiting\r[16:00:01] litellm.RateLimitError: OpenAIException - Rate limit reached for gpt-4o")}, sluice.RateLimit, "stdout", time.Time{}},
		{"killed", "claude", agents.End{ExitCode: -1, Signal: "SIGKILL", Stderr: text(limit)}, sluice.CommandFailed, "stderr", time.Time{}},
		{"not found", "claude", agents.End{ExitCode: 127, Stderr: text("sh: claude: not found")}, sluice.CommandFailed, "stderr", time.Time{}},
		{"standard error before records", "", agents.End{ExitCode: 1, Stderr: text("Error: 401 Unauthorized: invalid x-api-key"), Records: []agents.Record{{Name: "r", Body: text(limit)}}}, sluice.Auth, "stderr", time.Time{}},
		{"fields before standard error", "", agents.End{ExitCode: 1, Stderr: text("Error: 401 Unauthorized: invalid x-api-key"), Records: []agents.Record{{Name: "r", Body: failedRecord(limit)}}}, sluice.UsageWindow, "r", four},
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

// nodeWarning is what Node writes before the output of its program.
const nodeWarning = "(node:4242) [DEP0040] DeprecationWarning: The `punycode` module is deprecated. Please use a userland alternative instead.\n" +
	"(Use `node --trace-deprecation ...` to show where the warning was created)\n"

// blocked is a result of claude that ends by blocking_limit.
func blocked(isError bool, result string) string {
	return strings.Replace(claudeResult(isError, 0, result), `"num_turns"`, `"terminal_reason":"blocking_limit","num_turns"`, 1)
}

func TestWaitsOfWordsAreRead(t *testing.T) {
	for words, want := range map[string]time.Duration{
		"rate limit: try again in 7 seconds":                                                      7 * time.Second,
		"Retry-After: 9\nError: 429 Too Many Requests":                                            9 * time.Second,
		"< retry-after: 9\n< content-type: text/plain\n\x1b[31mHTTP 429 Too Many Requests\x1b[0m": 9 * time.Second,
		"HTTP/1.1 429 Too Many Requests\nretry-after: 9\n\nslow down":                             9 * time.Second,
		"Error: 429 Too Many Requests\nThe header retry-after: 9 is what counts":                  0,
		"Error: 429 Too Many Requests, please try again in 5s\nretry-after: 9":                    5 * time.Second,
	} {
		m := (*agents.CLI)(nil).Read(agents.End{ExitCode: 1, Stderr: text(words + "\n")}, noon)
		if m.Kind != sluice.RateLimit || m.Wait != want {
			t.Errorf("%q: %v, waits %v, want %v", words, m.Kind, m.Wait, want)
		}
	}
}

func TestTheAnswerOfAnOutputIsFound(t *testing.T) {
	for _, tt := range []struct{ cli, out, text, finish string }{
		{"", "\x1b[1m42\x1b[0m\n", "42", ""},
		{"claude", "{\"a\": 1}\n", `{"a": 1}`, ""},
		{"claude", claudeInit + claudeResult(false, 0, "42"), "42", ""},
		{"claude", claudeResult(false, 0, "41") + "\n" + claudeResult(false, 0, "42"), "42", ""},
		{"", "\ufeff42\n", "42", ""},
		{"claude", `{"type":"result","is_error":false,"result":"","stop_reason":"refusal"}`, "", "refusal"},
		{"", `{"type":"result","is_error":false,"result":"done","structured_output":{"a":1}}`, `{"a":1}`, ""},
		{"codex", codexStart + `{"type":"item.completed","item":{"type":"agent_message","text":"41"}}` + "\n" +
			`{"type":"item.completed","item":{"type":"agent_message","text":"42"}}` + "\n" + `{"type":"turn.completed"}`, "42", ""},
		{"codex", `{"id":"0","msg":{"type":"task_complete","last_agent_message":"42"}}` + "\n", "42", ""},
		{"gemini", `{"response":"42","stats":{"models":{}}}`, "42", ""},
		{"gemini", `{"type":"init"}` + "\n" + `{"type":"message","role":"user","content":"6*7?"}` + "\n" + `{"type":"message","role":"assistant","content":"4","delta":true}` + "\n" +
			`{"type":"message","role":"assistant","content":"2","delta":true}` + "\n" + `{"type":"result","status":"success"}`, "42", ""},
	} {
		if got := known(t, tt.cli).Reply(text(tt.out)); got.Text != tt.text || got.Finish != tt.finish {
			t.Errorf("%s: %q, %q, want %q, %q", tt.out, got.Text, got.Finish, tt.text, tt.finish)
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
		windows        []agents.WindowUse
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
			windows: []agents.WindowUse{{Name: "5-hour", Used: 0.25, HasUsed: true, Resets: reset}, {Name: "weekly", Used: 1, HasUsed: true, Resets: weekly}}},
		{name: "claude's window without a share", cli: "claude", out: limitEvent("allowed", "five_hour", reset, ""), windows: []agents.WindowUse{{Name: "5-hour", Resets: reset}}},
		{name: "a refusal's window, by its words", cli: "claude", exit: 1, out: "You've hit your weekly limit · resets 3pm (UTC)", windows: []agents.WindowUse{{Name: "weekly", Used: 1, HasUsed: true, Resets: reset}}},
		{name: "a refusal's window of one model", cli: "claude", exit: 1, out: "Opus weekly limit reached ∙ resets 3pm (UTC)", windows: []agents.WindowUse{{Name: "weekly Opus", Used: 1, HasUsed: true, Resets: reset}}},
		{name: "a refusal's window, by its end", cli: "claude", exit: 1, out: "You've hit your limit · resets 3pm (UTC)", windows: []agents.WindowUse{{Name: "5-hour", Used: 1, HasUsed: true, Resets: reset}}},
		{name: "a refusal's window, far off", cli: "claude", exit: 1, out: "You've hit your limit · resets Mar 4, 3pm (UTC)", windows: []agents.WindowUse{{Name: "weekly", Used: 1, HasUsed: true, Resets: weekly}}},
		{name: "codex's windows", cli: "codex", out: `{"type":"event_msg","payload":{"type":"token_count","rate_limits":{"primary":{"used_percent":25.0,"window_minutes":299,"resets_at":` + fmt.Sprint(reset.Unix()) + `},"secondary":{"used_percent":50,"window_minutes":10079,"resets_in_seconds":` + fmt.Sprint(int(weekly.Sub(noon).Seconds())) + `}}}}`,
			windows: []agents.WindowUse{{Name: "5-hour", Used: 0.25, HasUsed: true, Resets: reset}, {Name: "weekly", Used: 0.5, HasUsed: true, Resets: weekly}}},
		{name: "no instant at all", cli: "claude", out: `{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","resetsAt":9e14,"rateLimitType":"five_hour"}}`},
	} {
		m := known(t, tt.cli).Read(agents.End{ExitCode: tt.exit, Stdout: text(tt.out)}, noon)
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
		`{"rate_limit_info":{"retry_after_seconds":1e14,"error_message":"limit"}}`:                                     31 * 24 * time.Hour,
		`{"rate_limit_info":{"retry_after_seconds":1e300,"error_message":"limit"}}`:                                    31 * 24 * time.Hour,
		`{"kind":"rate_limit","rate_limit_info":{"retry_after_seconds":2678401}}`:                                      31 * 24 * time.Hour,
		`{"kind":"rate_limit","rate_limit_info":{"retry_after_seconds":null}}`:                                         0,
		`{"kind":"rate_limit","rate_limit_info":{"retry_after_seconds":0}}`:                                            0,
		`{"kind":"rate_limit","rate_limit_info":{"retry_after_seconds":-9}}`:                                           0,
		`{"rate_limit_info":{"retry_after_seconds":66}}`:                                                               66 * time.Second,
		`{"kind":"rate_limit","message":"busy","rate_limit_info":{"retry_after_seconds":3600}}`:                        time.Hour,
	} {
		for code := range 2 {
			m := (*agents.CLI)(nil).Read(agents.End{ExitCode: code, Records: []agents.Record{{Name: "r", Body: text(body)}}}, noon)
			if m.Kind != sluice.RateLimit || m.Wait != want || m.Text == "" {
				t.Errorf("%s, exit code %d: %v, waits %v, want %v", body, code, m.Kind, m.Wait, want)
			}
		}
	}
}

func TestAKindInAResultFileDecides(t *testing.T) {
	for body, want := range map[string]sluice.Kind{
		`{"kind":"bad_request","message":"prompt refused","rate_limit_info":{"retry_after_seconds":null}}`:  sluice.BadRequest,
		`{"kind":"bad_request","rate_limit_info":{"retry_after_seconds":9,"message":"Rate limit reached"}}`: sluice.BadRequest,
		`{"kind":"auth","message":"no key","rate_limit_info":{"retry_after_seconds":60}}`:                   sluice.Auth,
		`{"kind":"auth","exit_code":1,"stderr":"Error: 429 Too Many Requests"}`:                             sluice.Auth,
		`{"kind":"rate_limit","message":"invalid x-api-key"}`:                                               sluice.RateLimit,
		`{"kind":"rate_limit","message":"You've hit your limit · resets 4pm (UTC)"}`:                        sluice.UsageWindow,
	} {
		for code := range 2 {
			m := (*agents.CLI)(nil).Read(agents.End{ExitCode: code, Records: []agents.Record{{Name: "r", Body: text(body)}}}, noon)
			if m.Kind != want || !want.Throttle() && m.Wait > 0 {
				t.Errorf("%s, exit code %d: %v, waits %v, want %v", body, code, m.Kind, m.Wait, want)
			}
		}
	}
}

// Each body is read as lines and as an array, by any command and by one that is known.
func TestLinesOfAResultFileAreReadAsItsArrayIs(t *testing.T) {
	auth := `{"error":{"type":"authentication_error","message":"invalid x-api-key"}}`
	busy := `{"kind":"rate_limit","message":"busy"}`
	retry := `{"type":"system","subtype":"api_retry","error":"rate_limit","error_status":429}`
	good, bad := claudeResult(false, 0, "done"), claudeResult(true, 529, "Overloaded")
	for _, tt := range []struct {
		lines []string
		want  sluice.Kind
	}{
		{[]string{`{"message":"a"}`, auth}, sluice.Auth},
		{[]string{auth, `{"message":"a"}`}, sluice.Auth},
		{[]string{busy, busy}, sluice.RateLimit},
		{[]string{`{"kind":"ok"}`, busy, `{"kind":"ok"}`}, sluice.RateLimit},
		{[]string{busy, auth}, sluice.RateLimit},
		{[]string{`{"exit_code":0,"stderr":""}`, `{"exit_code":1,"stderr":"Error: 401 Unauthorized: invalid x-api-key"}`}, sluice.Auth},
		{[]string{`{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, `{"type":"note"}`}, sluice.Auth},
		{[]string{good, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`}, sluice.Auth},
		{[]string{good, good, busy}, sluice.RateLimit},
		{[]string{busy, good, good}, sluice.RateLimit},
		{[]string{good, `{"type":"attempt","kind":"rate_limit","message":"busy"}`}, sluice.RateLimit},
		{[]string{good, bad}, sluice.Overloaded},
		{[]string{bad, good}, sluice.OK},
		{[]string{`{"type":"system","subtype":"init"}`, retry, good}, sluice.OK},
		{[]string{`{"type":"system","subtype":"init"}`, retry, bad}, sluice.Overloaded},
		{[]string{`{"message":"a"}`, `{"message":"b"}`}, sluice.OK},
	} {
		for _, cli := range []string{"", "claude"} {
			for _, body := range []string{strings.Join(tt.lines, "\n"), strings.Join(tt.lines, "\r\n\r\n") + "\r\n", "[" + strings.Join(tt.lines, ",") + "]"} {
				m := known(t, cli).Read(agents.End{Stdout: text("4"), Records: []agents.Record{{Name: "r", Body: text(body)}}}, noon)
				if m.Kind != tt.want {
					t.Errorf("%s: %s: %v (%s), want %v", cli, body, m.Kind, m.Text, tt.want)
				}
			}
		}
	}
	quoted := "It prints\n" + auth + "\nand ends.\n"
	if m := known(t, "").Read(agents.End{Records: []agents.Record{{Name: "r", Body: text(quoted)}}}, noon); m.Kind != sluice.OK {
		t.Errorf("a record in words that quotes an error: %v", m.Kind)
	}
}

func TestUsageIsReadFromAResultFile(t *testing.T) {
	end := agents.End{Stdout: text("done\n"), Records: []agents.Record{{Name: "r", Body: text(claudeResult(false, 0, "4"))}}}
	if m := known(t, "claude").Read(end, noon); m.Usage.Input != 1004 || !m.HasUsage || m.Cost != 0.25 || !m.HasCost {
		t.Errorf("%+v", m)
	}
}

func TestAFailureIsToldShortlyAndWithoutKeys(t *testing.T) {
	key := "sk-ant-api03-" + strings.Repeat("a1B2", 20)
	m := (*agents.CLI)(nil).Read(agents.End{ExitCode: 3, Stderr: text("start\nboom with \x1b[31m" + key + "\x00 " + strings.Repeat("x", 900) + "\n\n---\n")}, noon)
	if m.Kind != sluice.CommandFailed || !strings.HasPrefix(m.Text, "exit status 3: boom with") || strings.Contains(m.Text, key) || len(m.Text) > 320 || strings.ContainsAny(m.Text, "\x00\x1b\n") {
		t.Errorf("%v: %q", m.Kind, m.Text)
	}
	if m := (*agents.CLI)(nil).Read(agents.End{ExitCode: -1, Signal: "SIGSEGV"}, noon); m.Text != "killed by SIGSEGV" {
		t.Errorf("%q", m.Text)
	}
}

func TestCommandsAreRecognisedByTheirNames(t *testing.T) {
	for program, want := range map[string]string{
		"claude": "claude", "/usr/local/bin/codex": "codex", `C:\Tools\Gemini.CMD`: "gemini", "./aider": "aider", "aider.exe": "aider",
		"claudette": "", "bash": "", "": "", "not-codex": "",
	} {
		if got := agents.Recognise(program).Name(); got != want {
			t.Errorf("%q is %q, want %q", program, got, want)
		}
	}
	for _, name := range agents.Names() {
		if known(t, name).Name() != name {
			t.Error(name)
		}
	}
	if _, ok := agents.Known("other"); ok {
		t.Error("any name is known")
	}
}

// Every end of a command is read while others wait for their turn: a whole megabyte costs some milliseconds.
func TestAMegabyteOfEventsIsReadAtOnce(t *testing.T) {
	line := `{"type":"assistant","message":{"content":[{"type":"text","text":"` + strings.Repeat("word ", 200) + `"}]}}` + "\n"
	out := text(strings.Repeat(line, 1<<20/len(line)) + claudeResult(false, 0, "done"))
	least := time.Hour // of several, since a busy machine does other things meanwhile
	for range 20 {
		begin := time.Now()
		if m := known(t, "claude").Read(agents.End{Stdout: out}, noon); m.Kind != sluice.OK || !m.HasUsage {
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
		claude.Read(agents.End{Stdout: out}, noon)
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range corpus(f, "errors.jsonl") {
		f.Add(1, text(s.Text), text(claudeResult(true, s.Status, s.Text)), failedRecord(s.Text))
	}
	f.Add(0, text("\x00\xff{\"type\":\"result\",\"is_error\":tr"), text(codexStart), text(`[{"error":`))
	f.Add(173, text(claudeInit), text(limitEvent("rejected", "five_hour", noon, `,"unifiedWindows":{"five_hour":{"utilization":1}}`)), text(`{"rate_limit_info":{"retry_after_seconds":1e300}}`))
	f.Add(1, text("\x9c\x95 [API Error: [{ \"error\": { \"code\": 429,"), text(""), text(""))
	f.Add(0, text("Tokens: 1k sent, k received. Cost: $ message, $nan session."), text("litellm.Timeout: x"), bytes.Repeat([]byte("{\"a\":"), 1000))
	clis := []*agents.CLI{nil}
	for _, name := range agents.Names() {
		clis = append(clis, known(f, name))
	}
	f.Fuzz(func(t *testing.T, code int, stderr, stdout, record []byte) {
		for _, c := range clis {
			end := agents.End{ExitCode: code, Stderr: stderr, Stdout: stdout, Records: []agents.Record{{Name: "r", Body: record}}}
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
