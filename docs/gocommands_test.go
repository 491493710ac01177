//go:build full

package docs_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goTest = regexp.MustCompile(`(?m)^(?:\$ )?(?:\w+=\S* )*go (?:test|build|vet|install|run) .*$`)

func TestTheGoCommandsOfTheDocuments(t *testing.T) {
	for _, d := range documents(t) {
		for _, b := range d.blocks {
			if b.lang != "console" && b.lang != "sh" {
				continue
			}
			for _, command := range goTest.FindAllString(strings.ReplaceAll(b.text, "\\\n", " "), -1) {
				if err := tests(path.Dir(d.name), command); err != nil {
					t.Errorf("%s:%d: %s: %v", d.name, b.line, command, err)
				}
			}
		}
	}
}

// tests says what is wrong with a command of go: a package that is not there, or tests by a name that none has.
func tests(dir, command string) error {
	words := strings.Fields(strings.ReplaceAll(command, "'", ""))
	var source strings.Builder
	for _, word := range words {
		name, _, _ := strings.Cut(word, "@")
		name = strings.TrimPrefix(name, "github.com/sluice-llm/sluice")
		if name == word && !strings.HasPrefix(word, ".") {
			continue
		}
		from := root
		if dir != "docs" && name == word { // those of docs are in the root
			from = filepath.Join(root, dir)
		}
		files, err := filepath.Glob(filepath.Join(from, strings.TrimSuffix(name, "..."), "*.go"))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("no package %s", word)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			source.Write(b)
		}
	}
	for i, word := range words[:len(words)-1] {
		pattern := words[i+1]
		if word != "-run" && word != "-bench" || pattern == "^$" || pattern == "." {
			continue
		}
		for alternative := range strings.SplitSeq(pattern, "|") {
			alternative, _, _ = strings.Cut(strings.Trim(alternative, "^$()"), "/")
			if !regexp.MustCompile(`func (Test|Benchmark|Example|Fuzz)\w*` + strings.TrimPrefix(strings.TrimPrefix(alternative, "Test"), "Benchmark")).MatchString(source.String()) {
				return fmt.Errorf("no test is called %s", alternative)
			}
		}
	}
	return nil
}
