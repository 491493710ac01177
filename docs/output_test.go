//go:build full

package docs_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// changing is what differs from run to run, and what stands in its place when a document's output is compared with the real one.
// All else has to be the same, but for the width of gaps.
var changing = []struct {
	what *regexp.Regexp
	mark string
}{
	{regexp.MustCompile(`(bound|limited) by [^.]* of the time`), "limited by ‹something›"}, // which the machine's speed has a share in
	{regexp.MustCompile(`([=<>] +\S.*) +(ok|-|missed)( |$)`), "$1 ‹verdict› "},             // of stress, on a machine that is busy
	{regexp.MustCompile(` · (rate-limited (once|[\d,]+ times)|[\d,]+ rate-limited)`), ""},
	{regexp.MustCompile(`throttled +(never|once|twice|[\d,]+ (times|by \w+))`), "throttled ‹n›"},
	{regexp.MustCompile(` - `), " ‹n› "}, // what stress had nothing to measure of
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d| UTC| \S+ \([^)]*\))?`), "‹instant›"},
	{regexp.MustCompile(`\b(in|for|of)? ?[0-9a-f]{12,64}\b`), " ‹hash›"},
	{regexp.MustCompile(`\b\d[\d,.]* ?(ns|µs|ms|s|min|h|d|days?)\b( \d+ (min|s)\b)?`), "‹time›"},
	{regexp.MustCompile(`-?\b\d[\d,.]*[kM]?\b`), "‹n›"},
	{regexp.MustCompile(`\b[a-z]\d{2,}\b`), "‹id›"},
	{regexp.MustCompile(`\s+`), " "},
}

// instants are those that `sluice explain` prints.
var instants = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`)

// ofNow takes the instants out of two texts if the second has one that is no older or younger than a day: then it counts from
// when the command ran.
func ofNow(shown, real string) (string, string) {
	for _, text := range instants.FindAllString(real, -1) {
		if at, err := time.Parse("2006-01-02 15:04:05 MST", text); err == nil && time.Since(at).Abs() < 24*time.Hour {
			return instants.ReplaceAllString(shown, "‹instant›"), instants.ReplaceAllString(real, "‹instant›")
		}
	}
	return shown, real
}

// plain is a line without what changes.
func plain(line string) string {
	for _, c := range changing {
		line = c.what.ReplaceAllString(line, c.mark)
	}
	return strings.TrimSpace(line)
}

// fits reports whether a line of a document, in which … stands for anything, is a real one.
func fits(shown, real string) bool {
	var parts []string
	for part := range strings.SplitSeq(shown, "…") {
		parts = append(parts, regexp.QuoteMeta(part))
	}
	return regexp.MustCompile(`^` + strings.Join(parts, `.*`) + `$`).MatchString(real)
}

// differs says what is wrong with output that a document shows: each of its lines has to be there, in this order, and, unless a
// line of … says that something is left out, each real line has to be shown, but for what Sluice says by the way (progress,
// notes). Several real lines may be alike, as those of progress are. If exact, figures count.
func differs(shown, real string, exact bool) error {
	if exact {
		shown, real = ofNow(shown, real)
	}
	want, got := lines(shown, exact), lines(real, exact)
	left := make([]bool, len(got))
	at := 0
	cut := false
	for i, w := range want {
		if w == "…" {
			cut = true
			continue
		}
		found := false
		for j := at; j < len(got) && !found; j++ {
			if fits(w, got[j]) {
				at, found = j, true
			}
		}
		if !found {
			return fmt.Errorf("it does not print %q", strings.Split(strings.TrimRight(shown, "\n"), "\n")[i])
		}
		for j, g := range got {
			left[j] = left[j] || fits(w, g)
		}
	}
	for j, ok := range left {
		if !ok && !cut && got[j] != "" && !strings.HasPrefix(got[j], "sluice: ") {
			return fmt.Errorf("it prints %q as well", strings.Split(real, "\n")[j])
		}
	}
	return nil
}

func lines(text string, exact bool) []string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range all {
		if line = strings.Join(strings.Fields(line), " "); !exact {
			line = plain(line)
		}
		all[i] = line
	}
	return all
}

func TestOutputIsComparedWithoutWhatChanges(t *testing.T) {
	for _, c := range []struct {
		name, shown, real string
		exact, same       bool
	}{
		{"the same", "done\n", "done\n", true, true},
		{"other figures", "200 of 200 done in 11 s\n", "8 of 9 done in 1 min 09 s\n", false, true},
		{"other figures where they count", "200 done\n", "201 done\n", true, false},
		{"another gap", "rate   5\n", "rate 1,200.5\n", false, true},
		{"another word", "rate 5\n", "pace 5\n", false, false},
		{"a line that is not there", "a\nb\n", "a\n", false, false},
		{"a line that is not shown", "a\n", "a\nb\n", false, false},
		{"a line that is left out", "a\n…\n", "a\nb\n", false, true},
		{"a word that is left out", "spent … in all\n", "spent a lot in all\n", false, true},
		{"another order", "a\nb\n", "b\na\n", false, false},
		{"progress that is shorter", "50 %, left 3 s\n70 %, left 1 s\n", "60 %, left 2 s\n", false, true},
		{"another instant", "at 2026-11-21T22:52:18.071451706Z\n", "at 2026-11-22 10:00:00 UTC\n", false, true},
		{"a sign", "-1 left\n", "17 left\n", false, true},
		{"an id", "longest q096, q100\n", "longest q012, q001\n", false, true},
	} {
		if err := differs(c.shown, c.real, c.exact); (err == nil) != c.same {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
