package provider

import (
	"slices"
	"strings"
)

// hedge reports whether an error is only spoken about behind a word.
func hedge(word string) bool {
	switch word {
	case "if", "when", "whenever", "unless", "how", "why", "should", "might", "may", "can", "handle", "handles", "handled", "handling", "catch", "catches",
		"catching", "except", "implement", "implements", "add", "adds", "added", "support", "fix", "fixes", "fixed", "expect", "expected", "assert",
		"avoid", "avoids", "prevent", "prevents", "mock", "simulate", "treat", "returns", "raises", "throws", "throw", "raise", "class", "import", "e.g",
		"like", "such", "instead", "detect", "detects", "parse", "map", "maps", "case", "isinstance", "instanceof", "new", "typically", "usually",
		"means", "issue", "titled", "closes", "merged", "opened", "skipping", "document", "improve", "reduce", "test", "tests", "docs", "feat",
		"ok", "successfully", "succeeded", "recovered", "fixing",
		"understanding", "troubleshooting", "solving", "resolving", "show", "shows", "showing", "example", "says", "keeps", "getting", "seeing", "report", "reports", "reported", "reporting":
		return true
	}
	return false
}

// hedged reports whether what stands before an error on its line only speaks about it.
func hedged(before string) bool {
	if diagnosis(before) {
		return true
	}
	if i := strings.LastIndexAny(before, ".!;"); i >= 0 && strings.HasPrefix(before[i+1:], " ") {
		before = before[i+1:] // of the sentence before
	}
	found := false
	eachWord(before, func(i, end int) bool {
		w := asciiLower(before[i:end])
		found = hedge(w) && !((w == "may" || w == "might") && startsWithAny(before[end:], " have ", " be temporarily"))
		return !found
	})
	return found || strings.HasSuffix(before, "`") || strings.HasSuffix(strings.TrimSpace(before), "?")
}

// diagnosis reports whether a line's beginning announces what somebody found out: "The root cause:", "Most likely reason:".
// A program's own labels ("cause:", "reason:") have no article.
func diagnosis(before string) bool {
	label, _, ok := strings.Cut(asciiLower(clip(before, 100)), ":")
	words := strings.Fields(strings.Trim(label, "*_#>- "))
	if ok && len(words) == 1 {
		switch words[0] { // of a form that somebody filled in
		case "title", "subject", "todo", "fixme", "steps", "example", "summary", "topic":
			return true
		}
	}
	if !ok || len(words) < 2 || len(words) > 6 {
		return false
	}
	switch strings.Trim(words[len(words)-1], "*_") {
	case "cause", "reason", "problem", "explanation", "diagnosis", "summary", "hypothesis", "conclusion", "theory", "guess", "suspect", "culprit",
		"short", "takeaway", "finding", "answer":
	default:
		return false
	}
	return slices.ContainsFunc(words, func(w string) bool {
		switch w {
		case "the", "root", "my", "our", "likely", "probable", "possible", "main", "actual", "real", "in", "best", "key":
			return true
		}
		return false
	})
}

// narrated reports whether a sentence in lower case tells of a day that is over.
func narrated(sentence string) bool {
	sentence = sentence[:firstLine(sentence)]
	if i := strings.Index(sentence, ". "); i >= 0 {
		sentence = sentence[:i]
	}
	for _, w := range [...]string{"yesterday", "last week", "last month", "last night", "last year", "this morning", "this afternoon", "days ago", "hours ago",
		"weeks ago"} {
		if strings.Contains(sentence, w) {
			return true
		}
	}
	return false
}

// guess reports whether a clause in lower case begins as a supposition that something is wrong, and not as one of why.
func guess(clause string) bool {
	word, rest, _ := strings.Cut(clip(clause, 40), " ")
	switch strings.TrimSuffix(word, ",") {
	case "possibly", "perhaps", "probably", "maybe", "presumably", "apparently":
		return !startsWithAny(rest, "due ", "because ", "caused ")
	}
	return false
}

// foreign reports whether a limit is of something else than a provider's: of recursion, of a tool's steps, of a file.
func foreign(before string) bool {
	found := false
	eachWord(before, func(i, end int) bool {
		found = foreignWord(before[i:end])
		return !found
	})
	return found
}

func foreignWord(w string) bool {
	switch w {
	case "recursion", "iteration", "iterations", "turn", "turns", "depth", "nesting", "file", "files", "line", "lines", "stack", "retry", "retries",
		"disk", "step", "steps", "redirect", "redirects", "upload", "cache", "memory", "heap", "size", "column", "character", "test", "tests",
		"fail", "db", "database", "pool", "thread", "threads", "mcp", "npm", "pip", "git", "docker", "ssh", "thinking", "reasoning", "time",
		"email", "emails", "mail", "mailbox", "smtp", "sms", "sending", "phone", "attempt", "attempts", "password", "factor", "storage", "inode",
		"seat", "seats", "member", "members", "collaborator", "minutes", "speed", "pull", "page", "site", "website", "wiki", "registry", "table",
		"row", "rows", "download", "downloads", "browser", "navigation", "cart", "slack", "twitter", "discord",
		"telegram", "jira", "postgres", "postgresql", "mysql", "redis", "mongodb", "kafka", "ldap", "imap":
		return true
	}
	return false
}
