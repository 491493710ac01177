package provider

import (
	"slices"
	"strings"

	"github.com/sluice-llm/sluice"
)

// statement is a thing and what is wrong with it, as sentences say it in ever new words: "credentials are missing",
// "invalid token", "the upstream server seems busy". Both stand within a few words of each other, in one clause.
type statement struct {
	kind   sluice.Kind
	things []string
	states []string
	quiet  bool // what is no error unless something else says so
}

var networkThings = [...]string{"connection", "socket", "stream", "host", "network", "tls", "ssl", "certificate", "dns", "proxy", "server",
	"endpoint", "api",
	"internet", "provider", "gateway"}

// statements are tried in this order, after every rule that knows a code or a sentence has failed and before the status
// alone decides.
var statements = [...]statement{
	{sluice.BadRequest, []string{"array", "string"}, []string{"too long", "too large"}, false},
	{sluice.BadRequest, []string{"max_tokens", "maxtokens", "max_completion_tokens", "maximum tokens you"}, []string{"exceeds", "exceed",
		"too large", "too high"}, false},
	{sluice.ContextLength, []string{"context size", "context length", "context window", "context limit"},
		[]string{"exceeded", "overflow", "overflows", "overflowed", "too small", "not enough"}, false},
	{sluice.ContextLength, []string{"context", "prompt", "input", "inputs", "prompt_tokens", "conversation", "messages", "tokens", "token",
		"history"},
		[]string{"too long", "too large", "too big", "too many", "limit reached", "limit exceeded", "window exceeded", "overflow", "overflows",
			"exceeds",
			"exceed", "exceeded maximum", "longer than", "larger than", "must have less than", "must be less than"}, false},
	{sluice.QuotaExhausted, []string{"balance", "credit", "credits", "funds", "billing", "payment", "spend limit", "spending limit", "budget",
		"prepaid"},
		[]string{"insufficient", "exhausted", "depleted", "too low", "not enough", "no", "out of", "ran out", "run out", "required", "failed",
			"declined",
			"reached", "reaching", "exceeded", "expired", "overdue", "used up", "negative", "doesn't have any", "don't have any"}, false},
	{sluice.QuotaExhausted, []string{"quota", "account"},
		[]string{"insufficient", "not enough", "out of", "in arrears", "overdue", "unpaid"}, false},
	{sluice.ContentFilter, []string{"request", "prompt", "response", "content", "output", "input", "message", "candidate", "completion", "answer",
		"image"},
		[]string{"blocked by", "blocked due", "blocked for", "flagged", "filtered", "moderated", "violates", "inappropriate content", "safety system",
			"sensitive content",
			"unsafe content"}, false},
	{sluice.Auth, []string{"api key", "apikey", "token", "credentials", "credential", "authentication", "authorization", "oauth", "login", "api_key",
		"access key", "authenticated", "authenticate"},
		[]string{"invalid", "invalidated", "expired", "missing", "revoked", "incorrect", "required", "failed", "not found", "not valid", "not set",
			"denied", "rejected", "no", "not configured", "not provided", "didn't provide", "not", "wrong"}, false},
	{sluice.Overloaded, []string{"server", "servers", "model", "engine", "provider", "service", "upstream", "system", "api", "backend", "models",
		"we're"},
		[]string{"overloaded", "busy", "at capacity", "high demand", "high load", "high traffic", "unavailable", "no capacity", "currently loading",
			"still loading", "is loading", "warming up", "not ready", "temporarily not available", "currently not available", "saturated",
			"temporarily unable"}, false},
	{sluice.Overloaded, []string{"slots", "workers", "instances", "replicas", "upstreams", "upstream", "capacity"},
		[]string{"no", "not enough", "insufficient", "unavailable", "exhausted", "exceeded", "unhealthy"}, false},
	{sluice.RateLimit, []string{"limit", "limits", "quota", "allowance", "ratelimit", "requests", "usage", "messages", "calls", "throughput", "allocation"},
		[]string{"run out of", "ran out of", "out of usage", "out of requests", "used your", "exceeded", "reached", "hit", "exhausted", "used up", "used all", "too many", "exceeds", "throttled", "too high",
			"too frequent"}, false},
	{sluice.RateLimit, []string{"temporarily", "currently", "been", "provider", "upstream"}, []string{"rate limited"}, false},
	{sluice.Timeout, []string{"model", "server", "provider", "upstream", "api"}, []string{"stopped responding", "not respond", "not responding",
		"didn't respond"}, false},
	{sluice.Timeout, []string{"request", "response", "operation", "connection", "api", "model", "stream", "call", "read", "connect"},
		[]string{"timed out", "timeout", "time out", "took too long", "no response", "timedout"}, false},
	{sluice.ServerError, []string{"engine", "worker", "process", "runner"}, []string{"died", "dead", "crashed", "has terminated",
		"no longer running"}, false},
	{sluice.ServerError, []string{"server error", "internal error"}, []string{"interrupted", "due to", "because of"}, false},
	{sluice.Network, networkThings[:],
		[]string{"reset", "refused", "lost", "unreachable", "could not reach", "couldn't reach", "cannot reach", "unable to reach", "can't reach", "trouble connecting",
			"could not resolve", "failed to resolve", "not resolve", "unable to connect", "handshake failed", "connection failed",
			"failed to connect",
			"hung up", "not be established", "not established", "unexpectedly", "closed by", "terminated by", "closed before", "aborted by"}, false},
	{sluice.Network, []string{"stream", "request", "response", "body"}, []string{"ended without", "ended before", "ended unexpectedly",
		"ended prematurely", "cut off", "error reading"}, false},
	{sluice.Network, networkThings[:], []string{"closed", "terminated", "aborted", "disconnected", "dropped", "offline", "interrupted",
		"not connected"}, true},
	{sluice.Network, []string{"certificate"}, []string{"invalid", "untrusted", "expired", "unverified", "not trusted", "mismatch"}, false},
	{sluice.ServerError, []string{"memory"}, []string{"requires more", "out of", "not enough", "insufficient"}, false},
	{sluice.BadRequest, []string{"model", "max_tokens", "maxtokens", "max_completion_tokens", "temperature", "top_p", "response_format",
		"tool_choice",
		"account deployment", "api deployment", "model deployment"},
		[]string{"invalid", "not found", "not supported", "unsupported", "does not exist", "doesn't exist", "not exist", "not available",
			"not eligible",
			"unknown", "unrecognized", "bigger than", "too large", "too long", "too close", "not a valid", "out of range", "no such",
			"must be"}, false},
}

