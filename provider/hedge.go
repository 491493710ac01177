package provider

import (
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
		"says", "keeps", "getting", "seeing", "report", "reports", "reported", "reporting":
		return true
	}
	return false
}

// hedged reports whether what stands before an error on its line only speaks about it.
func hedged(before string) bool {
	if i := strings.LastIndexAny(before, ".!;"); i >= 0 && strings.HasPrefix(before[i+1:], " ") {
		before = before[i+1:] // of the sentence before
	}
	found := false
	eachWord(before, func(i, end int) bool {
		w := asciiLower(before[i:end])
		found = hedge(w) && !((w == "may" || w == "might") && strings.HasPrefix(before[end:], " have "))
		return !found
	})
	return found || strings.HasSuffix(before, "`") || strings.HasSuffix(strings.TrimSpace(before), "?")
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
		"fail", "db", "database", "pool", "thread", "threads", "mcp", "npm", "pip", "git", "docker", "ssh", "thinking", "reasoning", "time":
		return true
	}
	return false
}
