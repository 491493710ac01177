// Package examples_test runs what README.md says to run.
package examples_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTheCommandsOfTheReadmeRunWithoutAKey(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash, which README.md writes its commands for")
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "```console\n")
	block, _, closed := strings.Cut(block, "```")
	if !found || !closed {
		t.Fatal("README.md has no commands")
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "sluice"), "./cmd/sluice")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()

	var script strings.Builder
	script.WriteString("set -e\ntrap 'kill %1' EXIT\n")
	for line := range strings.Lines(block) {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			t.Fatalf("line %q is no command", line)
		}
		script.WriteString(strings.NewReplacer("127.0.0.1:8080", address, "/tmp/checkpoints", filepath.Join(dir, "kept")).Replace(command))
		if strings.HasSuffix(command, "&\n") { // a person types more slowly
			script.WriteString("until (exec 3<>/dev/tcp/" + strings.Replace(address, ":", "/", 1) + ") 2>/dev/null; do sleep 0.1; done\n")
		}
	}
	bash := exec.CommandContext(t.Context(), "bash", "-c", script.String())
	bash.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := bash.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// Two answers of each of the three clients, and six sentences or the little more that came at once.
	answers := len(regexp.MustCompile(`(?m)^sim:`).FindAll(out, -1))
	if answers < 12 || answers > 14 {
		t.Errorf("%d answers\n%s", answers, out)
	}
	if !regexp.MustCompile(`(?m)^lead +\d+ `).Match(out) {
		t.Errorf("no table of members\n%s", out)
	}
}