// admits reports whether an answer of that status can mean what its words state. A status that names the cause leaves
// the words less to say than one that is a class of errors.
func admits(status int, kind sluice.Kind) bool {
	switch status {
	case 0:
		return true
	case 401:
		return kind == sluice.QuotaExhausted || kind == sluice.Auth
	case 403:
		return kind == sluice.QuotaExhausted || kind == sluice.RateLimit || kind == sluice.UsageWindow || kind == sluice.ContentFilter || kind == sluice.Auth
	case 402, 404, 408, 504, 522, 524:
		return false
	case 429:
		return kind == sluice.QuotaExhausted || kind == sluice.RateLimit || kind == sluice.UsageWindow || kind == sluice.Overloaded
	}
	if status < 500 {
		return kind == sluice.QuotaExhausted || kind == sluice.ContextLength || kind == sluice.ContentFilter || kind == sluice.Auth
	}
	return kind != sluice.BadRequest && kind != sluice.Auth && kind != sluice.Network
}

// reach is how many words a thing and its state may be apart.
const reach = 5

// states returns what a clause in lower case states within its first words, and whether that makes an error of it by
// itself. Clauses that only speak about it state nothing, nor do those of something else than a call: a file, a test.
func states(clause string) (kind sluice.Kind, alone, ok bool) {
	words := wordsOf(unquoted(clause))
	if len(words) == 0 || hedge(words[0]) || imperative(words[0]) || len(words) > 1 && words[0] == "the" && strings.HasPrefix(words[1], "user") {
		kind, ok = hanStates(clause)
		return kind, ok, ok
	}
	for i := range statements {
		if s := &statements[i]; s.holds(words) && !(s.kind == sluice.ContextLength && rated(clause)) {
			return s.kind, !s.quiet, true
		}
	}
	kind, ok = hanStates(clause)
	return kind, ok, ok
}

