package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var ours = regexp.MustCompile(`\b(?:deploy|scripts)/[a-z.-]+`)

func TestBlocksThatNeedAWholeSystemCanBeRead(t *testing.T) {
	n := 0
	for _, d := range documents(t) {
		for _, b := range d.blocks {
			if b.lang != "sh" || !systemwide.MatchString(b.text) {
				continue
			}
			n++
			for _, name := range ours.FindAllString(b.text, -1) {
				if _, err := os.Stat(filepath.Join(root, name)); err != nil {
					t.Errorf("%s:%d: %v", d.name, b.line, err)
				}
			}
			bash, err := exec.LookPath("bash")
			if err != nil {
				continue
			}
			cmd := exec.Command(bash, "-n")
			cmd.Stdin = strings.NewReader(b.text)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s:%d: %v: %s", d.name, b.line, err, out)
			}
		}
	}
	if n < 6 {
		t.Errorf("%d such blocks, want those of install.md", n)
	}
}
