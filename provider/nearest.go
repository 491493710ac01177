package provider

import (
	"slices"
	"strings"
)

// Nearest returns at most three known names that resemble name, most similar first. A known name resembles name if it differs by one or two
// typing errors, or starts with name.
func Nearest(name string, known []string) []string {
	const most = 3
	type near struct {
		name string
		far  int
	}
	var found []near
	want := bare(name)
	if want == "" {
		return nil
	}
	for _, k := range known {
		folded := bare(k)
		far := distance(want, folded)
		begun := len(want) >= 3 && strings.HasPrefix(folded, want)
		if known := func(n near) bool { return n.name == k }; !slices.ContainsFunc(found, known) && k != name && (begun || far <= max(1, len(want)/4) && far < len(want)) {
			found = append(found, near{k, far})
		}
	}
	slices.SortStableFunc(found, func(a, b near) int { return a.far - b.far })
	var names []string
	for _, n := range found[:min(most, len(found))] {
		names = append(names, n.name)
	}
	return names
}

// DidYouMean returns a question for the end of a message, such as " (did you mean openai?)". If names is empty, DidYouMean returns "".
func DidYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " (did you mean " + strings.Join(names, " or ") + "?)"
}

// distance counts the characters to insert, delete, replace, or swap with their neighbour, that make b of a.
func distance(a, b string) int {
	const longest = 64 // a longer text is no name
	if len(a) > longest || len(b) > longest {
		return max(len(a), len(b))
	}
	var before, above, row [longest + 1]int
	for j := range len(b) + 1 {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := above[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(replaced, above[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above = above, row
	}
	return above[len(b)]
}
