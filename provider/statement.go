package provider

import (
	"strings"

	"github.com/sluice-llm/sluice"
)

// statement is a thing and what is wrong with it, as sentences say it in ever new words: "credentials are missing",
// "invalid token", "the upstream server seems busy". Both stand within a few words of each other.
type statement struct {
	kind   sluice.Kind
	things []string
	states []string
}

// statements are tried in this order, after every rule has failed.
var statements = [...]statement{
	{sluice.ContextLength, []string{"context", "prompt", "input", "conversation", "messages", "tokens"},
		[]string{"too long", "too large", "too big", "limit reached", "limit exceeded", "window exceeded", "overflow", "exceeds", "exceeded maximum",
			"exceed maximum", "exceed context"}},
	{sluice.QuotaExhausted, []string{"balance", "credit", "credits", "funds", "billing", "payment", "spend limit", "spending limit"},
		[]string{"insufficient", "exhausted", "depleted", "too low", "not enough", "no", "out of", "ran out", "run out", "required", "failed", "declined",
			"reached", "exceeded", "expired"}},
	{sluice.ContentFilter, []string{"request", "prompt", "response", "content", "output", "input", "message"},
		[]string{"blocked by", "flagged", "filtered", "moderated", "violates"}},
	{sluice.Auth, []string{"api key", "apikey", "token", "credentials", "credential", "authentication", "authorization", "oauth", "login", "api_key",
		"access key", "authenticated"},
		[]string{"invalid", "invalidated", "expired", "missing", "revoked", "incorrect", "required", "failed", "not found", "not valid", "not set",
			"denied", "rejected", "no", "not configured", "not provided", "not", "wrong"}},
	{sluice.Overloaded, []string{"server", "servers", "model", "engine", "provider", "service", "upstream", "system", "api", "backend", "负载"},
		[]string{"overloaded", "busy", "at capacity", "high demand", "high load", "high traffic", "unavailable", "no capacity", "饱和"}},
	{sluice.RateLimit, []string{"limit", "limits", "quota", "allowance", "ratelimit", "requests", "usage", "messages"},
		[]string{"exceeded", "reached", "hit", "exhausted", "used up", "used all", "too many", "exceeds", "throttled"}},
	{sluice.Timeout, []string{"request", "response", "operation", "connection", "api", "model", "stream", "call", "read", "connect"},
		[]string{"timed out", "timeout", "time out", "took too long", "no response"}},
	{sluice.Network, []string{"connection", "socket", "stream", "host", "network", "tls", "ssl", "certificate", "dns", "proxy", "server", "endpoint", "api",
		"internet"},
		[]string{"closed", "reset", "refused", "lost", "unreachable", "terminated", "aborted", "disconnected", "could not reach", "couldn't reach",
			"cannot reach", "unable to reach", "can't reach", "could not resolve", "failed to resolve", "not resolve", "unable to connect",
			"handshake failed", "connection failed", "failed to connect", "hung up", "dropped", "offline", "interrupted", "not connected"}},
}

// reach is how many words a thing and its state may be apart.
const reach = 5

// states returns what a clause in lower case states within its first words. negated clauses state nothing.
func states(clause string) (sluice.Kind, bool) {
	var words []string
	eachWord(clip(clause, 160), func(i, end int) bool {
		w := clause[i:end]
		if strings.HasSuffix(w, "_api_key") {
			w = "api_key" // of a variable's name
		}
		words = append(words, w)
		return len(words) < 14
	})
	if len(words) == 0 || hedges[words[0]] || imperative(words[0]) || foreign(strings.Join(words, " ")) {
		return 0, false
	}
	for _, s := range statements {
		for i := range words {
			if !anyAt(words, i, s.things) {
				continue
			}
			for j := max(0, i-reach); j < min(len(words), i+reach); j++ {
				if anyAt(words, j, s.states) && !(j+1 < len(words) && subjects[words[j+1]]) && !hedged(strings.Join(words[:max(i, j)], " ")) {
					return s.kind, true
				}
			}
		}
	}
	return 0, false
}

// subjects are words that make a name of the state before them: "rate limit exceeded errors".
var subjects = map[string]bool{"error": true, "errors": true, "handling": true, "issue": true, "issues": true, "case": true, "cases": true, "page": true,
	"dialog": true, "message": true, "messages": true, "events": true, "tests": true, "logic": true, "policy": true, "counter": true, "scenario": true}

// imperative reports whether a word begins the title of a change, or what somebody says of himself.
func imperative(word string) bool {
	switch word {
	case "i", "let", "we", "make", "allow", "set", "use", "update", "remove", "change", "move", "refactor", "bump", "increase", "extend", "raise",
		"respect", "honor", "honour", "show", "log", "print", "enable", "disable", "ensure", "don", "do", "better", "proper", "retry", "wait", "check",
		"stop", "start", "run", "skip", "ignore", "return", "keep", "split", "merge", "rename", "replace", "see", "introduce", "clarify", "tweak", "drop", "limit":
		return true
	}
	return false
}

// anyAt reports whether one of the phrases stands at words[i].
func anyAt(words []string, i int, phrases []string) bool {
	for _, p := range phrases {
		n := 0
		for part := range strings.SplitSeq(p, " ") {
			if i+n >= len(words) || words[i+n] != part {
				n = -1
				break
			}
			n++
		}
		if n > 0 {
			return true
		}
	}
	return false
}

// state decides by what the clauses of an error's messages state.
func (v *Verdict) state(f *fault) {
	for i, low := range f.low {
		for at, n := 0, 0; at >= 0 && n < 4; n++ {
			start := at + leading(low[at:])
			if kind, ok := states(low[start:]); ok {
				v.Kind = kind
				v.Why = Reason{Rule: "statement in words", Field: "message", Value: quote(f.messages[i])}
				return
			}
			at = nextClause(low, start)
		}
	}
}
