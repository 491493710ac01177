package docs_test

import (
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// commandsOf are all commands of the documents: as they are shown, and as sessions run them but for addresses.
func commandsOf(all []document) (shown, run []string) {
	for _, d := range all {
		for _, b := range d.blocks {
			list := b.exchanges()
			if b.lang == "sh" {
				list = []exchange{{command: b.text}}
			}
			for _, e := range list {
				shown = append(shown, e.command)
				for _, r := range rewrites {
					e.command = r.from.ReplaceAllString(e.command, r.to)
				}
				run = append(run, e.command)
			}
		}
	}
	return shown, run
}

// stale are the rows of tables that nothing in the documents needs.
func stale(all []document) (rows []string) {
	var text, code strings.Builder
	languages, chapters, names := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, d := range all {
		text.WriteString(d.text)
		names[d.name] = true
		for _, b := range d.blocks {
			languages[b.lang] = true
			if b.lang == "go" {
				code.WriteString(b.text)
			}
			chapters[d.name+"#"+b.heading] = true
		}
	}
	shown, commands := commandsOf(all)
	look := func(table, row string, used bool) {
		if !used {
			rows = append(rows, table+": "+row)
		}
	}
	matches := func(what *regexp.Regexp) bool { return slices.ContainsFunc(commands, what.MatchString) }
	says := func(words string) bool { return strings.Contains(text.String(), words) }

	for _, name := range keys {
		look("keys", name, says(name))
	}
	for _, r := range rewrites {
		look("rewrites", r.from.String(), slices.ContainsFunc(shown, r.from.MatchString))
	}
	for _, q := range quick {
		look("quick", q.what.String(), matches(q.what))
	}
	for at := range anew {
		look("anew", at, chapters[at])
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(parted)), slices.Collect(maps.Keys(lasting))) {
		look("parted, lasting", name, names[name])
	}
	for _, s := range servers {
		look("servers", s.name, matches(s.what))
		look("servers", s.name+", but not", matches(s.not))
	}
	for _, u := range unrun {
		for _, words := range u.begin {
			look("unrun", words, matches(beginning(words)))
		}
	}
	for _, name := range needed {
		look("needed", name, slices.ContainsFunc(commands, func(c string) bool { return needs(c, name) }))
	}
	for _, c := range codes {
		look("codes", c.what.String(), matches(c.what))
	}
	for _, what := range deterministic {
		look("deterministic", what.String(), matches(what))
	}
	for flag := range others {
		look("others", flag, regexp.MustCompile(`--`+flag+`(?:[^a-z0-9-]|$)`).MatchString(text.String()))
	}
	for language := range checkers {
		look("checkers", language, languages[language])
	}
	for _, first := range foreign {
		look("foreign", first, says("\n"+first+":"))
	}
	for name := range given {
		look("given", name, strings.Contains(code.String(), name))
	}
	return rows
}

func TestEveryRowOfTheTablesIsNeeded(t *testing.T) {
	all := documents(t)
	for _, row := range stale(all) {
		t.Errorf("no document needs it: %s", row)
	}
	if len(stale(nil)) < 50 {
		t.Errorf("without any document %d rows are stale", len(stale(nil)))
	}
}

func TestFilesOfDocumentsAreOfOnesThatAreThere(t *testing.T) {
	dirs, err := os.ReadDir(path.Join("testdata", "own"))
	if err != nil {
		t.Fatal(err)
	}
	known := slices.Collect(maps.Values(anew))
	for _, d := range documents(t) {
		known = append(known, own(d.name))
	}
	for _, dir := range dirs {
		if !slices.Contains(known, dir.Name()) {
			t.Errorf("testdata/own/%s is no document's", dir.Name())
		}
	}
}
