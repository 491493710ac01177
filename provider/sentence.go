package provider

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// sentenceIn returns where on a line a sentence begins that is an error's by itself, or -1. Sentences are looked for at
// the beginning of the line, behind what introduces it ("Error:", a time, "[API Error:"), and behind a full stop.
func sentenceIn(line string) int {
	low := straight.Replace(line)
	if len(low) != len(line) {
		line = low
	}
	low = strings.ToLower(low)
	if len(low) != len(line) {
		return -1
	}
	known := sentenceIndex()
	for i, n := 0, 0; i >= 0 && n < 40; n++ {
		start := i + leading(low[i:])
		speaks := exceeded(low[start:])
		if n < 8 && !speaks && (i == 0 || low[i-1] != '.' && low[i-1] != ',') {
			_, speaks, _ = states(low[start:])
		}
		for _, p := range known[beginning(low[start:])] {
			speaks = speaks || matches(p, low[start:]) && !(strings.HasPrefix(p, "you") && foreign(clip(low[start:], 50)))
		}
		if speaks && !question(low[start:]) && !hedged(line[:start]) && !diagnosis(low[start:]) && !guess(low[start:]) && !narrated(low[start:]) {
			return start
		}
		i = nextClause(low, start)
	}
	if strings.IndexFunc(low, func(r rune) bool { return r >= 0x2e80 }) >= 0 { // no spaces stand between these words
		for _, p := range known[""] {
			if matches(p, low) {
				return 0
			}
		}
	}
	return -1
}

// beginning returns the first bytes of a sentence: what sentences are looked up by.
func beginning(s string) string { return s[:min(3, len(s))] }

// sentenceIndex returns the sentences by their beginnings; those that may begin anywhere are under "".
var sentenceIndex = sync.OnceValue(func() map[string][]string {
	index := make(map[string][]string)
	for _, p := range sentences {
		key := beginning(p)
		if p[0] == '*' {
			key = ""
		}
		index[key] = append(index[key], p)
	}
	return index
})

// limitNoun and passedVerb report the nouns and verbs of "Weekly limit reached" and "Provider rate limit exceeded".
func limitNoun(word string) bool {
	switch word {
	case "limit", "limits", "quota", "allowance", "credits", "balance", "capacity", "ratelimit":
		return true
	}
	return false
}

func passedVerb(word string) bool {
	switch word {
	case "exceeded", "reached", "hit", "exhausted", "depleted", "expired", "insufficient":
		return true
	}
	return false
}

// exceeded reports whether a clause in lower case begins by saying that a limit was reached: within its first words, and
// with nothing behind it that would make a name of it ("usage limit reached dialog").
func exceeded(s string) bool {
	noun, bare, found, words := false, false, false, 0
	eachWord(clip(s, 100), func(i, end int) bool {
		w := s[i:end]
		switch words++; {
		case noun && passedVerb(w):
			if hedged(s[:i]) || foreign(s[:i]) || strings.Contains(s[:i], "connection") || bare && words == 2 && !strings.Contains(s, "reset") && !strings.Contains(s, "try") {
				return false
			}
			rest := strings.TrimLeft(s[end:], " \"'*")
			found = rest == "" || !isLetter(rest[0]) || startsWithAny(rest, "for ", "on ", "in ", "by ", "please", "try ", "resets", "retry", "with ", "and ", "again")
			return false
		case noun && (w == "is" || w == "has" || w == "been" || w == "was" || w == "have"):
		default:
			noun, bare = limitNoun(w), strings.HasPrefix(w, "limit")
		}
		return words < 7
	})
	return found
}

// question reports whether the sentence that s begins with is one.
func question(s string) bool {
	i := strings.IndexAny(s, ".?!\n")
	return i >= 0 && s[i] == '?'
}

// leading returns how much of s stands before its first letter.
func leading(s string) int {
	for i, r := range s {
		if unicode.IsLetter(r) || r >= '0' && r <= '9' {
			return i
		}
	}
	return len(s)
}

// nextClause returns where the clause after the one at i begins, or -1.
func nextClause(s string, i int) int {
	for ; i < len(s); i++ {
		switch s[i] {
		case ':', '|', '[', '(', ')', '!', ',':
			if s[i] == '(' && i+1 < len(s) && isDigit(s[i+1]) { // a number of what stands before
				if n := strings.IndexByte(clip(s[i:], 60), ')'); n > 0 && i+n+1 < len(s) && s[i+n+1] == ' ' {
					i += n
					continue
				}
			}
			if s[i] == ',' && i+1 < len(s) && isDigit(s[i+1]) {
				continue // thousands
			}
			return i + 1
		case '.', '-', ']':
			if i+1 == len(s) || s[i+1] == ' ' {
				return i + 1
			}
		case '"', '\'', '*':
			// A quotation in the middle of a sentence is spoken about; after a colon it is said.
			if lead := strings.TrimRight(s[:i], " "); lead == "" || strings.IndexByte(":=([{,", lead[len(lead)-1]) >= 0 {
				return i + 1
			}
		case 0xc2: // ·
			if strings.HasPrefix(s[i:], "·") {
				return i + 2
			}
		case 0xe3: // 。
			if strings.HasPrefix(s[i:], "。") {
				return i + utf8.RuneLen('。')
			}
		}
	}
	return -1
}