// unquoted returns a clause up to a quotation of several words in it, which is spoken about. Names in quotes stay.
func unquoted(clause string) string {
	for i := 1; i < len(clause); i++ {
		if c := clause[i]; (c == '"' || c == '\'') && clause[i-1] == ' ' {
			end := strings.IndexByte(clause[i+1:], c)
			if end < 0 {
				return clause
			}
			if strings.Contains(clause[i+1:i+1+end], " ") && !strings.Contains(clause[:i], "error") {
				return clause[:i]
			}
			i += end + 1
		}
	}
	return clause
}

// wordsOf returns the first words of a clause. The names of models, dates and versions are one word each.
func wordsOf(clause string) []string {
	var words []string
	last := -1  // where the word before ended
	id := false // it was joined of several
	eachWord(clip(clause, 200), func(i, end int) bool {
		w := clause[i:end]
		if last >= 0 && i == last+1 && strings.IndexByte("-/:@,", clause[last]) >= 0 &&
			(id || clause[last] == '/' || strings.ContainsAny(w+words[len(words)-1], "0123456789")) {
			id, last = true, end
			return true
		}
		if last >= 0 && i == last+1 && clause[last] == '\'' && len(w) <= 2 { // the end of "couldn't" and "you've"
			words[len(words)-1] += "'" + w
			last = end
			return true
		}
		id = false
		if strings.HasSuffix(w, "_api_key") {
			w = "api_key" // of a variable's name
		}
		words, last = append(words, w), end
		return len(words) < 14
	})
	return words
}

// holds reports whether the words of a clause make the statement.
func (s *statement) holds(words []string) bool {
	for i := range words {
		size := anyAt(words, i, s.things)
		if size == 0 || foreignAt(words, i) {
			continue
		}
		if s.kind == sluice.RateLimit && i > 0 && strings.HasPrefix(words[i-1], "connection") {
			continue // of a server
		}
		for j := max(0, i-reach); j < min(len(words), i+size-1+reach); j++ {
			n := anyAt(words, j, s.states)
			if n > 0 && !(j > i && named(words[j+n:])) && !elsewhere(words[max(i+size, j+n)-1:]) && !hedged(strings.Join(words[:max(i, j)], " ")) {
				return true
			}
		}
	}
	return false
}

// elsewhere reports whether what the state at words[0] is said of is not the call: "unavailable on Sundays", "unavailable
// in your region", "blocked by CORS".
func elsewhere(words []string) bool {
	if len(words) < 2 {
		return false
	}
	switch words[1] {
	case "on", "during", "between", "outside", "in":
		return words[0] == "unavailable"
	case "for", "with":
		return slices.ContainsFunc(words[2:min(5, len(words))], foreignWord)
	case "user", "client", "cors", "hook", "firewall", "robots", "adblock":
		return true
	}
	return false
}

// foreignAt reports whether the thing at words[i] is of something that is no call. What is counted is none: "attempt 3".
func foreignAt(words []string, i int) bool {
	for j, w := range words[:i] {
		if (j >= i-3 || j < 2) && foreignWord(w) && !isDigit(words[j+1][0]) {
			return true
		}
	}
	return false
}

// hanStatement is a statement where no spaces stand between words: both parts stand in one clause, in any order.
type hanStatement struct {
	kind   sluice.Kind
	things []string
	states []string
}

var hanStatements = [...]hanStatement{
	{sluice.ContextLength, []string{"上下文", "输入长度", "提示词", "token", "コンテキスト"}, []string{"超过", "超出", "过长", "太长", "超え"}},
	{sluice.QuotaExhausted, []string{"余额", "额度", "配额", "账户", "账号", "资源包"}, []string{"不足", "欠费", "用完", "用尽", "耗尽"}},
	{sluice.ContentFilter, []string{"内容", "响应", "输入", "输出", "提示", "请求"}, []string{"过滤", "违规", "敏感", "不当", "审核", "不安全"}},
	{sluice.Auth, []string{"密钥", "令牌", "api key", "apikey", "token", "鉴权", "认证", "身份验证"}, []string{"无效", "过期", "错误", "失败", "不正确", "不存在", "不可用",
		"未提供", "不合法"}},
	{sluice.Overloaded, []string{"负载", "模型", "服务", "系统", "上游", "渠道", "访问量", "サーバー", "服务器"}, []string{"饱和", "繁忙", "过大", "过载", "拥挤", "过高",
		"无可用", "不可用", "混雑", "过负荷"}},
	{sluice.RateLimit, []string{"请求", "速率", "频率", "并发", "调用", "次数", "限流", "流量", "tpm", "rpm", "qps"}, []string{"过多", "过高", "过快", "超过", "超出", "超限",
		"频繁", "达到", "触发", "受限", "上限", "限制"}},
	{sluice.Timeout, []string{"请求", "响应", "连接", "接口", "等待", "调用"}, []string{"超时"}},
	{sluice.Network, []string{"网络", "连接"}, []string{"错误", "失败", "中断", "断开", "异常", "重置"}},
	{sluice.BadRequest, []string{"模型", "参数"}, []string{"不存在", "不支持", "无效", "非法", "错误"}},
	{sluice.ServerError, []string{"内部", "服务器", "服务"}, []string{"错误", "异常", "出错"}},
}

