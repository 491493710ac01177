package errtext

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// quotationMarks are pairs of a mark and the straight one in its place.
var quotationMarks = []string{"’", "'", "‘", "'", "“", `"`, "”", `"`, "„", `"`, "‟", `"`, "«", `"`, "»", `"`, "「", `"`, "」", `"`, "『", `"`, "』", `"`}

// straight makes all quotation marks alike.
var straight = strings.NewReplacer(slices.Concat(quotationMarks, []string{"`", "'"})...)

// word is a word of a text in lower case. The names of models and hosts, URLs and versions are one word each, so that no part of
// them is taken for a word of a sentence.
type word struct {
	text             string
	at, end          int // in the text
	clause, sentence int
}

// split returns the words of a text. Commas, colons, brackets and quotation marks end a clause; full stops and new lines a
// sentence.
func split(s string) (words []word) {
	clause, sentence := 0, 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if inWord(r) {
			end := wordEnd(s, i)
			words = append(words, word{strings.ToLower(s[i:end]), i, end, clause, sentence})
			i = end
			continue
		}
		switch r {
		case '.', '!', '?', ';', '\n', '。':
			sentence++
			clause++
		case ':', ',', '[', ']', '{', '}', '|', '"', '·', '∙', '—', '–', '…', '(':
			if r != '(' || i+1 == len(s) || !isDigit(s[i+1]) { // a number of what stands before
				clause++
			}
		case '-':
			if strings.HasPrefix(s[i:], "- ") {
				clause++
			}
		}
		i += n
	}
	return words
}

func inWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// wordEnd returns where the word ends that begins at i.
func wordEnd(s string, i int) int {
	for i < len(s) {
		if strings.HasPrefix(s[i:], "://") {
			if n := strings.IndexAny(s[i:], " \n\t\"')>"); n >= 0 {
				return i + n
			}
			return len(s)
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if !inWord(r) {
			next, _ := utf8.DecodeRuneInString(s[i+n:])
			if strings.IndexByte("'-./@$#", s[i]) < 0 || !inWord(next) {
				break
			}
		}
		i += n
	}
	return i
}

// says is a thing and what is said of it within a few words, in either order and in one clause: "limit ~ exceeded". Either side
// may be a phrase of several words, and has alternatives: "limit|usage quota ~ exceed*|used up". The star stands for any letters.
// Without a state the thing alone says it. Behind a ? it is an error only where something else says that there is one.
type says struct {
	things, states [][]string
	quiet          bool
}

// newSays compiles a pattern.
func newSays(pattern string) says {
	pattern, quiet := strings.CutPrefix(pattern, "?")
	things, states, near := strings.Cut(pattern, " ~ ")
	s := says{things: phrases(things), quiet: quiet}
	if near {
		s.states = phrases(states)
	}
	return s
}

func phrases(alternatives string) (all [][]string) {
	for p := range strings.SplitSeq(alternatives, "|") {
		all = append(all, strings.Fields(p))
	}
	return all
}

// reach is how many words a thing and its state may be apart.
const reach = 6

// in returns where a text says it: the places of the first word and of the word behind the last. Where somebody only speaks about
// it, it does not.
func (s *says) in(words []word) (start, end int, ok bool) {
	for i := range words {
		n := longest(s.things, words, i)
		if n == 0 {
			continue
		}
		if s.states == nil {
			if !hedged(words, i, i+n) {
				return i, i + n, true
			}
			continue
		}
		for j := max(0, i-reach); j < min(len(words), i+n+reach); j++ {
			if words[j].clause != words[i].clause || j >= i && j < i+n {
				continue
			}
			if m := longest(s.states, words, j); m > 0 && (j >= i+n || j+m <= i) && !hedged(words, min(i, j), max(i+n, j+m)) {
				return min(i, j), max(i+n, j+m), true
			}
		}
	}
	return 0, 0, false
}

// longest returns how many words the longest of the phrases has that stands at words[i]; 0 if none does.
func longest(phrases [][]string, words []word, i int) (n int) {
	for _, p := range phrases {
		if c := p[0][0]; c != '*' && c != words[i].text[0] {
			continue // most do not
		}
		if len(p) <= n || i+len(p) > len(words) || words[i+len(p)-1].sentence != words[i].sentence {
			continue
		}
		k := 0
		for k < len(p) && like(p[k], words[i+k].text) {
			k++
		}
		if k == len(p) {
			n = k
		}
	}
	return n
}

// like reports whether a word is as a pattern says, in which * stands for any text.
func like(pattern, s string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !strings.HasPrefix(s, first) {
		return false
	}
	s = s[len(first):]
	for star {
		var part string
		if part, rest, star = strings.Cut(rest, "*"); !star {
			return strings.HasSuffix(s, part)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return s == ""
}

func set(words string) map[string]bool {
	all := map[string]bool{}
	for _, w := range strings.Fields(words) {
		all[w] = true
	}
	return all
}

var (
	// hedges are words in front of an error that is only spoken about.
	hedges = set(`if when whenever unless how why should might handle handles handled handling catch catches catching except
		implement implements add adds added support fix fixes fixed expect expected assert avoid avoids prevent prevents mock
		simulate treat returns raises throws throw raise like such instead detect detects parse isinstance instanceof new typically
		usually means issue titled closes closing merged skipping document improve reduce test tests docs feat ok successfully
		succeeded recovered fixing understanding troubleshooting example says getting seeing report reports reported exit exited
		approaching i i'm i've my let update renaming respect set ensure see probably perhaps maybe possibly yesterday whether
		indicates specifies specify defines default defaults option options configure configured considered treated allows`)
	// aims are words in front of a verb that keep it from telling what happened: "must not exceed", "to exceed".
	aims      = set("to not don't doesn't won't never must may can should might could")
	bareVerbs = set("exceed hit reach overload violate")
	// named are words behind an error that make a name of it.
	named = set("error errors handling issue issues case cases page dialog message messages events tests logic policy counter " +
		"scenario")
	// foreign are the things whose limits, sizes and times are none of a provider's.
	foreign = set(`recursion iteration iterations turn turns depth nesting file files line lines stack retries retry disk step
		steps redirect redirects upload cache heap column test tests database pool thread threads mcp email emails attempt attempts
		password storage container containers`)
)

// hedged reports whether words[start:end] are only spoken about, or are about a thing that is no request.
func hedged(words []word, start, end int) bool {
	for j := start - 1; j >= 0 && words[j].sentence == words[start].sentence; j-- {
		if hedges[words[j].text] || j >= start-2 && foreign[words[j].text] && !isDigit(words[j+1].text[0]) {
			return true
		}
	}
	for j := start; j < end; j++ {
		if w := words[j].text; foreign[w] || j > 0 && (bareVerbs[w] && aims[words[j-1].text] || w == "exceeding" && words[j-1].text != "to") {
			return true
		}
	}
	return end < len(words) && words[end].clause == words[end-1].clause && named[words[end].text]
}
