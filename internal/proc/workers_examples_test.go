//go:build unix

package proc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/suite"
)

func TestTheExampleInPythonAnswers(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("the example in Python was not tried: there is no python3")
	}
	checkExample(t, python, filepath.Join("..", "..", "examples", "workers", "worker.py"))
}

func TestTheExampleInGoAnswers(t *testing.T) {
	suite.FullOnly(t) // it builds a program
	t.Parallel()
	worker := filepath.Join(t.TempDir(), "worker")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", worker, "./workers")
	build.Dir = filepath.Join("..", "..", "examples")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkExample(t, worker)
}

// checkExample has an example answer items, one of which is wrong, and end without being killed.
func checkExample(t *testing.T, args ...string) {
	cfg := proc.WorkersConfig{}
	cfg.Spec.Args, cfg.Spec.Env = args, os.Environ()
	ws := staffOf(t, cfg)
	for row, words := range map[string]string{
		`{"prompt":"Why is the sky blue?"}`: "5", `"ein Satz, mit \u00fc"`: "4", `{"prompt":""}`: "0",
		`"` + strings.Repeat("many words ", 100_000) + `"`: "200000",
	} {
		a, err := ws.Call(t.Context(), proc.Request{ID: "a \"1\"", Attempt: 1, Item: []byte(row)})
		if err != nil || !a.OK || compact(t, a.Result) != `{"words":`+words+`}` {
			t.Errorf("%.40s: %+v, %v", row, a, err)
		}
	}
	a, err := ws.Call(t.Context(), proc.Request{ID: "wrong", Attempt: 1, Item: []byte(`{"prompt":5}`)})
	if err != nil || a.OK || a.Text == "" {
		t.Errorf("%+v, %v", a, err)
	}
	if n := ws.Alive(); n != 1 {
		t.Errorf("%d workers, want 1", n)
	}
	if err := ws.Close(); err != nil {
		t.Error(err)
	}
}