// hanStates returns what a text in Chinese or Japanese states in its first sentence.
func hanStates(text string) (sluice.Kind, bool) {
	text = clip(text, 240)
	if i := strings.Index(text, "。"); i > 0 {
		text = text[:i]
	}
	within := func(s string) bool { return strings.Contains(text, s) }
	if strings.IndexFunc(text, han) < 0 || slices.ContainsFunc([]string{"如果", "当出现", "如何", "怎么", "修复", "优化", "支持"}, within) {
		return 0, false
	}
	for _, s := range hanStatements {
		if slices.ContainsFunc(s.things, within) && slices.ContainsFunc(s.states, within) {
			return s.kind, true
		}
	}
	return 0, false
}

// han reports whether a character is of a script that writes no spaces between words.
func han(r rune) bool { return r >= 0x2e80 && r <= 0xffdc }

// rated reports whether a clause speaks of how much fits into a time, and not of how much fits into a call.
func rated(clause string) bool {
	for _, s := range [...]string{"per minute", "per min", "/min", "per second", "per day", "/day", "per hour", "tpm", "rpm", "tpd", "rpd",
		"rate limit", "per 86400",
		"daily", "monthly", "weekly"} {
		if strings.Contains(clause, s) {
			return true
		}
	}
	return false
}

// named reports whether the words behind a state make a name of it: "rate limit exceeded errors".
func named(words []string) bool {
	if len(words) == 0 {
		return false
	}
	switch words[0] {
	case "error", "errors", "handling", "issue", "issues", "case", "cases", "page", "dialog", "message", "messages", "events", "tests", "logic",
		"policy",
		"counter", "scenario", "time":
		return true
	}
	return false
}

// imperative reports whether a word begins the title of a change, or what somebody says of himself.
func imperative(word string) bool {
	if strings.HasSuffix(word, "ing") && word != "missing" && word != "exceeding" {
		return true
	}
	switch word {
	case "i", "let", "we", "make", "allow", "set", "use", "update", "remove", "change", "move", "refactor", "bump", "increase", "extend", "raise",
		"respect", "honor", "honour", "show", "log", "print", "enable", "disable", "ensure", "don", "do", "better", "proper", "retry", "wait",
		"check",
		"stop", "start", "run", "skip", "ignore", "return", "keep", "split", "merge", "rename", "replace", "see", "introduce", "clarify", "tweak",
		"drop", "limit", "reproduce", "investigate", "debug", "my", "surface", "reject", "returns":
		return true
	}
	return false
}

// anyAt returns how many words the longest of the phrases has that stands at words[i]; 0 when none does.
func anyAt(words []string, i int, phrases []string) int {
	most := 0
	for _, p := range phrases {
		n := 0
		for part := range strings.SplitSeq(p, " ") {
			if i+n >= len(words) || words[i+n] != part {
				n = 0
				break
			}
			n++
		}
		most = max(most, n)
	}
	return most
}

// statementRule is the name of the rule that statements are.
const statementRule = "statement in words"

// state decides by what the clauses of an error's messages state, where the status leaves that to them.
func (v *Verdict) state(f *fault, status int) bool {
	if f.html {
		return false // a proxy's, which says the same whatever the cause
	}
	for i, low := range f.low {
		for at, n := 0, 0; at >= 0 && n < 6; n++ {
			start := at + leading(low[at:])
			if kind, _, ok := states(low[start:]); ok && admits(status, kind) {
				v.Kind = kind
				v.Why = Reason{Rule: statementRule, Field: "message", Value: quote(f.messages[i])}
				return true
			}
			at = nextClause(low, start)
		}
	}
	return false
}
